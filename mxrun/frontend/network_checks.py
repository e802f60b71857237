"""Checks of a wired network: names of tensors, labels read as data, gradients of losses."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from mxrun.base.errors import Diagnostic, SourceLocation
from mxrun.frontend.model import is_loss
from mxrun.graph.node import Node, topological

# Maximum number of outputs that a diagnostic lists individually.
_MAX_NAMED_OUTPUTS = 8


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

    Regression targets are permitted, and arguments that are indices, such as those of pick.
    """
    labels: set[Node] = set()
    others: list[tuple[Node, Node]] = []
    for node in nodes:
        if node.prop is None:
            continue
        names, outputs = node.prop.list_arguments(), node.prop.list_outputs()
        types, _ = node.prop.infer_type([None] * len(names), [None] * len(outputs))
        for name, dtype, entry in zip(names, types, node.argument_entries(), strict=True):
            if name in node.prop.label_arguments:
                if dtype != "float32":
                    labels.add(entry.node)
            elif dtype != "int32":
                others.append((entry.node, node))
    for read, reader in others:
        if read in labels and read.name in inputs:
            yield Diagnostic(
                f"{read.name!r} is a label, yet {reader.operator} {reader.name!r} reads it as data",
                place=reader.place,
                expected="an input that is not a label",
                got=read.name,
                hint="a layer reads the layer before it, the first one the first input; labels are "
                "class numbers, which one_hot, Embedding and pick read as such",
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


def unread_layers(
    unread: Mapping[str, Node], outputs: Sequence[str], last: str
) -> Iterator[Diagnostic]:
    """Yield a diagnostic for each layer that nothing reads.

    outputs: those that the config lists; without any the layer named `last` is the output.
    """
    ends = ", ".join(outputs or (last,))
    for name, node in unread.items():
        # The directions of a recurrence are reported by its own name.
        if name.rpartition("/")[0] not in unread:
            yield Diagnostic(
                f"nothing reads the layer {name!r}",
                place=node.place,
                expected=f"a layer that reads {name!r}, or its name in outputs or a metric's `of`",
                got=f"outputs: [{ends}]" + ("" if outputs else ", by default the last layer"),
                hint=f"write network.outputs: [{name}, {ends}] for one more output or loss, or "
                "remove the layer",
            )


def sharing_hint(argument: str, given: str, variables: Iterable[str]) -> str:
    """Return how to name a learned argument, for one that is `given` an unknown name.

    variables: names of the learned tensors of the layers before.
    """
    like = next((each for each in variables if each.endswith(f"_{argument}")), f"fc1_{argument}")
    return (
        f"to share the {argument} of another layer, write its name, such as {like}; a variable "
        f"with a name of its own is declared: network.variables: {{{given}: {{}}}}"
    )


def hidden_output(
    node: Node, index: int | str, place: SourceLocation | None, chain: tuple[str, ...]
) -> Diagnostic:
    """Describe why output `index` of a node cannot be wired."""
    visible = 1 if node.prop is None else node.prop.num_visible_outputs
    names = [f"{node.name}[{position}]" for position in range(min(visible, _MAX_NAMED_OUTPUTS))]
    if visible > _MAX_NAMED_OUTPUTS:
        names[1:] = ["...", f"{node.name}[{visible - 1}]"]
    text = f"{node.name!r} has no output {index}"
    if node.prop is not None and isinstance(index, int) and index < node.num_outputs:
        text = f"output {index} of {node.name!r}, {node.prop.list_outputs()[index]!r}, is hidden"
    expected = f"{visible} output{'s' if visible > 1 else ''}: {', '.join(names)}"
    return Diagnostic(text, place, expected, f"output {index}", chain=chain)


def _described(node: Node) -> str:
    return f"{'variable' if node.is_variable else node.operator} {node.name!r} at {node.place}"
