"""The composition root: config → model → plan → executor → run, one file a command."""

from mxrun.session.bench import BenchReport, BenchRequest, bench
from mxrun.session.build import load, notes, plan_for
from mxrun.session.check import check
from mxrun.session.check_op import check_operator
from mxrun.session.infer import Inference, InferRequest, infer
from mxrun.session.memory import inspect_memory
from mxrun.session.operators import operator, operators
from mxrun.session.plot import plot
from mxrun.session.plugins import plugin_hashes
from mxrun.session.run import Run
from mxrun.session.schema import schema
from mxrun.session.train import TrainRequest, prepare, train

__all__ = [
    "BenchReport",
    "BenchRequest",
    "InferRequest",
    "Inference",
    "Run",
    "TrainRequest",
    "bench",
    "check",
    "check_operator",
    "infer",
    "inspect_memory",
    "load",
    "notes",
    "operator",
    "operators",
    "plan_for",
    "plot",
    "plugin_hashes",
    "prepare",
    "schema",
    "train",
]
