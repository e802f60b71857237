"""Check of all records of a config's data: which of them cannot be read or used."""

from __future__ import annotations

from functools import partial
from typing import Any

from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import UserError
from mxrun.io.dataset.dataset import Dataset, fits
from mxrun.io.dataset.location import RecordLocation
from mxrun.io.dataset.records import (
    decoded_record,
    location_of_record,
    number_of_record,
    problem_of,
    scale_of,
    undecoded_record,
)
from mxrun.io.images.decode import has_frames, is_turned
from mxrun.io.images.encoded import EncodedImage
from mxrun.io.loading.scan import Advance, scan
from mxrun.survey.data_sections import DataSections


@dataclass(frozen=True)
class DamagedRecord:
    """Record that training could not use: its section, its number in the split, and the reason."""

    section: str
    record: int
    location: RecordLocation | None
    problem: str

    def to_json(self) -> dict[str, Any]:
        """Return the record as JSON; file, number and offset are null if they are not known."""
        location = self.location
        return {
            "section": self.section,
            "record": self.record,
            "file": None if location is None else location.file,
            "number": None if location is None else location.number,
            "offset": None if location is None else location.offset,
            "problem": self.problem,
        }


@dataclass(frozen=True)
class DataCheck:
    """Records of each section, and those of them that are damaged.

    turned, framed: how many images are turned, and how many have several pages or frames.
    """

    name: str
    records: dict[str, int]
    turned: dict[str, int]
    framed: dict[str, int]
    damaged: tuple[DamagedRecord, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON."""
        return {
            "name": self.name,
            "records": self.records,
            "turned": self.turned,
            "framed": self.framed,
            "damaged": [record.to_json() for record in self.damaged],
            "passed": not self.damaged,
        }


def check_records(sections: DataSections, workers: int, advance: Advance) -> DataCheck:
    """Read every record of every section, decode it, and compare it with the network's inputs.

    advance: receives the number of records that are done, of all sections together.
    """
    damaged: list[DamagedRecord] = []
    done = 0
    turned = dict.fromkeys(sections.datasets, 0)
    framed = dict.fromkeys(sections.datasets, 0)
    for role, dataset in sections.datasets.items():
        work = partial(_check, role, dataset)
        for found, are_turned, are_framed in scan(len(dataset), work, workers, advance, done):
            damaged += found
            turned[role] += are_turned
            framed[role] += are_framed
        done += len(dataset)
    records = {role: len(dataset) for role, dataset in sections.datasets.items()}
    return DataCheck(sections.name, records, turned, framed, tuple(damaged))


def _check(role: str, dataset: Dataset, records: range) -> tuple[list[DamagedRecord], int, int]:
    """Return the damaged ones of some records, and the numbers of images turned and framed."""
    damaged, turned, framed = [], 0, 0
    for index in records:
        try:
            for name in dataset.inputs:
                record = undecoded_record(dataset, name, index)
                _check_field(dataset, name, record)
                turned += is_turned(record)
                framed += has_frames(record)
        except UserError as error:
            location = location_of_record(dataset, index)
            number = number_of_record(dataset, index)
            damaged.append(DamagedRecord(role, number, location, problem_of(error)))
    return damaged, turned, framed


def _check_field(dataset: Dataset, name: str, record: NDArray[Any] | EncodedImage) -> None:
    """Raise UserError unless training can use a field of a record."""
    pixels = decoded_record(dataset, name, record)
    dtype = pixels.dtype.name if scale_of(dataset, name) is None else "float32"
    shape, _ = dataset.pipeline.output(name, pixels.shape, dtype)
    wanted = dataset.inputs[name].shape
    if not fits(wanted, shape):
        problem = f"{name} has the shape {[*shape]} after its transforms, not {[*wanted]}"
        raise UserError(problem)
