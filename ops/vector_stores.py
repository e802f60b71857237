"""Writing of vectors in compiled loops."""

from __future__ import annotations

from typing import Any

from mxrun.codegen.jit import inlined
from mxrun.codegen.vectors import add_lanes, load_lanes, store_lanes, stored_lanes


@inlined
def put_lanes(target: Any, at: int, value: Any, count: int, is_added: bool) -> None:
    """Store a vector, or add it after the rounding that a store performs."""
    result = stored_lanes(target, value)
    if is_added:
        result = add_lanes(load_lanes(target, at, count), result)
    store_lanes(target, at, result, count)
