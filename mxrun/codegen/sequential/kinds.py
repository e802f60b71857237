"""Types of the values in native functions, and LLVM's types for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
from llvmlite import ir

from mxrun.base.dataclass import dataclass
from mxrun.codegen.llvm_target import lanes_of
from mxrun.codegen.vectors import LANES


@dataclass(frozen=True)
class Kind:
    """Type of a number, or of the lanes of a vector: its name, and how its bits are read.

    element: LLVM's type of the number, or of a lane.
    """

    name: str
    element: Any
    is_float: bool = False
    is_signed: bool = True
    is_vector: bool = False

    @property
    def code(self) -> Any:
        """LLVM type of a value in registers."""
        return lanes_of(self.element, LANES) if self.is_vector else self.element

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Pointer:
    """Address of elements in memory; `is_table`: its elements are slots that hold any argument."""

    element: Kind
    is_table: bool = False

    @property
    def code(self) -> Any:
        """LLVM type of the address."""
        return self.element.code.as_pointer()

    def __str__(self) -> str:
        return f"pointer to {self.element}"


INT64 = Kind("int64", ir.IntType(64))
INT32 = Kind("int32", ir.IntType(32))
UINT64 = Kind("uint64", ir.IntType(64), is_signed=False)
UINT32 = Kind("uint32", ir.IntType(32), is_signed=False)
UINT16 = Kind("uint16", ir.IntType(16), is_signed=False)
UINT8 = Kind("uint8", ir.IntType(8), is_signed=False)
BOOL = Kind("bool", ir.IntType(1), is_signed=False)
FLOAT32 = Kind("float32", ir.FloatType(), is_float=True)
FLOAT64 = Kind("float64", ir.DoubleType(), is_float=True)
# Only in memory.
BFLOAT16 = Kind("bfloat16", ir.IntType(16))

# Types of Python and NumPy.
NUMBERS: Mapping[type, Kind] = {
    bool: BOOL,
    int: INT64,
    float: FLOAT64,
    np.bool_: BOOL,
    np.int32: INT32,
    np.int64: INT64,
    np.uint8: UINT8,
    np.uint32: UINT32,
    np.uint64: UINT64,
    np.float32: FLOAT32,
    np.float64: FLOAT64,
}

# Vectors, in registers.
FLOATS = Kind("float32 lanes", ir.FloatType(), is_vector=True)
WIDE_FLOATS = Kind("float64 lanes", ir.DoubleType(), is_vector=True)
INTEGERS = Kind("int32 lanes", ir.IntType(32), is_vector=True)
FLAGS = Kind("mask", ir.IntType(1), is_vector=True)

TABLE = Pointer(INT64, is_table=True)
BLOCK = Pointer(INT64)

# Kinds of arguments by their names in `arguments`.
ARGUMENTS: Mapping[str, Kind | Pointer] = {
    **{kind.name: kind for kind in (INT64, FLOAT32)},
    **{
        f"pointer to {kind}": Pointer(kind)
        for kind in (FLOAT32, FLOAT64, BFLOAT16, INT32, INT64, UINT16, UINT8)
    },
    "table": TABLE,
}


@dataclass(frozen=True)
class TypedValue:
    """Number, address or vector at run time, and the LLVM value that holds it."""

    kind: Kind | Pointer
    code: Any


@dataclass(frozen=True)
class Static:
    """Object that is known when the function is compiled: a module, a function, a text."""

    content: Any


@dataclass(frozen=True, eq=False)
class Record:
    """Arguments of a native function, by name; `maps`: number of its maps."""

    values: Mapping[str, TypedValue]
    maps: int = 0


Operand: TypeAlias = "TypedValue | Static | tuple[Operand, ...]"
"""Result of an expression; a tuple exists only at compile time."""


class NamedParts(tuple["Operand", ...]):
    """Parts of a NamedTuple; `fields` are their names."""

    fields: tuple[str, ...]

    def __new__(cls, parts: Iterable[Operand], fields: tuple[str, ...]) -> NamedParts:
        """Create the tuple; there is a part for each field."""
        created = super().__new__(cls, parts)
        created.fields = fields
        return created


def like(parts: Iterable[Operand], model: tuple[Operand, ...]) -> tuple[Operand, ...]:
    """Return a tuple of parts, with the names of `model` if it has any."""
    return NamedParts(parts, model.fields) if isinstance(model, NamedParts) else tuple(parts)


NOTHING = Static(None)
