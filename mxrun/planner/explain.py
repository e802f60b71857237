"""Reasons why each block of the arena is live at a step: its tensor and the last reader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from mxrun.base.dataclass import dataclass
from mxrun.graph.graph import MemoryClass, Step, StepKind, ValueId
from mxrun.graph.naming import in_words
from mxrun.planner.plan import Block, PhasePlan

_PINNED_REASONS = {
    MemoryClass.PARAMETERS: "parameter",
    MemoryClass.GRADIENTS: "gradient summed over batches",
    MemoryClass.OPTIMIZER: "optimizer state",
    MemoryClass.AUXILIARY: "auxiliary state",
    MemoryClass.CARRIED: "carried from one run to the next",
    MemoryClass.CONSTANTS: "computed from parameters before the first step",
    MemoryClass.IO: "written by the loop before each step",
}


@dataclass(frozen=True)
class LiveTensor:
    """Block that is live at a step, and the tensor that keeps it live.

    tensor: of the tensors that share the block, the one that is read last. first, last: positions
    of the steps that write it and that read it last. reason: the last use that keeps it live.
    shared: all other tensors of the block, some of which are live at other steps; they share the
    memory of the first one, whose name the block has.
    """

    block: Block
    tensor: str
    first: int
    last: int
    reason: str
    shared: tuple[str, ...]


def live_tensors(
    phase: PhasePlan, pinned: Sequence[Block], position: int
) -> tuple[LiveTensor, ...]:
    """Return the tensors that are live while the step at `position` runs, the largest first.

    Their bytes add up to `phase.live_bytes()[position]` plus the pinned blocks.
    """
    reads = _Reads(phase)
    live = [
        *pinned_tensors(phase, pinned),
        *(
            reads.explain(block, position)
            for block in phase.blocks
            if block.first <= position < block.last
        ),
    ]
    return tuple(sorted(live, key=lambda tensor: (-tensor.block.nbytes, tensor.block.offset)))


def pinned_tensors(phase: PhasePlan, pinned: Sequence[Block]) -> tuple[LiveTensor, ...]:
    """Return the blocks that all phases share, live from the first step of `phase` to its last."""
    end = max(0, len(phase.steps) - 1)
    return tuple(
        LiveTensor(block, block.name, 0, end, _PINNED_REASONS[block.memory_class], ())
        for block in pinned
    )


@dataclass(frozen=True)
class BlockLifetime:
    """Block of a phase, and the tensors that it holds one after the other.

    whole: first and last are the steps of the block; its tensor is the one that is read last.
    held: each tensor with the steps at which it is the one that keeps the block live. Together they
    cover the steps of the block.
    """

    whole: LiveTensor
    held: tuple[LiveTensor, ...]


def block_lifetimes(phase: PhasePlan) -> tuple[BlockLifetime, ...]:
    """Return the lifetimes of all blocks of a phase and of the tensors in each."""
    reads = _Reads(phase)
    return tuple(
        BlockLifetime(
            replace(reads.explain(block, block.last - 1), first=block.first, last=block.last - 1),
            tuple(reads.held(block)),
        )
        for block in phase.blocks
    )


class _Reads:
    """Writer and last reader of every value of a phase."""

    def __init__(self, phase: PhasePlan) -> None:
        self._phase = phase
        self._written: dict[ValueId, int] = {}
        self._last: dict[ValueId, tuple[int, str]] = {}
        self._reader: dict[ValueId, Step] = {}
        for step in reversed(phase.steps):
            self._reader.update(dict.fromkeys(step.reads, step))
        for position, step in enumerate(phase.steps):
            for value in step.writes:
                self._written[value] = position
            for index, source in enumerate(step.inputs):
                if source is not None:
                    self._last[source] = (position, self._read(step, index))
            for source in step.added_to:
                self._last[source] = (position, f"{in_words(step.name)} adds to it")
        # A read of a view is a read of the tensor that it is a view of.
        for step in reversed(phase.steps):
            if step.is_view:
                source, view = step.reads[0], step.writes[0]
                self._last[source] = max(self._last[source], self._last.get(view, (-1, "")))
        end = len(phase.steps) - 1
        for name, value in phase.graph.results.items():
            same = name == phase.graph.values[value].name
            result = "result" if same else f"result {in_words(name)}"
            self._last[value] = (end, f"{result}, kept to the end")

    def explain(self, block: Block, position: int) -> LiveTensor:
        """Return the tensor that keeps a block live at `position`, and the reason."""
        if not block.values:
            reason = f"workspace of {in_words(self._phase.steps[position].name)}"
            return LiveTensor(block, block.name, position, position, reason, ())
        held = [value for value in block.values if self._written[value] <= position]
        value = max(held, key=lambda value: (self._last_read(value)[0], self._written[value]))
        last, reason = self._last_read(value)
        name, *shared = (
            self._phase.graph.values[each].name
            for each in (value, *(other for other in block.values if other != value))
        )
        return LiveTensor(block, name, self._written[value], last, reason, tuple(shared))

    def held(self, block: Block) -> Iterator[LiveTensor]:
        """Yield the tensors that keep a block live one after the other.

        A tensor written in place of another holds the block from the step that writes it.
        """
        starts = sorted({block.first, *(self._written[value] for value in block.values)})
        found: LiveTensor | None = None
        for start, end in pairwise((*starts, block.last)):
            live = self.explain(block, start)
            if found is not None and live.tensor != found.tensor:
                yield found
                found = None
            found = replace(live, first=start if found is None else found.first, last=end - 1)
        if found is not None:
            yield found

    def _last_read(self, value: ValueId) -> tuple[int, str]:
        written = self._written[value]
        writer = in_words(self._phase.steps[written].name)
        return self._last.get(value, (written, f"{writer} writes it"))

    def _read(self, step: Step, index: int) -> str:
        """Describe the role of input `index` of a step, by the operator's declared names."""
        if step.kind is StepKind.REORDER:
            reader = self._reader.get(step.writes[0])
            return f"{in_words(reader.name)} reads a copy of it" if reader else "it is copied"
        if step.kind is not StepKind.BACKWARD or step.forward is None or step.prop is None:
            return f"{in_words(step.name)} reads it"
        outputs, arguments = step.prop.list_outputs(), step.prop.list_arguments()
        names = (*(f"gradient of {name}" for name in outputs), *arguments, *outputs)
        role = names[index] if index < len(names) else "kept by its forward kernel"
        return f"backward of {in_words(step.forward)} reads it ({role})"
