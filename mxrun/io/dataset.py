"""Data sets: columns, splits, the registry of formats, and opening those that a config requests."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mxrun.base.errors import Diagnostic, InternalError, SourceLocation, UserError
from mxrun.base.near_names import listed, nearest
from mxrun.base.params import Locator, Parameters, check
from mxrun.base.tensor import Shape, TensorSpec
from mxrun.io.batch import is_label
from mxrun.io.classes import (
    class_count_texts,
    map_labels,
    missing_classes,
    missing_classes_in_range,
)
from mxrun.io.declared import DeclaredRegistry
from mxrun.io.files import MORE_MEMORY
from mxrun.io.record import RecordShape, Scale
from mxrun.io.split import (
    SHARE_HINT,
    OptionPlaces,
    Places,
    Split,
    UnknownSplit,
    check_shares,
    default_split,
    parse_split,
    place_of,
)
from mxrun.io.transform import NO_TRANSFORMS, Pipeline
from mxrun.runtime.memory_limits import memory_limit

# Specs of the network's inputs by name, of one record: without the batch axis.
Inputs = Mapping[str, TensorSpec]


@dataclass(frozen=True, eq=False)
class Field:
    """Column of a data set in memory: `records` [count, *shape].

    With a `scale` a batch holds float32(record) * float32(scale), so that bytes are stored as
    bytes. Without one it holds the records unchanged. `white` is the byte value that corresponds to
    255 in an image.
    """

    records: NDArray[Any]
    scale: float | None = None
    white: int = 255

    @property
    def spec(self) -> TensorSpec:
        """Shape and dtype of one record in a batch."""
        dtype = self.records.dtype.name if self.scale is None else "float32"
        return TensorSpec(self.records.shape[1:], dtype)


@dataclass(frozen=True, eq=False)
class LazyField:
    """Column that is read from files: `read(index)` returns one record and is thread-safe.

    `shape` is that of a record, with None where records differ. `read` raises UserError naming the
    file and the record. The column is the records `start` .. `start + count` - 1 of those that
    `read` can return, or the `count` records whose numbers are in `rows`, int64. `content()`
    computes a digest of the records' content. `file(index)` returns the name of the file that holds
    a record.
    """

    read: Callable[[int], NDArray[Any]]
    count: int
    shape: RecordShape
    dtype: str
    scale: float | None = None
    start: int = 0
    content: Callable[[], str] = str
    rows: NDArray[np.int64] | None = None
    file: Callable[[int], str] | None = None

    def source(self, index: int) -> str:
        """Return the file of the record at `index`, counted from 0; empty if it is not known."""
        return "" if self.file is None else self.file(self._known(index))

    def record(self, index: int) -> NDArray[Any]:
        """Return the record at `index`, counted from 0."""
        return self.read(self._known(index))

    def _known(self, index: int) -> int:
        """Return the number by which `read` identifies the record at `index`."""
        return self.start + index if self.rows is None else int(self.rows[index])

    def part(self, rows: slice | NDArray[np.int64]) -> LazyField:
        """Return the column restricted to `rows`, a slice without step or record numbers.

        The column must be complete, not itself a part.
        """
        if not isinstance(rows, slice):
            return replace(self, count=len(rows), rows=rows)
        start, stop, _ = rows.indices(self.count)
        return replace(self, start=start, count=stop - start)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Records in a fixed order: fields of equal length by name, and the names of the classes.

    `fields` are in memory; `lazy` columns are read on demand. `classes` is empty if labels are only
    numbers: other records of such a data set may then have further classes. `columns` are the names
    of a table's data columns, if it has a header, and `label_column` that of its label column.
    `empty` lists classes that have a folder but no records. `notes` are remarks on what was read,
    one sentence each. `pipeline` turns records into rows and `inputs` are the specs of the rows
    that the network reads: both as given to `open_datasets`. `name` and `split` (`test[0:9000]`)
    identify the records; `place` is where the config requests them. `numbers` are the records'
    numbers in the complete split, if these are a part of it.
    """

    name: str
    fields: Mapping[str, Field]
    classes: tuple[str, ...] = ()
    split: str = ""
    place: SourceLocation | None = None
    lazy: Mapping[str, LazyField] = field(default_factory=dict)
    pipeline: Pipeline = NO_TRANSFORMS
    inputs: Inputs = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    label_column: str = ""
    empty: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    numbers: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        lengths = {len(column.records) for column in self.fields.values()}
        lengths |= {column.count for column in self.lazy.values()}
        if len(lengths) != 1 or 0 in lengths:
            raise InternalError(f"data set {self.name!r} has fields of lengths {sorted(lengths)}")

    def __len__(self) -> int:
        for column in self.lazy.values():
            return column.count
        return len(next(iter(self.fields.values())).records)

    @property
    def class_field(self) -> str | None:
        """Name of the field that holds class numbers, int32 []; None if there is none."""
        for name, column in self.fields.items():
            if is_label(name) and column.spec == TensorSpec((), "int32"):
                return name
        return None

    def with_classes(self, known: Sequence[str], role: str = "eval") -> Dataset:
        """Return the data set with its labels renumbered to index `known`, training's classes, by
        name.

        If `known` is empty, training's labels are numbers, and class names must be numbers as well.
        Raises UserError for classes that are not known.
        """
        label = self.class_field
        if label is None or self.classes == tuple(known):
            return self
        where = (f"data.{role} ({self.name} {self.split})", self.place)
        column = self.fields[label]
        labels = map_labels(column.records, self.classes, known, where)
        fields = {**self.fields, label: replace(column, records=labels)}
        return replace(self, fields=fields, classes=tuple(known))

    @property
    def scales(self) -> dict[str, Scale]:
        """Scale factors for bytes from outside the data set, by the fields that hold bytes."""
        in_memory = {
            name: Scale(bytes=column.scale, images=column.scale * column.white / 255)
            for name, column in self.fields.items()
            if column.scale is not None
        }
        read = {
            name: Scale(bytes=column.scale, images=column.scale)
            for name, column in self.lazy.items()
            if column.scale is not None
        }
        return in_memory | read

    @property
    def specs(self) -> dict[str, TensorSpec]:
        """Shape and dtype of one record before transforms, by field in memory."""
        return {name: column.spec for name, column in self.fields.items()}

    @property
    def class_numbers(self) -> NDArray[Any] | None:
        """Class number of each record, int32 [records]; None if the data set has no classes."""
        return None if self.class_field is None else self.fields[self.class_field].records

    def check_split(self, split: Split, places: Places) -> tuple[Diagnostic, ...]:
        """Return the reasons why `split` of these records, the complete split, cannot be used."""
        labels = self.class_numbers
        problems = split.check(len(self), labels, places)
        if problems or split.is_complete or labels is None:
            return problems
        rows = split.rows(len(self), labels)
        if split.share is None:
            found = missing_classes_in_range(labels, rows, self.classes)
            hint = SHARE_HINT
        else:
            found = [] if split.rest else missing_classes(labels, rows, self.classes)
            hint = "write stratify: true"
        if not found:
            return ()
        place = place_of(places, "split.range" if split.share is None else "split.share")
        problem = (
            f"the part {split} of the data set {self.name!r} lacks classes of the complete split"
        )
        expected, got = class_count_texts(labels, rows, self.classes)
        return (Diagnostic(f"{problem}: {listed(found)}", place, expected, got, hint),)

    def check_shares(
        self, train: Split, evaluation: Split, places: Places
    ) -> tuple[Diagnostic, ...]:
        """Return the reasons why the shares of training and evaluation cannot be used together."""
        return check_shares(train, evaluation, len(self), self.class_numbers, places)

    def check_empty(self, role: str, places: Places) -> tuple[Diagnostic, ...]:
        """Return a diagnostic naming the classes that cannot be learned because they have no
        records.
        """
        if not self.empty:
            return ()
        problem = f"data.{role} ({self.name} {self.split}) has classes without records"
        hint = "remove the empty folders, or put records into them"
        place = place_of(places, "path")
        return (Diagnostic(problem, place, "records of each class", listed(self.empty), hint),)

    def part(self, split: Split) -> Dataset:
        """Return the records of `split`; views, if it is a range."""
        rows = split.rows(len(self), self.class_numbers)
        fields = {
            name: replace(column, records=column.records[rows])
            for name, column in self.fields.items()
        }
        lazy = {name: column.part(rows) for name, column in self.lazy.items()}
        numbers = None if split.is_complete else np.arange(len(self))[rows]
        return replace(self, fields=fields, lazy=lazy, split=str(split), numbers=numbers)

    def check(
        self, inputs: Inputs, places: Places, pipeline: Pipeline = NO_TRANSFORMS
    ) -> tuple[Diagnostic, ...]:
        """Return a diagnostic for each network input that does not match the field of its name.

        Fields are compared after their transforms.
        """
        found: list[Diagnostic] = []
        place = place_of(places, "dataset")
        names = [*self.fields, *self.lazy]
        for name, spec in inputs.items():
            if name not in names:
                problem = f"data set {self.name!r} has no field for the network's input {name!r}"
                has = f"one of its fields: {', '.join(names)}"
                found.append(Diagnostic(problem, place, has, name, nearest(name, names)))
                continue
            try:
                shape, dtype = pipeline.output(name, *self._record(name))
            except UserError as error:
                found += error.diagnostics
                continue
            if dtype != spec.dtype or not fits(spec.shape, shape):
                problem = f"the network's input {name!r} does not fit data set {self.name!r}"
                sizes = ", ".join("any" if size is None else str(size) for size in shape)
                hint = f"declare it in network.inputs as {name}: [{sizes}]"
                got = f"{dtype}[{sizes}]"
                found.append(Diagnostic(problem, place, got, str(spec), hint))
        return tuple(found)

    def _record(self, name: str) -> tuple[RecordShape, str]:
        """Return shape and dtype that a record of a field has in a batch, without transforms."""
        if name in self.lazy:
            column = self.lazy[name]
            return column.shape, column.dtype if column.scale is None else "float32"
        spec = self.fields[name].spec
        return spec.shape, spec.dtype


def fits(shape: Shape, known: RecordShape) -> bool:
    """Return whether `shape` is compatible with the possibly unknown dimensions of `known`."""
    return len(shape) == len(known) and all(
        have in (None, want) for want, have in zip(shape, known, strict=True)
    )


FindSplit = Callable[[Any, str, str], str]
Follow = Callable[[Any, frozenset[str], Sequence[str], str], Any]


@dataclass(frozen=True)
class DatasetFormat:
    """Registered kind of data set: its typed options, its splits and the function that reads a
    split.

    `read(options, split, inputs)` returns the complete split or raises UserError. `inputs` are the
    specs of the required records, for synthetic data sets and for formats that support several.
    `lazy`: whether records are read on demand instead of all at once. `synthetic`: whether records
    are generated instead of read. If the splits are known only from the files, `splits` is empty,
    and `find_split(options, named, role)` returns the split that the section `role` refers to by
    `named`, which is empty if the section names none; it raises UnknownSplit if there is no such
    split. `follow(options, own, columns, label)` returns the options that select columns of the
    same names as in training; `own` are the option keys that the section sets itself.
    """

    name: str
    doc: str
    options: type[Parameters]
    splits: tuple[str, ...]
    read: Callable[[Any, str, Inputs], Dataset] = field(repr=False)
    lazy: bool = False
    synthetic: bool = False
    find_split: FindSplit | None = field(default=None, repr=False)
    follow: Follow | None = field(default=None, repr=False)


DATASETS: DeclaredRegistry[DatasetFormat] = DeclaredRegistry("data set")

O = TypeVar("O", bound=Parameters)  # noqa: E741
Reader = Callable[[O, str, Inputs], Dataset]


def register(
    name: str,
    options: type[O],
    splits: tuple[str, ...],
    *,
    lazy: bool = False,
    synthetic: bool = False,
    find_split: FindSplit | None = None,
    follow: Follow | None = None,
) -> Callable[[Reader[O]], Reader[O]]:
    """Return a decorator that registers the reading function of the data set `name`."""

    def add(read: Reader[O]) -> Reader[O]:
        doc = read.__doc__ or ""
        kinds = (lazy, synthetic, find_split, follow)
        DATASETS.add(name, DatasetFormat(name, doc, options, splits, read, *kinds))
        return read

    return add


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

    def with_columns_of(self, columns: Sequence[str], label: str = "") -> DatasetRequest:
        """Return the request with a table's columns selected by the names of training's columns."""
        if self.format.follow is None or not columns:
            return self
        return replace(self, options=self.format.follow(self.options, self.own, columns, label))

    @property
    def prefetched(self) -> bool:
        """Return whether loader threads make the rows, so that staged batches need memory."""
        return self.format.lazy or bool(self.pipeline)


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
) -> dict[str, Dataset]:
    """Read the requested data sets; a split that two requests share is read once.

    classes: the classes of training; by default those of the request `train`. The labels of all
    other data sets are renumbered to these, by name. columns, label_column: the names of training's
    data columns and of its label column; by default those of the request `train`.

    Raises UserError with the problems of all data sets: files, ranges, fields that do not match the
    network's `inputs`, and classes that training does not know.
    """
    complete: dict[Hashable, Dataset] = {}
    opened: dict[str, Dataset] = {}
    trained: dict[Hashable, Split] = {}
    diagnostics: list[Diagnostic] = []
    train = requests.get("train")
    for role, request in requests.items():
        if role == "eval" and (train is None or request.options != train.options):
            # Equal options mean the same table: its columns need not be looked up by name.
            request = request.with_columns_of(columns, label_column)
        source = request.pipeline.source(inputs)
        options = request.options.model_dump_json()
        try:
            split = _resolved_split(request)
            key = (request.format.name, options, split.of, tuple(source.items()))
            if key not in complete:
                complete[key] = request.format.read(request.options, split.of, source)
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
            trained[key[:3]] = split
        problems += complete[key].check_split(split, request.places)
        problems += complete[key].check(inputs, request.places, request.pipeline)
        if not problems and role == "eval" and key[:3] in trained:
            parts = (trained[key[:3]], split)
            problems += complete[key].check_shares(*parts, request.places)
        diagnostics += problems
        if not problems:
            place = place_of(request.places, "dataset")
            part = complete[key].part(split)
            opened[role] = replace(part, place=place, pipeline=request.pipeline, inputs=inputs)
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
