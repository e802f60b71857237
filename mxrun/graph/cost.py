"""What a step costs at least, and what it will probably take, from what is known before it runs.

The floor of a step is arithmetic: its operations at the speed of a matrix product, or its bytes,
each read and written once, at the speed of a working set of that size, whichever takes longer. No
code for these bytes and operations is faster; a plan with fewer of them may be.

The prediction is floor / efficiency + overhead: the floor by what good code usually reaches of it,
and what the step's calls cost when they do nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from mxrun.base.dtype import item_size
from mxrun.base.machine import Machine
from mxrun.graph.graph import Step, StepKind, ValueId
from mxrun.operator.kernel import Kernel, OpReqType


class Bound(Enum):
    """What a step cannot be faster than."""

    COMPUTE = "compute"
    MEMORY = "memory"
    OVERHEAD = "overhead"


# What good code reaches of a floor. Products: 70 % to 95 % of the fastest one in shapes of common
# networks, their gradients less, for one factor is read across. Passes over memory share the
# caches with what is to come and begin with cold ones.
_EFFICIENCY: Mapping[tuple[Bound, StepKind], float] = {
    (Bound.COMPUTE, StepKind.FORWARD): 0.75,
    (Bound.COMPUTE, StepKind.BACKWARD): 0.6,
}
_OTHERWISE = 0.6
# Of a machine that was never measured.
_FLOPS_PER_S, _BYTES_PER_S = 100e9, 10e9
# A cheap step moves so many times the bytes that it makes at most, and does so many operations with
# each byte moved: memory keeps up with no more.
_CHEAP_TRAFFIC, _CHEAP_INTENSITY = 8, 8


@dataclass(frozen=True)
class Cost:
    """The least seconds of a step's operations, of its bytes, and of calls that do nothing."""

    kind: StepKind
    compute_s: float
    memory_s: float
    overhead_s: float

    @property
    def floor_s(self) -> float:
        """No code for these operations and bytes is faster."""
        return max(self.compute_s, self.memory_s)

    @property
    def bound_s(self) -> float:
        """The floor, or the calls where they alone take longer."""
        return max(self.floor_s, self.overhead_s)

    @property
    def bound(self) -> Bound:
        """What decides `bound_s`."""
        if self.overhead_s > self.floor_s:
            return Bound.OVERHEAD
        return self._limit

    @property
    def predicted_s(self) -> float:
        """What the step will probably take."""
        efficiency = _EFFICIENCY.get((self._limit, self.kind), _OTHERWISE)
        return self.floor_s / efficiency + self.overhead_s

    @property
    def _limit(self) -> Bound:
        return Bound.COMPUTE if self.compute_s > self.memory_s else Bound.MEMORY


@dataclass(frozen=True)
class Traffic:
    """The bytes that a step reads and writes at least, each tensor once.

    in_place: how many of those written lie where others are read.
    """

    read: int
    written: int
    in_place: int


def traffic_of(step: Step, offsets: Mapping[ValueId, int]) -> Traffic:
    """What a step moves whose values lie at `offsets`."""
    kernel = _kernel(step)
    written = sum(spec.nbytes for spec in (*kernel.outputs, *kernel.extra_outputs) if spec)
    # An operator that says of itself how much it moves may write less than its outputs hold.
    written = min(written, kernel.bytes_moved)
    there = _joined_bytes(step, offsets)
    again = sum(
        spec.nbytes
        for index, (value, spec) in enumerate(zip(step.inputs, kernel.inputs, strict=True))
        if spec is not None and value is not None and value in step.inputs[:index]
    )
    read = max(0, kernel.bytes_moved - written - again - there)
    written -= there
    sources = {offsets.get(value) for value in step.inputs if value is not None} - {None}
    in_place = 0
    for index, (value, spec) in enumerate(zip(step.outputs, kernel.outputs, strict=False)):
        if value is None or spec is None:
            continue
        if step.requests[index] is OpReqType.ADD:
            read += spec.nbytes
            in_place += spec.nbytes
        elif kernel.join is None and offsets.get(value) in sources:
            in_place += spec.nbytes
    return Traffic(read, written, min(in_place, read, written))


def _joined_bytes(step: Step, offsets: Mapping[ValueId, int]) -> int:
    """The bytes of the inputs that lie where the step would copy them."""
    kernel = _kernel(step)
    output = step.outputs[0]
    if kernel.join is None or output is None or output not in offsets:
        return 0
    there, begin = 0, offsets[output]
    for value, spec, width in zip(step.inputs, kernel.inputs, kernel.join.widths, strict=True):
        if value is not None and spec is not None:
            there += spec.nbytes if offsets.get(value) == begin else 0
            begin += width * item_size(spec.dtype)
    return there


def cost_of(step: Step, traffic: Traffic, machine: Machine, overhead_s: float) -> Cost:
    """The cost of a step whose calls take `overhead_s` when they do nothing."""
    kernel = _kernel(step)
    return Cost(
        kind=step.kind,
        compute_s=kernel.flops / machine.flops(_factors(kernel)),
        memory_s=machine.seconds_to_move(traffic.read, traffic.written, traffic.in_place),
        overhead_s=overhead_s,
    )


class StepSeconds:
    """What steps will probably take before anything has an address.

    By a machine's figures where it was measured, else by those of a few cores of a server.
    """

    def __init__(self, machine: Machine | None) -> None:
        self._machine = machine

    def __call__(self, step: Step) -> float:
        """Seconds of one step."""
        if step.kernel is None or step.kernel.is_view:
            return 0.0
        if self._machine is None:
            return step.kernel.flops / _FLOPS_PER_S + step.kernel.bytes_moved / _BYTES_PER_S
        overhead = self._machine.primitive_s + self._machine.team_s
        return cost_of(step, traffic_of(step, {}), self._machine, overhead).predicted_s

    def is_cheap(self, step: Step) -> bool:
        """Whether what a forward step makes is hardly worth keeping: normalizations, sums, maxima.

        It does little with each byte that it moves, and moves few more than it makes.
        """
        kernel = step.kernel
        if kernel is None or kernel.is_view:
            return True
        made = sum(spec.nbytes for spec in (*kernel.outputs, *kernel.extra_outputs) if spec)
        few = kernel.bytes_moved <= _CHEAP_TRAFFIC * made
        return few and kernel.flops <= _CHEAP_INTENSITY * kernel.bytes_moved


def _kernel(step: Step) -> Kernel:
    assert step.kernel is not None
    return step.kernel


def _factors(kernel: Kernel) -> str:
    """The type that the kernel multiplies in."""
    low = any(spec is not None and spec.dtype == "bfloat16" for spec in kernel.inputs)
    return "bfloat16" if low else "float32"
