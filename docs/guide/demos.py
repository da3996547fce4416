"""The 25 teaching scripts, each a demo that runs alone and prints JSON.

    python docs/guide/demos.py                 # all of them, a line each
    python docs/guide/demos.py 9 22 --seed 1   # these, with another seed
    python docs/guide/demos.py 4 --lines       # the three lines of script 4

What stands for hardware that is not here says "simulated". The same seed prints the
same line, but for script 10, which takes times.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from perc.advice import Needs, advise
from perc.attention import decoder, heavy, multihead, paged, sinks, speculative
from perc.block_memory import fragmentation
from perc.hardware import accelerator, link
from perc.kernels import staging
from perc.kernels.formats import Format
from perc.kernels.quantised import dequantise, quantise
from perc.kv_memory import concurrency, kv_request_bytes, kv_token_bytes
from perc.lab.scenario import Scenario, play
from perc.model_shapes import model
from perc.page_tables import append, empty_tables, fork
from perc.paging import census
from perc.policies.lru import lru
from perc.prefix import RadixTree
from perc.prefix_traces import trace_of_tokens
from perc.responses.cache import Settings
from perc.responses.judge import by_threshold
from perc.responses.queries import ngrams, query
from perc.roofline import roofline
from perc.serving.metrics import spread
from perc.serving.settings import Server
from perc.serving.simulate import simulate

Facts = dict[str, Any]
MODELS = (
    "llama-2-7b",
    "llama-2-13b",
    "llama-3-8b",
    "llama-3-70b",
    "mistral-7b",
    "qwen2.5-1.5b",
)


class LayerKVCache:
    """Keys of one layer in one piece: head after head, token after token."""

    def __init__(self, heads: int, max_tokens: int, head_size: int):
        self.heads, self.max_tokens, self.head_size = heads, max_tokens, head_size
        self.tokens = 0

    def store(self, tokens: int) -> None:
        """Raises ValueError where they do not fit."""
        if self.tokens + tokens > self.max_tokens:
            raise ValueError(
                f"{self.tokens} + {tokens} tokens, room for {self.max_tokens}"
            )
        self.tokens += tokens

    def offset(self, head: int, token: int) -> int:
        """Elements before the key of a token."""
        if not (0 <= head < self.heads and 0 <= token < self.max_tokens):
            raise ValueError(f"head {head}, token {token}: there is none")
        return (head * self.max_tokens + token) * self.head_size


class Registrations:
    """Buffers that a network card may read; a model, no card is asked."""

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}
        self.last = 0

    def register(self, size: int) -> int:
        """A key for `size` bytes."""
        if size < 1:
            raise ValueError(f"a buffer of {size} bytes")
        self.last += 1
        self.sizes[self.last] = size
        return self.last

    def deregister(self, key: int) -> None:
        """Raises KeyError for a key that is not, or no longer, registered."""
        del self.sizes[key]

    def read_s(self, key: int, start: int, size: int) -> float:
        """Seconds of a transfer, by the link's model."""
        if not (0 <= start and 0 < size and start + size <= self.sizes[key]):
            raise ValueError(f"bytes {start} to {start + size} of {self.sizes[key]}")
        return float(link("rdma-400g").time_s(size))


def causal_attention(seed: int) -> Facts:
    q, k, v = _qkv(seed, 12, 4, 4, 16)
    cache = multihead.empty_cache(12, kv_heads=4, head_size=16)
    error, sizes = 0.0, []
    full = multihead.causal(q, k, v)
    for at in range(12):
        cache, _ = multihead.append(cache, k[at : at + 1], v[at : at + 1])
        out = multihead.decode(cache, q[at : at + 1])
        error = max(error, float(jnp.abs(out[0] - full[at]).max()))
        sizes.append(int(cache.length))
    changed = multihead.causal(q, k.at[11].add(9.0), v)[:11]
    moved = float(jnp.abs(changed - full[:11]).max())
    return {"max_abs_error": error, "sizes": sizes, "future_changes": moved}


def qk_scores(seed: int) -> Facts:
    rng = np.random.default_rng(seed)
    query, keys = rng.standard_normal(64), rng.standard_normal((1000, 64))
    q, k = jnp.asarray(query[None, None]), jnp.asarray(keys[:, None])
    found = np.asarray(multihead.scores(q, k)).reshape(-1)
    wanted = keys @ query / 8
    worst = np.abs(found - wanted).max() / np.abs(wanted).max()
    return {"keys": 1000, "relative_error": float(worst)}


def decode_benchmark(seed: int) -> Facts:
    small = decoder.random_model(jax.random.key(seed))
    prompt = jnp.arange(8) + seed % 100
    once = decoder.write_cached(small, prompt, new=8).tolist()
    anew = decoder.write_recomputed(small, prompt, new=8).tolist()
    work = [decoder.token_forwards(128, 128, cached=cached) for cached in (False, True)]
    return {"identical": once == anew, "work": work, "ratio": work[0] / work[1]}


def kv_cache_layout(seed: int) -> Facts:
    cache = LayerKVCache(heads=8, max_tokens=64, head_size=128)
    cache.store(10)
    offsets = {cache.offset(h, t) for h in range(8) for t in range(64)}
    return {"tokens": cache.tokens, "injective": len(offsets) == 8 * 64}


def kv_memory_calculator(seed: int) -> Facts:
    rows = {}
    for name in MODELS:
        shape = model(name)
        free = max(80e9 * 0.9 - 2 * shape.parameters, 0)
        rows[name] = {
            "bytes_per_token": kv_token_bytes(shape),
            "fp8": kv_token_bytes(shape, "fp8"),
            "sequences_of_4096": int(concurrency(free, kv_request_bytes(shape, 4096))),
        }
    return rows


def fp8_kv_read(seed: int) -> Facts:
    codes = jnp.arange(256, dtype=jnp.uint8)
    values = jax.lax.bitcast_convert_type(codes, jnp.float8_e4m3fn)
    values = np.asarray(values.astype(jnp.float32))
    numbers = values[np.isfinite(values)]
    x = jnp.asarray(np.random.default_rng(seed).uniform(1, 400, (1, 16, 1, 64)))
    x = x.astype(jnp.float32)
    form = Format("fp8")
    back = dequantise(quantise(x, form), form, (16, 1, 64), jnp.float32)
    return {
        "largest": float(numbers.max()),
        "least": float(numbers[numbers > 0].min()),
        "nan_codes": np.flatnonzero(np.isnan(values)).tolist(),
        "relative_error": float(jnp.abs(back / x - 1).max()),
    }


def grouped_query_attention(seed: int) -> Facts:
    q, k, v = _qkv(seed, 10, 8, 2, 16)
    shared = multihead.causal(q, k, v)
    repeated = multihead.causal(q, jnp.repeat(k, 4, axis=1), jnp.repeat(v, 4, axis=1))
    error = float(jnp.abs(shared - repeated).max())
    return {"max_abs_error": error, "memory_ratio": q.shape[1] / k.shape[1]}


def sliding_window_cache(seed: int) -> Facts:
    _, k, v = _qkv(seed, 20, 2, 2, 8)
    cache = sinks.empty_sinks(2, 4, kv_heads=2, head_size=8)
    for key, value in zip(k, v, strict=True):
        cache = sinks.append_sinks(cache, key, value, sinks=2)
    places = sinks.places(cache, sinks=2)
    return {"kept": sorted(cache.position.tolist()), "places": sorted(places.tolist())}


def fragmentation_sim(seed: int) -> Facts:
    lengths = np.random.default_rng(seed).lognormal(5, 0.8, 10_000).astype(int)
    lengths = lengths.clip(1, 2048)
    found = fragmentation(lengths, max_tokens=2048, block_tokens=16)
    return {"mean_tokens": float(lengths.mean()), **found._asdict()}


def hbm_bandwidth(seed: int) -> Facts:
    a, b = (jax.random.normal(k, (2**22,)) for k in jax.random.split(_key(seed)))
    found: Facts = {"device": jax.devices()[0].platform, "MiB": a.nbytes / 2**20}
    for name, moved, run in (
        ("copy", 2, jax.jit(lambda a, b: a + 0)),
        ("triad", 3, jax.jit(lambda a, b: a + 3 * b)),
    ):
        out = run(a, b).block_until_ready()
        begin = time.perf_counter()
        for _ in range(5):
            out = run(a, b).block_until_ready()
        took = (time.perf_counter() - begin) / 5
        found[f"{name}_gb_per_s"] = moved * a.nbytes / took / 1e9
        wanted = np.asarray(a) + (3 * np.asarray(b) if moved == 3 else 0)
        found[f"{name}_verified"] = bool(np.allclose(out, wanted, rtol=1e-6, atol=1e-5))
    return found


def paged_allocator(seed: int) -> Facts:
    cache = empty_tables(16, sequences=2, blocks_per_sequence=8)
    cache, _ = append(cache, 0, 10, block_tokens=4)
    cache, _ = fork(cache, 0, 1)
    shared = int((cache.table[0] == cache.table[1]).sum())
    before = int(census(cache.pool).used)
    cache, _ = append(cache, 1, 1, block_tokens=4)
    counts = census(cache.pool)
    return {
        "shared_entries": shared,
        "copied": int(counts.used) - before,
        "free_used_pinned": [int(n) for n in counts[:3]],
    }


def batching_sim(seed: int) -> Facts:
    lengths = [10, 100, 20, 80, 15, 60, 30, 90]
    trace = trace_of_tokens(
        [[at] for at in range(8)],
        block_tokens=1,
        arrival_s=[0.0] * 8,
        output_tokens=lengths,
    )
    cost = roofline(model("llama-3.1-8b"), accelerator("h100"))
    found: Facts = {"hardware": "simulated", "bound": -(-sum(lengths) // 4)}
    continuous = Server(5000, max_running=4)
    static = replace(continuous, batching="static")
    for name, server in (("static", static), ("continuous", continuous)):
        steps = simulate(trace, lru(), server, cost).totals["steps"]
        found |= {name: steps, f"{name}_busy": round(sum(lengths) / (4 * steps), 3)}
    return found


def paged_attention_gather(seed: int) -> Facts:
    q, k, v = _qkv(seed, 11, 4, 2, 8)
    table = jnp.asarray(np.random.default_rng(seed).permutation(6)[:3])
    data = paged.write(paged.empty_blocks(6, 4, 2, 8), table, 0, k, v)
    found = paged.attend_paged(data, q[-1:], table[None], jnp.array([11]))
    error = float(jnp.abs(found[0] - multihead.causal(q, k, v)[-1]).max())
    return {"table": table.tolist(), "max_abs_error": error}


def radix_prefix_cache(seed: int) -> Facts:
    rng = np.random.default_rng(seed)
    tree = RadixTree(capacity_tokens=40)
    for _ in range(30):
        tree.serve(rng.integers(0, 2, rng.integers(4, 12)).tolist())
    return {"hit_ratio": tree.tally.hit_ratio, "prefixes": len(tree.prefixes())}


def kv_quantize(seed: int) -> Facts:
    return quantisation_errors(np.random.default_rng(seed))


def quantisation_errors(rng: np.random.Generator) -> Facts:
    """Root mean square error over deviation; one channel stands out."""
    x = rng.standard_normal((1024, 128)).astype(np.float32)
    x[:, 7] *= 20
    found = {}
    for kind in ("int8", "int4"):
        for name, page, form in (
            ("tensor", (1, 1, x.size), Format(kind)),
            ("token", (1024, 1, 128), Format(kind)),
            ("channel", (1024, 1, 128), Format(kind, "channel")),
        ):
            stored = quantise(jnp.asarray(x.reshape(1, *page)), form)
            back = np.asarray(dequantise(stored, form, page, jnp.float32))
            error = np.sqrt(np.mean((back.reshape(x.shape) - x) ** 2)) / x.std()
            found[f"{kind}_{name}"] = round(float(error), 5)
    return found


def pack_nibbles(values: np.ndarray) -> np.ndarray:
    """Whole numbers i8[n] from -8 to 7 as u8[(n + 1) // 2], the first in the low half.

    An odd one out is padded with 0. The kernels refuse odd lengths instead: every head
    size is even.
    """
    if values.min(initial=0) < -8 or values.max(initial=0) > 7:
        raise ValueError("a nibble holds -8 to 7")
    low, high = (
        np.append(values, np.zeros(len(values) % 2, np.int8)).reshape(-1, 2).T & 15
    )
    return (low | high << 4).astype(np.uint8)


def unpack_nibbles(packed: np.ndarray, n: int) -> np.ndarray:
    """The first n whole numbers i8[n] of what `pack_nibbles` made."""
    halves = np.stack([packed & 15, packed >> 4], 1).reshape(-1)[:n].astype(np.int8)
    return np.where(halves > 7, halves - 16, halves).astype(np.int8)


def int4_kv_pack(seed: int) -> Facts:
    whole = np.random.default_rng(seed).integers(-7, 8, (1, 4, 1, 32))
    whole[..., 0] = 7  # so that the scale is 1
    form = Format("int4")
    stored = quantise(jnp.asarray(whole, jnp.float32), form)
    back = dequantise(stored, form, (4, 1, 32), jnp.float32)
    return {
        "numbers": whole.size,
        "bytes": int(stored.codes.size),
        "round_trip": bool((np.asarray(back).reshape(whole.shape) == whole).all()),
        "odd": unpack_nibbles(pack_nibbles(np.array([-8, 7, -1])), 3).tolist(),
    }


def kv_eviction(seed: int) -> Facts:
    q, k, v = _qkv(seed, 64, 2, 2, 16)
    wanted = jax.random.normal(_key(seed + 1), (16,))
    wanted *= 4 / jnp.linalg.norm(wanted)
    q, k = q + wanted, k.at[jnp.array([3, 17])].add(2 * wanted)  # what all look for
    kept = {}
    for name, recent in (("h2o", 4), ("window", 16)):
        run = heavy.run_heavy(q, k, v, budget=16, recent=recent)
        kept[name] = float(heavy.mass_kept(q, k, run.kept).mean())
    return {"budget": 16, **kept}


def tiered_kv_cache(seed: int) -> Facts:
    passes, _ = play(Scenario(cpu=56_000))
    copy_s = float(link("pcie5").time_s(5_011 * 28_672))
    stalls = {f"{lead * 1e3:g} ms": max(0.0, copy_s - lead) for lead in (0.0, 0.001, 1)}
    found = {name: [one.count(name) for one in passes] for name in ("gpu", "cpu")}
    return {"hardware": "simulated", **found, "stall_s_by_lead": stalls}


def kv_prefetch(seed: int) -> Facts:
    pool = jax.random.normal(_key(seed), (8, 16, 2, 8))
    table = jnp.array([5, 1, 6, 2])
    moved = np.asarray(staging.evict(pool, table, chunk=2).rows()).ravel()
    return {
        "equal": moved.tolist() == np.asarray(pool[table]).ravel().tolist(),
        "device": jax.devices()[0].platform,
        **_overlap(seed),
    }


def _overlap(seed: int) -> Facts:
    """Seconds of a copy on the host, of a step on the device, and of both at once."""
    pages = np.random.default_rng(seed).random(2**22, np.float32)
    host = np.empty_like(pages)
    step = jax.jit(lambda x: jax.lax.fori_loop(0, 2000, lambda _, y: jnp.cos(y), x))
    start = step(jnp.ones(4096)).block_until_ready()

    def copy():
        for _ in range(8):
            np.copyto(host, pages)

    def both():
        out = step(start)  # is under way
        copy()
        return out.block_until_ready()

    copy_s, compute_s = (
        _least_s(copy),
        _least_s(lambda: step(start).block_until_ready()),
    )
    return {
        "copied": bool((host == pages).all()),
        "copy_s": copy_s,
        "compute_s": compute_s,
        "overlapped_s": _least_s(both),
    }


def _least_s(run: Callable[[], Any], times: int = 3) -> float:
    took = []
    for _ in range(times):
        begin = time.perf_counter()
        run()
        took.append(time.perf_counter() - begin)
    return min(took)


def kv_transport_cost(seed: int) -> Facts:
    ways = ("pcie5", "nvlink4", "rdma-400g", "ethernet-100g")
    return {
        name: {
            f"{mib} MiB, ms": round(
                1e3 * float(link(name).time_s(mib * 2**20, efficiency=1.0)), 3
            )
            for mib in (512, 2048)
        }
        for name in ways
    }


def kv_rdma_transfer(seed: int) -> Facts:
    table = Registrations()
    key = table.register(2**30)
    took, refused = table.read_s(key, 0, 2**30), 0
    for start, size in ((2**30, 1), (-1, 1), (0, 0)):
        try:
            table.read_s(key, start, size)
        except ValueError:
            refused += 1
    table.deregister(key)
    return {
        "hardware": "simulated",
        "seconds": took,
        "refused": refused,
        "left": len(table.sizes),
    }


def speculative_decode(seed: int) -> Facts:
    found = {}
    for a in (0.5, 0.8):
        drawn = speculative.simulate_passes(_key(seed), a, drafted=4, passes=100_000)
        expected = speculative.expected_tokens(a, 4)
        found[f"a={a}"] = {"expected": round(expected, 4), "drawn": float(drawn.mean())}
    return found


def app_cache(seed: int) -> Facts:
    log = [
        ("how do i reset my password", "reset"),
        ("How do I reset my password?", "reset"),
        ("how do i delete my password", "delete"),
        ("how do i reset my password", "reset"),
    ]
    questions = [query(text, embed=ngrams) for text, _ in log]
    labels = [label for _, label in log]
    found = by_threshold(Settings(capacity=10), questions, labels, [0.5, 1.0])
    return {
        f"cosine >= {one.threshold}": {
            "hits": one.hit_ratio,
            "false_hits": one.false_hit_ratio,
        }
        for one in found
    }


def serving_benchmark(seed: int) -> Facts:
    tokens = np.array([0.10, 0.14, 0.18, 0.25])
    found = spread(np.array([*range(1, 10), 100.0]))
    return {
        "ttft_s": float(tokens[0]),
        "tpot_s": round(float(tokens[-1] - tokens[0]) / 3, 12),
        "itl_s": np.diff(tokens).round(12).tolist(),
        "p50_p95_p99": [found.p50, found.p95, found.p99],
    }


def engine_selector(seed: int) -> Facts:
    asked = {
        "laptop without an accelerator": Needs(vendor="none"),
        "least latency, NVIDIA": Needs(least_latency=True),
        "heavy shared prefixes": Needs(shared=0.6),
        "disaggregated on two machines": Needs(nodes=2, disaggregated=True),
        "anything else": Needs(),
    }
    return {name: advise(needs).title for name, needs in asked.items()}


DEMOS: tuple[Callable[[int], Facts], ...] = (
    *(causal_attention, qk_scores, decode_benchmark, kv_cache_layout),
    *(kv_memory_calculator, fp8_kv_read, grouped_query_attention),
    *(sliding_window_cache, fragmentation_sim, hbm_bandwidth, paged_allocator),
    *(batching_sim, paged_attention_gather, radix_prefix_cache, kv_quantize),
    *(int4_kv_pack, kv_eviction, tiered_kv_cache, kv_prefetch, kv_transport_cost),
    *(kv_rdma_transfer, speculative_decode, app_cache, serving_benchmark),
    engine_selector,
)


def run(number: int, seed: int) -> Facts:
    """One demo, with its number, name and seed."""
    demo = DEMOS[number - 1]
    return {"script": number, "name": demo.__name__, "seed": seed, **demo(seed)}


def layout_lines() -> list[str]:
    """What script 4 printed."""
    cache = LayerKVCache(heads=8, max_tokens=64, head_size=128)
    cache.store(10)
    return [
        "LayerKVCache created successfully.",
        f"Stored tokens: {cache.tokens}",
        f"Head 0 key offset for token 0: {cache.offset(0, 0)}",
    ]


def _key(seed: int) -> jax.Array:
    return jax.random.key(seed)


def _qkv(seed: int, tokens: int, heads: int, kv_heads: int, size: int):
    keys = jax.random.split(_key(seed), 3)
    shapes = [(tokens, n, size) for n in (heads, kv_heads, kv_heads)]
    return [jax.random.normal(k, s) for k, s in zip(keys, shapes, strict=True)]


def _seed(text: str) -> int:
    if not 0 <= (seed := int(text)) < 2**32:
        raise argparse.ArgumentTypeError(f"{text} is not from 0 to {2**32 - 1}")
    return seed


def _script(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= len(DEMOS):
        raise argparse.ArgumentTypeError(
            f"{text} is no script; give numbers from 1 to {len(DEMOS)}"
        )
    return int(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scripts", nargs="*", type=_script)
    parser.add_argument("--seed", type=_seed, default=0)
    parser.add_argument("--lines", action="store_true", help="of script 4")
    given = parser.parse_args()
    if given.lines:
        print("\n".join(layout_lines()))
        return
    for number in given.scripts or range(1, len(DEMOS) + 1):
        print(json.dumps(run(number, given.seed), allow_nan=False))


if __name__ == "__main__":
    main()
