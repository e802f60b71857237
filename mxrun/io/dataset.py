"""What a data set is, how one is registered by name, and how a config's wish becomes records."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mxrun.base.errors import Diagnostic, InternalError, SourceLocation, UserError, nearest
from mxrun.base.near_names import listed
from mxrun.base.params import Parameters, check
from mxrun.base.tensor import Shape, TensorSpec
from mxrun.io.batch import is_label
from mxrun.io.classes import counts, lacking, lacking_range, renumbered
from mxrun.io.declared import DeclaredRegistry
from mxrun.io.record import RecordShape, Scale
from mxrun.io.split import (
    SHARE_HINT,
    Places,
    Split,
    UnknownSplit,
    check_shares,
    parse_split,
    place_of,
    usual_split,
)
from mxrun.io.transform import NO_TRANSFORMS, Pipeline
from mxrun.runtime.storage import memory_limit

# The network's inputs by name: the specs of one record, without the batch axis.
Inputs = Mapping[str, TensorSpec]


@dataclass(frozen=True, eq=False)
class Field:
    """One column of a data set, whole in memory: `records` [count, *shape].

    With a `scale` a batch holds float32(record) * float32(scale), so that bytes stay bytes in
    memory; without one it holds the records as they are. `white` is the byte that stands for what
    an image has as 255.
    """

    records: NDArray[Any]
    scale: float | None = None
    white: int = 255

    @property
    def spec(self) -> TensorSpec:
        """Shape and type of one record as a batch holds it."""
        dtype = self.records.dtype.name if self.scale is None else "float32"
        return TensorSpec(self.records.shape[1:], dtype)


@dataclass(frozen=True, eq=False)
class LazyField:
    """One column that is not in memory: `read(index)` gives a record, of any thread.

    `shape` is a record's, None where records differ; `read` raises UserError naming the file and
    the record. The column is the records `start` .. `start + count` - 1 of what `read` knows, or
    the `count` of them that `rows` numbers, int64.
    `content()` is a digest of what the records are, made when it is asked for. `file(index)` names
    the file that a record is read from.
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
        """The file of the record at `index`, counted from 0; empty where that is not known."""
        return "" if self.file is None else self.file(self._known(index))

    def record(self, index: int) -> NDArray[Any]:
        """The record at `index`, counted from 0."""
        return self.read(self._known(index))

    def _known(self, index: int) -> int:
        """The number under which `read` knows the record at `index`."""
        return self.start + index if self.rows is None else int(self.rows[index])

    def part(self, rows: slice | NDArray[np.int64]) -> LazyField:
        """The records of these numbers of a whole column; a slice has no step."""
        if not isinstance(rows, slice):
            return replace(self, count=len(rows), rows=rows)
        start, stop, _ = rows.indices(self.count)
        return replace(self, start=start, count=stop - start)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Records in a fixed order: fields of equal length by name, and the names of the classes.

    `classes` are empty where labels are numbers alone: of such, other records may have more.
    `columns` are the names of a table's columns that are data, where it has a header, and
    `label_column` that of its label. `empty` are classes that have a folder and no records, `notes`
    what is worth knowing of what was read, a sentence each.
    `fields` are in memory, `lazy` ones are read when they are needed. `pipeline` makes rows out of
    records, `inputs` are the rows that the network wants: both are what `open_datasets` was given.

    The split (`test[0:9000]`) and the name say where the records come from, `place` where the
    config asks for them.
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
        """The field whose records are numbers of classes, int32 []; None where there is none."""
        for name, column in self.fields.items():
            if is_label(name) and column.spec == TensorSpec((), "int32"):
                return name
        return None

    def with_classes(self, known: Sequence[str], role: str = "eval") -> Dataset:
        """The same records, their labels numbering `known`, training's classes, by name.

        Without `known` training's labels are numbers, for which names may stand that are numbers.
        Raises UserError for classes that are not known.
        """
        label = self.class_field
        if label is None or self.classes == tuple(known):
            return self
        where = (f"data.{role} ({self.name} {self.split})", self.place)
        column = self.fields[label]
        labels = renumbered(column.records, self.classes, known, where)
        fields = {**self.fields, label: replace(column, records=labels)}
        return replace(self, fields=fields, classes=tuple(known))

    @property
    def scales(self) -> dict[str, Scale]:
        """What bytes from outside the data set are, for the fields that hold bytes."""
        held = {
            name: Scale(bytes=column.scale, images=column.scale * column.white / 255)
            for name, column in self.fields.items()
            if column.scale is not None
        }
        read = {
            name: Scale(bytes=column.scale, images=column.scale)
            for name, column in self.lazy.items()
            if column.scale is not None
        }
        return held | read

    @property
    def specs(self) -> dict[str, TensorSpec]:
        """Shape and type of one record before transforms, by field in memory."""
        return {name: column.spec for name, column in self.fields.items()}

    @property
    def class_numbers(self) -> NDArray[Any] | None:
        """The records' numbers of classes, int32 [records]; None where they have none."""
        return None if self.class_field is None else self.fields[self.class_field].records

    def check_split(self, split: Split, places: Places) -> tuple[Diagnostic, ...]:
        """Why this part of the records, which are the split's whole, cannot be used."""
        labels = self.class_numbers
        problems = split.check(len(self), labels, places)
        if problems or split.is_whole or labels is None:
            return problems
        rows = split.rows(len(self), labels)
        if split.share is None:
            found = lacking_range(labels, rows, self.classes)
            hint = SHARE_HINT
        else:
            found = [] if split.rest else lacking(labels, rows, self.classes)
            hint = "write stratify: true"
        if not found:
            return ()
        place = place_of(places, "split.range" if split.share is None else "split.share")
        problem = f"the part {split} of the data set {self.name!r} lacks classes of the whole"
        expected, got = counts(labels, rows, self.classes)
        return (Diagnostic(f"{problem}: {listed(found)}", place, expected, got, hint),)

    def check_shares(
        self, train: Split, evaluation: Split, places: Places
    ) -> tuple[Diagnostic, ...]:
        """Why evaluation cannot have its share of these records, of which training has another."""
        return check_shares(train, evaluation, len(self), self.class_numbers, places)

    def check_empty(self, role: str, places: Places) -> tuple[Diagnostic, ...]:
        """Which classes cannot be learned, as none of the records has them."""
        if not self.empty:
            return ()
        problem = f"data.{role} ({self.name} {self.split}) has classes without records"
        hint = "take the empty folders away, or put records into them"
        place = place_of(places, "path")
        return (Diagnostic(problem, place, "records of each class", listed(self.empty), hint),)

    def part(self, split: Split) -> Dataset:
        """The records of `split`; views, where it is a range."""
        rows = split.rows(len(self), self.class_numbers)
        fields = {
            name: replace(column, records=column.records[rows])
            for name, column in self.fields.items()
        }
        lazy = {name: column.part(rows) for name, column in self.lazy.items()}
        return replace(self, fields=fields, lazy=lazy, split=str(split))

    def check(
        self, inputs: Inputs, places: Places, pipeline: Pipeline = NO_TRANSFORMS
    ) -> tuple[Diagnostic, ...]:
        """Where the network's inputs differ from the fields of the same names, transformed."""
        found: list[Diagnostic] = []
        place = place_of(places, "dataset")
        names = [*self.fields, *self.lazy]
        for name, wanted in inputs.items():
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
            if dtype != wanted.dtype or not fits(wanted.shape, shape):
                problem = f"the network's input {name!r} does not fit data set {self.name!r}"
                sizes = ", ".join("any" if size is None else str(size) for size in shape)
                hint = f"declare it in network.inputs as {name}: [{sizes}]"
                held = f"{dtype}[{sizes}]"
                found.append(Diagnostic(problem, place, held, str(wanted), hint))
        return tuple(found)

    def _record(self, name: str) -> tuple[RecordShape, str]:
        """Shape and type of a record of a field as a batch would hold it."""
        if name in self.lazy:
            column = self.lazy[name]
            return column.shape, column.dtype if column.scale is None else "float32"
        spec = self.fields[name].spec
        return spec.shape, spec.dtype


def fits(shape: Shape, known: RecordShape) -> bool:
    """Whether a record of which `known` is known may have `shape`."""
    return len(shape) == len(known) and all(
        have in (None, want) for want, have in zip(shape, known, strict=True)
    )


FindSplit = Callable[[Any, str, str], str]
Follow = Callable[[Any, frozenset[str], Sequence[str], str], Any]


@dataclass(frozen=True)
class DatasetFormat:
    """A kind of data set: its typed options, its splits and the function that reads one split.

    `read(options, split, inputs)` returns the whole split or raises UserError; `inputs` are the
    records wanted, for data sets that make theirs up or have a choice. `lazy`: whether records are
    read when they are needed, not all at once; `synthetic`: whether they are drawn, not read. Where
    only files say which splits there are, `splits` are empty and `find_split(options, named, role)`
    returns the split that the section `role` means by a name or, if that is empty, by none; it
    raises UnknownSplit if there is none. `follow(options, own, columns, label)` returns the options
    that read columns of the same names as training did; `own` are those that the section has
    itself.
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
    """Decorator that registers the reading function of the data set `name`."""

    def add(read: Reader[O]) -> Reader[O]:
        doc = read.__doc__ or ""
        kinds = (lazy, synthetic, find_split, follow)
        DATASETS.add(name, DatasetFormat(name, doc, options, splits, read, *kinds))
        return read

    return add


@dataclass(frozen=True)
class DatasetRequest:
    """A checked wish for records, from the config alone; no file has been opened.

    role: the section it is of, `train` or `eval`. own: the options that this section has itself.
    """

    format: DatasetFormat
    options: Parameters
    split: Split
    places: Places = field(default_factory=dict, compare=False, repr=False)
    pipeline: Pipeline = NO_TRANSFORMS
    role: str = "train"
    own: frozenset[str] = field(default=frozenset(), compare=False)

    def following(self, columns: Sequence[str], label: str = "") -> DatasetRequest:
        """The same, reading a table's columns by the names that those of training have."""
        if self.format.follow is None or not columns:
            return self
        return replace(self, options=self.format.follow(self.options, self.own, columns, label))

    @property
    def prefetched(self) -> bool:
        """Whether rows are made by loader threads, so that staged batches need memory."""
        return self.format.lazy or bool(self.pipeline)


def request_dataset(
    name: str,
    options: Mapping[str, object],
    split: object,
    places: Places | None = None,
    role: str = "train",
) -> DatasetRequest:
    """Check a data section without touching a file.

    `options` are the section's keys that belong to the data set (`path: ...`), `split` the raw
    value of `split:`, which the section `role`, `train` or `eval`, may leave out. Raises UserError
    with everything that is wrong, each with its place.
    """
    places = places or {}
    if name not in list(DATASETS):
        raise UserError(replace(DATASETS.unknown(name), place=place_of(places, "dataset")))
    format = DATASETS.get(name)
    model, problems = check(format.options, options)
    found = [
        Diagnostic(
            problem.problem,
            place_of(places, ".".join(map(str, problem.path))),
            problem.expected,
            problem.got,
            problem.hint,
        )
        for problem in problems
    ]
    usual = usual_split(role, format.splits) or ""
    part, wrong = parse_split(split, format.splits, usual, places)
    found += wrong
    if found or model is None or part is None:
        raise UserError(found)
    return DatasetRequest(format, model, part, places, role=role)


def _problems(error: UserError | MemoryError, name: str) -> tuple[Diagnostic, ...]:
    """What is wrong with a data set that could not be read."""
    if isinstance(error, UserError):
        return error.diagnostics
    problem = f"the records of data set {name!r} do not fit into memory"
    hint = "give fewer records at a time, or allow the process more memory"
    got = f"at most {memory_limit():,} bytes for this process, and no more were to be had"
    return (Diagnostic(problem, got=got, hint=hint),)


def open_datasets(
    requests: Mapping[str, DatasetRequest],
    inputs: Inputs,
    classes: Sequence[str] | None = None,
    columns: Sequence[str] = (),
    label_column: str = "",
) -> dict[str, Dataset]:
    """Read what the requests ask for; a split that two of them share is read once.

    classes: those that training had; by default those of the request `train`. All others are
    numbered like these, by name. columns, label_column: the names of the columns that training had
    as data and as the label; by default those of the request `train`.
    Raises UserError with what is wrong in any of them: files, ranges, fields that do not fit the
    network's `inputs`, and classes that training does not know.
    """
    whole: dict[Hashable, Dataset] = {}
    opened: dict[str, Dataset] = {}
    trained: dict[Hashable, Split] = {}
    found: list[Diagnostic] = []
    train = requests.get("train")
    for role, request in requests.items():
        if role == "eval" and (train is None or request.options != train.options):
            # The same options are the same table, whose columns need no names.
            request = request.following(columns, label_column)
        source = request.pipeline.source(inputs)
        options = request.options.model_dump_json()
        try:
            split = _found_split(request)
            key = (request.format.name, options, split.of, tuple(source.items()))
            if key not in whole:
                whole[key] = request.format.read(request.options, split.of, source)
        except (UserError, MemoryError) as error:
            place = place_of(request.places, "path")
            found += [
                replace(diagnostic, place=diagnostic.place or place)
                for diagnostic in _problems(error, request.format.name)
            ]
            continue
        problems: tuple[Diagnostic, ...] = ()
        if role == "train":
            # A class that was learned may have lost its records since.
            problems += whole[key].check_empty(role, request.places) if classes is None else ()
            columns, label_column = whole[key].columns, whole[key].label_column
            trained[key[:3]] = split
        problems += whole[key].check_split(split, request.places)
        problems += whole[key].check(inputs, request.places, request.pipeline)
        if not problems and role == "eval" and key[:3] in trained:
            parts = (trained[key[:3]], split)
            problems += whole[key].check_shares(*parts, request.places)
        found += problems
        if not problems:
            place = place_of(request.places, "dataset")
            part = whole[key].part(split)
            opened[role] = replace(part, place=place, pipeline=request.pipeline, inputs=inputs)
    if classes is None and "train" in opened:
        classes = opened["train"].classes
    if classes is not None:
        for role, dataset in opened.items():
            try:
                opened[role] = dataset.with_classes(classes, role)
            except UserError as error:
                found += error.diagnostics
    if found:
        # What is written once for both is told once.
        raise UserError(dict.fromkeys(found))
    return opened


def _found_split(request: DatasetRequest) -> Split:
    """The request's split, by a name that there is; raises UserError where there is none."""
    find, split = request.format.find_split, request.split
    if find is None:
        return split
    try:
        return replace(split, of=find(request.options, split.of, request.role))
    except UnknownSplit as error:
        place = place_of(request.places, "split.of")
        raise UserError(replace(each, place=place) for each in error.diagnostics) from error
