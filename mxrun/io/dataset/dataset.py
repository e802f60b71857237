"""Data sets: columns of equal length with their classes, splits and transforms."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, SourceLocation, UserError
from mxrun.base.near_names import listed, nearest
from mxrun.base.tensor import Shape, TensorSpec
from mxrun.io.dataset.buckets import Buckets
from mxrun.io.dataset.classes import (
    class_count_texts,
    map_labels,
    missing_classes,
    missing_classes_in_range,
)
from mxrun.io.dataset.fields import Field, Inputs, LazyField
from mxrun.io.dataset.pixels import Whites, values_text
from mxrun.io.dataset.split import (
    SHARE_HINT,
    Places,
    Split,
    check_shares,
    place_of,
)
from mxrun.io.dataset.texts import TextColumn
from mxrun.io.loading.batch import is_label
from mxrun.io.series.encoding import SeriesEncoding
from mxrun.io.series.windows import SeriesWindows
from mxrun.io.tables.encoding import TableEncoding, Tally
from mxrun.io.tables.features import FeatureTable
from mxrun.io.transforms.base import RecordShape
from mxrun.io.transforms.pipeline import NO_TRANSFORMS, Pipeline
from mxrun.io.vocabulary.vocabulary import Vocabulary

# Columns of a table that a message lists.
_MAX_NAMED = 40


@dataclass(frozen=True, eq=False)
class Dataset:
    """Records in a fixed order: fields of equal length by name, and the names of the classes.

    `fields` are in memory; `lazy` columns are read on demand. `classes` is empty if labels are only
    numbers: other records of such a data set may then have further classes. `columns` are the names
    of a table's data columns, if it has a header, and `label_column` that of its label column.
    `empty` lists classes that have a folder but no records. `notes` are remarks on what was read,
    one sentence each. `pipeline` turns records into rows and `inputs` are the specs of the rows
    that the network reads: both as given to `open_datasets`. `features` are the columns of a table
    before `encoded` makes the field `data` of them, by `encoding`; `tally` counts what was missing
    or unknown. `name` and `split` (`test[0:9000]`)
    identify the records; `place` is where the config requests them. `numbers` are the records'
    numbers in the complete split, if these are a part of it. `vocabulary`: the tokens of a text;
    `texts` are those of records before `tokenized` makes fields of them, in `buckets` by length;
    `padding` is the id after a text's last token. `series`: windows, which `windowed` makes fields
    of.
    `is_stream`: whether the records are consecutive parts of one text, which the rows of a batch
    read in parallel, each from batch to batch.
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
    features: FeatureTable | None = None
    encoding: TableEncoding | None = None
    tally: Tally | None = None
    vocabulary: Vocabulary | None = None
    is_stream: bool = False
    texts: TextColumn | None = None
    buckets: Buckets | None = None
    padding: int | None = None
    series: SeriesWindows | None = None

    def __post_init__(self) -> None:
        # Plugins are not checked for types.
        title: object = self.name
        if not isinstance(title, str):
            raise TypeError(f"the name of a data set is a text, not {title!r}")
        fields: Mapping[str, object] = self.fields
        for name, given in fields.items():
            records: object = given.records if isinstance(given, Field) else None
            if not isinstance(records, np.ndarray) or records.dtype.kind not in "biuf":
                raise TypeError(f"the field {name!r} is no Field of an array of numbers")
        lengths = {len(column) for column in self.fields.values()}
        lengths |= {column.count for column in self.lazy.values()}
        lengths |= set() if self.features is None else {len(self.features)}
        lengths |= set() if self.texts is None else {len(self.texts)}
        lengths |= set() if self.series is None else {len(self.series)}
        if len(lengths) != 1 or 0 in lengths:
            raise ValueError(f"data set {self.name!r} has fields of lengths {sorted(lengths)}")

    def __len__(self) -> int:
        for column in self.lazy.values():
            return column.count
        if self.features is not None:
            return len(self.features)
        if self.texts is not None:
            return len(self.texts)
        if self.series is not None:
            return len(self.series)
        return len(next(iter(self.fields.values())))

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

    def with_fields(self, names: Collection[str]) -> Dataset:
        """Return the data set with the fields `names` alone, without labels."""
        fields = {name: column for name, column in self.fields.items() if name in names}
        lazy = {name: column for name, column in self.lazy.items() if name in names}
        return replace(self, fields=fields, lazy=lazy, classes=())

    @property
    def whites(self) -> dict[str, float]:
        """Pixel value of white, by the fields whose records are images."""
        columns: dict[str, Field | LazyField] = {**self.fields, **self.lazy}
        return {name: each.white for name, each in columns.items() if each.white is not None}

    @property
    def values_text(self) -> str:
        """How the values of the network's inputs are read, on one line; empty without any.

        Labels are numbers unless they are images, columns of tables have an encoding of their own.
        """
        whites = self.whites
        encoded = ("data",) if self.encoding is not None else ()
        names = [
            name
            for name, spec in self.inputs.items()
            if spec.dtype == "float32" and name not in encoded
        ]
        return values_text(whites, [n for n in names if n in whites or not is_label(n)])

    def read_as(self, whites: Whites, role: str) -> Dataset:
        """Return the data set with its values read as training reads its own.

        whites: of training's images; its other inputs are numbers.
        Raises UserError for numbers that cannot be the pixels of images.
        """
        where = f"data.{role} ({self.name} {self.split})"
        changed = [name for name in self.inputs if (name in self.whites) != (name in whites)]
        if not changed:
            return self
        read = replace(
            self,
            fields={
                name: column.read_as(whites.get(name), f"{where}: {name}")
                for name, column in self.fields.items()
            },
            lazy={
                name: column.read_as(whites.get(name), f"{where}: {name}")
                for name, column in self.lazy.items()
            },
        )
        note = f"{where} is read as the records of training: {values_text(read.whites, changed)}"
        return replace(read, notes=(*self.notes, note))

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
        if self.series is not None and split.share is not None:
            problem = "windows overlap, so that a random share of them has the values of the others"
            place = place_of(places, "split.share")
            hint = "write split: train, and split: validation for evaluation"
            return (Diagnostic(problem, place, "a part of the time", str(split), hint=hint),)
        # The other parts of a divided split may have the other classes.
        split = split.undivided
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
        return (Diagnostic(f"{problem}: {listed(found)}", place, expected, got, hint=hint),)

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
        return (Diagnostic(problem, place, "records of each class", listed(self.empty), hint=hint),)

    def part(self, split: Split) -> Dataset:
        """Return the records of `split`; views, if it is a range."""
        rows = split.rows(len(self), self.class_numbers)
        fields = {name: column.part(rows) for name, column in self.fields.items()}
        lazy = {name: column.part(rows) for name, column in self.lazy.items()}
        numbers = None if split.is_complete else np.arange(len(self))[rows]
        features = None if self.features is None else self.features.part(rows)
        texts = None if self.texts is None else self.texts.part(rows)
        series = None if self.series is None else self.series.part(rows)
        selected = replace(self, fields=fields, lazy=lazy, features=features, texts=texts)
        selected = replace(selected, series=series)
        return replace(selected, split=str(split), numbers=numbers)

    def encoded(self, encoding: TableEncoding, role: str) -> Dataset:
        """Return the data set with its table's columns encoded as the field `data`.

        Raises UserError for columns that do not fit.
        """
        where = f"data.{role}"
        if self.features is not None:
            rows, tally = encoding.encode(self.features, where)
        elif "data" in self.fields:
            numbers = self.fields["data"].records
            rows, tally = encoding.encode_array(numbers.reshape(len(numbers), -1), where)
        else:
            problem = f"{where} ({self.name}) has no columns as training's table has"
            raise UserError(Diagnostic(problem, None, listed([*map(str, encoding.columns)])))
        shape = self.inputs["data"].shape if "data" in self.inputs else ()
        if len(shape) > 1 and math.prod(shape) == rows.shape[1]:
            rows = rows.reshape(-1, *shape)
        notes = (*self.notes, *tally.notes(where))
        fields = {**self.fields, "data": Field(rows)}
        encoded = replace(self, fields=fields, features=None, encoding=encoding)
        return replace(encoded, tally=tally, notes=notes)

    def windowed(self, encoding: SeriesEncoding, role: str) -> Dataset:
        """Return the data set with the windows of its series as fields of scaled numbers."""
        assert self.series is not None
        fields = self.series.fields(encoding, self.inputs, f"data.{role}")
        return replace(self, fields=fields, encoding=encoding)

    def tokenized(self, vocabulary: Vocabulary) -> Dataset:
        """Return the data set with its texts as fields of token ids; raises UserError as `fields`
        does.
        """
        if self.texts is None:
            return self
        found, buckets = self.texts.fields(vocabulary, self.inputs)
        fields = {**found, **self.fields}
        encoded = replace(self, fields=fields, texts=None, vocabulary=vocabulary)
        return replace(encoded, buckets=buckets, padding=self.texts.padding)

    @property
    def token_fields(self) -> tuple[str, ...]:
        """Names of the fields whose records are ids of tokens, int32 [length]."""
        if self.vocabulary is None:
            return ()
        return tuple(name for name, column in self.fields.items() if column.dtype)

    def text_of(self, ids: NDArray[Any]) -> str:
        """Return the text of a record of a token field, without padding."""
        assert self.vocabulary is not None
        if self.padding is not None:
            tokens = np.flatnonzero(ids != self.padding)
            ids = ids[: int(tokens[-1]) + 1 if len(tokens) else 0]
        return self.vocabulary.decode(ids.tolist())

    def check(
        self, inputs: Inputs, places: Places, pipeline: Pipeline = NO_TRANSFORMS
    ) -> tuple[Diagnostic, ...]:
        """Return a diagnostic for each network input that does not match the field of its name.

        Fields are compared after their transforms.
        """
        found: list[Diagnostic] = []
        place = place_of(places, "dataset")
        if pipeline and self.token_fields:
            problem = f"data set {self.name!r} has no transforms: its records are ids of tokens"
            return (Diagnostic(problem, place, hint="remove transforms"),)
        if pipeline and self.series is not None:
            problem = f"data set {self.name!r} has no transforms: its columns are scaled"
            return (Diagnostic(problem, place, hint="remove transforms"),)
        names = [*self.fields, *self.lazy]
        for name, spec in inputs.items():
            if name not in names:
                problem = f"data set {self.name!r} has no field for the network's input {name!r}"
                has = f"one of its fields: {', '.join(names)}"
                found.append(Diagnostic(problem, place, has, name, hint=nearest(name, names)))
                continue
            if name in self.fields and self.fields[name].boxes:
                found += pipeline.check_boxes(name)
            if name not in self.whites:
                found += pipeline.check_numbers(name)
            try:
                shape, dtype = pipeline.output(name, *self._record(name))
            except UserError as error:
                found += error.diagnostics
                continue
            if dtype != spec.dtype or not fits(spec.shape, shape):
                problem = f"the network's input {name!r} does not fit data set {self.name!r}"
                sizes = ", ".join("any" if size is None else str(size) for size in shape)
                hint = f"declare it in network.inputs as {name}: [{sizes}]"
                hint += _other_size(pipeline, name, spec.shape)
                if dtype not in ("float32", "int32"):
                    hint = f"fields are float32 or int32: values.astype({spec.dtype!r})"
                got = f"{dtype}[{sizes}]"
                if name == "data" and self.encoding is not None:
                    columns = self.encoding.inputs
                    got = f"{got}, the columns {listed(columns, _MAX_NAMED)}"
                found.append(Diagnostic(problem, place, got, str(spec), hint=hint))
        return tuple(found)

    def _record(self, name: str) -> tuple[RecordShape, str]:
        """Return shape and dtype that a record of a field has in a batch, without transforms."""
        if name in self.lazy:
            column = self.lazy[name]
            return column.shape, column.dtype if column.scale is None else "float32"
        spec = self.fields[name].spec
        return spec.shape, spec.dtype


def _other_size(pipeline: Pipeline, name: str, wanted: Shape) -> str:
    """Return how the last transform that gives images a size gives them the one that is wanted."""
    sized = [step for step in pipeline.of(name) if hasattr(step.transform, "size")]
    if not sized or len(wanted) != 3:
        return ""
    size = str(wanted[1]) if wanted[1] == wanted[2] else str([*wanted[1:]])
    return f", or write `size: {size}` of {sized[-1].transform.name} (and of resize before it)"


def fits(shape: Shape, known: RecordShape) -> bool:
    """Return whether `shape` is compatible with the possibly unknown dimensions of `known`."""
    return len(shape) == len(known) and all(
        have in (None, want) for want, have in zip(shape, known, strict=True)
    )
