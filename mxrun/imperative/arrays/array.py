"""Fields of an array and what needs no operator: size, context, waits, and copies to NumPy.

`NDArray` (ndarray.py) adds the methods that call operators. It is a subclass, because `invoke`
makes arrays and the methods call `invoke`; `make` is that class.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy.typing as npt

from mxrun.base.context import Context
from mxrun.base.dtype import item_size
from mxrun.base.errors import InternalError
from mxrun.base.tensor import Shape, TensorSpec
from mxrun.imperative.arrays.chunk import Chunk
from mxrun.operator.launch import Handle


class NDArrayBase:
    """Contiguous part of a chunk with a shape and a data type.

    offset: bytes from the chunk's beginning. dtype: a name as of a TensorSpec. entry: the output of
    a recorded operator that the array is, or the marked variable; None if it is neither. grad:
    where `backward` stores the gradient of a marked variable; grad_req: `write`, `add` or `null`.

    An operator may leave its output in another layout. The array gets another chunk when something
    needs the elements in plain layout, so whoever uses both `_chunk` and its layout reads the
    attribute once.
    """

    __slots__ = (
        "__weakref__",
        "_chunk",
        "dtype",
        "entry",
        "grad",
        "grad_req",
        "offset",
        "shape",
    )

    def __init__(
        self,
        chunk: Chunk,
        shape: Shape,
        dtype: str = "float32",
        offset: int = 0,
    ) -> None:
        self._chunk, self.offset = chunk, offset
        self.shape, self.dtype = shape, dtype
        self.entry: Any = None
        self.grad: Any = None
        self.grad_req = "null"

    @property
    def chunk(self) -> Chunk:
        """Memory of the array, which holds it in plain (row-major) layout from `offset` on."""
        chunk = self._chunk
        return chunk if chunk.layout is None else _to_plain(self)

    @property
    def handle(self) -> Handle:
        """Place of the array in its device's memory, in plain layout."""
        return self.chunk.handle + self.offset

    @property
    def spec(self) -> TensorSpec:
        """Shape and data type, in plain layout."""
        return TensorSpec(self.shape, self.dtype)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes that the elements occupy."""
        return self.size * item_size(self.dtype)

    @property
    def context(self) -> Context:
        """Device that holds the array."""
        return self._chunk.context

    def wait_to_read(self) -> None:
        """Wait until all operations pushed so far that change the array are complete.

        Raises JobError if one of them has failed.
        """
        self._chunk.engine.wait_for_variable(self._chunk.variable, writers_only=True)

    def wait_to_write(self) -> None:
        """Wait until all operations pushed so far that use the array are complete.

        Raises JobError if one that changes it has failed.
        """
        self._chunk.engine.wait_for_variable(self._chunk.variable)

    def asnumpy(self) -> npt.NDArray[Any]:
        """Return a copy as a NumPy array, after waiting for the array's values."""
        handle = self.handle
        self.wait_to_read()
        return self._chunk.device.read(handle, self.spec)


def share_bytes(left: NDArrayBase, right: NDArrayBase) -> bool:
    """Return whether two arrays overlap in memory."""
    if left._chunk is not right._chunk:
        return False
    if left.offset == right.offset:
        return True
    return left.offset < right.offset + right.nbytes and right.offset < left.offset + left.nbytes


def _missing(array: NDArrayBase) -> Chunk:
    raise InternalError("mxrun.imperative.calls.invoke is not imported")


_to_plain: Callable[[NDArrayBase], Chunk] = _missing


def set_to_plain(convert: Callable[[NDArrayBase], Chunk]) -> None:
    """Set the function that moves an array to a new chunk, in plain layout, and returns that."""
    global _to_plain
    _to_plain = convert


make: Callable[..., Any] = NDArrayBase
"""Class of the arrays that operators return; arguments as of `NDArrayBase`."""


def set_array_class(maker: Callable[..., Any]) -> None:
    """Set the class of the arrays that operators return."""
    global make
    make = maker
