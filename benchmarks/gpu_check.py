"""Are the kernels right on this GPU, and how fast beside XLA and beside a plain copy?

    python benchmarks/gpu_check.py --out kernels.json      # two to four minutes
    TRITON_INTERPRET=1 python benchmarks/gpu_check.py --dry    # no GPU: tiny, untimed

Needs JAX, jax-triton and this checkout, nothing else of perc: for a GPU machine without
network, put jax-triton's wheel on PYTHONPATH. Results first: kernels must equal the
references on the CPU bit for bit (scores: up to 2e-2). Then times, medians of five
batches of queued calls, with pages in random order and more of them than caches hold;
shares are of a plain copy in the same run, for the bytes that must move. Exits with 1
if a result was wrong. Nothing about the card is changed.
"""

import argparse
import functools
import importlib.metadata
import json
import math
import statistics
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

ROOT = Path(__file__).resolve().parents[1]
for name, folder in (("perc", "perc"), ("perc.kernels", "kernels")):
    # perc itself asks for more than a GPU image has; its kernels do not.
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [str(ROOT / folder)]

from perc.kernels import pages, staging  # noqa: E402
from perc.kernels.evict import evict, restore  # noqa: E402
from perc.kernels.formats import FORMATS, layout  # noqa: E402
from perc.kernels.scores import scores  # noqa: E402
from perc.kernels.victims import victims  # noqa: E402

DTYPES = ("bfloat16", "float16", "float32")


class Size(NamedTuple):
    """How much is moved: of everything a power of two."""

    pool: int  # pages
    moved: int  # pages
    page: tuple[int, int, int]
    checked: tuple[tuple[str, tuple[int, int, int]], ...]  # dtype and page
    sequences: int  # whose scores are made, over all moved pages
    slots: int  # that victims are chosen from
    batches: int
    calls: int  # of a batch


HOPPER = (16, 8, 128)  # 2 GiB of pages, 1 GiB moved, far beyond 60 MB of cache
CHECKED = (*((dtype, HOPPER) for dtype in DTYPES), ("bfloat16", (16, 2, 80)))
REAL = Size(65536, 32768, HOPPER, CHECKED, 32, 1 << 20, 5, 20)
DRY = Size(8, 4, (8, 2, 64), (("bfloat16", (8, 2, 64)),), 2, 1000, 1, 1)


Function = Callable[..., Any]


class Check:
    """What was checked so far, printed as it goes."""

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self.cpu = jax.devices("cpu")[0]
        self.device = jax.devices()[0]
        self.results: list[dict[str, Any]] = []

    def equal(
        self, name: str, function: Function, arrays: tuple, tolerance: float = 0.0
    ) -> None:
        """Runs on this device by the kernels, on the CPU by jnp, and compares."""
        try:
            made = []
            for where, backend in ((self.device, self.backend), (self.cpu, "jnp")):
                with jax.default_device(where):
                    call = jax.jit(functools.partial(function, backend=backend))
                    made.append(np.asarray(call(*jax.device_put(arrays, where))))
            why = difference(made[0], made[1], tolerance)
        except Exception as error:  # the other kernels are to be checked still
            why = f"{type(error).__name__}: {error}"[:300]
        self.results.append({"name": name, "ok": not why, "why": why})
        print(f"{'ok  ' if not why else 'BAD '} {name} {why}", flush=True)


def difference(found: np.ndarray, wanted: np.ndarray, tolerance: float) -> str:
    """What is wrong with a result, "" if nothing is."""
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return f"{found.dtype}{found.shape}, must be {wanted.dtype}{wanted.shape}"
    if tolerance:
        wrong = ~np.isclose(found, wanted, rtol=0, atol=tolerance)
    else:
        wrong = np.frombuffer(found.tobytes(), np.uint8) != np.frombuffer(
            wanted.tobytes(), np.uint8
        )
    return f"{wrong.sum()} of {wrong.size} differ" if wrong.any() else ""


def pool_of(count: int, page: tuple[int, ...], dtype: str) -> np.ndarray:
    """Random pages; channels far from zero, and one head of zeros."""
    values = np.random.default_rng(0).normal(size=(count, *page)).astype(np.float32)
    values[..., ::7] += 20
    values[-1, :, 0] = 0
    return values.astype(jnp.dtype(dtype))


def check_results(check: Check, size: Size) -> None:
    """Every kernel, format and dtype against its reference."""
    source = np.array([2, -1, 7, 0, 99], np.int32)
    target = np.array([5, 1, 6, -1, 3], np.int32)
    for dtype, page in size.checked:
        pool, where = pool_of(8, page, dtype), f"{dtype} {page}"
        check.equal(f"gather {where}", pages.gather, (pool, source))
        check.equal(f"scatter {where}", pages.scatter, (pool, target, pool[:5]))
        check.equal(f"copy {where}", pages.copy, (pool, target[:2], target[2:4]))
        query = pool_of(2, (4 * page[1], page[2]), dtype) / page[2]
        query = query.astype(pool.dtype)
        tables = np.array([[3, 0, -1], [7, 1, 2]], np.int32)
        given = (tables, np.array([page[0] + 3, 3 * page[0]], np.int32))
        check.equal(f"scores {where}", scores, (query, pool, *given), 2e-2)
        for name, form in FORMATS.items():
            with jax.default_device(check.cpu):
                keys = evict(jnp.asarray(pool), jnp.arange(8), form, backend="jnp")
            keys = np.asarray(keys)
            out = functools.partial(evict, form=form)
            back = functools.partial(restore, form=form)
            check.equal(f"evict {name} {where}", out, (pool, source))
            check.equal(f"restore {name} {where}", back, (pool, target, keys[:5]))
            read = functools.partial(scores, form=form, page=page)
            check.equal(f"scores {name} {where}", read, (query, keys, *given), 2e-2)
    features = np.random.default_rng(1).integers(-9, 9, (4, 3000)).astype(np.float32)
    features[0, 17] = np.nan
    given = (features, np.array([1, -0.3, 0.7, 2], np.float32), features[1] > 7)
    check.equal("victims", functools.partial(victims, k=64), given)


def seconds(step: Function, state: Any, size: Size) -> tuple[float, Any]:
    """Median time of `state = step(state)`, and the last state."""
    state = jax.block_until_ready(step(state))
    taken = []
    for _ in range(size.batches):
        began = time.perf_counter()
        for _ in range(size.calls):
            state = step(state)
        jax.block_until_ready(state)
        taken.append((time.perf_counter() - began) / size.calls)
    return statistics.median(taken), state


class Timed(NamedTuple):
    """Something to be timed by the kernels and by XLA."""

    name: str
    function: Function  # of arrays and `backend`
    arrays: tuple
    nbytes: int  # in and out, at the least
    in_place: bool = False  # the first array becomes the result


def operations(size: Size) -> list[Timed]:
    """What is timed, over one pool in random order."""
    rng = np.random.default_rng(2)
    order = rng.permutation(size.pool).astype(np.int32)
    table, other = jnp.asarray(order[: size.moved]), jnp.asarray(order[-size.moved :])
    key = jax.random.key(0)
    pool = jax.random.normal(key, (size.pool, *size.page), jnp.bfloat16)
    moved = size.moved * pool[0].nbytes
    fetched = jax.jit(pages.gather_reference)(pool, table)
    found = [
        Timed("gather", pages.gather, (pool, table), 2 * moved),
        Timed("scatter", pages.scatter, (pool, table, fetched), 2 * moved, True),
        Timed("copy", pages.copy, (pool, table, other), 2 * moved, True),
    ]
    heads = 4 * size.page[1]
    query = jax.random.normal(key, (size.sequences, heads, size.page[2]), jnp.bfloat16)
    tables = jnp.asarray(rng.permutation(size.moved).astype(np.int32))
    tables = tables.reshape(size.sequences, -1)
    lengths = jnp.full(size.sequences, tables.shape[1] * size.page[0], jnp.int32)
    made = heads * size.page[0] * size.moved * 4
    read = (query, fetched, tables, lengths)
    found.append(Timed("scores", scores, read, moved + made))
    for name, form in FORMATS.items():
        rows = size.moved * layout(form, size.page).row_bytes
        out = functools.partial(evict, form=form)
        back = functools.partial(restore, form=form)
        stored = jax.jit(functools.partial(out, backend="jnp"))(pool, table)
        found += [
            Timed(f"evict {name}", out, (pool, table), moved + rows),
            Timed(f"restore {name}", back, (pool, table, stored), moved + rows, True),
            Timed(
                f"scores {name}",
                functools.partial(scores, form=form, page=size.page),
                (query, stored, tables, lengths),
                rows + made,
            ),
        ]
    features = jax.random.normal(key, (8, size.slots))
    given = (features, jnp.ones(8), jnp.zeros(size.slots, bool))
    choose = functools.partial(victims, k=64)
    return [*found, Timed("victims", choose, given, features.nbytes + size.slots)]


def time_of(one: Timed, backend: str, size: Size) -> float:
    """Seconds of a call."""
    call = functools.partial(one.function, backend=backend)
    if not one.in_place:
        jitted = jax.jit(call)
        return seconds(lambda _: jitted(*one.arrays), None, size)[0]
    jitted = jax.jit(call, donate_argnums=0)
    start, rest = jnp.copy(one.arrays[0]), one.arrays[1:]
    return seconds(lambda pool: jitted(pool, *rest), start, size)[0]


def time_all(backend: Any, size: Size) -> list[dict[str, Any]]:
    """Times of every operation, the plain copy first."""
    nbytes = size.moved * math.prod(size.page) * 2
    plain = jnp.ones(nbytes // 2, jnp.bfloat16)
    copied = jax.jit(jnp.copy)
    at_best = seconds(lambda _: copied(plain), None, size)[0]
    speed = 2 * nbytes / at_best
    found: list[dict[str, Any]] = [
        {"name": "plain copy", "bytes": 2 * nbytes, "seconds": at_best}
    ]
    print("| operation | us | GB/s | of a plain copy | XLA us | times XLA's speed |")
    print("|---|---|---|---|---|---|")
    print(f"| plain copy | {at_best * 1e6:.0f} | {speed / 1e9:.0f} | 100 % | | |")
    for one in operations(size):
        row: dict[str, Any] = {"name": one.name, "bytes": one.nbytes}
        try:
            mine = row["seconds"] = time_of(one, backend, size)
            xla = row["xla_seconds"] = time_of(one, "jnp", size)
            row["of_a_copy"] = one.nbytes / mine / speed
            print(
                f"| {one.name} | {mine * 1e6:.0f} | {one.nbytes / mine / 1e9:.0f} | "
                f"{100 * row['of_a_copy']:.0f} % | {xla * 1e6:.0f} | {xla / mine:.2f} |"
            )
        except Exception as error:  # times of the others are worth having
            row["error"] = f"{type(error).__name__}: {error}"[:300]
            print(f"| {one.name} | {row['error']} |")
        sys.stdout.flush()
        found.append(row)
    tiny = jnp.ones((8, *size.page), jnp.bfloat16)
    call = jax.jit(functools.partial(pages.gather, backend=backend))
    least = seconds(lambda _: call(tiny, jnp.arange(1)), None, size)[0]
    print(f"| one page, which is the launch | {least * 1e6:.0f} | | | | |\n")
    return [*found, {"name": "launch", "seconds": least}]


def time_staging(backend: Any, size: Size) -> list[dict[str, Any]]:
    """Speed of the link to host memory: bytes that cross it, and bytes of pages."""
    pool = jnp.ones((size.pool, *size.page), jnp.bfloat16)
    order = np.random.default_rng(3).permutation(size.pool)[: size.moved]
    table = jnp.asarray(order.astype(np.int32))
    payload = size.moved * pool[0].nbytes
    found = []
    print("| staged as | out, GB/s on the link | of pages | back, GB/s on the link | "
          "of pages |\n|---|---|---|---|---|")  # fmt: skip
    for name in (None, "int8_token", "int4_token"):
        form = FORMATS[name] if name else None
        held = staging.evict(pool, table, form, backend=backend)  # compiles
        pool = staging.restore(pool, table, held, backend=backend)
        jax.block_until_ready(pool)
        wire, memory = held.nbytes, held.chunks[0].sharding.memory_kind
        out, back = [], []
        for _ in range(size.batches):
            began = time.perf_counter()
            held = staging.evict(pool, table, form, backend=backend)
            jax.block_until_ready(held.chunks)
            out.append(time.perf_counter() - began)
            began = time.perf_counter()
            pool = staging.restore(pool, table, held, backend=backend)
            jax.block_until_ready(pool)
            back.append(time.perf_counter() - began)
        took = statistics.median(out), statistics.median(back)
        row = {"name": name, "memory": memory, "out_s": took[0], "back_s": took[1]}
        found.append(row | {"wire_bytes": wire, "payload_bytes": payload})
        cells = [f"{n / t / 1e9:.1f}" for t in took for n in (wire, payload)]
        print(f"| {name or 'bfloat16'} | {' | '.join(cells)} |", flush=True)
    return found


def conditions(dry: bool) -> dict[str, Any]:
    """The device and the versions that the numbers belong to."""
    versions = {"python": sys.version.split()[0]}
    for name in ("jax", "jaxlib", "triton", "jax-triton", "numpy"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "none"
    return {
        "device": jax.devices()[0].device_kind,
        "dry": dry,
        "versions": versions,
    }


def main() -> None:
    """Checks, times, writes; exits with 1 if a result was wrong."""
    parser = argparse.ArgumentParser(description="Checks perc's kernels on a GPU.")
    parser.add_argument("--dry", action="store_true", help="tiny, in the interpreter")
    parser.add_argument("--out", type=Path, help="a JSON file for all of it")
    given = parser.parse_args()
    if not given.dry and jax.default_backend() != "gpu":
        parser.error("JAX sees no GPU here; --dry runs the same in the interpreter")
    size, backend = (DRY, "interpret") if given.dry else (REAL, "triton")
    report = conditions(given.dry)
    print(json.dumps(report))
    check = Check(backend)
    check_results(check, size)
    report["checks"] = check.results
    bad = sum(not result["ok"] for result in check.results)
    print(f"{len(check.results) - bad} of {len(check.results)} results are right\n")
    report["times"] = time_all(backend, size)
    report["staging"] = time_staging(backend, size)
    if given.out:
        given.out.write_text(json.dumps(report, indent=1) + "\n")
    failed = [row["name"] for row in report["times"] if "error" in row]
    sys.exit(1 if bad or failed else 0)


if __name__ == "__main__":
    main()
