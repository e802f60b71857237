"""Modules of files that a test writes."""

from __future__ import annotations

import importlib.util
import types
from pathlib import Path


def imported(file: Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
