"""Parameters with one number for each spatial axis; a config may write one number for all axes."""

from __future__ import annotations

from collections.abc import Mapping

from mxrun.base.description import PerAxis
from mxrun.base.errors import OperatorErrorContext
from mxrun.base.tensor import PartialShape
from mxrun.graph.node import Node, NodeEntry
from mxrun.operator.property import PartialShapes
from mxrun.operator.register import AnyProperty
from mxrun.operator.shape import ShapeContradiction

# Axes that are not spatial: batch and channels.
_OTHER_AXES = 2


def with_axes(
    property_class: type[AnyProperty],
    values: Mapping[str, object],
    data: NodeEntry | None,
    ranks: Ranks,
    default: int | None,
) -> dict[str, object]:
    """Return a layer's parameters with one number per axis: `kernel: 3` becomes (3, 3).

    The number of axes is that of another such parameter, or of `data`, the layer's first tensor. If
    it is unknown, it is `default`; without one, numbers stay as they are.
    """
    fields = property_class.parameter_type.model_fields
    names = [
        name
        for name, field in fields.items()
        if name in values and any(isinstance(rule, PerAxis) for rule in field.metadata)
    ]
    numbers = [name for name in names if _is_number(values[name])]
    if not numbers:
        return dict(values)
    lists = [part for name in names if isinstance(part := values[name], tuple) and part]
    axes: int | None = len(lists[0]) if lists else None
    rank = None if lists or data is None else ranks.of(data)
    if rank is not None:
        # With too few axes the inference of shapes reports what the operator expects.
        axes = max(rank - _OTHER_AXES, 1)
    axes = axes or default
    if axes is None:
        return dict(values)
    return {**values, **{name: (values[name],) * axes for name in numbers}}


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class Ranks:
    """Ranks of tensors while a network is wired, by forward inference of each node, once."""

    def __init__(self, inputs: Mapping[str, PartialShape]) -> None:
        """`inputs`: the shapes of the network's inputs."""
        self._inputs = dict(inputs)
        self._shapes: dict[Node, PartialShapes] = {}

    def add(self, name: str, shape: PartialShape) -> None:
        """Set the shape of a further variable."""
        self._inputs[name] = shape

    def of(self, entry: NodeEntry) -> int | None:
        """Return the rank of an entry, or None if it does not follow from the inputs."""
        waiting = [entry.node]
        while waiting:
            node = waiting[-1]
            before = [each.node for each in node.inputs if each.node not in self._shapes]
            if node in self._shapes or not before:
                self._shapes.setdefault(node, self._outputs(node))
                waiting.pop()
            else:
                waiting += before
        shape = self._shapes[entry.node][entry.index]
        return None if shape is None else len(shape)

    def _outputs(self, node: Node) -> PartialShapes:
        unknown: PartialShapes = [None] * node.num_outputs
        if node.prop is None:
            return [self._inputs.get(node.name)]
        arguments = [self._shapes[entry.node][entry.index] for entry in node.argument_entries()]
        with OperatorErrorContext(f"{node.operator} {node.name!r}", node.place):
            try:
                return node.prop.infer_shape(arguments, unknown).outputs
            except ShapeContradiction:
                # Reported when all shapes are inferred. The rank is a guess, so that the numbers of
                # the layers that follow are not reported instead.
                return arguments[:1] * node.num_outputs or unknown
