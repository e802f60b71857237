"""Maps of scalar functions over strided tensors: one pass, whatever the operands' repetitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mxrun.backend import jit
from mxrun.backend.call import HEADER_SLOTS, NativeCall
from mxrun.backend.jit import Block, call_address, int64s, integer, native, share
from mxrun.backend.scalar_value import LoopForm
from mxrun.backend.team import team_for_elements
from mxrun.base.tensor import TensorSpec
from mxrun.operator.kernel import Buffers
from mxrun.operator.native_kernel import Part, Slot
from mxrun.operator.scalar import MapKernel, MapLoop
from mxrun.ops.strided import Axes, Map, common_axes, map_part

# 64-bit words of a thread's own argument block: the header, elements, output, three operands.
_OWN_WORDS = 16
_OPERANDS = 3
_ELEMENT = 4
assert HEADER_SLOTS + 2 + _OPERANDS <= _OWN_WORDS


@native
def runs_loop(block: Block) -> None:
    """A map's code on one run of the output's memory after the other.

    Slots: elements, elements of a run, the code, the team's words of scratch, output, x, y, z,
    bytes that each of the three moves by in a run per element, count of outer axes, scratch, then
    of each axis, the innermost first: size, and the bytes that x, y and z move by along it.
    """
    inner, code, scratch = integer(block, 1), integer(block, 2), integer(block, 12)
    # Every thread of the team has 16 words, and `share` cuts at multiples of 16.
    own, _ = share(block, integer(block, 3))
    arguments = int64s(block, 12)
    arguments[own], arguments[own + 1] = 0, 0
    at, end = share(block, integer(block, 0))
    while at < end:
        row = at // inner
        first = at - row * inner
        count = min(end - at, inner - first)
        x = integer(block, 5) + first * integer(block, 8)
        y = integer(block, 6) + first * integer(block, 9)
        z = integer(block, 7) + first * integer(block, 10)
        for axis in range(13, 13 + 4 * integer(block, 11), 4):
            position = row % integer(block, axis)
            row = row // integer(block, axis)
            x += position * integer(block, axis + 1)
            y += position * integer(block, axis + 2)
            z += position * integer(block, axis + 3)
        arguments[own + 2], arguments[own + 3] = count, integer(block, 4) + 4 * at
        arguments[own + 4], arguments[own + 5], arguments[own + 6] = x, y, z
        call_address(code, scratch + 8 * own, 0, 0, 0, 0, 0)
        at += count


@dataclass(frozen=True)
class RunsPart:
    """A map whose operands repeat along some of the axes but not along others."""

    loop: MapLoop
    output: Slot
    operands: tuple[Slot, ...]
    elements: int
    axes: Axes
    threads: int

    @property
    def team(self) -> None:
        """None: the loop starts its own."""
        return

    @property
    def scratch_bytes(self) -> int:
        """An argument block for every thread."""
        return 8 * _OWN_WORDS * self.threads

    def calls(self, buffers: Buffers, scratch: int) -> tuple[NativeCall, ...]:
        """Bind the loop."""
        absent = (0,) * (_OPERANDS - len(self.operands))
        (inner, steps), outer = self.axes[-1], self.axes[-2::-1]
        arguments = [self.elements, inner, self.loop.address, _OWN_WORDS * self.threads]
        arguments += [slot.address(buffers) for slot in (self.output, *self.operands)] + [*absent]
        arguments += [_ELEMENT * step for step in steps] + [*absent, len(outer), scratch]
        for size, strides in outer:
            arguments += [size, *(_ELEMENT * stride for stride in strides), *absent]
        return (jit.bind(runs_loop, tuple(arguments), self.threads),)


def strided_part(
    kind: Map | MapKernel,
    output: tuple[Slot, TensorSpec],
    operands: Sequence[tuple[Slot, TensorSpec]],
    threads: int,
    factor: float = 1.0,
) -> Part:
    """output = map of the operands, which broadcast to its shape; all in one unpacked layout.

    factor: of `Map.SCALE` alone.
    """
    if isinstance(kind, Map):
        return map_part(kind, output, operands, threads, factor)
    slot, spec = output
    slots = tuple(operand for operand, _ in operands)
    axes = common_axes(spec, [operand for _, operand in operands])
    steps = axes[-1][1] if axes else (1,) * len(slots)
    if len(axes) < 2:
        return kind.part(slot, slots, spec.elements, threads=threads, steps=steps)
    loop = MapLoop(kind.graph, kind.result, LoopForm(kind.dtype, steps, adds=False))
    team = team_for_elements(spec.elements, threads)
    return RunsPart(loop, slot, slots, spec.elements, axes, team)
