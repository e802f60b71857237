"""Exchange of arrays with other libraries, without a copy (https://dmlc.github.io/dlpack).

Both sides use the same memory. An exported array has been waited for, so that the other library may
read and write it at once. Functions pushed afterwards are ordered among themselves alone: wait for
the array before the other library uses it again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.context import Context, current_context
from mxrun.base.dtype import TYPE_CODES
from mxrun.base.errors import Diagnostic, UserError
from mxrun.device.storage import device_of, storage_pools
from mxrun.imperative.arrays import array as array_module
from mxrun.imperative.arrays.array import NDArrayBase
from mxrun.imperative.arrays.chunk import Chunk
from mxrun.imperative.arrays.creation import from_numpy
from mxrun.runtime.engine.default import engine
from mxrun.runtime.storage import SizeClass, StorageBlock

# DLDeviceType of the host.
_HOST = (1, 0)


class SharedMemory:
    """Memory of an array for NumPy's array interface; it keeps the array's chunk alive."""

    def __init__(self, array: NDArrayBase) -> None:
        view = array.chunk.device.view(array.handle, array.spec)
        self._chunk = array.chunk
        self._view = view
        self.__array_interface__ = view.__array_interface__


class AdoptedChunk(Chunk):
    """Memory of a NumPy array, which it keeps alive until nothing uses the chunk any more."""

    __slots__ = ()

    def __init__(self, context: Context, values: npt.NDArray[Any]) -> None:
        device = device_of(context)
        block = StorageBlock(device.adopt(values), 0, SizeClass(values.nbytes))
        super().__init__(context, device, storage_pools().of(context), engine(), block)

    def __del__(self) -> None:
        """Do nothing: the memory is its owner's."""


def host_view(array: NDArrayBase) -> npt.NDArray[Any]:
    """Return the array's memory as a NumPy array after waiting for all its users.

    Raises UserError if it is not the host's memory.
    """
    if not array.chunk.device.has_host_memory:
        problem = f"arrays on {array.context} are not in the host's memory"
        raise UserError(Diagnostic(problem, hint="copy it first: x.as_in_context(mxrun.cpu())"))
    array.wait_to_write()
    return np.asarray(SharedMemory(array))


def to_dlpack(array: NDArrayBase, **options: Any) -> Any:
    """Return a DLPack capsule; options: those of the protocol, which NumPy answers."""
    given = {name: value for name, value in options.items() if value is not None}
    return host_view(array).__dlpack__(**given)


def dlpack_device(array: NDArrayBase) -> tuple[int, int]:
    """Return the DLPack device of an array in the host's memory."""
    if not array.chunk.device.has_host_memory:
        raise BufferError(f"arrays on {array.context} have no DLPack device")
    return _HOST


def from_dlpack(tensor: Any, ctx: Context | None = None) -> Any:
    """Return an array with the memory of another library's tensor, which it keeps alive.

    A tensor that is not contiguous or read-only is copied. Raises UserError for a data type that
    arrays cannot have.
    """
    values = np.from_dlpack(tensor)
    if values.dtype.name not in TYPE_CODES:
        problem, known = "from_dlpack: unsupported data type", ", ".join(TYPE_CODES)
        raise UserError(Diagnostic(problem, expected=f"one of {known}", got=values.dtype.name))
    name = values.dtype.name
    if not values.flags.c_contiguous or not values.flags.writeable or not values.size:
        return from_numpy(values, ctx, name)
    chunk = AdoptedChunk(ctx or current_context(), values)
    return array_module.make(chunk, values.shape, name)
