"""Training that was interrupted goes on where it stopped, to the same policy."""

import hashlib
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np

from perc import npz
from perc.errors import InputError
from perc.files import write_atomically
from perc.traces.hashing import hash_of
from perc.train.settings import Settings
from perc.types import Trace

State = TypeVar("State")


@dataclass(frozen=True)
class Checkpoint:
    """A file that training is written to as it goes."""

    path: Path
    of: str  # what is trained, as a digest

    @staticmethod
    def open(
        path: str | Path | None, trace: Trace, method: str, settings: Settings
    ) -> "Checkpoint | None":
        """None if there is no path."""
        if path is None:
            return None
        versions = [version(name) for name in ("perc-kv", "jax", "optax")]
        whole = repr((hash_of(trace), method, settings, versions))
        return Checkpoint(Path(path), hashlib.sha256(whole.encode()).hexdigest())

    def write(self, state: Any, done: int) -> None:
        """Puts the state after `done` steps in place of the last one."""
        leaves = {
            f"leaf{i:03}": np.asarray(leaf)
            for i, leaf in enumerate(jax.tree.leaves(state))
        }
        try:
            data = npz.pack({"of": self.of, "done": done}, leaves)
        except InputError as error:
            raise InputError(f"{self.path}: {error}") from None
        write_atomically(self.path, lambda file: file.write_bytes(data))

    def resume(self, state: State, steps: int) -> tuple[State, int]:
        """The state in the file and its steps, of `steps`; else the given one and 0.

        Raises:
            InputError: if the file is damaged, or of other training.
        """
        if not self.path.exists():
            return state, 0
        try:
            header, leaves = npz.unpack(npz.read_bytes(self.path))
            found = [npz.to_array(name, leaves[name]) for name in sorted(leaves)]
        except InputError as error:
            raise InputError(f"{self.path}: {error}") from None
        like, shape = jax.tree.flatten(state)
        if header.get("of") != self.of:
            raise InputError(
                f"{self.path}: is a checkpoint of another trace, method, setting or "
                "version of jax. Delete it, or name another file."
            )
        done = header.get("done")
        if (
            type(done) is not int
            or not 0 <= done <= steps
            or _shapes(found) != _shapes(like)
        ):
            raise InputError(
                f"{self.path}: is not as training left it. Delete it to start again."
            )
        return jax.tree.unflatten(shape, map(jax.numpy.asarray, found)), done


def _shapes(leaves: list) -> list:
    return [(leaf.dtype, leaf.shape) for leaf in leaves]
