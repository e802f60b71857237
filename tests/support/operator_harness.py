"""Single kernel calls through the contract checker's harness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mxrun import library
from mxrun.base.tensor import TensorSpec
from mxrun.contract import call, memory, trial
from mxrun.contract.call import (
    RANDOM,
    STREAM,
    BackwardData,
    Conditions,
    ForwardRun,
    all_implementations,
    default_requests,
    spec_of,
)
from mxrun.contract.memory import Array
from mxrun.contract.requests import SENTINEL
from mxrun.operator.kernel import Kernel, OpReqType
from mxrun.operator.register import AnyProperty, Implementation, implementations

__all__ = [
    "RANDOM",
    "SENTINEL",
    "STREAM",
    "Array",
    "BackwardData",
    "ForwardRun",
    "Memory",
    "Part",
    "all_implementations",
    "backward",
    "default_requests",
    "execute",
    "filled",
    "forward",
    "implementations",
    "spec_of",
]

library.load()


class Memory(memory.GuardedMemory):
    """Memory of one tensor in any layout, written and read in logical form."""

    def __init__(self, spec: TensorSpec, value: Array | None = None) -> None:
        super().__init__(spec)
        if value is not None:
            self.bytes[:] = trial.memory_of(spec, value).bytes

    def load(self) -> Array:
        """The logical value, copied."""
        return trial.load(self)


class Part(memory.PitchedMemory):
    """Memory of a channels-last tensor that is a slice of the rows of a larger one."""

    def __init__(self, spec: TensorSpec, value: Array | None = None) -> None:
        content = None if value is None else trial.memory_of(spec, value).elements()
        super().__init__(spec, spec.shape[1], content)
        self._tensor = spec

    def load(self) -> Array:
        """Return a copy of the logical value; asserts that the memory beside it is unchanged."""
        assert not self.overrun()
        dense = Memory(self._tensor)
        dense.elements()[...] = self.elements()
        return dense.load()


def forward(
    implementation: Implementation,
    prop: AnyProperty,
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    requests: Sequence[OpReqType] | None = None,
    inplace: Mapping[int, int] | None = None,
    threads: int = 1,
    is_train: bool = True,
) -> ForwardRun | None:
    """Run forward once onto copies of `outputs`; returns None if the call is declined."""
    conditions = Conditions(threads)
    return call.forward(
        implementation, prop, inputs, outputs, requests, inplace, is_train, conditions
    )


def backward(
    implementation: Implementation,
    prop: AnyProperty,
    data: BackwardData,
    before: Sequence[Array],
    forward_run: ForwardRun,
    requests: Sequence[OpReqType] | None = None,
    threads: int = 1,
) -> list[Array]:
    """Return the gradients of one backward call; undeclared inputs are absent."""
    return call.backward(
        implementation,
        prop,
        data,
        before,
        forward_run,
        requests,
        conditions=Conditions(threads),
    ).gradients


def execute(
    kernel: Kernel,
    inputs: Sequence[memory.GuardedMemory | None],
    outputs: Sequence[memory.GuardedMemory],
    extra: Sequence[memory.GuardedMemory] = (),
) -> None:
    """Bind and run one kernel with garbage in its workspace."""
    workspace = Memory(TensorSpec((max(kernel.workspace_bytes, 1),), "uint8"))
    trial.run(kernel.bind(trial.handles_of(inputs, outputs, extra, workspace)))
    assert not workspace.overrun()


def filled(shapes: Sequence[Sequence[int]], value: float, dtype: str) -> list[Array]:
    """Return arrays of one value."""
    return [np.full(shape, value, dtype) for shape in shapes]
