"""NVIDIA's assembler, which needs no card: registers and memory of the kernels of a PTX text."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Usage:
    """What a thread uses: registers, and bytes of its stack, where those are that do not fit."""

    registers: int
    stack: int


def _find() -> Path | None:
    """Return the program of NVIDIA's package on PyPI."""
    try:
        found = importlib.util.find_spec("nvidia")
    except ModuleNotFoundError:
        return None
    folders = found.submodule_search_locations if found else None
    paths = [path for folder in folders or () for path in Path(folder).glob("*/bin/ptxas")]
    return paths[0] if paths else None


PTXAS = _find()
needs_ptxas = pytest.mark.skipif(
    PTXAS is None, reason="ptxas is not installed (pip install --no-deps nvidia-cuda-nvcc)"
)


def assembled(ptx: str, card: str) -> Usage:
    """Assemble a text with one kernel for a card; fails with the assembler's messages."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(ptx)
        command = [str(PTXAS), f"-arch={card}", "-v", "-o", str(source.with_suffix(".cubin"))]
        done = subprocess.run([*command, str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    patterns = r"Used (\d+) registers", r"(\d+) bytes stack"
    return Usage(*(max(map(int, re.findall(each, done.stderr))) for each in patterns))
