"""Which slots of a cache leave first: scores and the k lowest in one pass.

    score[c] = sum over f of clip(weights[f] * features[f, c], -LARGEST, LARGEST)

added in the order of f. The clip keeps sums finite, and keeps compilers from
contracting a product and a sum into one rounding, so that every backend orders slots
alike to the last bit.
"""

import jax
import jax.numpy as jnp
from jax import lax

from perc.kernels.evict import power_of_two
from perc.kernels.launch import Backend, Buffer, Launch, chosen, run

LARGEST = 2.0**96
TILE = 1024  # slots that one program sorts; also the most victims of one call
NEVER = 2**31 - 1  # sorts last: pinned slots


def victims(
    features: jax.Array,
    weights: jax.Array,
    pinned: jax.Array,
    k: int,
    *,
    backend: Backend = "auto",
) -> jax.Array:
    """The k slots of lowest score that are not pinned, lowest first.

    Ties go to the lower slot. A slot whose score is NaN leaves first: nobody can say
    what it is worth.

    Args:
        features: f32[F, C], one row a feature, one column a slot.
        weights: f32[F].
        pinned: bool[C], slots that must stay.
        k: number of victims, 1 to 1,024.
        backend: `auto`, `jnp`, `triton` or `interpret`.

    Returns:
        i32[k]; -1 where fewer than k slots are free to leave.

    Raises:
        ValueError: if shapes do not fit or k is out of range.

    Example:
        >>> ages = jnp.array([[3.0, 1.0, 2.0, 1.0]])
        >>> pinned = jnp.array([False, True, False, False])
        >>> victims(ages, jnp.ones(1), pinned, 2, backend="jnp").tolist()
        [3, 2]
    """
    features, weights = features.astype(jnp.float32), weights.astype(jnp.float32)
    _check(features, weights, pinned, k)
    if chosen(backend) == "jnp":
        return victims_reference(features, weights, pinned, k)
    plan = victims_launch(features, weights, pinned.astype(jnp.int8), k)
    keys, slots = run(plan, chosen(backend))
    return _lowest(keys.ravel(), slots.ravel(), k)


def victims_reference(
    features: jax.Array, weights: jax.Array, pinned: jax.Array, k: int
) -> jax.Array:
    """What `victims` means, in jnp."""
    score = jnp.zeros(features.shape[1], jnp.float32)
    for f in range(len(weights)):
        score += jnp.clip(weights[f] * features[f], -LARGEST, LARGEST)
    keys = jnp.where(pinned, NEVER, _ordered(score))
    return _lowest(keys, jnp.arange(len(keys), dtype=jnp.int32), k)


def victims_launch(features: Buffer, weights: Buffer, pinned: Buffer, k: int) -> Launch:
    """The launch of the first step of `victims`: the k lowest of each tile of slots."""
    rows, slots = features.shape
    tiles = -(-slots // TILE)
    kept = power_of_two(k)
    out = jax.ShapeDtypeStruct((tiles, kept), jnp.int32)
    constants = {
        "FEATURES": rows,
        "SLOTS": slots,
        "KEPT": kept,
        "TILE": TILE,
        "LARGEST": LARGEST,
    }
    inputs = (features, weights, pinned)
    return Launch(
        "victims_triton", "lowest", inputs, (), (out, out), (tiles,), constants
    )


def _ordered(score: jax.Array) -> jax.Array:
    """Integers in the order of the scores: -0 equals 0, NaN is lowest."""
    bits = lax.bitcast_convert_type(score, jnp.int32)
    bits = jnp.where(score == 0, 0, bits)
    keys = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return jnp.where(score != score, -NEVER, keys)


def _lowest(keys: jax.Array, slots: jax.Array, k: int) -> jax.Array:
    """The slots of the k lowest pairs (key, slot)."""
    keys, slots = lax.sort((keys, slots), num_keys=2)
    short = max(0, k - len(keys))
    found = jnp.where(keys == NEVER, -1, slots)[:k]
    return jnp.pad(found, (0, short), constant_values=-1)


def _check(features: jax.Array, weights: jax.Array, pinned: jax.Array, k: int) -> None:
    if features.ndim != 2 or weights.shape != features.shape[:1]:
        raise ValueError(
            f"victims: features are {features.shape}, weights {weights.shape}; must be "
            "[features, slots] and [features]."
        )
    if pinned.shape != features.shape[1:]:
        raise ValueError(
            f"victims: pinned is {pinned.shape}, must be {features.shape[1:]}."
        )
    if not 1 <= k <= TILE:
        raise ValueError(f"victims: k is {k}, must be from 1 to {TILE}.")
