"""Arguments of native functions, declared once with names and types.

    class Scaling(Arguments):
        count: Integer
        factor: Real
        source: Float32s
        output: Float32s

    @native
    def scale_loop(call: Scaling) -> None:
        for i in elements_of_task(call.count):
            call.output[i] = call.factor * call.source[i]

    run = HostLoop(scale_loop, Scaling(count=9, factor=0.5, source=array, output=other))

In the body an attribute of the call is a number, an address or a table; outside it is the value to
pass: for an address an array in row-major order, which is then its first element's. A pointer that
is None has no memory: the body may ask `call.output is None`.
"""

from __future__ import annotations

import struct
import typing
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from mxrun.base.dataclass import dataclass
from mxrun.base.dtype import FLOAT32

FLOATS = "pointer to floats"


if TYPE_CHECKING:
    from typing_extensions import dataclass_transform

    Integer: TypeAlias = Any
    Real: TypeAlias = Any
    Float32s: TypeAlias = Any
    Float64s: TypeAlias = Any
    BFloat16s: TypeAlias = Any
    Floats: TypeAlias = Any
    Int32s: TypeAlias = Any
    Int64s: TypeAlias = Any
    Uint8s: TypeAlias = Any
    Uint16s: TypeAlias = Any
    Table: TypeAlias = Any
else:

    def dataclass_transform(**options):
        return lambda kind: kind

    class Integer:
        """64-bit integer."""

        kind = "int64"

    class Real:
        """float32 number, passed as a Python float."""

        kind = "float32"

    class Float32s:
        """Address of float32 elements."""

        kind = "pointer to float32"

    class Float64s:
        """Address of float64 elements."""

        kind = "pointer to float64"

    class BFloat16s:
        """Address of bfloat16 elements, for `load_lanes` and `store_lanes`."""

        kind = "pointer to bfloat16"

    class Floats:
        """Address of float32 elements; of bfloat16 in the function's `bfloat16` variant."""

        kind = FLOATS

    class Int32s:
        """Address of int32 elements."""

        kind = "pointer to int32"

    class Int64s:
        """Address of int64 elements."""

        kind = "pointer to int64"

    class Uint8s:
        """Address of bytes."""

        kind = "pointer to uint8"

    class Uint16s:
        """Address of uint16 elements."""

        kind = "pointer to uint16"

    class Table:
        """Any number of integers and addresses, passed as a tuple; read with `integer(table, i)`,
        `float32s(table, i)` and so on."""

        kind = "table"


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Arguments:
    """Base class of a native function's arguments: a frozen dataclass with keyword fields."""

    def __init_subclass__(cls) -> None:
        hidden = set(cls.__annotations__) & set(vars(Arguments))
        if hidden:
            raise TypeError(f"{cls.__name__}: {', '.join(sorted(hidden))} hides a method")
        dataclass(frozen=True, kw_only=True)(cls)

    @classmethod
    @cache
    def kinds(cls) -> dict[str, str]:
        """Return the kind of each field, in order."""
        hints = typing.get_type_hints(cls)
        return {name: hints[name].kind for name in cls.__dataclass_fields__}  # type: ignore[attr-defined]

    def with_values(self, change: Callable[[Any], Any]) -> Any:
        """Return the arguments with each value, also those in tables, replaced by `change`."""
        changed = {}
        for name in type(self).kinds():
            value = getattr(self, name)
            is_table = isinstance(value, tuple)
            changed[name] = tuple(map(change, value)) if is_table else change(value)
        return type(self)(**changed)

    def slots(self) -> Iterator[tuple[int, Any]]:
        """Yield the number of each slot of the argument block and the value it holds.

        The fields come first, then the entries of the tables, to which a table's slot points.
        Raises TypeError for a float where an integer or an address belongs.
        """
        kinds = type(self).kinds()
        entries = len(kinds)
        tables: list[Any] = []
        for number, (name, kind) in enumerate(kinds.items()):
            value = _checked(getattr(self, name), name, kind)
            if isinstance(value, tuple):
                yield number, TableAt(entries + len(tables))
                tables += value
            else:
                yield number, value
        yield from enumerate(tables, entries)

    def packed(self) -> npt.NDArray[np.int64]:
        """Return the argument block: the slots."""
        values = [value for _, value in self.slots()]
        block = np.zeros(len(values), np.int64)
        first = block.ctypes.data
        block[:] = [
            first + value.slot * block.itemsize if isinstance(value, TableAt) else slot_of(value)
            for value in values
        ]
        return block


@dataclass(frozen=True)
class TableAt:
    """Value of a table's slot: the number of the slot of its first entry."""

    slot: int


def _checked(value: Any, name: str, kind: str) -> Any:
    if kind == FLOAT32:
        return float(value)
    if isinstance(value, float):
        raise TypeError(f"{name}: {value} is not an integer or an address")
    return value


def slot_of(value: float | int | npt.NDArray[Any] | None) -> int:
    """Return the 64 bits of a value: an integer, the bits of a float32, an address, or 0 for None.

    Raises TypeError for an array that is not in row-major order.
    """
    if isinstance(value, np.ndarray):
        require_row_major(value)
        return value.ctypes.data
    if isinstance(value, (float, np.floating)):
        return int(struct.unpack("<i", struct.pack("<f", value))[0])
    return 0 if value is None else value


def require_row_major(array: npt.NDArray[Any]) -> None:
    """Raise TypeError for an array that is not in row-major order."""
    if not array.flags.c_contiguous:
        raise TypeError("an array among the arguments is not in row-major order")
