"""How much faster is decoding with the cache than without it, and how that grows.

A small decoder (4 layers, width 256, 8 query and 2 key-value heads) writes G tokens
after a prompt of P, greedily, both ways in this process, and must write the same. Work
counts passes of a token through the model, as `perc.attention.decoder` does. Without a
cache the text is padded to a multiple of 64, so that few programs are compiled: the
work that is really done is up to 64 tokens a step more, and is printed beside.

    python benchmarks/decode.py [--repeats 3]

Seeds are fixed; the best of the repeats is printed, compilation apart.
"""

import argparse
import platform
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from perc.attention.decoder import (
    Model,
    next_recomputed,
    random_model,
    token_forwards,
    write_cached,
)

CASES = ((32, 32), (64, 64), (128, 128))  # P, G
STEP = 64


def padded(length: int) -> int:
    """The length at which a text goes through the model without a cache."""
    return -(-length // STEP) * STEP


def recomputed(model: Model, prompt: np.ndarray, new: int) -> list[int]:
    """Writes without a cache: the whole text again for every token."""
    start, end = len(prompt), len(prompt) + new
    text = np.zeros(padded(end), np.int32)
    text[:start] = prompt
    for i in range(start, end):
        text[i] = next_recomputed(model, text[: padded(i)], np.int32(i))
    return text[start:end].tolist()


def cached(model: Model, prompt: np.ndarray, new: int) -> list[int]:
    """Writes with the cache: one program."""
    return write_cached(model, jnp.asarray(prompt), new=new).tolist()


def best_of(repeats: int, write: Callable[[], list[int]]) -> tuple[list[int], float]:
    """What was written, and the shortest time in seconds after a first run."""
    written, times = write(), []
    for _ in range(repeats):
        start = time.perf_counter()
        again = write()
        times.append(time.perf_counter() - start)
        assert again == written, "two runs differ"
    return written, min(times)


def main() -> None:
    """Prints one line a case."""
    parser = argparse.ArgumentParser(description="Decoding with and without a cache.")
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    model = random_model(
        jax.random.key(0), vocabulary=512, layers=4, heads=8, kv_heads=2, head_size=32
    )
    device = jax.devices()[0].device_kind
    print(f"jax {jax.__version__}, {device}, Python {platform.python_version()}")
    print("prompt  new   work without  (done)   with  ratio   ms without   with  ratio")
    for size, new in CASES:
        prompt = np.random.default_rng(size).integers(0, 512, size)
        fast, with_s = best_of(repeats, lambda p=prompt, n=new: cached(model, p, n))
        slow, without_s = best_of(
            repeats, lambda p=prompt, n=new: recomputed(model, p, n)
        )
        assert fast == slow, "with and without the cache the tokens differ"
        full = token_forwards(size, new, cached=False)
        kept = token_forwards(size, new, cached=True)
        done = sum(padded(size + i) for i in range(new))
        print(
            f"{size:6} {new:4} {full:14,} {done:8,} {kept:6,} {full / kept:6.1f}"
            f" {without_s * 1e3:12,.0f} {with_s * 1e3:6,.0f} {without_s / with_s:6.1f}"
        )


if __name__ == "__main__":
    main()
