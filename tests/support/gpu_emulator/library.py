"""The emulator's part in C: threads, barriers and the race detector, compiled on first use."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

_FOLDER = Path(__file__).parent
_SOURCES = ("threads.c", "races.c")
_EXPORTED = (
    *("emulator_access", "emulator_registers", "emulator_sync", "emulator_barrier"),
    *(
        f"emulator_{mode}_{kind}"
        for mode in ("bfly", "idx", "up", "down")
        for kind in ("i32", "f32")
    ),
)


class Range(ctypes.Structure):
    """Begin and end of addresses, `struct range`."""

    _fields_ = (("begin", ctypes.c_uint64), ("end", ctypes.c_uint64))


class Launch(ctypes.Structure):
    """A launch, `struct launch`."""

    _fields_ = (
        ("entry", ctypes.c_void_p),
        ("slots", ctypes.POINTER(ctypes.c_int64)),
        *((name, ctypes.c_int64) for name in ("grid", "threads", "order")),
        ("seed", ctypes.c_uint64),
        *((name, ctypes.c_int64) for name in ("has_barriers", "has_block_barriers", "granule")),
        ("shared", ctypes.POINTER(Range)),
        ("shared_count", ctypes.c_int64),
        ("ranges", ctypes.POINTER(Range)),
        ("range_count", ctypes.c_int64),
    )


class Fault(ctypes.Structure):
    """A fault, `struct fault`."""

    _fields_ = (
        ("text", ctypes.c_char * 400),
        ("site", ctypes.c_int64),
        ("other_site", ctypes.c_int64),
    )


class Library(ctypes.PyDLL):
    """The compiled part; its calls hold the interpreter's lock, because its state is one."""

    exported = _EXPORTED

    def address(self, name: str) -> int:
        """Return the address of a function or variable."""
        found = ctypes.cast(getattr(self, name), ctypes.c_void_p).value
        assert found is not None
        return found


@cache
def library() -> Library:
    """Compile and load the library; skips the test without a C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler to build the emulator with")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "emulator.so"
        # longjmp between stacks is refused where _FORTIFY_SOURCE is set.
        options = ("-O3", "-U_FORTIFY_SOURCE", "-shared", "-fPIC", "-o", path)
        subprocess.run([compiler, *options, *(_FOLDER / name for name in _SOURCES)], check=True)
        return Library(str(path))
