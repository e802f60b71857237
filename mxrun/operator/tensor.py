"""Non-owning tensor views, which the system passes to operator bodies."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.dtype import numpy_dtype
from mxrun.base.errors import InternalError
from mxrun.base.tensor import PLAIN, Shape, TensorSpec


@dataclass(frozen=True)
class Tensor:
    """View of the memory at `address` with shape, dtype and layout `spec` (MXNet's TBlob).

    The owner of the memory must outlive the view.
    """

    address: int
    spec: TensorSpec

    @property
    def shape(self) -> Shape:
        """Logical shape."""
        return self.spec.shape

    @property
    def array(self) -> npt.NDArray[Any]:
        """Memory as a NumPy array; raises InternalError unless the layout is plain."""
        if self.spec.layout != PLAIN:
            raise InternalError(f"{self.spec} has no plain layout; it needs a reorder")
        return array_at(self.address, self.spec.shape, self.spec.dtype)

    def get(self, rank: int, dtype: str) -> npt.NDArray[Any]:
        """Return the array; raises InternalError if the rank or dtype differs."""
        if len(self.shape) != rank or self.spec.dtype != dtype:
            raise InternalError(
                f"expected a {dtype} tensor of rank {rank}, but this is {self.spec}"
            )
        return self.array

    def flatten_to_2d(self) -> Tensor:
        """Return the same memory with all axes but the first merged (MXNet's FlatTo2D)."""
        shape = (self.shape[0], math.prod(self.shape[1:]))
        return replace(self, spec=replace(self.spec, shape=shape))


def array_at(address: int, shape: Shape, dtype: str) -> npt.NDArray[Any]:
    """Return a writable array over unowned memory: `shape` elements of `dtype` at `address`."""
    element = numpy_dtype(dtype)
    count = math.prod(shape)
    if count == 0:
        return np.empty(shape, element)
    memory = (ctypes.c_char * (count * element.itemsize)).from_address(address)
    array: npt.NDArray[Any] = np.ndarray(shape, element, buffer=memoryview(memory))
    return array
