"""Calls of pushed functions, the only part of an engine that Ctrl-C may end."""

from __future__ import annotations

import time
from collections.abc import Callable

from mxrun.runtime.engine.failure import Failure
from mxrun.runtime.engine.interface import EngineOperator, Function, RunContext, span_of
from mxrun.runtime.profiler import Event


def run_function(function: Function, run_context: RunContext) -> None:
    """Call a pushed function.

    `interrupts.py` knows this frame: whatever runs within it may raise KeyboardInterrupt at any
    instruction. So this does nothing else, and its caller catches everything.
    """
    function(run_context)


def call(
    operator: EngineOperator,
    sequence: int,
    function: Function,
    run_context: RunContext,
    sink: Callable[[Event], None] | None,
) -> Failure | None:
    """Call a function of a push, pass its time span to `sink`, and return its failure."""
    failure: Failure | None = None
    start = 0 if sink is None else time.monotonic_ns()
    try:
        run_function(function, run_context)
    except BaseException as error:  # noqa: BLE001 - raised again where somebody waits
        failure = Failure(operator.name, sequence, error)
    if sink is not None:
        sink(span_of(operator, run_context, start))
    return failure
