"""Whether tensors of an executor are finite, found out where they lie."""

from __future__ import annotations

from collections.abc import Sequence

from mxrun.executor.executor import Executor
from mxrun.executor.side_program import SideProgram
from mxrun.operator.register import create


class FiniteCheck:
    """Program that reads pinned tensors of an executor; only its result comes to the host."""

    def __init__(self, executor: Executor, names: Sequence[str]) -> None:
        """`names`: of the tensors; integers are always finite."""
        tensors = {name: executor.tensor(name) for name in names}
        floating = {name: each for name, each in tensors.items() if "float" in each.spec.dtype}
        self._program: SideProgram | None = None
        if floating:
            prop = create("_all_finite", {"num_args": len(floating)})
            self._program = SideProgram(prop, floating)
            self._result = self._program.outputs[0].mirror()

    def __call__(self) -> bool:
        """Return whether every element of every tensor is finite."""
        if self._program is None:
            return True
        self._program.run()
        self._result.load()
        return bool(self._result.array[0])
