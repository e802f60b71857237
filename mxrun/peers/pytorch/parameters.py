"""Parameters of an operator in MXNet's string form, and the types of the operator tables."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

Tensor = Any
# Functions by operator name: (parameters, tensors in MXNet's order) -> output, or several.
Operators = dict[str, Callable[..., Any]]
# By operator name: (parameters, arguments after data) -> library module over these tensors, which
# become its parameters and buffers; None if PyTorch has no module for these parameters.
Modules = dict[str, Callable[["MXNetParameters", list[Tensor]], Any]]
# By operator name: (parameters) -> module.
Losses = dict[str, Callable[["MXNetParameters"], Any]]


class MXNetParameters:
    """Operator parameters in MXNet's string form: `(2, 2)`, `True` or `1`, `tanh`.

    is_train: whether the network runs in training mode.
    """

    def __init__(self, texts: Mapping[str, str], is_train: bool = True) -> None:
        self._texts = texts
        self._shapes: dict[str, tuple[int, ...]] = {}
        self.is_train = is_train

    def text(self, name: str, default: str) -> str:
        """Return a parameter as text."""
        return self._texts.get(name, default)

    def flag(self, name: str, default: bool) -> bool:
        """Return a boolean; MXNet writes True, true and 1. None means the default."""
        text = self._texts.get(name, "None")
        return default if text == "None" else text in ("True", "true", "1")

    def number(self, name: str, default: float) -> float:
        """Return a number; nan if there is neither value nor default."""
        return float(self._texts.get(name, default))

    def shape(self, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
        """Return a tuple of integers; empty and absent both mean the default."""
        # Cached, because benchmarked networks read it in every step.
        if name not in self._shapes:
            value = ast.literal_eval(self._texts.get(name, "()"))
            self._shapes[name] = (value,) if isinstance(value, int) else tuple(value)
        return self._shapes[name] or default
