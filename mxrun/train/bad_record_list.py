"""Records that a run has left out, in its folder: bad_records.jsonl, one record a line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial

from mxrun.base.params import Parameters, check
from mxrun.io.loading.bad_records import BadRecord, BadRecords
from mxrun.train.progress import Count
from mxrun.train.run_directory import RunDirectory


class ListedRecord(Parameters):
    """Line of the list; see `BadRecord`."""

    data: str
    record: Count
    file: str | None
    number: Count | None
    byte: Count | None
    reason: str


def begin_list(directory: RunDirectory, bad_records: Mapping[str, BadRecords]) -> None:
    """Count the records that a run has listed, and list those that it leaves out from now on.

    bad_records: by section, `train` and `eval`. Records are listed in the order in which batches
    are used, each once, so that the file of a resumed run is that of an uninterrupted one.
    """
    known: dict[str, list[BadRecord]] = {}
    for line in directory.bad_records():
        section, bad = _parsed(line)
        if bad is not None:
            known.setdefault(section, []).append(bad)
    for section, each in bad_records.items():
        each.begin(known.get(section, ()), partial(_list, directory, section))


def _list(directory: RunDirectory, section: str, bad: BadRecord) -> None:
    directory.list_bad_record({"data": section, **bad.to_json()})


def _parsed(line: bytes) -> tuple[str, BadRecord | None]:
    """Return the section and the record of a line; no record if it has another form."""
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return "", None
    listed = check(ListedRecord, content)[0] if isinstance(content, dict) else None
    if listed is None:
        return "", None
    return listed.data, BadRecord(**listed.model_dump(exclude={"data"}))
