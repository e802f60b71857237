"""An operator's parameters as MXNet spells them, and the type of an operator table."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

Tensor = Any
# By operator name: (parameters, tensors in MXNet's argument order) -> output, or several.
Operators = dict[str, Callable[..., Any]]


class MXNetParameters:
    """An operator's parameters in MXNet's spelling: `(2, 2)`, `True` or `1`, `tanh`.

    is_train: whether the network runs in training, for operators that differ then.
    """

    def __init__(self, texts: Mapping[str, str], is_train: bool = True) -> None:
        self._texts = texts
        self._shapes: dict[str, tuple[int, ...]] = {}
        self.is_train = is_train

    def text(self, name: str, default: str) -> str:
        """A word, as it stands."""
        return self._texts.get(name, default)

    def flag(self, name: str, default: bool) -> bool:
        """A boolean; MXNet writes True, true and 1. None stands for the default."""
        text = self._texts.get(name, "None")
        return default if text == "None" else text in ("True", "true", "1")

    def number(self, name: str, default: float) -> float:
        """A number; nan where there is neither value nor default."""
        return float(self._texts.get(name, default))

    def shape(self, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
        """A tuple of integers; empty and absent both mean the default."""
        # Read once: networks that are timed ask in every step.
        if name not in self._shapes:
            value = ast.literal_eval(self._texts.get(name, "()"))
            self._shapes[name] = (value,) if isinstance(value, int) else tuple(value)
        return self._shapes[name] or default
