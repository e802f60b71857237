"""Requests for data sets, made from a config, and opening them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.params import Locator, Parameters, check
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Inputs
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
from mxrun.io.tables.encoding import TableEncoding
from mxrun.io.tables.learn import learn_encoding
from mxrun.io.text.vocabulary import Vocabulary
from mxrun.io.transforms.pipeline import NO_TRANSFORMS, Pipeline
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
    if name not in list(DATASETS):
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
) -> dict[str, Dataset]:
    """Read the requested data sets; a split that two requests share is read once.

    classes: the classes of training; by default those of the request `train`. The labels of all
    other data sets are renumbered to these, by name. columns, label_column: the names of training's
    data columns and of its label column; encoding: what was learned of its columns; vocabulary:
    the tokens of its text; by default those of the request `train`.

    Raises UserError with the problems of all data sets: files, ranges, fields that do not match the
    network's `inputs`, and classes that training does not know.
    """
    complete: dict[Hashable, Dataset] = {}
    opened: dict[str, Dataset] = {}
    trained: dict[Hashable, Split] = {}
    diagnostics: list[Diagnostic] = []
    train = requests.get("train")
    for role, request in requests.items():
        source = request.pipeline.source(inputs)
        try:
            if role == "eval" and (train is None or request.options != train.options):
                # Equal options mean the same table: its columns need not be looked up by name.
                request = request.with_columns_of(columns, label_column, encoding)
            elif encoding is not None and role == "train":
                request = request.with_columns_of(columns, label_column, encoding)
            options = request.options.model_dump_json()
            split = _resolved_split(request)
            key = (request.format.name, options, split.of, tuple(source.items()))
            if key not in complete:
                complete[key] = request.format.open(request.options, split.of, source, vocabulary)
        except (UserError, MemoryError) as error:
            place = place_of(request.places, "path")
            diagnostics += [
                replace(diagnostic, place=diagnostic.place or place)
                for diagnostic in _problems(error, request.format.name)
            ]
            continue
        problems: tuple[Diagnostic, ...] = ()
        if role == "train":
            # With given classes the model is trained already: a class may have lost its records
            # since.
            problems += complete[key].check_empty(role, request.places) if classes is None else ()
            columns, label_column = complete[key].columns, complete[key].label_column
            vocabulary = vocabulary or complete[key].vocabulary
            trained[key[:3]] = split
        problems += complete[key].check_split(split, request.places)
        part: Dataset | None = None
        is_learned = complete[key].features is None or encoding is not None
        is_learned &= complete[key].texts is None or vocabulary is not None
        # Without training's encoding there is nothing to say about the columns of evaluation.
        if not problems and (is_learned or role != "eval" or train is None):
            learned = (encoding, vocabulary)
            part, problems = _part(complete[key].part(split), request, role, inputs, *learned)
            if part is not None and role == "train":
                encoding, vocabulary = part.encoding, part.vocabulary
        if role == "eval" and diagnostics and part is not None and part.encoding is not None:
            # What does not fit the network does not do so in training either.
            problems = ()
        if not problems and role == "eval" and key[:3] in trained:
            parts = (trained[key[:3]], split)
            problems += complete[key].check_shares(*parts, request.places)
        diagnostics += problems
        if part is not None and not problems:
            opened[role] = part
    if classes is None and "train" in opened:
        classes = opened["train"].classes
    if classes is not None:
        for role, dataset in opened.items():
            try:
                opened[role] = dataset.with_classes(classes, role)
            except UserError as error:
                diagnostics += error.diagnostics
    if diagnostics:
        # Drop duplicates: a key that both sections inherit is reported once.
        raise UserError(dict.fromkeys(diagnostics))
    return opened


def _part(
    part: Dataset,
    request: DatasetRequest,
    role: str,
    inputs: Inputs,
    encoding: TableEncoding | None,
    vocabulary: Vocabulary | None,
) -> tuple[Dataset | None, tuple[Diagnostic, ...]]:
    """Return a part with its table's columns encoded and its texts as tokens, or None, and the
    reasons why it does not fit.

    encoding, vocabulary: those of training; None for training's own part, from which they are
    learned.
    """
    place = place_of(request.places, "dataset")
    part = replace(part, place=place, pipeline=request.pipeline, inputs=inputs)
    if part.features is not None:
        try:
            part = part.encoded(encoding or learn_encoding(part.features), role)
        except (UserError, MemoryError) as error:
            where = place_of(request.places, "columns")
            found = _problems(error, request.format.name)
            return None, tuple(replace(each, place=each.place or where) for each in found)
    if part.texts is not None:
        try:
            part = part.tokenized(vocabulary or part.texts.learn())
        except (UserError, MemoryError) as error:
            where = place_of(request.places, "tokens")
            found = _problems(error, request.format.name)
            return None, tuple(replace(each, place=each.place or where) for each in found)
    return part, part.check(inputs, request.places, request.pipeline)


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
