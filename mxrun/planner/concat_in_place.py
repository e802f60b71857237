"""Concat in place: inputs of a concatenation stored as slices of its output, without a copy.

The output is the parent buffer, and each input a slice of its rows that begins at byte `begin` of
the first row. Kernels that write or read a slice must support a row pitch, which few do. If the
parent buffer has a single row, its slices are ordinary tensors. A parent buffer may itself be a
slice of a larger one; its slices are then slices of the larger one. Every refusal is logged with
its reason.

Needs: kernels. Provides: the parent buffer and offset of every slice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import field, replace

from mxrun.base.dataclass import dataclass
from mxrun.base.dtype import item_size
from mxrun.graph.graph import Graph, Step, ValueId
from mxrun.graph.naming import in_words
from mxrun.operator.kernel import ConcatLayout, OpReqType
from mxrun.planner.hint import CONCAT_IN_PLACE, Hint


@dataclass(frozen=True)
class BufferSlice:
    """Location of a tensor within its outermost parent buffer.

    parent: the parent buffer. begin: offset in bytes. width: elements of one row of the slice.
    pitch: elements of the parent buffer from one row to the next; 0 if it has one row.
    """

    parent: ValueId
    begin: int
    width: int
    pitch: int


@dataclass(frozen=True)
class BufferSlices:
    """Slices by value, and one hint per input of a concatenation."""

    parts: Mapping[ValueId, BufferSlice] = field(default_factory=dict)
    inputs: tuple[tuple[ValueId, Hint], ...] = ()

    def of_parents(self, parents: Collection[ValueId], otherwise: str) -> BufferSlices:
        """Return the slices of the given parent buffers.

        otherwise: the reason by which all others are refused.
        """
        parts = {value: part for value, part in self.parts.items() if part.parent in parents}
        inputs = tuple(
            (value, replace(hint, reason=otherwise) if hint.taken and value not in parts else hint)
            for value, hint in self.inputs
        )
        return BufferSlices(parts, inputs)


def find_slices(graph: Graph) -> BufferSlices:
    """Return all slices that the kernels permit, without regard to peak memory."""
    if all(step.kernel is None or step.kernel.join is None for step in graph.steps):
        return BufferSlices()
    found = _SliceAssignment(graph)
    # Last concatenation first: the location of a parent buffer decides the pitch of its slices.
    for step in reversed(graph.steps):
        if step.kernel is not None and step.kernel.join is not None and step.outputs[0] is not None:
            found.add(step, step.outputs[0], step.kernel.join)
    return BufferSlices(found.parts, tuple(reversed(found.inputs)))


class _SliceAssignment:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.parts: dict[ValueId, BufferSlice] = {}
        self.inputs: list[tuple[ValueId, Hint]] = []
        self._producers = graph.producer()
        self._readers: dict[ValueId, list[Step]] = {}
        for step in graph.steps:
            for value in set(step.reads):
                self._readers.setdefault(value, []).append(step)
        self._results = set(graph.results.values())
        self._changed = {*graph.mutations, *graph.mutations.values()}

    def add(self, step: Step, output: ValueId, join: ConcatLayout) -> None:
        """Assign slices of `output` to the inputs of one concatenation."""
        values = self.graph.values
        size = item_size(values[output].spec.dtype)
        outer = self.parts.get(output, BufferSlice(output, 0, 0, 0))
        pitch = outer.pitch or (sum(join.widths) if join.rows > 1 else 0)
        begin = outer.begin
        for value, width in zip(step.inputs, join.widths, strict=True):
            assert value is not None
            part = BufferSlice(outer.parent, begin, width, pitch)
            reason = self._refusal(step, value, part)
            if not reason:
                self.parts[value] = part
            names = (values[value].name, values[output].name)
            self.inputs.append((value, Hint(step.name, *names, reason, CONCAT_IN_PLACE)))
            begin += width * size

    def _refusal(self, step: Step, value: ValueId, part: BufferSlice) -> str:
        """Return the reason why `value` cannot be the slice `part`, or ""."""
        values = self.graph.values
        if value not in self._producers:
            return f"{in_words(values[value].name)} is given from outside"
        if value in self._results:
            return f"{in_words(values[value].name)} is a result"
        if not values[value].spec.nbytes:
            return "it is empty"
        if value in self.parts:
            return f"it is already in {in_words(values[self.parts[value].parent].name)}"
        if step.requests[0] is not OpReqType.WRITE or value in self._changed:
            return "it is updated in place"
        if part.pitch == 0 and part.begin % self.graph.alignment:
            return f"its offset would not be a multiple of {self.graph.alignment} bytes"
        return next(self._objections(value, part), "")

    def _objections(self, value: ValueId, part: BufferSlice) -> Iterator[str]:
        """Yield the reasons why the producer and the readers of a value cannot use the slice."""
        producer, readers = self._producers[value], self._readers[value]
        for step in (producer, *readers):
            if step.is_view:
                yield f"{in_words(step.name)} is a view"
        if part.pitch:
            written = {} if producer.kernel is None else producer.kernel.pitched_outputs
            index = producer.outputs.index(value)
            if written.get(index) != part.width or producer.requests[index] is not OpReqType.WRITE:
                yield f"{in_words(producer.name)} cannot write it with a row pitch"
            for reader in readers:
                # A step without a kernel does not access memory; it only extends lifetimes.
                for index, each in enumerate(reader.inputs if reader.kernel else ()):
                    assert reader.kernel is not None
                    if each == value and reader.kernel.pitched_inputs.get(index) != part.width:
                        yield f"{in_words(reader.name)} cannot read it with a row pitch"
