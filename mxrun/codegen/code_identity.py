"""Identity of a native function: a text of everything its machine code depends on.

The text is equal in two processes if both would generate the same machine code. It contains the
function's own bytecode and constants, and for each global name it mentions: the value of a number,
the function whose code is inlined (which is followed recursively), or the name of a function of the
compiler or a library, whose versions are part of every cache key. No source file is read: only what
was imported counts.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mxrun.base.dataclass import dataclass

# Modules whose content is determined by versions that are part of every key.
_KNOWN_MODULES = frozenset({"builtins", "math", "numpy"})


class _Unknown(Exception):
    """A value whose effect on the machine code is unknown."""


@dataclass(frozen=True)
class InlinedBody:
    """Body that native functions call and inline."""

    body: Callable[..., Any]


def identity_of(body: Callable[..., Any], vocabulary: frozenset[str]) -> str | None:
    """Return the identity of a body's machine code.

    vocabulary: modules whose functions are intrinsics of native code; these are part of every key.
    None if a global is of a type that is not supported.
    """
    try:
        return "\n".join(_Walk(body.__globals__, vocabulary).function(body))
    except _Unknown:
        return None


def is_named_tuple(value: Any) -> bool:
    """Return whether a value is a class of `typing.NamedTuple`."""
    return isinstance(value, type) and issubclass(value, tuple) and hasattr(value, "_fields")


class _Walk:
    """Traversal of one function and the inlined functions it reaches, each once.

    These are compiled with the global names of the function that they become part of, and, for
    names that it lacks, with their own.
    """

    def __init__(self, scope: Mapping[str, Any], vocabulary: frozenset[str]) -> None:
        self._scope, self._vocabulary = scope, vocabulary
        self._numbers: dict[types.CodeType, int] = {}
        self._lines: list[str] = []

    def function(self, body: Callable[..., Any]) -> list[str]:
        """Return the lines of a function's code and of every inlined function it reaches."""
        self._reach(body.__code__, body.__globals__)
        return self._lines

    def _reach(self, code: types.CodeType, own: Mapping[str, Any]) -> int:
        """Return the number of a code object among those reached, after adding it if it is new."""
        if code not in self._numbers:
            self._numbers[code] = number = len(self._numbers)
            self._lines.append(f"code {number}: {self._code(code, own)}")
            for name in code.co_names:
                scope = self._scope if name in self._scope else own
                if name not in scope:
                    continue
                try:
                    value = self._value(scope[name], own)
                except _Unknown:
                    # The name may be an attribute's, such as that of an argument.
                    if _reads_global(code, name):
                        raise
                else:
                    self._lines.append(f"{number} {name}: {value}")
        return self._numbers[code]

    def _code(self, code: types.CodeType, own: Mapping[str, Any]) -> str:
        constants = [self._value(constant, own) for constant in code.co_consts]
        names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
        counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
        # Python 3.10 has no exception table: there, exception handlers are instructions.
        handlers: bytes = getattr(code, "co_exceptiontable", b"")
        return f"{code.co_code.hex()} {handlers.hex()} {counts} {names} {constants}"

    def _value(self, value: Any, own: Mapping[str, Any]) -> str:
        if isinstance(value, types.CodeType):
            return f"code {self._reach(value, own)}"
        if isinstance(value, (tuple, frozenset)):
            parts = [self._value(each, own) for each in value]
            # The iteration order of a set of strings differs between processes.
            ordered = sorted(parts) if isinstance(value, frozenset) else parts
            return f"{type(value).__name__}({', '.join(ordered)})"
        if isinstance(value, (bool, int, float, complex, str, bytes, types.NoneType, np.generic)):
            return f"{type(value).__name__} {value!r}"
        if isinstance(value, types.ModuleType) and value.__name__ in _KNOWN_MODULES:
            return f"module {value.__name__}"
        home = getattr(value, "__module__", None)
        if isinstance(value, (type, types.BuiltinFunctionType)) and home in _KNOWN_MODULES:
            return f"{home}.{value.__qualname__}"
        if is_named_tuple(value):
            return f"tuple of {value._fields}"
        if isinstance(value, types.FunctionType) and home in self._vocabulary:
            return f"{home}.{value.__qualname__}"
        if isinstance(value, InlinedBody):
            return f"inlined {self._reach(value.body.__code__, value.body.__globals__)}"
        raise _Unknown(value)


def _reads_global(code: types.CodeType, name: str) -> bool:
    instructions = dis.get_instructions(code)
    return any(each.opname == "LOAD_GLOBAL" and each.argval == name for each in instructions)
