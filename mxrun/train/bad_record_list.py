"""Records that a run has left out, in its folder: bad_records.jsonl, one record a line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from mxrun.io.loading.bad_records import BadRecord, BadRecords
from mxrun.train.run_directory import RunDirectory

# Types of a line's entries.
_ENTRIES = {
    "record": (int,),
    "file": (str, type(None)),
    "number": (int, type(None)),
    "byte": (int, type(None)),
    "reason": (str,),
}


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
    if not isinstance(content, dict) or not isinstance(content.get("data"), str):
        return "", None
    entries: dict[str, Any] = {name: content.get(name) for name in _ENTRIES}
    if not all(isinstance(entries[name], types) for name, types in _ENTRIES.items()):
        return "", None
    return content["data"], BadRecord(**entries)
