"""Facts of programs: SHA-256 of arrays, and what errors say."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import mxrun

FACTS: dict[str, Any] = {}


def numbers(name: str, *shape: int, low: float = 0.1, high: float = 0.9) -> Any:
    """Uniform numbers, which depend on the name alone."""
    draws = np.random.default_rng(zlib.crc32(name.encode()))
    return draws.uniform(low, high, shape).astype(np.float32)


def digest(value: Any) -> Any:
    """SHA-256 of an array with its type and shape; other values as they are, in lists."""
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, Mapping):
        return {str(key): digest(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [digest(each) for each in value]
    array = np.ascontiguousarray(value.asnumpy() if isinstance(value, mxrun.NDArray) else value)
    head = f"{array.dtype}{array.shape}".encode()
    return hashlib.sha256(head + array.tobytes()).hexdigest()[:16]


def note(name: str, value: Any) -> None:
    """Add a fact; each name once."""
    if name in FACTS:
        raise SystemExit(f"two facts are named {name!r}")
    FACTS[name] = digest(value)


def note_error(name: str, function: Callable[[], Any]) -> None:
    """Add what the error of a bad use says; SystemExit if there is none."""
    try:
        value = function()
        if isinstance(value, mxrun.NDArray):
            value.asnumpy()
    except (mxrun.MxrunError, TypeError, ValueError, AttributeError, LookupError) as error:
        note(name, f"{type(error).__name__}: {error}")
    else:
        raise SystemExit(f"{name}: no error")


def write() -> None:
    """Print all facts as JSON."""
    print(json.dumps(FACTS))
