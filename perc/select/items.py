"""What may be evicted, and what was chosen: the two types of this package.

Axis n: items, which are sessions, blocks or nodes of a prefix tree.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike as Scalar
from numpy.typing import ArrayLike

from perc.errors import FLOAT32_MAX, INT32_MAX, InputError
from perc.types import Array


class Items(NamedTuple):
    """Candidates of one eviction. `items` builds and checks them; this checks nothing.

    With further axes in front of n it is a batch for `jax.vmap`. Rows of different
    length are padded with items that are not evictable.
    """

    size: Array  # i32[n], blocks or another whole unit, above 0 if evictable
    cost: Array  # f32[n], expected loss if evicted, 0 or more, any unit
    evictable: Array  # bool[n], False is never chosen
    last: Array  # i32[n], last use, to break ties: the oldest leaves first
    depth: Array  # i32[n], depth, to break ties: the deepest leaves first


class Choice(NamedTuple):
    """A set to evict, with a proof of how good it is. Nothing is chosen on failure."""

    mask: Array  # bool[n], evict these
    freed: Array  # i32[], their total size
    cost: Array  # f32[], their total cost
    enough: Array  # bool[], False: all evictable items together free less than the need
    bound: Array  # f32[], no set that covers the need costs less; inf if none does
    optimal_for: Array  # i32[], no set that frees this much costs less; 0 = unproved

    @property
    def gap(self) -> jax.Array:
        """f32[], at most this much above the optimum; inf if nothing is enough."""
        over = jnp.maximum(jnp.asarray(self.cost) - self.bound, 0)
        return jnp.where(self.enough, over, jnp.inf)


def items(
    size: ArrayLike,
    cost: ArrayLike,
    *,
    refs: ArrayLike = 0,
    pinned: ArrayLike = False,
    ready: ArrayLike = True,
    requester: ArrayLike | None = None,
    last: ArrayLike = 0,
    depth: ArrayLike = 0,
) -> Items:
    """Checks candidates, and sets aside what must not leave.

    Args:
        size: i32[..., n] in blocks or another whole unit, below 2**31 in sum.
        cost: f32[..., n], expected loss of each, 0 or more.
        refs: running requests that use the item; above 0 it is not evictable.
        pinned: not evictable.
        ready: False while the item is still being written: not evictable.
        requester: i32[...], index of the item for which room is made, which is never
            its own victim.
        last: time of the last use, whole numbers.
        depth: depth in the prefix tree.

    Raises:
        InputError: for a size that is not whole, not above 0 although evictable, or too
            large in sum; a cost that is negative or not finite, alone or in sum; a
            last or depth that no i32 holds; a requester out of range; arrays that hold
            no numbers or do not fit together.

    Example:
        >>> items(size=[4, 2, 3], cost=[7, 1, 1], refs=[0, 1, 0]).evictable.tolist()
        [True, False, True]
    """
    columns = {
        "size": size,
        "cost": cost,
        "refs": refs,
        "pinned": pinned,
        "ready": ready,
        "last": last,
        "depth": depth,
    }
    try:
        columns = {name: np.asarray(column) for name, column in columns.items()}
    except ValueError:
        raise InputError("items: rows of different lengths; pad them.") from None
    try:
        shape = np.broadcast_shapes(*(np.shape(column) for column in columns.values()))
    except ValueError:
        shapes = {name: np.shape(column) for name, column in columns.items()}
        raise InputError(f"items: shapes {shapes}; give each item one value.") from None
    if not shape:
        raise InputError("items: size and cost are single numbers; give lists.")
    laid_out = {k: np.broadcast_to(np.asarray(v), shape) for k, v in columns.items()}
    for name, column in laid_out.items():
        _check_kind(name, column)
    evictable = (laid_out["refs"] == 0) & ~laid_out["pinned"].astype(bool)
    evictable &= laid_out["ready"].astype(bool)
    if requester is not None:
        evictable &= np.arange(shape[-1]) != _requester(requester, shape)
    _check_sizes(laid_out["size"], evictable)
    _check_costs(laid_out["cost"])
    return Items(
        laid_out["size"].astype(np.int32),
        laid_out["cost"].astype(np.float32),
        evictable,
        laid_out["last"].astype(np.int32),
        laid_out["depth"].astype(np.int32),
    )


def shortfall(need: ArrayLike, free: ArrayLike) -> jax.Array:
    """What an eviction must free: the need, less what is free already.

    >>> int(shortfall(need=10, free=7)), int(shortfall(need=10, free=12))
    (3, 0)
    """
    return jnp.maximum(jnp.asarray(need) - jnp.asarray(free), 0)


def whole_need(need: Any, rule: str) -> Any:
    """A need as the rules take it: at most 2**31 - 1, since all sizes sum to no more.

    Raises:
        InputError: for what is no whole number. Under `jit` and `vmap` only its type
            is known.
    """
    if isinstance(need, Tracer):
        if jnp.issubdtype(need.dtype, jnp.integer):
            return need
    elif not np.ndim(need) and np.asarray(need).dtype.kind in "iu":
        return min(int(need), INT32_MAX)
    raise InputError(f"{rule}: need is {need}, must be a whole number.")


def chosen(
    items: Items,
    mask: jax.Array,
    need: Scalar,
    *,
    bound: Scalar,
    optimal: Scalar = False,
    usable: jax.Array | None = None,
) -> Choice:
    """Sums a set up; if all that may leave frees less than the need, nothing does.

    Args:
        items: n candidates.
        mask: bool[n], the set, which covers the need if any does.
        need: i32[].
        bound: no covering set costs less.
        optimal: whether no set that frees as much as this one costs less.
        usable: bool[n], what may leave, where that is not all of `evictable`.
    """
    size = jnp.asarray(items.size)
    available = jnp.where(items.evictable if usable is None else usable, size, 0).sum()
    enough = available >= jnp.asarray(need)
    mask = mask & enough
    freed = jnp.where(mask, size, 0).sum()
    return Choice(
        mask=mask,
        freed=freed,
        cost=jnp.where(mask, items.cost, 0).sum(),
        enough=enough,
        bound=jnp.where(enough, bound, jnp.inf),
        optimal_for=jnp.where(optimal, freed, 0),
    )


def _check_kind(name: str, column: np.ndarray) -> None:
    if column.dtype.kind not in "biuf":
        raise InputError(f"items: {name} must be numbers.")
    if name in ("last", "depth") and column.size:
        whole = column == np.floor(column)  # False for NaN as well
        if not (whole & (np.abs(column) <= INT32_MAX)).all():
            raise InputError(
                f"items: {name} must be whole numbers below 2**31. Count from a start "
                "of your own."
            )


def _requester(requester: ArrayLike, shape: tuple[int, ...]) -> np.ndarray:
    index, n = np.asarray(requester), shape[-1]
    if index.shape not in ((), shape[:-1]):
        raise InputError(
            f"items: requester has shape {index.shape}; give one for each of "
            f"{shape[:-1]} instances."
        )
    if index.dtype.kind not in "iu" or (index < 0).any() or (index >= n).any():
        raise InputError(
            f"items: requester is {requester}, must be the index of one of {n} items."
        )
    return index[..., None]


def _check_sizes(size: np.ndarray, evictable: np.ndarray) -> None:
    wrong = ~(size >= evictable) | (size != np.floor(size))
    if wrong.any():
        raise InputError(
            f"items: size {size[wrong][0]}, must be whole and above 0. Leave out what "
            "frees nothing."
        )
    if (size.astype(np.float64).sum(axis=-1) >= 2**31).any():
        raise InputError(
            "items: the sizes sum to 2**31 or more. Count in blocks or a larger unit."
        )


def _check_costs(cost: np.ndarray) -> None:
    wrong = ~((cost >= 0) & (cost <= FLOAT32_MAX))
    if wrong.any():
        raise InputError(
            f"items: cost {cost[wrong][0]}, must be 0 or more and finite. Pin what "
            "must not leave."
        )
    if (cost.astype(np.float64).sum(axis=-1) > 0.999 * FLOAT32_MAX).any():
        raise InputError("items: the costs sum to 3.4e38 or more. Use a larger unit.")
