"""Binding of a planned phase to an arena: plan → tape."""

from __future__ import annotations

from collections.abc import Sequence

from mxrun.backend.team import openmp, set_threads_call
from mxrun.base.errors import OperatorErrorContext
from mxrun.executor.tape import Tape, TapeEntry
from mxrun.graph.graph import Step, ValueId
from mxrun.operator.kernel import Buffers, Call, PythonCall
from mxrun.planner.plan import PhasePlan


def bind(phase: PhasePlan, base: int, threads: int) -> Tape:
    """Bind every step of a phase to the arena that starts at address `base`.

    The first call of the tape sets the compute team to `threads`, the size the kernels were
    prepared for, because another plan may have run on this thread before.
    """
    entries: list[TapeEntry] = []
    for step in phase.steps:
        assert step.kernel is not None
        with OperatorErrorContext(step.title, step.place):
            calls = tuple(
                _watched(step, call) for call in step.kernel.bind(_buffers(phase, step, base))
            )
        if not entries and openmp() is not None:
            calls = (set_threads_call(threads), *calls)
        entries.extend(TapeEntry(step.name, call) for call in calls)
    return Tape(entries)


def _watched(step: Step, call: Call) -> Call:
    """Wrap a Python call so that its exceptions name the node; return a native call unchanged."""
    if not isinstance(call, PythonCall):
        return call
    function, watched = call.function, OperatorErrorContext(step.title, step.place)

    def run() -> None:
        with watched:
            function()

    return PythonCall(run)


def _buffers(phase: PhasePlan, step: Step, base: int) -> Buffers:
    def addresses(values: Sequence[ValueId | None]) -> tuple[int, ...]:
        return tuple(0 if value is None else base + phase.offsets.get(value, 0) for value in values)

    def pitches(values: Sequence[ValueId | None]) -> tuple[int, ...]:
        parts = (None if value is None else phase.parts.get(value) for value in values)
        return tuple(0 if part is None else part.pitch for part in parts)

    assert step.kernel is not None
    outputs = len(step.kernel.outputs)
    return Buffers(
        inputs=addresses(step.inputs),
        outputs=addresses(step.outputs[:outputs]),
        extra_outputs=addresses(step.outputs[outputs:]),
        workspace=base + phase.scratch[step.name] if step.kernel.workspace_bytes else 0,
        input_pitches=pitches(step.inputs),
        output_pitches=pitches(step.outputs[:outputs]),
    )
