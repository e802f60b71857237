"""Methods of arrays that call an operator on the array: `x.sum(axis=1)` is `nd.sum(x, axis=1)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mxrun.imperative.functions import operator_function

METHODS = (
    *("abs", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh", "argmax"),
    *("argmax_channel", "argmin", "cbrt", "ceil", "clip", "cos", "cosh", "degrees", "dot"),
    *("exp", "expand_dims", "expm1", "fix", "flatten", "floor", "log", "log10", "log1p"),
    *("log2", "log_softmax", "max", "mean", "min", "nanprod", "nansum", "norm", "ones_like"),
    *("prod", "radians", "rcbrt", "reciprocal", "relu", "rint", "round", "rsqrt", "sigmoid"),
    *("sign", "sin", "sinh", "softmax", "split", "sqrt", "square", "squeeze", "sum", "swapaxes"),
    *("tan", "tanh", "trunc", "zeros_like"),
)
"""MXNet's methods, and `dot`, whose first tensor is the array."""


class FluentMethods:
    """Methods named in `METHODS`; `fluent.pyi` declares them."""

    __slots__ = ()


def _method(name: str) -> Callable[..., Any]:
    def method(self: Any, *arguments: Any, **keywords: Any) -> Any:
        return operator_function(name)(self, *arguments, **keywords)

    method.__name__, method.__qualname__ = name, f"NDArray.{name}"
    method.__doc__ = f"Apply mxrun.nd.{name} to the array."
    return method


for _name in METHODS:
    setattr(FluentMethods, _name, _method(_name))
