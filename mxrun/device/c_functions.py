"""Functions of shared libraries that return a status."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence


def declare(shared_object: ctypes.CDLL, signatures: Mapping[str, Sequence[type]]) -> None:
    """Declare functions by name with the types of their arguments; each returns an int.

    Raises AttributeError for one that the library lacks.
    """
    for name, arguments in signatures.items():
        function = getattr(shared_object, name)
        function.argtypes, function.restype = arguments, ctypes.c_int
