"""Shape and type inference for all tensors of a network, in both directions.

Each operator completes what it can from what is known. Sweeps over the nodes, alternately forwards
and backwards, are repeated until nothing changes. Insufficient knowledge is not an error here:
unknown variables are listed. All contradictions are collected, each with the inferences that led to
it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mxrun.base.dataclass import dataclass
from mxrun.base.dtype import FLOAT32
from mxrun.base.errors import Diagnostic, OperatorErrorContext, UserError
from mxrun.base.tensor import PartialShape, TensorSpec
from mxrun.graph.attributes import declared_shape, declared_type
from mxrun.graph.node import Node, NodeEntry, topological
from mxrun.operator.property import PartialInference, PartialType
from mxrun.operator.register import AnyProperty
from mxrun.operator.shape import (
    NestedContradiction,
    ShapeContradiction,
    is_known,
    require_complete,
    show,
    unify,
)


@dataclass(frozen=True)
class InferredSpecs:
    """Inferred shapes and types of all entries, and the diagnostics.

    contradictions: of shapes. mistyped: element types that an operator does not support. unknown:
    names of variables without a complete shape that no contradiction accounts for. assumed: entries
    whose type nothing decides; they are float32.
    """

    shapes: Mapping[NodeEntry, PartialShape]
    types: Mapping[NodeEntry, str]
    contradictions: tuple[Diagnostic, ...]
    mistyped: tuple[Diagnostic, ...]
    unknown: tuple[str, ...]
    assumed: frozenset[NodeEntry] = frozenset()

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """All diagnostics, of shapes and of types."""
        return (*self.contradictions, *self.mistyped)

    @property
    def complete(self) -> bool:
        """True if every shape is known and there is no diagnostic."""
        return not self.diagnostics and all(is_known(shape) for shape in self.shapes.values())

    def spec(self, entry: NodeEntry) -> TensorSpec:
        """Return the spec of an entry. Raises ValueError if its shape is incomplete."""
        return TensorSpec(require_complete(self.shapes[entry]), self.types[entry])


def infer(
    heads: Sequence[NodeEntry],
    shapes: Mapping[str, PartialShape],
    types: Mapping[str, str] | None = None,
    entries: Mapping[NodeEntry, PartialShape] | None = None,
) -> InferredSpecs:
    """Infer the specs of all entries reachable from `heads`.

    shapes, types: known ones of variables by name; others are those that the variables' attributes
    declare. entries: further known shapes.
    """
    nodes = topological(heads)
    state = _ShapeInference(nodes, shapes)
    state.shapes.update(
        (entry, each) for entry, each in (entries or {}).items() if each is not None
    )
    state.run()
    inferred, mistyped = _infer_types(nodes, types or {}, state.shapes)
    return InferredSpecs(
        shapes=state.shapes,
        types={entry: dtype or FLOAT32 for entry, dtype in inferred.items()},
        contradictions=tuple(state.diagnostics),
        mistyped=mistyped,
        unknown=state.unknown(),
        assumed=frozenset(entry for entry, dtype in inferred.items() if dtype is None),
    )


class _ShapeInference:
    def __init__(self, nodes: list[Node], given: Mapping[str, PartialShape]) -> None:
        self.nodes = nodes
        self.shapes: dict[NodeEntry, PartialShape] = {}
        # Node that completed each entry, for the chain of a diagnostic.
        self.source: dict[NodeEntry, Node] = {}
        self.diagnostics: list[Diagnostic] = []
        self.failed: set[Node] = set()
        # Operators that have been checked with complete shapes, which cannot change any more.
        self.checked: set[Node] = set()
        for node in nodes:
            for index in range(node.num_outputs):
                self.shapes[NodeEntry(node, index)] = None
            if node.is_variable:
                known = given.get(node.name)
                known = declared_shape(node) if known is None else known
                if known is not None:
                    self.shapes[NodeEntry(node)] = known
                    self.source[NodeEntry(node)] = node

    def run(self) -> None:
        operators = [node for node in self.nodes if node.prop is not None]
        changed = True
        while changed:
            changed = False
            for order in (operators, operators[::-1]):
                for node in order:
                    changed |= self._visit(node)

    def unknown(self) -> tuple[str, ...]:
        """Return variables with incomplete shapes, except those that a contradiction explains."""
        tainted = set(self.failed)
        explained: set[NodeEntry] = set()
        for node in self.nodes:
            if node in tainted or any(entry.node in tainted for entry in node.inputs):
                tainted.add(node)
                explained.update(node.inputs)
        return tuple(
            node.name
            for node in self.nodes
            if node.is_variable
            and not is_known(self.shapes[NodeEntry(node)])
            and NodeEntry(node) not in explained
        )

    def _visit(self, node: Node) -> bool:
        if node in self.failed or node in self.checked or node.prop is None:
            return False
        with OperatorErrorContext(f"{node.operator} {node.name!r}", node.place):
            return self._inferred(node, node.prop)

    def _inferred(self, node: Node, prop: AnyProperty) -> bool:
        outputs = [NodeEntry(node, index) for index in range(node.num_outputs)]
        arguments = list(node.argument_entries())
        auxiliary = list(node.inputs[len(arguments) :])
        if all(is_known(self.shapes[entry]) for entry in (*node.inputs, *outputs)):
            self.checked.add(node)
        try:
            inferred = prop.infer_shape(
                [self.shapes[entry] for entry in arguments],
                [self.shapes[entry] for entry in outputs],
            )
            return self._learn(node, arguments, auxiliary, outputs, inferred)
        except ShapeContradiction as contradiction:
            self.failed.add(node)
            if isinstance(contradiction, NestedContradiction):
                self.diagnostics += contradiction.diagnostics
            else:
                self.diagnostics.append(self._explain(node, contradiction))
            return False

    def _learn(
        self,
        node: Node,
        arguments: list[NodeEntry],
        auxiliary: list[NodeEntry],
        outputs: list[NodeEntry],
        inferred: PartialInference,
    ) -> bool:
        changed = False
        assert node.prop is not None
        names = (
            *node.prop.list_arguments(),
            *node.prop.list_auxiliary_states(),
            *node.prop.list_outputs(),
        )
        entries = [*arguments, *auxiliary, *outputs]
        shapes = [*inferred.inputs, *inferred.auxiliary, *inferred.outputs]
        for name, entry, shape in zip(names, entries, shapes, strict=True):
            joined = unify(name, self.shapes[entry], shape, f"{node.operator} {node.name!r}")
            if joined != self.shapes[entry]:
                self.shapes[entry] = joined
                self.source.setdefault(entry, node)
                changed = True
        return changed

    def _explain(self, node: Node, contradiction: ShapeContradiction) -> Diagnostic:
        rule = f" ({contradiction.rule})" if contradiction.rule else ""
        return Diagnostic(
            f"shapes of {node.operator} {node.name!r} contradict each other "
            f"at {contradiction.argument!r}",
            place=node.place,
            expected=f"{contradiction.argument} {_text(contradiction.inferred)}{rule}",
            got=f"{contradiction.argument} {_text(contradiction.given)}",
            chain=tuple(self._chain(node)),
        )

    def _chain(self, node: Node) -> list[str]:
        """Return the origins of the shapes of a node's inputs as text lines, oldest first."""
        lines: list[str] = []
        seen: set[NodeEntry] = set()
        pending = list(reversed(node.inputs))
        while pending:
            entry = pending.pop(0)
            source = self.source.get(entry)
            if entry in seen or source is None or source is node:
                continue
            seen.add(entry)
            where = f" at {source.place}" if source.place else ""
            by = "as given" if source.is_variable else f"by {source.operator} {source.name!r}"
            lines.append(f"{entry.name} is {show(self.shapes[entry])}, {by}{where}")
            if not source.is_variable:
                pending.extend(e for e in source.inputs[:1] if e not in seen)
        return lines[::-1]


def _text(shape: object) -> str:
    return show(shape) if isinstance(shape, tuple) or shape is None else str(shape)


def diagnostic_of(node: Node, diagnostic: Diagnostic) -> Diagnostic:
    """Return an operator's diagnostic with the node's name and location."""
    problem = f"{node.operator} {node.name!r}: {diagnostic.problem}"
    return replace(diagnostic, problem=problem, place=diagnostic.place or node.place)


def _infer_types(
    nodes: list[Node], given: Mapping[str, str], shapes: Mapping[NodeEntry, PartialShape]
) -> tuple[dict[NodeEntry, PartialType], tuple[Diagnostic, ...]]:
    """Infer element types to a fixpoint; return the types and the refusals.

    Given types take precedence over declared ones, and these over those that shapes decide.
    """
    types: dict[NodeEntry, PartialType] = {}
    refused: dict[Node, tuple[Diagnostic, ...]] = {}
    for node in nodes:
        for index in range(node.num_outputs):
            known = given.get(node.name) or declared_type(node) if node.is_variable else None
            types[NodeEntry(node, index)] = known
    for node in nodes:
        if node.prop is not None:
            entries = list(node.argument_entries())
            decided = node.prop.types_of_shapes([shapes.get(entry) for entry in entries])
            for entry, dtype in zip(entries, decided, strict=True):
                if entry.node.is_variable:
                    types[entry] = types[entry] or dtype
    changed = True
    while changed:
        changed = False
        for node in nodes:
            if node.prop is None or node in refused:
                continue
            entries = list(node.argument_entries())
            outputs = [NodeEntry(node, index) for index in range(node.num_outputs)]
            with OperatorErrorContext(f"{node.operator} {node.name!r}", node.place):
                try:
                    completed = node.prop.infer_type(
                        [types[e] for e in entries], [types[o] for o in outputs]
                    )
                except UserError as error:
                    refused[node] = tuple(diagnostic_of(node, each) for each in error.diagnostics)
                    continue
            for entry, dtype in zip(
                [*entries, *outputs], [*completed[0], *completed[1]], strict=True
            ):
                if types[entry] is None and dtype is not None:
                    types[entry] = dtype
                    changed = True
    return types, tuple(each for diagnostics in refused.values() for each in diagnostics)
