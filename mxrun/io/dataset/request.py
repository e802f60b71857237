"""Requests for data sets, made from a config, and opening them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import field, replace

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.params import Locator, Parameters, check
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Inputs
from mxrun.io.dataset.pixels import Whites
from mxrun.io.dataset.registry import DATASETS, DatasetFormat
from mxrun.io.dataset.split import (
    OptionPlaces,
    Places,
    Split,
    UnknownSplit,
    default_split,
    parse_split,
    place_of,
)
from mxrun.io.files import MORE_MEMORY
from mxrun.io.series.encoding import SeriesEncoding
from mxrun.io.tables.encoding import TableEncoding
from mxrun.io.tables.learn import learn_encoding
from mxrun.io.transforms.pipeline import NO_TRANSFORMS, Pipeline
from mxrun.io.vocabulary.vocabulary import Vocabulary
from mxrun.runtime.memory_limits import memory_limit


@dataclass(frozen=True)
class DatasetRequest:
    """Validated request for a data set, made from the config alone; no file has been opened.

    role: the section that contains the request, `train` or `eval`. own: the option keys that this
    section sets itself.
    """

    format: DatasetFormat
    options: Parameters
    split: Split
    places: Places = field(default_factory=dict, compare=False, repr=False)
    pipeline: Pipeline = NO_TRANSFORMS
    role: str = "train"
    own: frozenset[str] = field(default=frozenset(), compare=False)

    def with_columns_of(
        self, columns: Sequence[str], label: str = "", encoding: TableEncoding | None = None
    ) -> DatasetRequest:
        """Return the request with a table's columns selected and treated as those of training."""
        if self.format.follow is None or not (columns or encoding):
            return self
        followed = self.format.follow(self.options, self.own, columns, label, encoding)
        return replace(self, options=followed)

    @property
    def prefetched(self) -> bool:
        """Return whether loader threads make the rows, so that staged batches need memory."""
        return self.format.is_lazy(self.options) or bool(self.pipeline)


def request_dataset(
    name: str,
    options: Mapping[str, object],
    split: object,
    places: Places | None = None,
    role: str = "train",
    locator: Locator | None = None,
) -> DatasetRequest:
    """Validate a data section without touching a file.

    `options` are the section's keys that belong to the data set (`path: ...`); `locator` has their
    places, by default those of `places`. `split` is the raw value of `split:`, which the section
    `role`, `train` or `eval`, may omit. Raises UserError with all problems, each with its place.
    """
    keys: Places = places or {}
    if name not in DATASETS:
        raise UserError(replace(DATASETS.unknown(name), place=place_of(keys, "dataset")))
    format = DATASETS.get(name)
    model, problems = check(format.options, options, locator or OptionPlaces(keys))
    found = list(problems)
    usual = default_split(role, format.splits) or ""
    part, wrong = parse_split(split, format.splits, usual, keys)
    found += wrong
    if found or model is None or part is None:
        raise UserError(found)
    return DatasetRequest(format, model, part, keys, role=role)


def _problems(error: UserError | MemoryError, name: str) -> tuple[Diagnostic, ...]:
    """Return the diagnostics for a data set that could not be read."""
    if isinstance(error, UserError):
        return error.diagnostics
    problem = f"the records of data set {name!r} do not fit into memory"
    got = f"at most {memory_limit():,} bytes for this process, and an allocation failed"
    return (Diagnostic(problem, got=got, hint=MORE_MEMORY),)


def open_datasets(
    requests: Mapping[str, DatasetRequest],
    inputs: Inputs,
    classes: Sequence[str] | None = None,
    columns: Sequence[str] = (),
    label_column: str = "",
    encoding: TableEncoding | None = None,
    vocabulary: Vocabulary | None = None,
    whites: Whites | None = None,
) -> dict[str, Dataset]:
    """Read the requested data sets; a split that two requests share is read once.

    classes: the classes of training; by default those of the request `train`. The labels of all
    other data sets are renumbered to these, by name. columns, label_column: the names of training's
    data columns and of its label column; encoding: what was learned of its columns; vocabulary:
    the tokens of its text; whites: of its images; by default those of the request `train`, whose
    records are pixels or numbers for all others.

    Raises UserError with the problems of all data sets: files, ranges, fields that do not match the
    network's `inputs`, and classes that training does not know.
    """
    learned = _Learned(tuple(columns), label_column, encoding, vocabulary)
    opening = _Opening(requests.get("train"), inputs, learned, classes is not None)
    for role, request in requests.items():
        opening.open(role, request)
    opening.renumber_labels(classes)
    opening.read_as(whites)
    if opening.diagnostics:
        # Drop duplicates: a key that both sections inherit is reported once.
        raise UserError(dict.fromkeys(opening.diagnostics))
    return opening.opened


@dataclass(frozen=True)
class _Learned:
    """Columns, encoding and vocabulary of training, which the other data sets share."""

    columns: tuple[str, ...]
    label_column: str
    encoding: TableEncoding | None
    vocabulary: Vocabulary | None


class _Opening:
    """Data sets opened one after the other, and the problems found.

    train: the request `train`, if there is one, which is opened first. is_trained: whether the
    classes of training are known.
    """

    def __init__(
        self, train: DatasetRequest | None, inputs: Inputs, learned: _Learned, is_trained: bool
    ) -> None:
        self.opened: dict[str, Dataset] = {}
        self.diagnostics: list[Diagnostic] = []
        self._train = train
        self._inputs = inputs
        self._learned = learned
        self._is_trained = is_trained
        self._complete: dict[Hashable, Dataset] = {}
        # The records that are read for training, and the part of them.
        self._trained: tuple[Hashable, Split] | None = None

    def open(self, role: str, request: DatasetRequest) -> None:
        """Open the requested part, or add diagnostics that say why it cannot be."""
        try:
            request = self._with_columns(role, request)
            split = _resolved_split(request)
            records = (request.format.name, request.options.model_dump_json(), split.of)
            complete = self._read(records, request, split.of)
        except (UserError, MemoryError) as error:
            self.diagnostics += _placed(error, request, "path")
            return
        problems: tuple[Diagnostic, ...] = ()
        if role == "train":
            # In a trained model's data a class may have lost its records since.
            problems += () if self._is_trained else complete.check_empty(role, request.places)
            self._learn_columns(complete)
            self._trained = records, split
        problems += complete.check_split(split, request.places)
        part: Dataset | None = None
        if not problems and self._can_encode(role, complete):
            part, problems = self._part(role, complete.part(split), request)
        if role == "eval":
            if self.diagnostics and part is not None and part.encoding is not None:
                # What does not fit the network does not do so in training either.
                problems = ()
            if not problems and self._trained is not None and self._trained[0] == records:
                problems += complete.check_shares(self._trained[1], split, request.places)
        self.diagnostics += problems
        if part is not None and not problems:
            self.opened[role] = part

    def renumber_labels(self, classes: Sequence[str] | None) -> None:
        """Renumber the labels of all opened data sets to `classes`, by default training's."""
        if classes is None and "train" in self.opened:
            classes = self.opened["train"].classes
        if classes is None:
            return
        for role, dataset in self.opened.items():
            try:
                self.opened[role] = dataset.with_classes(classes, role)
            except UserError as error:
                self.diagnostics += error.diagnostics

    def read_as(self, whites: Whites | None) -> None:
        """Read the values of all opened data sets as training's images, `whites`, or numbers."""
        if whites is None and "train" in self.opened:
            whites = self.opened["train"].whites
        if whites is None:
            return
        for role, dataset in self.opened.items():
            try:
                self.opened[role] = dataset.read_as(whites, role)
            except UserError as error:
                self.diagnostics += error.diagnostics

    def _with_columns(self, role: str, request: DatasetRequest) -> DatasetRequest:
        """Return the request with training's columns, if it has to look them up by name."""
        learned, train = self._learned, self._train
        if role == "eval":
            # Equal options mean the same table.
            follows = train is None or request.options != train.options
        else:
            follows = role == "train" and learned.encoding is not None
        if not follows:
            return request
        return request.with_columns_of(learned.columns, learned.label_column, learned.encoding)

    def _read(self, records: Hashable, request: DatasetRequest, name: str) -> Dataset:
        """Return the complete split `name`, which is read once for all requests of `records`."""
        source = request.pipeline.source(self._inputs)
        key = (records, tuple(source.items()))
        if key not in self._complete:
            self._complete[key] = request.format.open(
                request.options, name, source, self._learned.vocabulary
            )
        return self._complete[key]

    def _learn_columns(self, complete: Dataset) -> None:
        """Take over what the complete split of training determines for the other data sets."""
        self._learned = replace(
            self._learned,
            columns=complete.columns,
            label_column=complete.label_column,
            vocabulary=self._learned.vocabulary or complete.vocabulary,
        )

    def _can_encode(self, role: str, complete: Dataset) -> bool:
        """Return whether there is an encoding or vocabulary, or one that is learned of this part.

        Without training's encoding there is nothing to say about the columns of evaluation.
        """
        is_learned = complete.features is None or self._learned.encoding is not None
        is_learned &= complete.series is None or self._learned.encoding is not None
        is_learned &= complete.texts is None or self._learned.vocabulary is not None
        return is_learned or role != "eval" or self._train is None

    def _part(
        self, role: str, part: Dataset, request: DatasetRequest
    ) -> tuple[Dataset | None, tuple[Diagnostic, ...]]:
        """Return a part with its table's columns encoded and its texts as tokens, or None, and the
        reasons why it does not fit.

        Encoding and vocabulary are those of training, or are learned of this part.
        """
        learned = self._learned
        place = place_of(request.places, "dataset")
        part = replace(part, place=place, pipeline=request.pipeline, inputs=self._inputs)
        key = "columns"
        try:
            encoding = learned.encoding
            if part.series is not None:
                if not isinstance(encoding, SeriesEncoding):
                    encoding = part.series.learn()
                part = part.windowed(encoding, role)
            else:
                if part.features is not None and encoding is None:
                    encoding = learn_encoding(part.features)
                if encoding is not None:
                    part = part.encoded(encoding, role)
            key = "tokens"
            if part.texts is not None:
                part = part.tokenized(learned.vocabulary or part.texts.learn())
        except (UserError, MemoryError) as error:
            return None, _placed(error, request, key)
        if role == "train":
            self._learned = replace(learned, encoding=part.encoding, vocabulary=part.vocabulary)
        return part, part.check(self._inputs, request.places, request.pipeline)


def _placed(
    error: UserError | MemoryError, request: DatasetRequest, key: str
) -> tuple[Diagnostic, ...]:
    """Return the diagnostics for what could not be read; those without a place get the key's."""
    place = place_of(request.places, key)
    found = _problems(error, request.format.name)
    return tuple(replace(each, place=each.place or place) for each in found)


def _resolved_split(request: DatasetRequest) -> Split:
    """Return the request's split with its name resolved; raises UserError if there is none."""
    find, split = request.format.find_split, request.split
    if find is None:
        return split
    try:
        return replace(split, of=find(request.options, split.of, request.role))
    except UnknownSplit as error:
        place = place_of(request.places, "split.of")
        raise UserError(replace(each, place=place) for each in error.diagnostics) from error
