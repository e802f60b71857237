"""Declarations of intrinsics: Python signatures of functions that only native code can call."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def intrinsic(declaration: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorator for the signature and docstring of an intrinsic: called in Python it raises.

    The compiler of native functions generates the code of its calls.
    """

    @wraps(declaration)
    def refuse(*arguments: Parameters.args, **named: Parameters.kwargs) -> Result:
        raise only_native(declaration)

    return refuse


def only_native(function: Callable[..., object]) -> TypeError:
    """Return the error for a call in Python of a function of native code."""
    return TypeError(f"{function.__name__} can only be called in a native function")
