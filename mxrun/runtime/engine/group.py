"""Group of operators that is pushed as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mxrun.runtime.engine.interface import EngineOperator, RunContext, Variable


class OperatorGroup(EngineOperator):
    """Operators that run one after the other, all of whose accesses are granted together.

    One push of a group costs little more than one of its operators. The function of the first one
    that raises ends the group. In traces it contains its operators.

    spanned: runs an operator's function and records its time span (`Engine.call`).
    """

    __slots__ = ("parts",)

    def __init__(
        self,
        parts: Sequence[EngineOperator],
        spanned: Callable[[EngineOperator, RunContext], object],
        name: str,
    ) -> None:
        self.parts = tuple(parts)
        needed: dict[Variable, None] = {}
        changed: dict[Variable, None] = {}
        for part in self.parts:
            # What an earlier operator has written is not needed from outside of the group.
            needed |= {variable: None for variable in part.needs if variable not in changed}
            changed |= dict.fromkeys(part.changes)

        def run(run_context: RunContext) -> None:
            for part in self.parts:
                spanned(part, run_context)

        super().__init__(
            run,
            [variable for variable in needed if variable not in changed],
            [variable for variable in changed if variable not in needed],
            [variable for variable in changed if variable in needed],
            name=name,
            context=parts[0].context,
            pool=parts[0].pool,
        )
