"""What a data set is, how one is registered by name, and how a config's wish becomes records."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from numpy.typing import NDArray

from mxrun.base.errors import Diagnostic, InternalError, UserError, nearest
from mxrun.base.params import Parameters, check
from mxrun.base.registry import Registry
from mxrun.base.tensor import TensorSpec
from mxrun.io.split import Places, Split, parse_split, place_of

# The network's inputs by name: the specs of one record, without the batch axis.
Inputs = Mapping[str, TensorSpec]


@dataclass(frozen=True, eq=False)
class Field:
    """One column of a data set, whole in memory: `records` [count, *shape].

    With a `scale` a batch holds float32(record) * float32(scale), so that bytes stay bytes in
    memory; without one it holds the records as they are.
    """

    records: NDArray[Any]
    scale: float | None = None

    @property
    def spec(self) -> TensorSpec:
        """Shape and type of one record as a batch holds it."""
        dtype = self.records.dtype.name if self.scale is None else "float32"
        return TensorSpec(self.records.shape[1:], dtype)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Records in a fixed order: fields of equal length by name, and the names of the classes.

    The split (`test[0:9000]`) and the name say where the records come from.
    """

    name: str
    fields: Mapping[str, Field]
    classes: tuple[str, ...] = ()
    split: str = ""

    def __post_init__(self) -> None:
        lengths = {len(column.records) for column in self.fields.values()}
        if len(lengths) != 1 or 0 in lengths:
            raise InternalError(f"data set {self.name!r} has fields of lengths {sorted(lengths)}")

    def __len__(self) -> int:
        return len(next(iter(self.fields.values())).records)

    @property
    def specs(self) -> dict[str, TensorSpec]:
        """Shape and type of one record, by field."""
        return {name: column.spec for name, column in self.fields.items()}

    def part(self, split: Split) -> Dataset:
        """The records of `split`'s range, as views."""
        rows = slice(split.start, split.stop)
        fields = {
            name: replace(column, records=column.records[rows])
            for name, column in self.fields.items()
        }
        return replace(self, fields=fields, split=str(split))

    def check(self, inputs: Inputs, places: Places) -> tuple[Diagnostic, ...]:
        """Where the network's inputs and the fields of the same names differ."""
        found = []
        place = place_of(places, "dataset")
        for name, wanted in inputs.items():
            if name not in self.fields:
                problem = f"data set {self.name!r} has no field for the network's input {name!r}"
                has = f"one of its fields: {', '.join(self.fields)}"
                found.append(Diagnostic(problem, place, has, name, nearest(name, self.fields)))
            elif (held := self.fields[name].spec) != wanted:
                problem = f"the network's input {name!r} does not fit data set {self.name!r}"
                hint = f"declare it in network.inputs as {name}: {list(held.shape)}"
                found.append(Diagnostic(problem, place, str(held), str(wanted), hint))
        return tuple(found)


@dataclass(frozen=True)
class DatasetFormat:
    """A kind of data set: its typed options, its splits and the function that reads one split.

    `read(options, split, inputs)` returns the whole split or raises UserError; `inputs` matter
    only to data sets that make their records up.
    """

    name: str
    doc: str
    options: type[Parameters]
    splits: tuple[str, ...]
    read: Callable[[Any, str, Inputs], Dataset] = field(repr=False)


class DatasetRegistry(Registry[DatasetFormat]):
    """Data sets by name; a declared module is imported when its name is first looked up."""

    def __init__(self) -> None:
        super().__init__("data set")
        self._modules: dict[str, str] = {}

    def declare(self, name: str, module: str) -> None:
        """Say that importing `module` registers `name`."""
        self._modules[name] = module

    def get(self, name: str) -> DatasetFormat:
        """Look up a name; raises UserError naming the nearest known names."""
        if name in self._modules and name not in self:
            importlib.import_module(self._modules[name])
        return super().get(name)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._entries, *self._modules}))

    def unknown(self, name: str) -> Diagnostic:
        """The diagnostic for a name that is neither registered nor declared."""
        hint = nearest(name, self) or f"known: {', '.join(self)}"
        return Diagnostic(f"unknown {self.kind} {name!r}", hint=hint)


DATASETS = DatasetRegistry()

O = TypeVar("O", bound=Parameters)  # noqa: E741
Reader = Callable[[O, str, Inputs], Dataset]


def register(
    name: str, options: type[O], splits: tuple[str, ...]
) -> Callable[[Reader[O]], Reader[O]]:
    """Decorator that registers the reading function of the data set `name`."""

    def add(read: Reader[O]) -> Reader[O]:
        DATASETS.add(name, DatasetFormat(name, read.__doc__ or "", options, splits, read))
        return read

    return add


@dataclass(frozen=True)
class DatasetRequest:
    """A checked wish for records, from the config alone; no file has been opened."""

    format: DatasetFormat
    options: Parameters
    split: Split
    places: Places = field(default_factory=dict, compare=False, repr=False)


def request_dataset(
    name: str, options: Mapping[str, object], split: object, places: Places | None = None
) -> DatasetRequest:
    """Check a data section without touching a file.

    `options` are the section's keys that belong to the data set (`path: ...`), `split` the raw
    value of `split:`. Raises UserError with everything that is wrong, each with its place.
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
    part, wrong = parse_split(split, format.splits, places)
    found += wrong
    if found or model is None or part is None:
        raise UserError(found)
    return DatasetRequest(format, model, part, places)


def open_datasets(requests: Mapping[str, DatasetRequest], inputs: Inputs) -> dict[str, Dataset]:
    """Read what the requests ask for; a split that two of them share is read once.

    Raises UserError with what is wrong in any of them: files, ranges, and fields that do not fit
    the network's `inputs`.
    """
    whole: dict[DatasetRequest, Dataset] = {}
    opened: dict[str, Dataset] = {}
    found: list[Diagnostic] = []
    for role, request in requests.items():
        key = replace(request, split=Split(request.split.of))
        try:
            if key not in whole:
                whole[key] = request.format.read(request.options, request.split.of, inputs)
        except UserError as error:
            place = place_of(request.places, "path")
            found += [
                replace(diagnostic, place=diagnostic.place or place)
                for diagnostic in error.diagnostics
            ]
            continue
        problems = request.split.check(len(whole[key]), request.places)
        problems += whole[key].check(inputs, request.places)
        found += problems
        if not problems:
            opened[role] = whole[key].part(request.split)
    if found:
        raise UserError(found)
    return opened
