"""The garbage collector, where many objects are made that stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collections() -> Iterator[None]:
    """Context manager for code that makes many objects that stay: none is looked through for
    garbage, which would take most of the time, neither now nor later.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
