"""Names of blocks as vLLM computes them: each hash covers everything before it.

    root     = H(seed)
    hash[0]  = H((root, tokens of block 0, extra keys or None))
    hash[i]  = H((hash[i-1], tokens of block i, extra keys or None))

H serialises by canonical CBOR or by pickle and hashes with SHA-256 or XXH3-128. So the
block ids that a recorded prompt gets here are those that a server with the same seed
publishes and shares. Full blocks only: a partial one is never cached.

References:
    vLLM 0.32, `v1/core/kv_cache_utils.py` (`hash_block_tokens`, `init_none_hash`,
    `generate_block_hash_extra_keys`) and `utils/hashing.py`; RFC 8949, section 4.2.
"""

import hashlib
import importlib
import pickle
import struct
import sys
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

from perc.errors import InputError

DEFAULT_SEED = "vllm-none-hash"  # of SHA-256, where PYTHONHASHSEED is not set
ALGORITHMS = ("sha256", "sha256_cbor", "xxhash", "xxhash_cbor")
MASK_64 = (1 << 64) - 1


class BlockHasher:
    """Hashes of the full blocks of prompts.

    Args:
        algorithm: vLLM's `--prefix-caching-hash-algo`, one of `ALGORITHMS`.
        block_tokens: tokens of a block.
        seed: the server's PYTHONHASHSEED; None where it has none. XXH3 then draws one
            a process, which nobody else can know, so it must be given.

    Raises:
        InputError: for another algorithm, a missing seed or a missing package.

    Example:
        >>> hasher = BlockHasher("sha256_cbor", block_tokens=2, seed="0")
        >>> first, second = hasher([1, 2, 3, 4, 5])
        >>> first.hex()[:16], as_int(second) == int(second.hex()[-16:], 16)
        ('a4d2c1b4e93a03eb', True)
        >>> hasher([1, 2, 9, 9])[0] == first
        True
    """

    def __init__(
        self,
        algorithm: str = "sha256",
        *,
        block_tokens: int = 16,
        seed: str | None = None,
    ):
        if algorithm not in ALGORITHMS:
            raise InputError(
                f"no hash is called {algorithm!r}. There are: {', '.join(ALGORITHMS)}."
            )
        if block_tokens < 1:
            raise InputError(f"a block of {block_tokens} tokens; give 1 or more.")
        if seed is None and algorithm.startswith("xxhash"):
            raise InputError(
                f"{algorithm}: without PYTHONHASHSEED every server draws a seed of its "
                "own; set it there and give it here."
            )
        self.block_tokens = block_tokens
        self._write = cbor if algorithm.endswith("_cbor") else _pickled
        self._digest = _sha256 if algorithm.startswith("sha256") else _xxh3()
        self.root = self._hash(DEFAULT_SEED if seed is None else seed)

    def __call__(
        self,
        tokens: Sequence[int],
        *,
        cache_salt: str | None = None,
        lora: tuple[str, str] | None = None,
        extra: Sequence[Sequence[tuple]] = (),
    ) -> list[bytes]:
        """Hashes of a prompt's full blocks, root first.

        Args:
            tokens: ids of the prompt.
            cache_salt: keeps tenants apart; enters the first block.
            lora: name and path of the adapter; enters every block.
            extra: keys of each block, such as ("mm", hash of the image, its offset in
                the block); they stand between the adapter's and the salt's. Equal
                keys give equal hashes, whether objects are shared or not.
        """
        parent, found = self.root, []
        step = self.block_tokens
        every: list[Sequence] = [("lora", *lora)] if lora else []
        for at, start in enumerate(range(0, len(tokens) - step + 1, step)):
            keys = every + (list(extra[at]) if at < len(extra) else [])
            if cache_salt and not at:
                keys.append(("cache_salt", cache_salt))
            run = tuple(int(token) for token in tokens[start : start + step])
            parent = self._hash((parent, run, _owned(keys) or None))
            found.append(parent)
        return found

    def _hash(self, value: Any) -> bytes:
        return self._digest(self._write(value))


def _owned(keys: Sequence[Sequence]) -> tuple[tuple, ...]:
    """The same keys of objects as a server has them.

    Pickle writes an object that it met before as a reference, so equal keys of shared
    and of separate objects would differ. In vLLM the word that says what a key is, such
    as "mm", is one object, and all else came in a message of its own.
    """
    return tuple((sys.intern(str(kind)), *map(_copied, rest)) for kind, *rest in keys)


def _copied(value: Any) -> Any:
    """An equal value of a plain type that nothing else refers to."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass").decode("utf-8", "surrogatepass")
    if isinstance(value, bytes):
        return bytes(bytearray(value))
    if isinstance(value, tuple | list):
        return tuple(map(_copied, value))
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    return value


def as_int(block_hash: bytes) -> int:
    """The number by which vLLM's KV events name a block: the last 64 bits."""
    return int.from_bytes(block_hash, "big") & MASK_64


def cbor(value: Any) -> bytes:
    """Canonical CBOR of what block keys consist of.

    That is: None, whole numbers of up to 64 bits, str, bytes, tuples and lists.

    Raises:
        TypeError: for anything else.
        OverflowError: for a number beyond 64 bits.

    Example:
        >>> cbor((1, "a", None)).hex()
        '83016161f6'
    """
    if value is None:
        return b"\xf6"
    if isinstance(value, bool):
        return b"\xf5" if value else b"\xf4"
    if isinstance(value, int):
        return _head(1, -1 - value) if value < 0 else _head(0, value)
    if isinstance(value, bytes):
        return _head(2, len(value)) + value
    if isinstance(value, str):
        text = value.encode()
        return _head(3, len(text)) + text
    if isinstance(value, tuple | list):
        return _head(4, len(value)) + b"".join(map(cbor, value))
    raise TypeError(f"a block key holds {type(value).__name__}; give plain values")


def _head(major: int, n: int) -> bytes:
    """Type and length or value, in the fewest bytes."""
    if n < 24:
        return bytes([major << 5 | n])
    for extra, (limit, form) in enumerate(
        ((1 << 8, ">B"), (1 << 16, ">H"), (1 << 32, ">I"), (1 << 64, ">Q"))
    ):
        if n < limit:
            return bytes([major << 5 | 24 + extra]) + struct.pack(form, n)
    raise OverflowError(f"{n} needs more than 64 bits")


def _pickled(value: Any) -> bytes:
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _xxh3() -> Callable[[bytes], bytes]:
    try:
        return importlib.import_module("xxhash").xxh3_128_digest
    except ImportError:
        raise InputError(
            "xxhash and xxhash_cbor need a package: pip install xxhash"
        ) from None
