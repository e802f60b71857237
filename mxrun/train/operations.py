"""Operations of a loop over batches on the engine, and the variables that order them."""

from __future__ import annotations

from mxrun.runtime.engine.group import OperatorGroup
from mxrun.runtime.engine.interface import Engine, EngineOperator, Function
from mxrun.runtime.engine.wait import wait_for


class LoopOperations:
    """Variables of a run's memory, and operators over them that are pushed again and again.

    batch: what the host writes before a program runs: the I/O slots, rates, positions in random
    streams. state: parameters, optimizer and auxiliary states. results: the memory that all
    programs of the plan use in turn. measured: sums of losses and metrics.

    As a rule nothing is pending when the loop calls `run`: the operation then runs on the loop's
    thread, without a change of threads.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.batch = engine.new_variable("batch")
        self.state = engine.new_variable("state")
        self.results = engine.new_variable("results")
        self.measured = engine.new_variable("measured")

    def load(self, function: Function, name: str) -> EngineOperator:
        """Return the operator that loads the next batch."""
        return self.engine.new_operator(function, writes=[self.batch], name=name)

    def train(self, function: Function, name: str) -> EngineOperator:
        """Return the operator of a program that may change the state."""
        return self.engine.new_operator(
            function,
            reads=[self.batch],
            writes=[self.results],
            updates=[self.state],
            name=name,
        )

    def evaluate(self, function: Function, name: str) -> EngineOperator:
        """Return the operator of a program that reads the state."""
        return self.engine.new_operator(
            function, reads=[self.batch, self.state], writes=[self.results], name=name
        )

    def measure(self, function: Function, name: str) -> EngineOperator:
        """Return the operator that adds a program's results to the sums."""
        return self.engine.new_operator(
            function,
            reads=[self.batch, self.results],
            updates=[self.measured],
            name=name,
        )

    def group(self, name: str, *operators: EngineOperator) -> EngineOperator:
        """Return an operator that runs several in order, for hardly more than the cost of one."""
        return OperatorGroup(operators, self.engine.call, name)

    def run(self, operator: EngineOperator) -> None:
        """Run an operator and wait for it; raises the exception with which it failed."""
        is_here = self.engine.run_or_push(operator)
        changed = operator.changes[0]
        if not is_here or changed.failure is not None:
            wait_for(self.engine, changed)
