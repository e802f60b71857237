"""Queue of a card: the stream on which everything runs in order, and errors in its terms."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy.typing as npt

from mxrun.base.errors import Diagnostic, InternalError, UserError
from mxrun.device.cuda import library

Array = npt.NDArray[Any]

# Value of cudaError_t for memory that cannot be allocated.
_OUT_OF_MEMORY = 2
# Kinds of cudaMemcpyAsync.
_TO_DEVICE, _TO_HOST = 1, 2


class Queue:
    """Stream of card `index`: each method starts its work, and `wait` waits for all of it.

    Host memory of `copy_in` and `copy_out` must be pinned, and unchanged until then.
    """

    def __init__(self, index: int) -> None:
        self.cupy = library.load()
        self.index = index
        self._card = self.cupy.device.Device(index)
        self.use()
        # Work on the null stream, such as a library's own, does not wait for it.
        self.stream = self.cupy.stream.Stream(non_blocking=True)

    def use(self) -> None:
        """Make the card that of the calling thread: CUDA has one for each."""
        self._card.use()

    def copy_in(self, address: int, source: int, nbytes: int) -> None:
        """Copy pinned host memory at `source` to the card."""
        self._copy(target=address, source=source, nbytes=nbytes, kind=_TO_DEVICE)

    def copy_out(self, target: int, address: int, nbytes: int) -> None:
        """Copy memory of the card to pinned host memory at `target`."""
        self._copy(target=target, source=address, nbytes=nbytes, kind=_TO_HOST)

    def _copy(self, target: int, source: int, nbytes: int, kind: int) -> None:
        if nbytes:
            with self.named("a copy"):
                self.cupy.runtime.memcpyAsync(target, source, nbytes, kind, self.stream.ptr)

    def write(self, address: int, array: Array) -> None:
        """Copy a row-major array of any memory to the card, and wait."""
        own = array.ctypes.data
        self._copy(target=address, source=own, nbytes=array.nbytes, kind=_TO_DEVICE)
        self.wait()

    def read(self, address: int, array: Array) -> None:
        """Copy memory of the card to a row-major array of any memory, and wait."""
        own = array.ctypes.data
        self._copy(target=own, source=address, nbytes=array.nbytes, kind=_TO_HOST)
        self.wait()

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        """Set bytes of the card's memory."""
        if nbytes:
            with self.named("filling memory"):
                self.cupy.runtime.memsetAsync(address, byte, nbytes, self.stream.ptr)

    def wait(self, work: str = "earlier work") -> None:
        """Wait for everything that was started; `work` names it in errors."""
        with self.named(work):
            self.stream.synchronize()

    def free_bytes(self) -> tuple[int, int]:
        """Return the bytes of the card's memory that are free, and all of them."""
        self.use()
        free, total = self.cupy.runtime.memGetInfo()
        return int(free), int(total)

    @contextmanager
    def named(self, work: str) -> Iterator[None]:
        """Context manager that turns CUDA's errors into InternalError naming the work."""
        try:
            yield
        except self.cupy.errors as error:
            raise InternalError(f"{work} failed on gpu:{self.index}: {error}") from error

    @contextmanager
    def allocating(self, nbytes: int, what: str) -> Iterator[None]:
        """Context manager that turns the error of an allocation into UserError."""
        try:
            yield
        except self.cupy.errors as error:
            if getattr(error, "status", 0) != _OUT_OF_MEMORY:
                raise InternalError(f"{what} cannot be allocated: {error}") from error
            free, total = self.free_bytes()
            raise UserError(
                Diagnostic(
                    f"out of memory: {what} on gpu:{self.index} needs {nbytes:,} bytes",
                    expected=f"at most {free:,} bytes, which are free of {total:,}",
                    hint="lower data.batch_size, or end other programs that use the card",
                )
            ) from error
