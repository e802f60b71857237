"""Check of all records of a config's data: which of them cannot be read or used."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from mxrun.base.errors import UserError
from mxrun.io.dataset.dataset import Dataset, fits
from mxrun.io.dataset.location import RecordLocation
from mxrun.io.dataset.records import (
    location_of_record,
    number_of_record,
    problem_of,
    scale_of,
    stored_record,
)
from mxrun.io.loading.scan import Advance, scan
from mxrun.session.data_sections import DataSections


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
    """Records of each section, and those of them that are damaged."""

    name: str
    records: dict[str, int]
    damaged: tuple[DamagedRecord, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON."""
        return {
            "name": self.name,
            "records": self.records,
            "damaged": [record.to_json() for record in self.damaged],
            "passed": not self.damaged,
        }


def check_records(sections: DataSections, workers: int, advance: Advance) -> DataCheck:
    """Read every record of every section, decode it, and compare it with the network's inputs.

    advance: receives the number of records that are done, of all sections together.
    """
    damaged: list[DamagedRecord] = []
    done = 0
    for role, dataset in sections.datasets.items():
        work = partial(_check, role, dataset)
        for found in scan(len(dataset), work, workers, advance, done):
            damaged += found
        done += len(dataset)
    records = {role: len(dataset) for role, dataset in sections.datasets.items()}
    return DataCheck(sections.name, records, tuple(damaged))


def _check(role: str, dataset: Dataset, records: range) -> list[DamagedRecord]:
    """Return the damaged ones of some records."""
    found = []
    for index in records:
        problem = next(
            filter(None, (_problem(dataset, name, index) for name in dataset.inputs)), ""
        )
        if problem:
            location = location_of_record(dataset, index)
            number = number_of_record(dataset, index)
            found.append(DamagedRecord(role, number, location, problem))
    return found


def _problem(dataset: Dataset, name: str, index: int) -> str:
    """Return what is wrong with a field of a record; empty if nothing is."""
    try:
        record = stored_record(dataset, name, index)
        dtype = record.dtype.name if scale_of(dataset, name) is None else "float32"
        shape, _ = dataset.pipeline.output(name, record.shape, dtype)
    except UserError as error:
        return problem_of(error)
    wanted = dataset.inputs[name].shape
    if not fits(wanted, shape):
        return f"{name} has the shape {[*shape]} after its transforms, not {[*wanted]}"
    return ""
