"""The composition root: config → model → plan → executor → run, one file a command."""

from mxrun.session.build import load, notes, plan_for
from mxrun.session.check import check
from mxrun.session.memory import inspect_memory
from mxrun.session.schema import schema
from mxrun.session.train import Run, prepare, train

__all__ = [
    "Run",
    "check",
    "inspect_memory",
    "load",
    "notes",
    "plan_for",
    "prepare",
    "schema",
    "train",
]
