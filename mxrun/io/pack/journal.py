"""Journal of a pack: how far it is, so that a pack that was killed continues.

The first line says what is packed and how; each further line that everything up to a record is
durable, and the sizes that the files had then. A line that is not complete does not count.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.files import make_folder
from mxrun.io.pack.growing_file import GrowingFile

JOURNAL_FILE = "journal"
_OVERWRITE = "--overwrite starts anew"

Identity = Mapping[str, Any]


@dataclass(frozen=True)
class SkippedRecord:
    """Record that was left out: its number in the source, its place, and what is wrong with it."""

    record: int
    source: str
    problem: str

    def to_json(self) -> dict[str, Any]:
        """Return the record as JSON."""
        return {"record": self.record, "source": self.source, "problem": self.problem}


@dataclass
class PackState:
    """State of a pack after some records.

    position: records of the order that are done. written: those that are in the pack. shards: the
    records of each shard; the last one is open unless `complete`. sizes: bytes of the open shard's
    files by name. slot: the part of the order that the open shard takes, if shards have about
    equally many records. sources: digest of the files of the records that are done.
    """

    position: int = 0
    written: int = 0
    shards: list[int] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    skipped: list[SkippedRecord] = field(default_factory=list)
    slot: int = -1
    sources: str = ""
    complete: bool = False


class Journal:
    """Journal in a folder, locked for this process until it is closed."""

    def __init__(
        self,
        folder: Path,
        identity: Identity,
        overwrite: bool,
        sources_of: Callable[[int], str] = lambda position: "",
    ) -> None:
        """Open or create the journal of a pack.

        sources_of: returns the digest of the files of the first records as they are now. Raises
        UserError if another process packs there, and, unless `overwrite`, if an unfinished pack of
        other records or settings is there, which `overwrite` removes.
        """
        make_folder(folder)
        self._folder = folder
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            problem = f"{folder}: another process packs into this folder"
            raise UserError(Diagnostic(problem, hint="wait until it has ended")) from None
        self._lock = descriptor
        path = folder / JOURNAL_FILE
        head = json.dumps(identity, sort_keys=True).encode() + b"\n"
        try:
            content = path.read_bytes() if path.exists() else b""
            lines, size = _complete_lines(content)
            if lines and lines[0] + b"\n" != head:
                if not overwrite:
                    raise UserError(_other_pack(folder, lines[0], identity))
                lines = []
            self.state = _state(lines[1:])
            if sources_of(self.state.position) != self.state.sources and len(lines) > 1:
                if not overwrite:
                    problem = f"{folder}: images that are packed already have changed since then"
                    raise UserError(Diagnostic(problem, hint=_OVERWRITE))
                lines, self.state = [], PackState()
            self._reported = len(self.state.skipped)
            self._closed = max(0, len(self.state.shards) - 1)
            self._file = GrowingFile(path, size if lines else 0)
            if not lines:
                self._file.write(head)
                self._file.sync()
        except (OSError, UserError):
            os.close(self._lock)
            raise

    def commit(self) -> None:
        """Record that the files have the sizes of `state`; the files must be durable."""
        state = self.state
        line = {
            "position": state.position,
            "written": state.written,
            "closed": state.shards[self._closed : -1] if state.shards else [],
            "open": state.shards[-1] if state.shards else None,
            "sizes": state.sizes,
            "skipped": [each.to_json() for each in state.skipped[self._reported :]],
            "slot": state.slot,
            "sources": state.sources,
            "complete": state.complete,
        }
        self._file.write(json.dumps(line).encode() + b"\n")
        self._file.sync()
        self._reported = len(state.skipped)
        self._closed = max(0, len(state.shards) - 1)

    def close(self) -> None:
        """Close the journal and release the folder."""
        self._file.close()
        os.close(self._lock)


def _complete_lines(content: bytes) -> tuple[list[bytes], int]:
    """Return the lines that are complete JSON, up to the first that is not, and their bytes."""
    lines: list[bytes] = []
    size = 0
    for line in content.split(b"\n")[:-1]:
        try:
            json.loads(line)
        except ValueError:
            break
        lines.append(line)
        size += len(line) + 1
    return lines, size


def _state(lines: list[bytes]) -> PackState:
    """Return the state after the last line."""
    state = PackState()
    for line in lines:
        entry = json.loads(line)
        closed = state.shards[:-1] + entry["closed"]
        state = PackState(
            entry["position"],
            entry["written"],
            closed + ([] if entry["open"] is None else [entry["open"]]),
            entry["sizes"],
            state.skipped + [SkippedRecord(**each) for each in entry["skipped"]],
            entry["slot"],
            entry["sources"],
            entry["complete"],
        )
    return state


def _other_pack(folder: Path, head: bytes, identity: Identity) -> Diagnostic:
    """Return the diagnostic for an unfinished pack of other records or with other settings."""
    before = json.loads(head)
    changed = sorted(key for key in {*before, *identity} if before.get(key) != identity.get(key))
    problem = f"{folder}: holds an unfinished pack that differs in: {', '.join(changed)}"
    hint = f"the command of that pack continues it; {_OVERWRITE}"
    return Diagnostic(problem, hint=hint)
