"""Are the kernels right here? Each against its reference on the CPU, bit for bit."""

import functools
from typing import Any

import gpu_common
import jax
import jax.numpy as jnp
import numpy as np

from perc.kernels import pages
from perc.kernels.evict import evict, restore
from perc.kernels.formats import FORMATS
from perc.kernels.scores import scores
from perc.kernels.victims import victims


class Check:
    """What was checked so far, printed as it goes."""

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self.cpu = jax.devices("cpu")[0]
        self.device = jax.devices()[0]
        self.results: list[dict[str, Any]] = []

    def equal(
        self,
        name: str,
        function: gpu_common.Function,
        arrays: tuple,
        tolerance: float = 0.0,
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


def check_results(check: Check, size: gpu_common.Size) -> None:
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
