"""Libraries in C that tests preload into a process (LD_PRELOAD)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parent


def compile_library(folder: Path, name: str) -> Path:
    """Compile `name`.c of this folder; skips the test without a C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip(f"there is no C compiler to build {name}.c with")
    library = folder / f"{name}.so"
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", library, SUPPORT / f"{name}.c", "-ldl"]
    subprocess.run(command, check=True)
    return library
