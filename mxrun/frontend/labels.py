"""Check of the class labels of loaded data sets against the losses that read them."""

from __future__ import annotations

from collections.abc import Iterable

from mxrun.base.classification import Classification
from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, SourceLocation
from mxrun.base.near_names import listed
from mxrun.frontend.model import Model
from mxrun.graph.node import Node
from mxrun.io.dataset.dataset import Dataset
from mxrun.train.measure import LossTensors

# Parameters that declare the number of outputs of a layer.
_WIDTHS = ("num_hidden", "num_filter")


@dataclass(frozen=True)
class _Head:
    """Layer that gives a loss one output per class, and its parameter for the number of outputs.

    If there is no single such layer, because outputs are concatenated or sliced, it is the loss
    itself, and `width` is empty.
    """

    node: Node
    classes: int
    width: str

    def __str__(self) -> str:
        """Return the layer and its number of outputs, as the beginning of a sentence."""
        layer = f"{self.node.operator} {self.node.name!r}"
        if self.width:
            return f"{layer} has {self.classes} output{'' if self.classes == 1 else 's'}"
        return f"{self.classes} output{' reaches' if self.classes == 1 else 's reach'} {layer}"

    def hint(self, classes: int) -> str:
        """Return the hint for a network with `classes` classes."""
        if self.width:
            return f"write {self.width}: {classes}"
        return "give the loss one output per class"


def label_problems(model: Model, datasets: Iterable[Dataset]) -> tuple[Diagnostic, ...]:
    """Return diagnostics for data sets whose classes differ from the network's.

    If classes have names, the head must have as many outputs; if labels are numbers alone, it must
    have an output for each label. The place of a data set is that of the config; an array, which
    has none, is named.
    """
    problems = []
    for loss in model.measured:
        seen = loss.label_classes
        if seen is None:
            continue
        head = _head(model, loss, seen.classes)
        for dataset in datasets:
            if dataset.classes and loss.label == dataset.class_field:
                found = _another_number(head, dataset)
            else:
                found = _beyond(head, dataset, loss.label, seen)
            problems += [] if found is None else [found]
    # A head that fits neither section is reported once.
    unique: dict[object, Diagnostic] = {}
    for problem in problems:
        unique.setdefault((problem.place, problem.expected), problem)
    return tuple(unique.values())


def _another_number(head: _Head, dataset: Dataset) -> Diagnostic | None:
    """Return the diagnostic for named classes that are not as many as the outputs, or None."""
    count = len(dataset.classes)
    if head.classes == count:
        return None
    classes = "one class" if count == 1 else f"{count} classes"
    outputs = "one output" if count == 1 else f"{count} outputs, one"
    return Diagnostic(
        f"{head}, but data set {dataset.name!r}{_at(dataset.place)} has {classes}",
        head.node.place,
        f"{outputs} for each class: {listed(dataset.classes)}",
        str(head.classes),
        hint=_with_notes(head.hint(count), dataset),
    )


def _beyond(head: _Head, dataset: Dataset, label: str, seen: Classification) -> Diagnostic | None:
    """Return the diagnostic for numeric labels outside the range of the outputs, or None."""
    labels = dataset.fields[label].distinct
    if seen.ignored is not None:
        labels = labels[labels != seen.ignored]
        if labels.size == 0:
            return None
    lowest, highest = int(labels.min()), int(labels.max())
    if lowest >= 0 and highest < seen.classes:
        return None
    place = dataset.place
    if place is None:
        wrong = highest if highest >= seen.classes else lowest
        classes = f"(0 to {seen.classes - 1})"
        return Diagnostic(f"array {label!r}: {wrong} is no class of the network {classes}")
    return Diagnostic(
        f"data set {dataset.name!r} has labels that the network has no class for: {head}",
        place if lowest < 0 else head.node.place,
        f"labels 0 to {seen.classes - 1}" if lowest < 0 else f"{highest + 1} outputs or more",
        f"labels {lowest} to {highest} ({place})",
        hint=_with_notes(
            "labels number classes from 0" if lowest < 0 else head.hint(highest + 1), dataset
        ),
    )


def _with_notes(hint: str, dataset: Dataset) -> str:
    """Return the hint, and what was decided about the data set, which may be the cause."""
    return "; note: ".join((hint, *dataset.notes))


def _at(place: SourceLocation | None) -> str:
    return "" if place is None else f" ({place})"


def _head(model: Model, loss: LossTensors, classes: int) -> _Head:
    """Return the nearest layer before the loss that declares a number of outputs.

    If that number differs from the loss's classes, or if there is no such layer, return the loss.
    """
    nodes = {node.name: node for node in model.symbol.nodes}
    nodes |= {entry.name: entry.node for entry in model.symbol.heads}
    node = nodes[loss.output]
    while not node.is_variable:
        parameters = None if node.prop is None else node.prop.parameters
        for width in _WIDTHS:
            outputs = getattr(parameters, width, None)
            if outputs is not None:
                is_head = outputs == classes
                return _Head(node if is_head else nodes[loss.output], classes, width * is_head)
        if not node.inputs:
            break
        node = node.inputs[0].node
    return _Head(nodes[loss.output], classes, "")
