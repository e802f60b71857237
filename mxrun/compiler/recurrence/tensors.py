"""Graph around a loop: whole tensors, of which the iterations read and write slices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from mxrun.base.dataclass import dataclass
from mxrun.base.tensor import TensorSpec
from mxrun.graph.graph import (
    Graph,
    GraphBuilder,
    GraphLoop,
    MemoryClass,
    Slice,
    Step,
    StepKind,
    ValueId,
    writes,
)
from mxrun.operator.register import create


@dataclass(frozen=True)
class TensorRows:
    """Slice of a tensor along its first axis, for each iteration.

    value: the tensor. first: row of the first iteration. step: rows from one iteration to the
    next; 0 if all read or write the same.
    """

    value: ValueId
    first: int = 0
    step: int = 0


@dataclass
class LoopPlaces:
    """Places of a body's sources and results in the tensors around a loop.

    overwritten: {new version: old version} of tensors that the loop writes, whose old content it
    keeps. limit: tensor with the number of iterations that run at most, the first ones, or the last
    ones if `from_end`.
    """

    reads: dict[str, TensorRows] = field(default_factory=dict)
    writes: dict[str, TensorRows] = field(default_factory=dict)
    overwritten: dict[ValueId, ValueId] = field(default_factory=dict)
    limit: ValueId | None = None
    from_end: bool = False


class SurroundingGraph:
    """Graph around loops, under construction."""

    def __init__(self, is_train: bool, kind: StepKind) -> None:
        self.builder = GraphBuilder(Graph(is_train=is_train))
        self._kind = kind

    def source(self, name: str, spec: TensorSpec) -> ValueId:
        """Return the source of a name."""
        return self.builder.source(name, spec, MemoryClass.IO)

    def value(self, name: str, spec: TensorSpec) -> ValueId:
        """Return a new tensor."""
        return self.builder.value(name, spec, MemoryClass.ACTIVATIONS)

    def spec(self, value: ValueId) -> TensorSpec:
        """Return the spec of a tensor."""
        return self.builder.values[value].spec

    def apply(
        self,
        operator: str,
        inputs: tuple[ValueId, ...],
        name: str,
        spec: TensorSpec,
        parameters: Mapping[str, object] | None = None,
    ) -> ValueId:
        """Return the output of an operator."""
        return self.outputs(operator, inputs, name, (spec,), parameters)[0]

    def outputs(
        self,
        operator: str,
        inputs: tuple[ValueId, ...],
        name: str,
        specs: Sequence[TensorSpec],
        parameters: Mapping[str, object] | None = None,
    ) -> tuple[ValueId, ...]:
        """Return the outputs of an operator."""
        made = tuple(self.value(f"{name}{index or ''}", spec) for index, spec in enumerate(specs))
        prop = create(operator, parameters or {})
        self.builder.step(Step(name, self._kind, prop, inputs, made, writes(made)))
        return made

    def zeros(self, name: str, spec: TensorSpec) -> ValueId:
        """Return a tensor of zeros."""
        return self.apply("_zeros", (), name, spec, zeros_parameters(spec))

    def started(self, name: str, spec: TensorSpec, given: ValueId | None) -> ValueId:
        """Return a tensor that begins as a copy of `given`, or as zeros."""
        if given is None:
            return self.zeros(name, spec)
        return self.apply("_copy", (given,), name, spec)

    def filled(
        self, name: str, spec: TensorSpec, first: int, rows: TensorSpec, given: ValueId | None
    ) -> ValueId:
        """Return a tensor of which only the rows from `first` on are written: `given`, or zeros.

        rows: spec of what is written.
        """
        made = self.value(name, spec)
        places = LoopPlaces()
        if given is not None:
            places.reads["data"] = TensorRows(given)
        places.writes["output"] = TensorRows(made, first)
        self.loop(f"{name}:fill", 1, _one_step(rows, given is None), places)
        return made

    def part(self, name: str, given: ValueId, first: int, rows: TensorSpec) -> ValueId:
        """Return a copy of the rows of a tensor from `first` on."""
        made = self.value(name, rows)
        places = LoopPlaces({"data": TensorRows(given, first)}, {"output": TensorRows(made)})
        self.loop(f"{name}:part", 1, _one_step(rows, is_zero=False), places)
        return made

    def loop(self, name: str, count: int, body: Graph, places: LoopPlaces) -> None:
        """Append a loop over a body."""
        inputs = list(dict.fromkeys(rows.value for rows in places.reads.values()))
        inputs += [] if places.limit is None else [places.limit]
        inputs += [old for old in places.overwritten.values() if old not in inputs]
        outputs = list(dict.fromkeys(rows.value for rows in places.writes.values()))
        self.builder.mutations.update(places.overwritten)
        self.builder.step(
            loop_step(
                name,
                self._kind,
                GraphLoop(
                    count=count,
                    body=body,
                    reads=self._slices(places.reads, inputs),
                    writes=self._slices(places.writes, outputs),
                    inputs=tuple(map(self.spec, inputs)),
                    outputs=tuple(map(self.spec, outputs)),
                    limit=None if places.limit is None else inputs.index(places.limit),
                    from_end=places.from_end,
                ),
                tuple(inputs),
                tuple(outputs),
            )
        )

    def _slices(
        self, places: Mapping[str, TensorRows], tensors: Sequence[ValueId]
    ) -> dict[str, Slice]:
        def placed(rows: TensorRows) -> Slice:
            spec = self.spec(rows.value)
            row = spec.nbytes // spec.shape[0] if rows.first or rows.step else 0
            return Slice(tensors.index(rows.value), rows.first * row, rows.step * row)

        return {name: placed(rows) for name, rows in places.items()}


def loop_step(
    name: str,
    kind: StepKind,
    loop: GraphLoop,
    inputs: tuple[ValueId, ...],
    outputs: tuple[ValueId, ...],
) -> Step:
    """Return the step that is a loop."""
    prop = create("_loop", {"num_inputs": len(inputs), "num_outputs": len(outputs)})
    return Step(name, kind, prop, inputs, outputs, writes(outputs), loop=loop)


def zeros_parameters(spec: TensorSpec) -> dict[str, object]:
    """Return the parameters of `_zeros` for a spec."""
    return {"shape": spec.shape, "dtype": spec.dtype}


def _one_step(spec: TensorSpec, is_zero: bool) -> Graph:
    """Return a graph that copies its source `data`, or writes zeros, to its result `output`."""
    builder = GraphBuilder(Graph())
    inputs = () if is_zero else (builder.source("data", spec, MemoryClass.IO),)
    made = builder.value("output", spec, MemoryClass.ACTIVATIONS)
    prop = create("_zeros", zeros_parameters(spec)) if is_zero else create("_copy", {})
    builder.step(Step("output", StepKind.FORWARD, prop, inputs, (made,), writes((made,))))
    builder.results["output"] = made
    return builder.build()
