"""The stand-in for CuPy, in this process or in those of commands."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

SUPPORT = Path(__file__).parent
FOLDER = str(SUPPORT / "cupy_stand_in")
_OWN = ("cupy", "mxrun.device.cuda")


def environment(**settings: Any) -> dict[str, str]:
    """Return the variables of a command that finds the stand-in; settings: see its `Settings`."""
    # The stand-in runs block kernels by the emulator.
    folders = FOLDER, str(SUPPORT), os.environ.get("PYTHONPATH")
    path = os.pathsep.join(filter(None, folders))
    return {"PYTHONPATH": path, "CUPY_STAND_IN": json.dumps(settings)}


@contextmanager
def installed(**settings: Any) -> Iterator[Any]:
    """Context manager in which this process finds the stand-in; it gives its card."""
    with found_at(FOLDER), pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUPY_STAND_IN", json.dumps(settings))
        # Programs would run launch by launch.
        patch.setenv("MXRUN_DEBUG", "0")
        from cupy.cuda.card import CARD

        yield CARD


@contextmanager
def found_at(folder: str | Path) -> Iterator[None]:
    """Context manager in which this process finds CuPy in a folder.

    The device's modules are imported anew: they remember the CuPy that they found.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        before = _taken()
        try:
            yield
        finally:
            _taken()
            sys.modules.update(before)


def _taken() -> dict[str, Any]:
    """Remove the modules of CuPy and of the device from this process, and return them."""
    names = [
        name
        for name in sys.modules
        if name in _OWN or name.startswith(tuple(f"{o}." for o in _OWN))
    ]
    return {name: sys.modules.pop(name) for name in names}
