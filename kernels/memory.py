"""What an interpreted kernel touches: bounds, races and bytes moved."""

from typing import Any

import ml_dtypes
import numpy as np

NOBODY = -1
TRITON_NAMES = {
    np.dtype(np.float32): "fp32",
    np.dtype(np.float16): "fp16",
    np.dtype(ml_dtypes.bfloat16): "bf16",
    np.dtype(ml_dtypes.float8_e4m3fn): "fp8e4nv",
    np.dtype(np.int8): "i8",
    np.dtype(np.uint8): "u8",
    np.dtype(np.int16): "i16",
    np.dtype(np.uint16): "u16",
    np.dtype(np.int32): "i32",
    np.dtype(np.uint32): "u32",
    np.dtype(bool): "i1",
}


class HostTensor:
    """A numpy array with the few methods of a torch tensor that the interpreter calls.

    The kernel works on the array itself: moving it to the host is no copy.
    """

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.dtype = TRITON_NAMES[array.dtype]

    def data_ptr(self) -> int:
        """Address of the first byte."""
        return self.array.ctypes.data

    def untyped_storage(self) -> "HostTensor":
        """Itself: it has no other storage."""
        return self

    def cpu(self) -> "HostTensor":
        """Itself: it is on the host."""
        return self

    def new_empty(self, *_: Any, **__: Any) -> "HostTensor":
        """Another handle of the same array."""
        return HostTensor(self.array)

    def set_(self, storage: "HostTensor", *_: Any) -> None:
        """Takes the array of another."""
        self.array = storage.array

    def copy_(self, _: "HostTensor") -> None:
        """Results are in place already."""

    def storage_offset(self) -> int:
        """0: the array begins its storage."""
        return 0

    def size(self) -> tuple[int, ...]:
        """The shape."""
        return self.array.shape

    def stride(self) -> tuple[int, ...]:
        """Bytes from one element to the next, by axis."""
        return self.array.strides


class Memory:
    """The buffers of one launch; every access is checked against them.

    Attributes:
        bytes_read, bytes_written: by unmasked lanes, over all programs.
    """

    def __init__(self, tensors: list[HostTensor]) -> None:
        self.bytes_read = self.bytes_written = 0
        self._buffers = [t.array for t in tensors]
        self._readers = [np.full(b.nbytes, NOBODY) for b in self._buffers]
        self._writers = [np.full(b.nbytes, NOBODY) for b in self._buffers]

    def read(self, ptrs: Any, mask: Any, size: int, program: tuple) -> None:
        """Notes a load of `size` bytes a lane by a program.

        Raises:
            AssertionError: if a lane is outside all buffers or another program writes
                what it reads.
        """
        me = _number(program)
        for index, at in self._touched(ptrs, mask, size, program):
            self.bytes_read += at.size
            others = (self._writers[index][at] != NOBODY) & (
                self._writers[index][at] != me
            )
            self._refuse(others, index, at, program, "reads what another wrote")
            seen = self._readers[index][at]
            # -2: read by several, so that nobody may write it any more
            mixed = np.where((seen == NOBODY) | (seen == me), me, -2)
            self._readers[index][at] = mixed

    def write(self, ptrs: Any, mask: Any, size: int, program: tuple) -> None:
        """Notes a store.

        Raises:
            AssertionError: if a lane is outside all buffers or another program reads
                or writes the same byte.
        """
        me = _number(program)
        for index, at in self._touched(ptrs, mask, size, program):
            self.bytes_written += at.size
            for seen, what in ((self._writers, "wrote"), (self._readers, "read")):
                others = (seen[index][at] != NOBODY) & (seen[index][at] != me)
                self._refuse(others, index, at, program, f"writes what another {what}")
            self._writers[index][at] = me

    def _touched(
        self, ptrs: Any, mask: Any, size: int, program: tuple
    ) -> list[tuple[int, np.ndarray]]:
        """Bytes of each buffer that the unmasked lanes cover."""
        ptrs, mask = np.broadcast_arrays(ptrs, mask)
        lanes = ptrs[mask.astype(bool)].astype(np.int64)
        found = []
        left = np.ones(lanes.shape, bool)
        for index, buffer in enumerate(self._buffers):
            start = lanes - buffer.ctypes.data
            inside = (start >= 0) & (start + size <= buffer.nbytes)
            if inside.any():
                at = start[inside][:, None] + np.arange(size)
                found.append((index, at.ravel()))
                left &= ~inside
        if left.any():
            raise AssertionError(self._stray(int(lanes[left][0]), program))
        return found

    def _stray(self, lane: int, program: tuple) -> str:
        near = min(
            range(len(self._buffers)),
            key=lambda i: abs(lane - self._buffers[i].ctypes.data),
        )
        byte = lane - self._buffers[near].ctypes.data
        size = self._buffers[near].nbytes
        return f"program {program}: byte {byte} of buffer {near}, which has {size}"

    def _refuse(
        self, wrong: np.ndarray, index: int, at: np.ndarray, program: tuple, what: str
    ) -> None:
        if wrong.any():
            byte = int(at[wrong][0])
            raise AssertionError(f"program {program} {what}: byte {byte} of {index}")


def _number(program: tuple) -> int:
    x, y, z = program
    return (x * 4096 + y) * 4096 + z
