"""Implementation of `check`: validation of a config, its layers and totals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mxrun.config.bundled import find_config
from mxrun.inspection.layer_report import CheckReport, check_report
from mxrun.preparation.planning import load, trust_plugins

__all__ = ["CheckReport", "check"]


def check(
    config: str | Path, overrides: Sequence[str] = (), allow_plugins: bool = False
) -> CheckReport:
    """Validate config and shapes without data. Raises UserError.

    allow_plugins: trust the config's plugins, from now on.
    """
    path = find_config(str(config))
    if allow_plugins:
        trust_plugins(path, overrides)
    return check_report(load(path, overrides))
