"""Layers besides the losses that metrics compare with labels: `{accuracy: {of: probabilities}}`."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

from mxrun.base.classification import Classification
from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, Diagnostics
from mxrun.base.near_names import listed, nearest
from mxrun.base.regression import Regression
from mxrun.base.tensor import Shape
from mxrun.config import Choice, Parsed
from mxrun.graph.infer import InferredSpecs
from mxrun.graph.node import Node, NodeEntry
from mxrun.graph.symbol import Symbol
from mxrun.train.measure import LossTensors
from mxrun.train.metric_kind import MetricKind
from mxrun.train.predictions import Task

_PROBABILITIES = ("softmax", "sigmoid", "hard_sigmoid")
_PASSES_ON = ("BlockGrad", "identity")


@dataclass(frozen=True)
class MeasuredLayer:
    """Layer that metrics compare with an input; name: as metrics have it."""

    name: str
    entry: NodeEntry
    label: NodeEntry

    def tensors(self, inference: InferredSpecs) -> LossTensors:
        """Return the tensors to measure, with the shapes of a batch."""
        task = _task(self.entry, self.label, inference)
        assert task is None or isinstance(task, (Classification, Regression))
        classes = task if isinstance(task, Classification) else None
        numbers = task if isinstance(task, Regression) else None
        return LossTensors(
            name=self.name,
            output=self.entry.name,
            loss="",
            label=self.label.name,
            classification=classes,
            regression=numbers,
            label_classes=classes,
        )


def measured_layers(
    parsed: Parsed, symbol: Symbol, inference: InferredSpecs, diagnostics: Diagnostics
) -> tuple[MeasuredLayer, ...]:
    """Return the layers that metrics name, except losses; add problems to `diagnostics`.

    Names that the network lacks are reported where it is wired.
    """
    internals = symbol.get_internals().heads
    entries = {entry.node.name: entry for entry in internals if entry.index == 0}
    entries |= {entry.name: entry for entry in internals}
    inputs = () if parsed.network is None else tuple(parsed.network.inputs)
    read = {name: entries[name] for name in inputs if name in entries}
    found: dict[str, MeasuredLayer] = {}
    for choice, name in named_layers(parsed):
        entry = entries.get(name)
        if entry is None:
            continue
        problem = None
        if entry.node.prop is not None and entry.node.prop.loss_output is not None:
            problem = _other_label(choice, entry.node)
        else:
            label = _label(choice, entry, read, inference)
            if isinstance(label, Diagnostic):
                problem = label
            else:
                layer = found.setdefault(name, MeasuredLayer(name, entry, label))
                problem = _unfit(choice, layer, label, inference)
        if problem is not None:
            diagnostics.add(problem)
            found.pop(name, None)
    return tuple(found.values())


def named_layers(parsed: Parsed) -> list[tuple[Choice, str]]:
    """Return the metrics that name a layer, each with the name."""
    metrics = () if parsed.train is None else parsed.train.metrics or ()
    named = [(choice, choice.parameters.get("of")) for choice in metrics]
    return [(choice, of.value) for choice, of in named if of and isinstance(of.value, str)]


def task_of(entry: NodeEntry, output: Shape, label: Shape) -> Task:
    """Return what a layer predicts if it is compared with a label; None if their shapes differ.

    These are numbers if both have as many elements, else the probabilities of classes, along one
    axis of the layer.
    """
    if not output or not label:
        return None
    if math.prod(output) == math.prod(label) and output[0] == label[0]:
        positions = math.prod(output[2:]) if len(output) > 3 else 1
        elements = math.prod(output[1:])
        return Regression(output[0], elements, _is_probability(entry), positions)
    axes = [1, len(output) - 1]
    if entry.node.operator == "softmax" and entry.node.prop is not None:
        axes = [entry.node.prop.parameters.axis % len(output)]
    for axis in axes if _is_probability(entry) else ():
        samples, positions = math.prod(output[:axis]), math.prod(output[axis + 1 :])
        if samples * positions == math.prod(label) and samples % label[0] == 0:
            return Classification(samples, output[axis], positions)
    return None


def candidates(
    kind: MetricKind, symbol: Symbol, inference: InferredSpecs, inputs: Collection[str]
) -> list[tuple[str, str]]:
    """Return the layers, last first, that a metric supports, each with the input to compare with.

    None of them depends on that input.
    """
    labels = [NodeEntry(node) for node in symbol.nodes if node.name in inputs]
    found = []
    for node in reversed(symbol.nodes):
        entry = NodeEntry(node)
        if node.prop is None or node.prop.loss_output is not None:
            continue
        for label in _independent(entry, labels):
            task = _task(entry, label, inference)
            if task is not None and not kind.why_unsupported(task):
                found.append((node.name, label.name))
    return found


def _is_probability(entry: NodeEntry) -> bool:
    """Return whether all values of a layer are from 0 to 1."""
    prop = entry.node.prop
    if prop is None:
        return False
    parameters = prop.parameters
    if entry.node.operator == "Activation":
        return bool(parameters.act_type == "sigmoid")
    if entry.node.operator == "clip":
        return bool(parameters.a_min >= 0 and parameters.a_max <= 1)
    if prop.is_view or entry.node.operator in _PASSES_ON:
        return _is_probability(entry.node.inputs[0])
    return entry.node.operator in _PROBABILITIES


def _label(
    choice: Choice, entry: NodeEntry, inputs: Mapping[str, NodeEntry], inference: InferredSpecs
) -> NodeEntry | Diagnostic:
    """Return the input that a metric names or, without a name, the only one that fits."""
    given, of = choice.parameters.get("label"), choice.parameters["of"]
    if given is not None:
        if given.value in inputs:
            return inputs[str(given.value)]
        return Diagnostic(
            f"{choice.kind}: the network has no input {given.plain()!r} that a layer reads",
            given.place,
            f"one of its inputs: {listed(inputs)}",
            repr(given.plain()),
            hint=nearest(str(given.plain()), inputs),
        )
    others = _independent(entry, inputs.values())
    fitting = [each for each in others if _task(entry, each, inference) is not None]
    # Classes are integers, and numbers are none, as far as layers read them as such.
    fitting = [each for each in fitting if _is_usual(entry, each, inference)] or fitting
    if len(fitting) == 1 or len(others) == 1:
        return (fitting or others)[0]
    label = (fitting or [*inputs.values()])[0].name
    return Diagnostic(
        f"{choice.kind}: with which input is {of.plain()!r} compared?",
        of.place,
        f"label: one of {listed([each.name for each in fitting] or inputs)}",
        hint=f"{{{choice.kind}: {{of: {of.plain()}, label: {label}}}}}",
    )


def _independent(entry: NodeEntry, inputs: Iterable[NodeEntry]) -> list[NodeEntry]:
    """Return the inputs on which a layer does not depend."""
    read = set(Symbol([entry]).nodes)
    return [each for each in inputs if each.node not in read]


def _task(entry: NodeEntry, label: NodeEntry, inference: InferredSpecs) -> Task:
    return task_of(entry, inference.spec(entry).shape, inference.spec(label).shape)


def _is_usual(entry: NodeEntry, label: NodeEntry, inference: InferredSpecs) -> bool:
    """Return whether an input that fits a layer has the dtype of such labels."""
    is_class = isinstance(_task(entry, label, inference), Classification)
    return is_class == (inference.spec(label).dtype != "float32")


def _other_label(choice: Choice, loss: Node) -> Diagnostic | None:
    """Return the diagnostic of a metric that names another label than the loss reads."""
    given = choice.parameters.get("label")
    assert loss.prop is not None
    arguments = zip(loss.prop.list_arguments(), loss.argument_entries(), strict=True)
    own = [entry.name for name, entry in arguments if name in loss.prop.label_arguments]
    if given is None or given.value in own:
        return None
    problem = f"{choice.kind}: the loss {loss.name!r} does not read {given.plain()!r}"
    expected = f"its label: {listed(own)}" if own else "a loss with a label"
    return Diagnostic(problem, given.place, expected, repr(given.plain()))


def _unfit(
    choice: Choice, layer: MeasuredLayer, label: NodeEntry, inference: InferredSpecs
) -> Diagnostic | None:
    """Return the diagnostic of a layer that cannot be compared with a metric's label, or None."""
    of = choice.parameters["of"]
    if layer.label != label:
        problem = f"{choice.kind}: {layer.name!r} is compared with {layer.label.name!r} already"
        return Diagnostic(problem, of.place, "one label for each layer", label.name)
    output, shape = inference.spec(layer.entry).shape, inference.spec(label).shape
    if layer.tensors(inference).task is not None:
        return None
    return Diagnostic(
        f"{choice.kind}: {layer.name!r} cannot be compared with {label.name!r}",
        of.place,
        "numbers of the label's shape, or the probabilities of classes: a softmax or a sigmoid",
        f"{layer.entry.node.operator} {list(output)} and a label {list(shape)}",
        hint=f"metrics look at probabilities: add `- softmax: {{name: probabilities, data: "
        f"{layer.name}}}` and write of: probabilities",
    )
