"""Binary operations of two arrays, or of an array and a number."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from mxrun.base.context import Context
from mxrun.base.dataclass import dataclass
from mxrun.base.once import cached_property
from mxrun.imperative.arrays.array import NDArrayBase
from mxrun.imperative.arrays.creation import full
from mxrun.imperative.calls.functions import call
from mxrun.operator.register import AnyProperty, create
from mxrun.runtime.engine.default import engine
from mxrun.runtime.engine.interface import Engine

# Different numbers of one operation that are parameters; any further ones are arrays.
_MAX_SCALARS = 64
_MAX_POWERS = 1024
_POWERS = ("_power_scalar", "_rpower_scalar")
_scalars: dict[str, dict[float | str, AnyProperty]] = {}


@dataclass(frozen=True)
class BinaryOperation:
    """Operation with its operators: of two arrays of one shape, of any shapes, with a number.

    reverse: the operator with the number on the left.
    """

    alike: str
    broadcast: str
    scalar: str
    reverse: str

    @cached_property
    def _alike(self) -> AnyProperty:
        return create(self.alike, {})

    @cached_property
    def _broadcast(self) -> AnyProperty:
        return create(self.broadcast, {})

    def __call__(self, lhs: Any, rhs: Any, out: Any = None) -> Any:
        """Compute the operation; TypeError unless one operand is an array, the other an array or a
        number.
        """
        result = self.attempt(lhs, rhs, out)
        if result is NotImplemented:
            kinds = f"{type(lhs).__name__} and {type(rhs).__name__}"
            raise TypeError(f"{self.broadcast} of {kinds}; expected NDArray and NDArray or number")
        return result

    def attempt(self, lhs: Any, rhs: Any, out: Any = None) -> Any:
        """Compute the operation; NotImplemented for operands of other types."""
        if isinstance(lhs, NDArrayBase):
            if isinstance(rhs, NDArrayBase):
                prop = self._alike if lhs.shape == rhs.shape else self._broadcast
                return call(prop, (lhs, rhs), out)
            return self._with_number(lhs, rhs, out, is_reversed=False)
        if isinstance(rhs, NDArrayBase):
            return self._with_number(rhs, lhs, out, is_reversed=True)
        return NotImplemented

    def _with_number(self, array: NDArrayBase, number: Any, out: Any, *, is_reversed: bool) -> Any:
        if isinstance(number, np.generic):
            number = number.item()
        if not isinstance(number, (int, float)):
            return NotImplemented
        name = self.reverse if is_reversed else self.scalar
        prop = _with_scalar(name, number)
        if prop is not None:
            return call(prop, (array,), out)
        key = number or repr(number)
        operand = _operand(key, array.context, array.dtype, engine())
        # The number is on the right where both orders have one operator.
        is_first = is_reversed and self.reverse != self.scalar
        operands = (operand, array) if is_first else (array, operand)
        return call(self._broadcast, operands, out)


def _with_scalar(name: str, number: float) -> AnyProperty | None:
    """Return an operator with a number as its parameter; None if it shall be an array instead.

    That is so for numbers that are not finite, which no parameter is, and after many numbers, such
    as the learning rates of a schedule: to prepare an operator takes milliseconds. The results have
    the same bits, but for powers, which stay parameters: squares are products, and NumPy computes
    those of several shapes in float64.
    """
    known = _scalars.setdefault(name, {})
    # 0.0 equals -0.0.
    key = number or repr(number)
    found = known.get(key)
    if found is None:
        if not math.isfinite(number) or (len(known) >= _MAX_SCALARS and name not in _POWERS):
            return None
        if len(known) >= _MAX_POWERS:
            known.clear()
        found = known[key] = create(name, {"scalar": float(number)})
    return found


@lru_cache(maxsize=_MAX_SCALARS)
def _operand(number: float | str, context: Context, dtype: str, owner: Engine) -> Any:
    """Return a number as an array of the present engine, which nothing changes.

    Zeros are given as text.
    """
    del owner
    return full((1,), float(number), context, dtype)


def _operation(name: str, word: str = "", *, prefix: str = "_", reverse: str = "") -> Any:
    """Return the operation whose operators have MXNet's names."""
    scalar = f"_{word or name}_scalar"
    return BinaryOperation(
        f"{prefix}{name}", f"broadcast_{name}", scalar, reverse=reverse or scalar
    )


def _comparison(name: str, mirrored: str) -> Any:
    return _operation(name, reverse=f"_{mirrored}_scalar")


add: BinaryOperation = _operation("add", "plus", prefix="elemwise_")
subtract: BinaryOperation = _operation("sub", "minus", prefix="elemwise_", reverse="_rminus_scalar")
multiply: BinaryOperation = _operation("mul", prefix="elemwise_")
divide: BinaryOperation = _operation("div", prefix="elemwise_", reverse="_rdiv_scalar")
modulo: BinaryOperation = _operation("mod", reverse="_rmod_scalar")
power: BinaryOperation = _operation("power", reverse="_rpower_scalar")
maximum: BinaryOperation = _operation("maximum")
minimum: BinaryOperation = _operation("minimum")
hypot: BinaryOperation = _operation("hypot")
equal: BinaryOperation = _operation("equal")
not_equal: BinaryOperation = _operation("not_equal")
greater: BinaryOperation = _comparison("greater", "lesser")
greater_equal: BinaryOperation = _comparison("greater_equal", "lesser_equal")
lesser: BinaryOperation = _comparison("lesser", "greater")
lesser_equal: BinaryOperation = _comparison("lesser_equal", "greater_equal")
logical_and: BinaryOperation = _operation("logical_and")
logical_or: BinaryOperation = _operation("logical_or")
logical_xor: BinaryOperation = _operation("logical_xor")
