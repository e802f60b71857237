"""Queue of a card: the stream on which everything runs in order, and errors in its terms."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from ctypes import byref, c_void_p
from typing import Any

import numpy.typing as npt

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, InternalError, UserError
from mxrun.base.locks import new_lock
from mxrun.base.once import cached_property, once
from mxrun.device.cuda import library
from mxrun.device.cuda.cudnn import library as cudnn

Array = npt.NDArray[Any]

# Value of cudaError_t for memory that cannot be allocated.
_OUT_OF_MEMORY = 2
# Values of faults of kernels, which are reported by any later call: an address that is illegal,
# misaligned or in another space, an illegal instruction or program counter, an assertion, others.
_FAULTS = {700, 710, 714, 715, 716, 717, 718, 719}
_FIND = "; an earlier launch failed: MXRUN_DEBUG=1 waits for each, and names it"
# Kinds of cudaMemcpyAsync.
_TO_DEVICE, _TO_HOST = 1, 2


@dataclass(frozen=True)
class PinnedPlace:
    """Address in pinned host memory, which `owner` keeps."""

    owner: Any
    address: int


class Queue:
    """Stream of card `index`: each method starts its work, and `wait` waits for all of it.

    Host memory of `copy_in` and `copy_out` is kept, and must be unchanged, until then. One stream
    is enough: the host reads the loss of a step before it writes the batch of the next one, so that
    copies on a second stream would have no kernels beside them.
    """

    def __init__(self, index: int) -> None:
        self.cupy = library.load()
        self.index = index
        self._card = self.cupy.device.Device(index)
        self.use()
        # Work on the null stream, such as a library's own, does not wait for it.
        self.stream = self.cupy.stream.Stream(non_blocking=True)
        # Of a capture or of a call of cuDNN, whose handles and plans serve one thread at a time.
        self.lock = _lock_of(index)
        # What copies that were started use, by their numbers.
        self._numbers = itertools.count()
        self._copying: dict[int, PinnedPlace] = {}

    def use(self) -> None:
        """Make the card that of the calling thread: CUDA has one for each."""
        self._card.use()

    def event(self) -> Any:
        """Return an event, which has no time."""
        self.use()
        return self.cupy.stream.Event(disable_timing=True)

    def copy_in(self, address: int, source: PinnedPlace, nbytes: int) -> None:
        """Copy host memory to the card."""
        self._copying[next(self._numbers)] = source
        self._copy(target=address, source=source.address, nbytes=nbytes, kind=_TO_DEVICE)

    def copy_out(self, target: PinnedPlace, address: int, nbytes: int) -> None:
        """Copy memory of the card to the host."""
        self._copying[next(self._numbers)] = target
        self._copy(target=target.address, source=address, nbytes=nbytes, kind=_TO_HOST)

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

    def wait(self, work: str = "earlier work", is_exact: bool = False) -> None:
        """Wait for everything that was started; `work` names it in errors, as in `named`."""
        # Another thread may start a copy meanwhile.
        copying = [*self._copying]
        with self.named(work, is_exact=is_exact):
            self.stream.synchronize()
        for number in copying:
            self._copying.pop(number, None)

    @cached_property
    def capturing(self) -> Queue:
        """Queue for captures, which the work of other threads on this one would be part of."""
        return Queue(self.index)

    @cached_property
    def cudnn(self) -> int:
        """Handle of cuDNN for the stream."""
        handle = c_void_p()
        cudnn.require().call("cudnnCreate", byref(handle))
        cudnn.require().call("cudnnSetStream", handle, self.stream.ptr)
        return handle.value or 0

    @contextmanager
    def named(self, work: str, nbytes: int = 0, is_exact: bool = False) -> Iterator[None]:
        """Context manager that turns errors of CUDA and cuDNN into InternalError naming the work.

        A lack of memory becomes UserError. nbytes: how many the work allocates, if that is known.
        is_exact: whether no earlier launch can be the one that failed.
        """
        try:
            yield
        except self.cupy.errors as error:
            status = getattr(error, "status", 0)
            if status == _OUT_OF_MEMORY:
                raise self._out_of_memory(work, nbytes) from error
            find = "" if is_exact or status not in _FAULTS else _FIND
            raise InternalError(f"{work} failed on gpu:{self.index}: {error}{find}") from error
        except cudnn.CudnnError as error:
            find = "" if is_exact else _FIND
            raise InternalError(f"{work} failed on gpu:{self.index}: {error}{find}") from error

    def _out_of_memory(self, work: str, nbytes: int) -> UserError:
        free, total = free_bytes(self.cupy, self.index)
        needs = f" needs {nbytes:,} bytes" if nbytes else ""
        return UserError(
            Diagnostic(
                f"out of memory: {work} on gpu:{self.index}{needs}",
                expected=f"at most {free:,} bytes, which are free of {total:,}",
                hint="lower data.batch_size, or end other programs that use the card",
            )
        )


@once
def queue_of(index: int) -> Queue:
    """Return the queue of a card of this process.

    There is one for all devices, which hand memory to each other without waiting.
    """
    return Queue(index)


@once
def _lock_of(index: int) -> AbstractContextManager[object]:
    """Return the lock of a card, one for all its queues."""
    return new_lock()


def free_bytes(cupy: library.CuPy, index: int) -> tuple[int, int]:
    """Return the bytes of a card's memory that are free, and all of them.

    CUDA's own context, of a few hundred MB, is not free any more.
    """
    cupy.device.Device(index).use()
    free, total = cupy.runtime.memGetInfo()
    return int(free), int(total)
