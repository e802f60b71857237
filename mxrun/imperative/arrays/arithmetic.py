"""Arithmetic operators and comparisons of arrays, as methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mxrun.base.errors import Diagnostic, UserError
from mxrun.imperative.arrays import binary
from mxrun.imperative.arrays.array import NDArrayBase
from mxrun.imperative.calls.functions import operator_function

if TYPE_CHECKING:
    from typing_extensions import Self


class Arithmetic(NDArrayBase):
    """Operators `+ - * / // % ** @` and comparisons, with arrays and numbers.

    Shapes are broadcast. Comparisons give 0 or 1 in the array's data type, as in MXNet. In-place
    operators write to the array's own memory.
    """

    __slots__ = ()
    # NumPy leaves operations with arrays to these methods.
    __array_ufunc__ = None
    __hash__ = object.__hash__

    def __add__(self, other: Any) -> Self:
        result: Self = binary.add.attempt(self, other)
        return result

    __radd__ = __add__

    def __sub__(self, other: Any) -> Self:
        result: Self = binary.subtract.attempt(self, other)
        return result

    def __rsub__(self, other: Any) -> Self:
        result: Self = binary.subtract.attempt(other, self)
        return result

    def __mul__(self, other: Any) -> Self:
        result: Self = binary.multiply.attempt(self, other)
        return result

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Self:
        result: Self = binary.divide.attempt(self, other)
        return result

    def __rtruediv__(self, other: Any) -> Self:
        result: Self = binary.divide.attempt(other, self)
        return result

    def __mod__(self, other: Any) -> Self:
        result: Self = binary.modulo.attempt(self, other)
        return result

    def __rmod__(self, other: Any) -> Self:
        result: Self = binary.modulo.attempt(other, self)
        return result

    def __floordiv__(self, other: Any) -> Self:
        result: Self = _floor_divide(self, other)
        return result

    def __rfloordiv__(self, other: Any) -> Self:
        result: Self = _floor_divide(other, self)
        return result

    def __pow__(self, other: Any) -> Self:
        result: Self = binary.power.attempt(self, other)
        return result

    def __rpow__(self, other: Any) -> Self:
        result: Self = binary.power.attempt(other, self)
        return result

    def __matmul__(self, other: Any) -> Self:
        if not isinstance(other, NDArrayBase):
            return NotImplemented
        result: Self = _matrix_product(self, other)
        return result

    def __neg__(self) -> Self:
        result: Self = operator_function("negative")(self)
        return result

    def __abs__(self) -> Self:
        result: Self = operator_function("abs")(self)
        return result

    # -- in place --------------------------------------------------------------------------------

    def __iadd__(self, other: Any) -> Self:
        result: Self = binary.add.attempt(self, other, self)
        return result

    def __isub__(self, other: Any) -> Self:
        result: Self = binary.subtract.attempt(self, other, self)
        return result

    def __imul__(self, other: Any) -> Self:
        result: Self = binary.multiply.attempt(self, other, self)
        return result

    def __itruediv__(self, other: Any) -> Self:
        result: Self = binary.divide.attempt(self, other, self)
        return result

    def __imod__(self, other: Any) -> Self:
        result: Self = binary.modulo.attempt(self, other, self)
        return result

    def __ipow__(self, other: Any) -> Self:
        result: Self = binary.power.attempt(self, other, self)
        return result

    # -- comparisons -----------------------------------------------------------------------------
    # Other types raise TypeError, as in MXNet: Python itself would call them unequal.

    def __eq__(self, other: object) -> Self:  # type: ignore[override]
        result: Self = binary.equal(self, other)
        return result

    def __ne__(self, other: object) -> Self:  # type: ignore[override]
        result: Self = binary.not_equal(self, other)
        return result

    def __gt__(self, other: object) -> Self:
        result: Self = binary.greater(self, other)
        return result

    def __ge__(self, other: object) -> Self:
        result: Self = binary.greater_equal(self, other)
        return result

    def __lt__(self, other: object) -> Self:
        result: Self = binary.lesser(self, other)
        return result

    def __le__(self, other: object) -> Self:
        result: Self = binary.lesser_equal(self, other)
        return result


def _floor_divide(lhs: Any, rhs: Any) -> Any:
    """Return the quotient rounded down, from the remainder as NumPy does."""
    remainder = binary.modulo.attempt(lhs, rhs)
    if remainder is NotImplemented:
        return NotImplemented
    quotient = binary.divide(binary.subtract(lhs, remainder), rhs)
    if not quotient.dtype.startswith("float"):
        return quotient
    # The quotient is a whole number but for its last bits.
    return operator_function("floor")(binary.add(quotient, 0.5))


def _matrix_product(lhs: NDArrayBase, rhs: NDArrayBase) -> Any:
    """Return the matrix product; of more than two axes that of the last two, one by one."""
    if len(rhs.shape) <= 2:
        return operator_function("dot")(lhs, rhs)
    if lhs.shape[:-2] == rhs.shape[:-2]:
        return operator_function("batch_dot")(lhs, rhs)
    expected, got = "equal leading axes, or a matrix on the right", f"{lhs.shape} @ {rhs.shape}"
    raise UserError(Diagnostic("@: the shapes do not fit", expected=expected, got=got))
