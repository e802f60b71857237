"""Plans of configs: their memory, and the comparison of their variants."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mxrun.commands.inspect_memory import inspect_memory
from mxrun.commands.verify import verify
from mxrun.inspection.memory_report import MemoryReport
from mxrun.options.check import VerifyOptions
from mxrun.options.inspect_memory import InspectOptions


def memory_of(
    path: str | Path, overrides: Sequence[str] = (), *, measured: bool = True, **options: Any
) -> MemoryReport:
    """Return the report on a config's memory; options: of `mxrun inspect-memory`."""
    chosen = InspectOptions(config=str(path), overrides=tuple(overrides), **options)
    return inspect_memory(path, chosen, measured=measured)


def verified(path: str | Path, overrides: Sequence[str] = (), **options: Any) -> dict[str, Any]:
    """Return the result of `mxrun verify` with these options."""
    return verify(VerifyOptions(config=str(path), overrides=tuple(overrides), **options))
