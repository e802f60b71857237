"""Which tensors lie within the one that a step joins them into, so that nothing copies them.

A part lies in the rows of the whole: element `begin` of each row is its first. Whoever writes or
reads it has to know how far apart its rows are, which few kernels do; where the whole is one row,
its parts are ordinary tensors. A whole may be part of a larger one, and its parts then are as well.
Everything refused is logged with its reason.

Needs: kernels. Provides: the place of every part.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from mxrun.base.dtype import item_size
from mxrun.base.tensor import ALIGNMENT
from mxrun.graph.graph import Graph, Step, ValueId
from mxrun.graph.naming import in_words
from mxrun.operator.kernel import Join, OpReqType
from mxrun.planner.hint import JOINED, Hint


@dataclass(frozen=True)
class BufferSlice:
    """The place of a tensor within the outermost whole.

    begin: bytes. width: elements of a row. pitch: elements of the whole from one row to the next;
        0 where there is one row.
    """

    whole: ValueId
    begin: int
    width: int
    pitch: int


@dataclass(frozen=True)
class BufferSlices:
    """The parts, and what became of every input of a join."""

    parts: Mapping[ValueId, BufferSlice] = field(default_factory=dict)
    inputs: tuple[tuple[ValueId, Hint], ...] = ()

    def only(self, wholes: Collection[ValueId], otherwise: str) -> BufferSlices:
        """The parts of these wholes; `otherwise` is why not those of others."""
        parts = {value: part for value, part in self.parts.items() if part.whole in wholes}
        inputs = tuple(
            (value, replace(hint, reason=otherwise) if hint.taken and value not in parts else hint)
            for value, hint in self.inputs
        )
        return BufferSlices(parts, inputs)


def joins(graph: Graph) -> BufferSlices:
    """All parts that are possible."""
    if all(step.kernel is None or step.kernel.join is None for step in graph.steps):
        return BufferSlices()
    found = _Joining(graph)
    # The last first: where a whole lies decides how its parts are read.
    for step in reversed(graph.steps):
        if step.kernel is not None and step.kernel.join is not None and step.outputs[0] is not None:
            found.add(step, step.outputs[0], step.kernel.join)
    return BufferSlices(found.parts, tuple(reversed(found.inputs)))


class _Joining:
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

    def add(self, step: Step, output: ValueId, join: Join) -> None:
        """Place the inputs of one step."""
        values = self.graph.values
        size = item_size(values[output].spec.dtype)
        outer = self.parts.get(output, BufferSlice(output, 0, 0, 0))
        pitch = outer.pitch or (sum(join.widths) if join.rows > 1 else 0)
        begin = outer.begin
        for value, width in zip(step.inputs, join.widths, strict=True):
            assert value is not None
            part = BufferSlice(outer.whole, begin, width, pitch)
            reason = self._refusal(step, value, part)
            if not reason:
                self.parts[value] = part
            names = (values[value].name, values[output].name)
            self.inputs.append((value, Hint(step.name, *names, reason, JOINED)))
            begin += width * size

    def _refusal(self, step: Step, value: ValueId, part: BufferSlice) -> str:
        """Why `value` cannot lie in its place; empty if it can."""
        values = self.graph.values
        if value not in self._producers:
            return f"{in_words(values[value].name)} is given from outside"
        if value in self._results:
            return f"{in_words(values[value].name)} is a result"
        if not values[value].spec.nbytes:
            return "it is empty"
        if value in self.parts:
            return f"it lies in {in_words(values[self.parts[value].whole].name)} already"
        if step.requests[0] is not OpReqType.WRITE or value in self._changed:
            return "the memory is changed in its place"
        if part.pitch == 0 and part.begin % ALIGNMENT:
            return "it would not begin at a cache line"
        return next(self._objections(value, part), "")

    def _objections(self, value: ValueId, part: BufferSlice) -> Iterator[str]:
        """Why those who write and read a value cannot do so in its place."""
        producer, readers = self._producers[value], self._readers[value]
        for step in (producer, *readers):
            if step.kernel is not None and step.kernel.is_view:
                yield f"{in_words(step.name)} is a view"
        if part.pitch:
            written = {} if producer.kernel is None else producer.kernel.pitched_outputs
            index = producer.outputs.index(value)
            if written.get(index) != part.width or producer.requests[index] is not OpReqType.WRITE:
                yield f"{in_words(producer.name)} writes it in one piece"
            for reader in readers:
                # A step without a kernel only keeps what it reads.
                for index, each in enumerate(reader.inputs if reader.kernel else ()):
                    assert reader.kernel is not None
                    if each == value and reader.kernel.pitched_inputs.get(index) != part.width:
                        yield f"{in_words(reader.name)} reads it in one piece"
