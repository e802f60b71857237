"""`train.class_weights`: checks against the network's losses and the classes of the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, Diagnostics, SourceLocation, UserError
from mxrun.base.near_names import listed, nearest
from mxrun.config import Parsed, Train
from mxrun.frontend.model import Model
from mxrun.io.dataset.dataset import Dataset
from mxrun.train.class_weights import BALANCED, ClassWeights, balanced
from mxrun.train.measure import LossTensors

_KEY = "train.class_weights"


@dataclass(frozen=True)
class ClassWeighting:
    """Class weights as given, of the classes that `label` numbers.

    ignored: label of records that have no class. places: of the value ("") and of its keys.
    """

    given: str | Mapping[str, float] | Sequence[float]
    label: str
    classes: int
    ignored: int | None
    places: Mapping[str, SourceLocation]

    def of(self, dataset: Dataset) -> ClassWeights:
        """Return the weights for the training data.

        Raises UserError for classes that the data do not have.
        """
        if self.given == BALANCED:
            table = self._balanced(dataset)
        elif isinstance(self.given, Mapping):
            table = self._by_name(self.given, dataset)
        else:
            table = np.asarray(self.given)
            if len(table) != self.classes:
                expected = f"{self.classes} numbers, one for each class"
                raise self._error(f"{_KEY} has {len(table)} numbers", expected, str(len(table)))
        weights = table.astype(np.float32)
        if not weights.any():
            raise self._error(f"{_KEY} has no weight above 0", "a class with a weight", "zeros")
        return ClassWeights(self.label, weights)

    def note(self, weights: ClassWeights, dataset: Dataset) -> str:
        """Return a note with the weight of each class."""
        pairs = zip(self._names(dataset), weights.table.tolist(), strict=True)
        texts = [f"{name} {weight:.4g}" for name, weight in pairs]
        return f"class weights of the training loss: {listed(texts)}"

    def _names(self, dataset: Dataset) -> list[str]:
        """Return the names of the classes; their numbers if the data do not name them."""
        if dataset.classes and dataset.class_field == self.label:
            return list(dataset.classes)
        return [str(number) for number in range(self.classes)]

    def _balanced(self, dataset: Dataset) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        column = dataset.fields.get(self.label)
        if column is None or any(dataset.pipeline.of(self.label)):
            expected = "weights by class, because labels are known only when a record is read"
            raise self._error(f"{_KEY}: the records cannot be counted", expected, BALANCED)
        labels = column.records.reshape(-1)
        if self.ignored is not None:
            labels = labels[labels != self.ignored]
        return balanced(labels, self.classes)

    def _by_name(
        self, given: Mapping[str, float], dataset: Dataset
    ) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        names = self._names(dataset)
        unknown = [name for name in given if name not in names]
        if unknown:
            raise UserError(
                Diagnostic(
                    f"{_KEY}: the training data have no class {name!r}",
                    self.places[name],
                    f"classes: {listed(names)}",
                    name,
                    hint=nearest(name, names),
                )
                for name in unknown
            )
        return np.array([given.get(name, 1.0) for name in names])

    def _error(self, problem: str, expected: str, got: str) -> UserError:
        return UserError(Diagnostic(problem, self.places[""], expected, got))


def class_weighting(
    parsed: Parsed, train: Train, model: Model, diagnostics: Diagnostics
) -> ClassWeighting | None:
    """Return the class weights of the config, or None without them.

    Every loss must read the same class number of each record; other losses are added to
    `diagnostics`.
    """
    given = train.class_weights
    if given is None:
        return None
    place = parsed.place("train", "class_weights")
    if given == BALANCED and parsed.data is not None and parsed.data.train.sampling == BALANCED:
        problem = f"{_KEY}: balanced and data.train.sampling: balanced both make classes alike"
        hint = "leave out one of them: together, rare classes count more than frequent ones"
        diagnostics.add(Diagnostic(problem, place, hint=hint))
        return None
    seen = {(loss.label, _classes(loss, model)) for loss in model.losses}
    for loss in model.losses:
        if not _classes(loss, model):
            diagnostics.add(
                Diagnostic(
                    f"{_KEY} does not fit the loss {loss.name!r}",
                    place,
                    "losses whose label is one class number for each record",
                    _described(loss),
                    hint=f"leave out {_KEY}",
                )
            )
            return None
    if len(seen) > 1:
        labels = ", ".join(f"{label} ({classes} classes)" for label, classes in sorted(seen))
        problem = f"{_KEY} needs losses with the same classes"
        diagnostics.add(Diagnostic(problem, place, "one label for all losses", labels))
        return None
    ((label, classes),) = seen
    reading = model.losses[0].label_classes
    assert reading is not None
    keys = given if isinstance(given, Mapping) else ()
    places = {name: parsed.key_place("train", "class_weights", name) for name in keys}
    return ClassWeighting(given, label, classes, reading.ignored, {**places, "": place})


def _classes(loss: LossTensors, model: Model) -> int:
    """Return the number of classes of a loss with one class per record; 0 for other losses."""
    reading = loss.label_classes
    if reading is None or reading.predictions != model.batch_size:
        return 0
    return reading.classes


def _described(loss: LossTensors) -> str:
    if not loss.label:
        return "a loss without labels"
    if loss.label_classes is not None:
        return "several class numbers for each record"
    if loss.classification is not None:
        return "labels that are probabilities"
    return "labels that are numbers"
