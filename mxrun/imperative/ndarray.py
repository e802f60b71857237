"""NDArray: arrays whose operations run asynchronously on the engine."""

from __future__ import annotations

from mxrun.imperative.array import NDArrayBase, set_array_class


class NDArray(NDArrayBase):
    """Array on a device; operations return at once, reading values waits for them."""

    __slots__ = ()


set_array_class(NDArray)
