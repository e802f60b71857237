"""Methods of arrays that call an operator on the array: `x.sum(axis=1)` is `nd.sum(x, axis=1)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mxrun.imperative.calls import composites
from mxrun.imperative.calls.functions import operator_function

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


COMPOSITES: Mapping[str, Callable[..., Any]] = {
    "broadcast_like": composites.broadcast_like,
    "broadcast_to": composites.broadcast_to,
    "flip": composites.flip,
    "one_hot": composites.one_hot,
    "pick": composites.pick,
    "repeat": composites.repeat,
    "slice": composites.slice_,
    "slice_axis": composites.slice_axis,
    "take": composites.take,
    "tile": composites.tile,
}
"""Methods that are made of several operators."""


class FluentMethods:
    """Methods named in `METHODS` and `COMPOSITES`; `fluent.pyi` declares them."""

    __slots__ = ()


def _method(name: str) -> Callable[..., Any]:
    def method(self: Any, *arguments: Any, **keywords: Any) -> Any:
        return operator_function(name)(self, *arguments, **keywords)

    method.__name__, method.__qualname__ = name, f"NDArray.{name}"
    method.__doc__ = f"Apply mxrun.nd.{name} to the array."
    return method


for _name in METHODS:
    setattr(FluentMethods, _name, _method(_name))
for _name, _function in COMPOSITES.items():
    setattr(FluentMethods, _name, _function)
