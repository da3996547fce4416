"""How fast are the kernels beside XLA's programs and beside a plain copy?"""

import functools
import math
import sys
from typing import Any, NamedTuple

import gpu_common
import jax
import jax.numpy as jnp
import numpy as np

from perc.kernels import pages
from perc.kernels.evict import evict, restore
from perc.kernels.formats import FORMATS, layout
from perc.kernels.scores import scores
from perc.kernels.victims import victims


class Timed(NamedTuple):
    """Something to be timed by the kernels and by XLA."""

    name: str
    function: gpu_common.Function  # of arrays and `backend`
    arrays: tuple
    nbytes: int  # in and out, at the least
    in_place: bool = False  # the first array becomes the result


def operations(size: gpu_common.Size) -> list[Timed]:
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


def time_of(one: Timed, backend: str, size: gpu_common.Size) -> float:
    """Seconds of a call."""
    call = functools.partial(one.function, backend=backend)
    if not one.in_place:
        jitted = jax.jit(call)
        return gpu_common.seconds(lambda _: jitted(*one.arrays), None, size)[0]
    jitted = jax.jit(call, donate_argnums=0)
    start, rest = jnp.copy(one.arrays[0]), one.arrays[1:]
    return gpu_common.seconds(lambda pool: jitted(pool, *rest), start, size)[0]


def time_all(backend: Any, size: gpu_common.Size) -> list[dict[str, Any]]:
    """Times of every operation, the plain copy first."""
    nbytes = size.moved * math.prod(size.page) * 2
    plain = jnp.ones(nbytes // 2, jnp.bfloat16)
    copied = jax.jit(jnp.copy)
    at_best = gpu_common.seconds(lambda _: copied(plain), None, size)[0]
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
    least = gpu_common.seconds(lambda _: call(tiny, jnp.arange(1)), None, size)[0]
    print(f"| one page, which is the launch | {least * 1e6:.0f} | | | | |\n")
    return [*found, {"name": "launch", "seconds": least}]
