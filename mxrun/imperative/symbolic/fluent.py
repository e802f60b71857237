"""Methods of symbols that apply an operator: `x.sum(axis=1)` is `sym.sum(x, axis=1)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mxrun.imperative.arrays.fluent import METHODS as ARRAY_METHODS
from mxrun.imperative.symbolic.call import compose_entries

METHODS = (*ARRAY_METHODS, "reshape", "transpose")
"""Those of arrays that are one operator."""


class SymbolMethods:
    """Methods named in `METHODS`; `fluent.pyi` declares them."""


def _method(operator: str) -> Callable[..., Any]:
    def method(self: Any, *arguments: Any, name: str | None = None, **named: Any) -> Any:
        return type(self)(compose_entries(operator, [self, *arguments], named, name))

    method.__name__, method.__qualname__ = operator, f"Symbol.{operator}"
    method.__doc__ = f"Apply mxrun.sym.{operator} to the symbol."
    return method


for _name in METHODS:
    setattr(SymbolMethods, _name, _method(_name))
