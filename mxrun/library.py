"""Loads the operator library and declares the data sets: the only module that names both."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache


@cache
def load() -> None:
    """Import every module of `mxrun.ops`, which registers the operators, and declare data sets.

    Raises ModuleNotFoundError with what to do where mxrun is run from a checkout without being
    installed, because `mxrun.ops` lies beside the package there.
    """
    try:
        operators = importlib.import_module("mxrun.ops")
        importlib.import_module("mxrun.datasets")
    except ModuleNotFoundError as error:
        if error.name not in ("mxrun.ops", "mxrun.datasets"):
            raise
        raise ModuleNotFoundError(
            f"{error.name} is not installed; in a checkout run `pip install -e .` first",
            name=error.name,
        ) from None
    for module in pkgutil.iter_modules(operators.__path__):
        importlib.import_module(f"mxrun.ops.{module.name}")
