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
from perc.train.network import ROOM_BYTES
from perc.train.settings import Settings
from perc.types import Trace

State = TypeVar("State")
RESTART = "Delete it to start again, or name another file."


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

    def check_room(self, like: Any) -> None:
        """Finds before training that no file could hold a state of these shapes.

        Raises:
            InputError: if it has too many bytes.
        """
        leaves = jax.tree.leaves(like)
        size = sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)
        if size > ROOM_BYTES:
            raise InputError(
                f"{self.path}: a checkpoint of these networks has {size:,} bytes, at "
                f"most {ROOM_BYTES:,} fit. Give fewer members or narrower hidden "
                "layers, or train without a checkpoint."
            )

    def write(self, state: Any, done: int) -> None:
        """Puts the state after `done` steps in place of the last one."""
        leaves = {
            f"leaf{i:03}": np.asarray(leaf)
            for i, leaf in enumerate(jax.tree.leaves(state))
        }
        data = npz.pack({"of": self.of, "done": done}, leaves)
        write_atomically(self.path, lambda file: file.write_bytes(data))

    def resume(self, like: State, steps: int) -> tuple[State, int] | None:
        """The state in the file and its steps, of `steps`; None if there is no file.

        `like` has the shapes of the state, as `jax.eval_shape` tells them.

        Raises:
            InputError: if the file is damaged, or of other training.
        """
        if not self.path.exists():
            return None
        try:
            data = npz.read_bytes(self.path)
        except InputError as error:
            raise InputError(f"{self.path}: {error}") from None
        try:
            header, leaves = npz.unpack(data)
            found = [npz.to_array(name, leaves[name]) for name in sorted(leaves)]
        except InputError as error:  # whose remedies are for files of policies
            what = str(error).removesuffix(npz.FETCH).removesuffix(npz.GIVE)
            raise InputError(f"{self.path}: {what}{RESTART}") from None
        wanted, tree = jax.tree.flatten(like)
        if header.get("of") != self.of:
            raise InputError(
                f"{self.path}: is a checkpoint of another trace, method, setting or "
                f"version of jax. {RESTART}"
            )
        done = header.get("done")
        if (
            type(done) is not int
            or not 0 <= done <= steps
            or _shapes(found) != _shapes(wanted)
        ):
            raise InputError(f"{self.path}: is not as training left it. {RESTART}")
        return jax.tree.unflatten(tree, map(jax.numpy.asarray, found)), done


def _shapes(leaves: list) -> list:
    return [(leaf.dtype, leaf.shape) for leaf in leaves]
