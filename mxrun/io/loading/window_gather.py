"""Gather of windows over one array, of compact integers such as token ids, or of float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from mxrun.base.errors import InternalError
from mxrun.codegen.arguments import (
    Arguments,
    Float32s,
    Int32s,
    Int64s,
    Integer,
    Uint8s,
    Uint16s,
)
from mxrun.codegen.host_loop import HostLoop, HostLoops
from mxrun.codegen.jit import native
from mxrun.codegen.loops import elements_of_task
from mxrun.io.dataset.fields import Field

_ARGUMENTS = {"uint8": "narrow", "uint16": "wide", "int32": "widest"}


class WindowGathering(Arguments):
    """Arguments of `gather_windows_loop`: rows of `length` elements.

    narrow, wide, widest: the records' first element, in one of the three dtypes; the other two are
    None. stride: elements from a record to the next. first: position in `indices` of the first
    row's record.
    """

    rows: Integer
    length: Integer
    stride: Integer
    narrow: Uint8s
    wide: Uint16s
    widest: Int32s
    target: Int32s
    indices: Int64s
    first: Integer


@native
def gather_windows_loop(call: WindowGathering) -> None:
    """Compute target[row] = int32(record indices[first + row]) for each element."""
    length, target = call.length, call.target
    for row in elements_of_task(call.rows):
        start, to = call.indices[call.first + row] * call.stride, row * length
        if call.narrow is not None:
            for i in range(length):
                target[to + i] = np.int32(call.narrow[start + i])
        elif call.wide is not None:
            for i in range(length):
                target[to + i] = np.int32(call.wide[start + i])
        else:
            for i in range(length):
                target[to + i] = call.widest[start + i]


class StepGathering(Arguments):
    """Arguments of `gather_steps_loop`: rows of `length` elements.

    starts: positions of the records, at a distance of `stride` elements. first: position in
    `indices` of the first row's record.
    """

    rows: Integer
    length: Integer
    stride: Integer
    elements: Float32s
    starts: Int64s
    target: Float32s
    indices: Int64s
    first: Integer


@native
def gather_steps_loop(call: StepGathering) -> None:
    """Compute target[row] = record starts[indices[first + row]]."""
    length, target = call.length, call.target
    for row in elements_of_task(call.rows):
        start, to = call.starts[call.indices[call.first + row]] * call.stride, row * length
        for i in range(length):
            target[to + i] = call.elements[start + i]


def writer_of(loop: HostLoop) -> Callable[[int], None]:
    """Return a function of `start` that runs a gather of the rows from there on."""

    def write(start: int) -> None:
        loop.set("first", start)
        loop()

    return write


class WindowGather:
    """Gather of selected windows of a field into a slot: integers as int32, or float32.

    The windows may overlap: nothing but their elements is held.
    """

    def __init__(self, column: Field, batch_size: int, loops: HostLoops) -> None:
        are_steps = column.starts is not None and column.spec.dtype == "float32"
        are_ids = column.dtype == "int32" and column.records.dtype.name in _ARGUMENTS
        if not (are_steps or are_ids):
            raise InternalError(f"no gather of {column.records.dtype} as {column.dtype}")
        self._column, self._records = column, column.records
        self._batch_size, self._loops = batch_size, loops

    def writer(self, order: NDArray[np.int64], slot: NDArray[Any]) -> Callable[[int], None]:
        """Return a function of `start` that sets slot[row] = record[order[start + row]].

        If the slot is shorter than the records, it gets their beginnings.
        """
        rows, length = self._records, slot[0].size
        count, size = len(rows), rows[0].size
        stride = rows.strides[0] // rows.itemsize if count > 1 else size
        elements = as_strided(
            rows, ((count - 1) * stride + size,), (rows.itemsize,), writeable=False
        )
        gathering: Arguments
        if self._column.starts is not None:
            gathering = StepGathering(
                rows=self._batch_size,
                length=length,
                stride=stride,
                elements=elements,
                starts=self._column.starts,
                target=slot,
                indices=order,
                first=0,
            )
            loop = self._loops(gather_steps_loop, gathering, self._batch_size * length)
            return writer_of(loop)
        pointers: dict[str, NDArray[Any] | None] = dict.fromkeys(_ARGUMENTS.values())
        pointers[_ARGUMENTS[rows.dtype.name]] = elements
        gathering = WindowGathering(
            rows=self._batch_size,
            length=length,
            stride=stride,
            narrow=pointers["narrow"],
            wide=pointers["wide"],
            widest=pointers["widest"],
            target=slot,
            indices=order,
            first=0,
        )
        return writer_of(self._loops(gather_windows_loop, gathering, self._batch_size * length))
