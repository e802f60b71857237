"""Execution of a plan's phases on one context, or on several side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from mxrun.base.context import Context
from mxrun.device.interface import Program
from mxrun.executor.executor import Executor
from mxrun.executor.sequence import ProgramSequence
from mxrun.graph.phases import ACCUMULATE, TRAIN, UPDATE
from mxrun.planner.gradient_buckets import GradientBucket, cuts
from mxrun.runtime.engine.failure import JobError
from mxrun.runtime.engine.interface import HOST, Engine, EngineOperator, Pool, RunContext, Variable
from mxrun.train.gradient_exchange import exchange_program


class StepRunner(Protocol):
    """Interface for running the phases of a plan once their batches are loaded."""

    def run(self, phase: str, count: int) -> None:
        """Run a phase on the first `count` contexts and wait for its results."""

    def update(self) -> None:
        """Update the parameters after the phase TRAIN, if that does not do so itself."""


class SingleContext:
    """Runner of a single executor, whose training phase updates the parameters."""

    def __init__(self, run: Callable[[str], None]) -> None:
        """`run`: runs a program of the executor."""
        self._run = run

    def run(self, phase: str, count: int) -> None:
        """Run a phase."""
        self._run(phase)

    def update(self) -> None:
        """Do nothing."""


class DataParallel:
    """Runner of executors of one plan, each on a context of its own with a part of the batch.

    Every context has its own copy of the parameters and states. Backward is cut where a bucket of
    gradients is complete. Once all contexts have completed a bucket it is summed in the order of
    the contexts, while they compute the next one. Then every context updates its parameters with
    the same sums by the same program, so that the copies stay equal bit by bit: this takes no
    longer than one update, and copies no parameters.

    All of these are functions on an engine. Those of one context run in the order of pushing, on
    the context's own worker, to which its team of threads belongs. Nothing that is computed depends
    on when they run.
    """

    def __init__(
        self,
        executors: Sequence[Executor],
        contexts: Sequence[Context],
        buckets: Sequence[GradientBucket],
        engine: Engine,
        reduces_on_device: bool = False,
    ) -> None:
        """`reduces_on_device`: sum gradients on the workers of the contexts, in turn, and not on
        one of the host.
        """
        self._engine = engine
        # All of an arena but the gradients; and the gradients of each bucket, by context.
        self._arenas = [engine.new_variable(f"arena of {context}") for context in contexts]
        self._gradients = [
            [engine.new_variable(f"bucket {number} of {context}") for context in contexts]
            for number, _ in enumerate(buckets)
        ]
        self._phases = {
            phase: [
                self._operators(phase, executor, context, index, buckets)
                for index, (executor, context) in enumerate(zip(executors, contexts, strict=True))
            ]
            for phase in executors[0].programs
        }
        self._reductions = [
            engine.new_operator(
                _running(exchange_program(bucket, executors)),
                updates=self._gradients[number],
                name=f"push and pull bucket {number}",
                context=contexts[number % len(contexts)] if reduces_on_device else HOST,
                pool=Pool.COMPUTE if reduces_on_device else Pool.COMMUNICATION,
                # The parameters of the last bucket are the first that the next step reads.
                priority=number + 1,
            )
            for number, bucket in enumerate(buckets)
        ]

    def run(self, phase: str, count: int) -> None:
        """Run a phase on the first `count` contexts and wait for its results.

        After TRAIN, sums of gradients may still be pending.
        """
        for operators in self._phases[phase][:count]:
            for operator in operators:
                self._engine.push(operator)
        if phase == TRAIN:
            for reduction in self._reductions:
                self._engine.push(reduction)
        self._wait(self._arenas[:count])

    def update(self) -> None:
        """Update the parameters of every context with the sums of gradients."""
        self.run(UPDATE, len(self._arenas))

    def _operators(
        self,
        phase: str,
        executor: Executor,
        context: Context,
        index: int,
        buckets: Sequence[GradientBucket],
    ) -> list[EngineOperator]:
        """Return the operators that run a phase on context number `index`, one for each piece."""
        program, arena = executor.programs[phase], self._arenas[index]
        gradients = [variables[index] for variables in self._gradients]
        if phase == TRAIN:
            steps = len(executor.plan.phases[phase].steps)
            ends = (*cuts(buckets, steps), steps)
            pieces = program.pieces if isinstance(program, ProgramSequence) else (program,)
            ready = [bucket.ready for bucket in buckets]
            complete = [
                [each for each, at in zip(gradients, ready, strict=True) if at == end]
                for end in ends
            ]
            return [
                self._operator(phase, context, piece, [arena, *filled])
                for piece, filled in zip(pieces, complete, strict=True)
            ]
        reads = gradients if phase == UPDATE else []
        updates = [arena, *gradients] if phase == ACCUMULATE else [arena]
        return [self._operator(phase, context, program, updates, reads)]

    def _operator(
        self,
        name: str,
        context: Context,
        program: Program,
        updates: Sequence[Variable],
        reads: Sequence[Variable] = (),
    ) -> EngineOperator:
        return self._engine.new_operator(
            _running(program), reads, updates=updates, name=name, context=context
        )

    def _wait(self, variables: Sequence[Variable]) -> None:
        """Wait for the users of variables; raises the exception of the function that failed."""
        failures = []
        for variable in variables:
            try:
                self._engine.wait_for_variable(variable)
            except JobError as failed:
                failures += failed.failures
        if failures:
            raise min(failures, key=lambda failure: failure.sequence).error


def _running(program: Program) -> Callable[[RunContext], None]:
    """Return an engine function that runs a program."""

    def run(_: RunContext) -> None:
        program.run()

    return run
