"""Checks of a wired network: names of tensors, labels read as data, gradients of losses."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from mxrun.base.errors import Diagnostic, SourceLocation
from mxrun.frontend.model import is_loss
from mxrun.graph.node import Node, topological


def repeated_names(
    nodes: Iterable[Node], defined: Mapping[str, SourceLocation]
) -> Iterator[Diagnostic]:
    """Yield a diagnostic for tensors of different nodes with the same name.

    defined: places of the names of layers.
    """
    first: dict[str, Node] = {}
    for node in nodes:
        tensors = (node.entry_name(index) for index in range(node.num_outputs))
        for name in dict.fromkeys((node.name, *tensors)):
            other = first.setdefault(name, node)
            if other is not node:
                yield Diagnostic(
                    f"two tensors are named {name!r}: of {_described(other)} and of "
                    f"{_described(node)}",
                    place=defined.get(other.name, other.place),
                    hint="rename one of the layers",
                )


def labels_as_data(nodes: Collection[Node], inputs: Collection[str]) -> Iterator[Diagnostic]:
    """Yield a diagnostic for each class label that a layer reads as data.

    Regression targets are permitted.
    """
    labels: set[Node] = set()
    others: list[tuple[Node, Node]] = []
    for node in nodes:
        if node.prop is None:
            continue
        names, outputs = node.prop.list_arguments(), node.prop.list_outputs()
        types, _ = node.prop.infer_type([None] * len(names), [None] * len(outputs))
        for name, dtype, entry in zip(names, types, node.argument_entries(), strict=True):
            if name not in node.prop.label_arguments:
                others.append((entry.node, node))
            elif dtype != "float32":
                labels.add(entry.node)
    for read, reader in others:
        if read in labels and read.name in inputs:
            yield Diagnostic(
                f"{read.name!r} is a label, yet {reader.operator} {reader.name!r} reads it as data",
                place=reader.place,
                expected="an input that is not a label",
                got=read.name,
                hint="a layer reads the layer before it, the first one the first input",
            )


def missing_gradients(nodes: Collection[Node]) -> Iterator[Diagnostic]:
    """Yield a diagnostic for each loss that reads an output gradient which no later loss gives."""
    losses = [node for node in nodes if is_loss(node)]
    before = {found for loss in losses for found in topological(loss.inputs)}
    for loss in losses:
        assert loss.prop is not None
        assert loss.prop.loss_output is not None
        if loss.prop.loss_output < loss.prop.num_visible_outputs:
            # The output is the loss itself, whose gradient is 1 by default.
            continue
        gradients = [f"gradient {index}" for index in range(loss.num_outputs)]
        outputs = [f"output {index}" for index in range(loss.num_outputs)]
        tensors = [f"input {index}" for index in range(len(loss.inputs))]
        read = loss.prop.declare_backward_dependency(gradients, tensors, outputs)
        if loss not in before and set(read) & set(gradients):
            yield Diagnostic(
                f"{loss.operator} {loss.name!r} needs the gradient of its output "
                "(out_grad), which no layer provides",
                place=loss.place,
                expected="a loss after it that reads its output",
                hint="leave out_grad out: a loss at the end computes its own gradient",
            )


def _described(node: Node) -> str:
    return f"{'variable' if node.is_variable else node.operator} {node.name!r} at {node.place}"
