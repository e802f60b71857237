"""MXNet's functions of two operands, each a symbol or a number."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

from mxrun.base.errors import Diagnostic, UserError
from mxrun.graph.symbol import Symbol
from mxrun.imperative.symbolic.symbol import binary, with_number


def _function(
    name: str, operator: str, with_scalar: str, reversed_scalar: str, of_numbers: Callable[..., Any]
) -> Callable[[Any, Any], Any]:

    def function(left: Any, right: Any) -> Any:
        if isinstance(left, Symbol):
            result = binary(left, right, operator, with_scalar)
        elif isinstance(right, Symbol):
            result = with_number(right, left, reversed_scalar)
        else:
            return of_numbers(left, right)
        if result is NotImplemented:
            raise UserError(Diagnostic(f"{name}: the operands are symbols or numbers"))
        return result

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return {name}(left, right); each operand is a symbol or a number."
    return function


maximum = _function(
    "maximum", "_maximum", "_MaximumScalar", reversed_scalar="_MaximumScalar", of_numbers=max
)
minimum = _function(
    "minimum", "_minimum", "_MinimumScalar", reversed_scalar="_MinimumScalar", of_numbers=min
)
hypot = _function(
    "hypot", "_hypot", "_HypotScalar", reversed_scalar="_HypotScalar", of_numbers=math.hypot
)
pow = _function(
    "pow", "_Power", "_PowerScalar", reversed_scalar="_RPowerScalar", of_numbers=builtins.pow
)
power = pow
