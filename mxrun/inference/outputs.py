"""Outputs of inference: the network's outputs or selected internals, one row per sample."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import nearest
from mxrun.base.tensor import Shape, TensorSpec
from mxrun.config import PATHLESS
from mxrun.frontend import ModelDefinition
from mxrun.graph.infer import infer
from mxrun.graph.node import NodeEntry
from mxrun.graph.symbol import Symbol, apply
from mxrun.io.loading.batch import is_label


@dataclass(frozen=True)
class OutputHead:
    """Output tensor: its name for the user and its entry in the network.

    classes: whether it is a distribution over classes.
    """

    name: str
    entry: NodeEntry
    classes: bool


def heads(built: ModelDefinition, names: Sequence[str]) -> tuple[OutputHead, ...]:
    """Return the network's outputs, or those of the layers and outputs called `names`.

    A loss with no output but the loss is replaced by its predictions, or left out if metrics look
    at another layer, or if there is another output and the loss has no predictions. Raises
    UserError for names that the network does not have.
    """
    symbol = built.model.symbol
    over_classes = {
        loss.output
        for loss in built.model.measured
        if loss.classification is not None and loss.classification.positions == 1
    }
    if not names:
        ends = [(entry, _prediction(entry)) for entry in _ends(built)]
        return tuple(
            OutputHead(entry.name, entry, entry.name in over_classes)
            if predicted is None
            else OutputHead(predicted.name, predicted, classes=True)
            for entry, predicted in ends
        )
    internals = symbol.get_internals().heads
    known = {entry.node.name: entry for entry in internals if entry.index == 0}
    known |= {entry.name: entry for entry in internals}
    file = built.options.key_place("network").file
    config = "CONFIG" if file in PATHLESS else file
    problems = [
        Diagnostic(
            f"the network has no layer or output {name!r}",
            hint=nearest(name, known) or f"`mxrun plot {config}` draws them all",
        )
        for name in names
        if name not in known
    ]
    if problems:
        raise UserError(problems)
    selected = {name: known[name] for name in names}
    return tuple(
        OutputHead(name, entry, entry.name in over_classes) for name, entry in selected.items()
    )


def _ends(built: ModelDefinition) -> list[NodeEntry]:
    """Return the network's outputs without the losses beside which there are others."""
    mere = {loss.output: loss for loss in built.model.losses if loss.task is None}
    ends = [
        entry
        for entry in built.model.symbol.heads
        if entry.name not in mere
        or (not built.model.layers and mere[entry.name].label_classes is not None)
    ]
    return ends or list(built.model.symbol.heads)


def predictions(built: ModelDefinition) -> dict[str, OutputHead]:
    """Return the predictions that losses and metrics compare with labels, by the layer's name.

    A loss without labels, or with labels that are neither classes nor numbers, has none.
    """
    internals = {entry.name: entry for entry in built.model.symbol.get_internals().heads}
    found = {}
    for loss in built.model.measured:
        if loss.is_compared:
            entry = internals[loss.output]
            predicted = _prediction(entry) or entry
            found[loss.name] = OutputHead(predicted.name, predicted, classes=False)
    return found


def _prediction(entry: NodeEntry) -> NodeEntry | None:
    """Return the prediction [batch, classes] of a loss with no output but the loss, or None."""
    node = entry.node
    if node.prop is None or not node.prop.prediction:
        return None
    data = node.inputs[node.prop.list_arguments().index("data")]
    operator = node.prop.prediction
    return apply(operator, {"data": Symbol([data])}, {}, f"{node.name}_{operator}").heads[0]


def needed_inputs(
    built: ModelDefinition, selected: Sequence[OutputHead]
) -> tuple[list[str], list[str]]:
    """Return the inputs on which the heads depend: data inputs, and label inputs.

    Raises UserError for a head that depends on no input.
    """
    labels = label_inputs(built)
    needed: dict[str, None] = {}
    for head in selected:
        inputs = [name for name in _read(head.entry) if name in built.model.records]
        if not inputs:
            problem = f"{head.name!r} does not depend on the network's inputs"
            raise UserError(Diagnostic(problem, hint="--outputs names layers or their outputs"))
        needed |= dict.fromkeys(inputs)
    return [n for n in needed if n not in labels], [n for n in needed if n in labels]


def label_inputs(built: ModelDefinition) -> set[str]:
    """Return the inputs that only losses read as labels, not as data (as in autoencoders)."""
    nodes = {node.name: node for node in built.model.symbol.nodes}
    labels = {loss.label for loss in built.model.losses}
    for loss in built.model.losses:
        node = nodes[loss.name]
        assert node.prop is not None
        for name, source in zip(node.prop.list_arguments(), node.inputs, strict=False):
            if name not in node.prop.label_arguments:
                labels.difference_update(_read(source))
    for layer in built.model.layers:
        if layer.label.name not in _read(layer.entry):
            labels.add(layer.label.name)
    return labels | {name for name in built.model.records if is_label(name)}


def _read(head: NodeEntry) -> Collection[str]:
    """Return the variables on which a value depends, without labels that only affect a loss."""
    variables: dict[str, None] = {}
    visited, unvisited = {head}, [head]
    while unvisited:
        entry = unvisited.pop()
        prop = entry.node.prop
        if prop is None:
            variables[entry.node.name] = None
            continue
        passes_data_on = prop.loss_output not in (None, entry.index)
        for name, source in zip(prop.list_arguments(), entry.node.inputs, strict=False):
            ignored = passes_data_on and name in prop.label_arguments
            if not ignored and source not in visited:
                visited.add(source)
                unvisited.append(source)
    return variables


def batch_inputs(built: ModelDefinition, batch_size: int) -> dict[str, TensorSpec]:
    """Return the specs of the io slots for another batch size than the config's."""
    return {
        name: TensorSpec((batch_size, *spec.shape[1:]), spec.dtype)
        for name, spec in built.model.inputs.items()
    }


def known_shapes(built: ModelDefinition) -> dict[str, Shape]:
    """Return the shapes of parameters and states, which do not depend on the batch size."""
    return {name: spec.shape for name, spec in built.model.learned.items()}


def planned_batch(built: ModelDefinition, selected: Sequence[OutputHead], available: int) -> int:
    """Return the batch size for `available` records, or the config's if the network needs that."""
    fits = _shapes(built, selected, available) is not None
    return available if fits else built.model.batch_size


def row_shapes(
    built: ModelDefinition, selected: Sequence[OutputHead], batch_size: int
) -> dict[str, Shape]:
    """Return the shape of one sample's row of each head, by its name.

    Raises UserError for a head without one row per sample.
    """
    shapes = _shapes(built, selected, batch_size)
    assert shapes is not None
    larger = _shapes(built, selected, batch_size + 1)
    rows: dict[str, Shape] = {}
    problems = []
    for head in selected:
        shape = shapes[head.name]
        grown = None if larger is None else larger[head.name]
        row = _row(shape, batch_size, grown)
        if row is None:
            problems.append(
                Diagnostic(
                    f"{head.name!r} has no row for each sample",
                    expected=f"a first axis of {batch_size}, the batch's",
                    got=str(list(shape)),
                    hint="--outputs names other layers",
                )
            )
        else:
            rows[head.name] = row
    if problems:
        raise UserError(problems)
    return rows


def _shapes(
    built: ModelDefinition, selected: Sequence[OutputHead], batch_size: int
) -> Mapping[str, Shape] | None:
    """Return the heads' shapes for a batch size; None if it contradicts a declared shape."""
    shapes = {name: spec.shape for name, spec in batch_inputs(built, batch_size).items()}
    symbol = subgraph(selected)
    inference = infer(symbol.heads, {**known_shapes(built), **shapes})
    if not inference.complete:
        return None
    return {head.name: inference.spec(head.entry).shape for head in selected}


def _row(shape: Shape, batch_size: int, grown: Shape | None) -> Shape | None:
    """Return the shape of one sample's row of a tensor, or None if there is none.

    The first axis counts samples, or equal parts of samples.
    """
    if not shape or shape[0] % batch_size:
        return None
    parts = shape[0] // batch_size
    if grown is not None and grown != (parts * (batch_size + 1), *shape[1:]):
        return None
    return shape[1:] if parts == 1 else (parts, *shape[1:])


def subgraph(selected: Sequence[OutputHead], further: Sequence[NodeEntry] = ()) -> Symbol:
    """Return the symbol of the heads and of the entries `further`."""
    return Symbol(dict.fromkeys([*(head.entry for head in selected), *further]))
