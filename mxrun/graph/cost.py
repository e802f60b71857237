"""Cost model of a step: lower bound on its time, and predicted time, from its plan alone.

The floor of a step is the larger of two times: its operations at the speed of a matrix product, and
its bytes, each read and written once, at the bandwidth of a working set of that size. No code for
these bytes and operations is faster; a plan with fewer of them may be.

The predicted time is floor / efficiency + overhead. Efficiency is the fraction of the floor's speed
that good code usually reaches. Overhead is the time of the step's calls without any work.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from mxrun.base.dataclass import dataclass
from mxrun.base.dtype import item_size
from mxrun.base.machine import Machine
from mxrun.graph.graph import Step, StepKind, ValueId
from mxrun.operator.kernel import Kernel, OpReqType


class Bound(Enum):
    """Resource that limits the speed of a step."""

    COMPUTE = "compute"
    MEMORY = "memory"
    OVERHEAD = "overhead"


# Fraction of the floor's speed that good code reaches. Products: 70 % to 95 % of the fastest
# product for shapes of common networks; their gradients less, because one factor is read with a
# stride. Passes over memory share the caches with other tensors and begin with cold ones.
_EFFICIENCY: Mapping[tuple[Bound, StepKind], float] = {
    (Bound.COMPUTE, StepKind.FORWARD): 0.75,
    (Bound.COMPUTE, StepKind.BACKWARD): 0.6,
}
_OTHERWISE = 0.6
# Speeds assumed without measurements of the machine.
_FLOPS_PER_S, _BYTES_PER_S = 100e9, 10e9
# A cheap step moves at most this multiple of its output's bytes, and does at most this number of
# operations per byte moved: memory bandwidth does not permit more at full speed.
_CHEAP_TRAFFIC, _CHEAP_INTENSITY = 8, 8


@dataclass(frozen=True)
class Cost:
    """Minimum seconds of a step's operations, of its memory traffic, and of empty calls."""

    kind: StepKind
    compute_s: float
    memory_s: float
    overhead_s: float

    @property
    def floor_s(self) -> float:
        """Minimum seconds for these operations and bytes: max(compute_s, memory_s)."""
        return max(self.compute_s, self.memory_s)

    @property
    def bound_s(self) -> float:
        """Maximum of the floor and the overhead, in seconds."""
        return max(self.floor_s, self.overhead_s)

    @property
    def bound(self) -> Bound:
        """Resource that determines `bound_s`."""
        if self.overhead_s > self.floor_s:
            return Bound.OVERHEAD
        return self._limit

    @property
    def predicted_s(self) -> float:
        """Predicted seconds of the step: floor_s / efficiency + overhead_s."""
        efficiency = _EFFICIENCY.get((self._limit, self.kind), _OTHERWISE)
        return self.floor_s / efficiency + self.overhead_s

    @property
    def _limit(self) -> Bound:
        return Bound.COMPUTE if self.compute_s > self.memory_s else Bound.MEMORY


@dataclass(frozen=True)
class Traffic:
    """Minimum bytes that a step reads and writes, each tensor counted once.

    in_place: bytes written over memory that the step also reads.
    """

    read: int
    written: int
    in_place: int


def traffic_of(step: Step, offsets: Mapping[ValueId, int]) -> Traffic:
    """Return the memory traffic of a step whose values are at `offsets`."""
    kernel = _kernel(step)
    written = sum(spec.nbytes for spec in (*kernel.outputs, *kernel.extra_outputs) if spec)
    # An operator that declares its `bytes` may write less than its outputs hold.
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
    """Return the bytes of inputs that are already at their destination (concat in place)."""
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
    """Return the cost of a step whose calls take `overhead_s` seconds without any work."""
    kernel = _kernel(step)
    return Cost(
        kind=step.kind,
        compute_s=kernel.flops / machine.flops(_factors(kernel)),
        memory_s=machine.seconds_to_move(traffic.read, traffic.written, traffic.in_place),
        overhead_s=overhead_s,
    )


class StepSeconds:
    """Predicted seconds of steps before placement.

    Uses the measured speeds of `machine`, or else typical speeds of a few server cores.
    """

    def __init__(self, machine: Machine | None) -> None:
        self._machine = machine

    def __call__(self, step: Step) -> float:
        """Return the predicted seconds of one step."""
        if step.kernel is None or step.kernel.is_view:
            return 0.0
        if self._machine is None:
            return step.kernel.flops / _FLOPS_PER_S + step.kernel.bytes_moved / _BYTES_PER_S
        overhead = self._machine.primitive_s + self._machine.tasks_s
        return cost_of(step, traffic_of(step, {}), self._machine, overhead).predicted_s

    def is_cheap(self, step: Step) -> bool:
        """Return whether a forward step is cheap to recompute: normalisations, sums, maxima.

        A cheap step does few operations per byte moved, and moves few bytes per byte of output.
        """
        kernel = step.kernel
        if kernel is None or kernel.is_view:
            return True
        output_bytes = sum(spec.nbytes for spec in (*kernel.outputs, *kernel.extra_outputs) if spec)
        moves_few_bytes = kernel.bytes_moved <= _CHEAP_TRAFFIC * output_bytes
        return moves_few_bytes and kernel.flops <= _CHEAP_INTENSITY * kernel.bytes_moved


def _kernel(step: Step) -> Kernel:
    assert step.kernel is not None
    return step.kernel


def _factors(kernel: Kernel) -> str:
    """Return the dtype in which the kernel multiplies."""
    low = any(spec is not None and spec.dtype == "bfloat16" for spec in kernel.inputs)
    return "bfloat16" if low else "float32"
