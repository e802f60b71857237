"""The composition root: config → model → plan → executor → run, one file a command.

What a command needs is imported when it is first asked for: half of a short command's time would
go into importing the others.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mxrun.session.benchmark import BenchReport, BenchRequest, bench
    from mxrun.session.build import allow_plugins, load, notes, plan_for
    from mxrun.session.check_op import check_operator
    from mxrun.session.conversion import Converted, ConvertRequest, convert
    from mxrun.session.drawing import plot
    from mxrun.session.inference import Inference, InferRequest, infer
    from mxrun.session.layers import check
    from mxrun.session.memory import inspect_memory
    from mxrun.session.memory_problem import place_problem
    from mxrun.session.registry import operator, operators
    from mxrun.session.run import Run
    from mxrun.session.schemas import schema
    from mxrun.session.training import TrainRequest, prepare, train
    from mxrun.session.verification import verify

__all__ = [
    "BenchReport",
    "BenchRequest",
    "ConvertRequest",
    "Converted",
    "InferRequest",
    "Inference",
    "Run",
    "TrainRequest",
    "allow_plugins",
    "bench",
    "check",
    "check_operator",
    "convert",
    "infer",
    "inspect_memory",
    "load",
    "notes",
    "operator",
    "operators",
    "place_problem",
    "plan_for",
    "plot",
    "prepare",
    "schema",
    "train",
    "verify",
]

_MODULES = {
    "benchmark": ("BenchReport", "BenchRequest", "bench"),
    "build": ("allow_plugins", "load", "notes", "plan_for"),
    "check_op": ("check_operator",),
    "conversion": ("ConvertRequest", "Converted", "convert"),
    "drawing": ("plot",),
    "inference": ("InferRequest", "Inference", "infer"),
    "layers": ("check",),
    "memory": ("inspect_memory",),
    "memory_problem": ("place_problem",),
    "registry": ("operator", "operators"),
    "run": ("Run",),
    "schemas": ("schema",),
    "training": ("TrainRequest", "prepare", "train"),
    "verification": ("verify",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
