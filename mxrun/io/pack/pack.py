"""Packing of a data set's images: encoded on several threads, written in order, and read back.

The files are written in a hidden folder beside their place and renamed when all of them are
complete. A pack that was stopped or killed continues from its journal, and its files have the same
bytes as without a stop.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, Stopped, UserError
from mxrun.base.files import (
    make_folder,
    report_write_errors,
    sync_folder,
    write_bytes,
    write_text,
)
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.records import location_of_record, number_of_record, problem_of
from mxrun.io.formats.class_names import encode_class_names
from mxrun.io.loading.scan import scan
from mxrun.io.pack.encode import EncodedRecord, RecordEncoder
from mxrun.io.pack.growing_file import GrowingFile
from mxrun.io.pack.identity import SourceDigest, pack_identity
from mxrun.io.pack.journal import JOURNAL_FILE, Journal, SkippedRecord
from mxrun.io.pack.options import CLASSES_SUFFIXES, PackTarget
from mxrun.io.pack.verify import PackedFile, verify_shard
from mxrun.io.pack.writers import WRITERS, ShardWriter
from mxrun.runtime import random

_CHECKSUM_FILE, _PLAN_FILE = "checksums", "plan.json"
# Records that a thread encodes at a time; a few times as many are in memory.
_CHUNK = 8
# What may be written again after a kill.
_COMMIT_RECORDS, _COMMIT_BYTES = 512, 1 << 25

Advance = Callable[[int], None]


@dataclass(frozen=True)
class PackRequest:
    """Data set to pack, and where to.

    root: folder to which names of files in lists are relative. skip_bad: whether records that
    cannot be read are left out instead of ending the pack. overwrite: whether files of the same
    names, and an unfinished pack of other settings, are replaced.
    """

    dataset: Dataset
    target: PackTarget
    root: Path
    workers: int
    skip_bad: bool = False
    overwrite: bool = False


@dataclass(frozen=True)
class PackResult:
    """Files of a pack, and the records that were left out.

    resumed: records that an earlier attempt had packed. digest: the SHA-256 of the files' digests.
    """

    folder: Path
    files: tuple[PackedFile, ...]
    records: int
    skipped: tuple[SkippedRecord, ...]
    resumed: int

    @property
    def digest(self) -> str:
        """SHA-256 of the names and digests of all files."""
        text = "".join(f"{file.sha256}  {file.name}\n" for file in self.files)
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def pack(request: PackRequest, stops: Callable[[], bool], advance: Advance) -> PackResult:
    """Pack a data set and check the files.

    stops: whether to stop after the records at work. advance: receives the number of records that
    are packed, and then of those that are read back. Raises Stopped if `stops` says so, and
    UserError for existing files, for images that cannot be read, and for files that cannot be
    written; the next pack with the same settings continues.
    """
    target = request.target
    plan_file = target.work / _PLAN_FILE
    existing = target.existing()
    if existing and not request.overwrite and not plan_file.exists():
        problem = f"{existing[0]} exists already"
        hint = "pack to another name, or replace the files with --overwrite"
        raise UserError(Diagnostic(problem, hint=hint))
    encoder = RecordEncoder(request.dataset, target.options)
    classes = encode_class_names(request.dataset.classes)
    with report_write_errors(target.out):
        make_folder(target.folder)
        identity = pack_identity(request.dataset, target.options)
        sources_of = partial(_sources_of, request.dataset, _order(request))
        with closing(Journal(target.work, identity, request.overwrite, sources_of)) as journal:
            resumed = journal.state.position
            if not plan_file.exists():
                with closing(_Pack(request, journal)) as run:
                    run.pack(encoder, stops, advance)
                    files = run.verified(advance)
                plan = _plan(target, files, classes, existing)
                write_text(plan_file, json.dumps(plan))
            files = _publish(target, json.loads(plan_file.read_text(encoding="utf-8")))
    state = journal.state
    return PackResult(target.folder, tuple(files), state.written, tuple(state.skipped), resumed)


class _Pack:
    """Pack at work: the open shard and the checksums of the records."""

    def __init__(self, request: PackRequest, journal: Journal) -> None:
        self._request, self._target, self._journal = request, request.target, journal
        self._state, self._order = journal.state, _order(request)
        done = self._order[: self._state.position].tolist()
        self._sources = SourceDigest(request.dataset, done)
        self._remove_uncommitted()
        path = self._target.work / _CHECKSUM_FILE
        self._checksums = GrowingFile(path, 4 * self._state.written)
        self._writer: ShardWriter | None = None
        if self._state.shards and not self._state.complete:
            self._writer = self._open(len(self._state.shards) - 1)
        self._committed = (self._state.position, 0)
        self._bytes = 0

    def close(self) -> None:
        """Close the files."""
        self._checksums.close()
        if self._writer is not None:
            self._writer.close()

    def pack(self, encoder: RecordEncoder, stops: Callable[[], bool], advance: Advance) -> None:
        """Write the records that are left; raises Stopped between two chunks of records."""
        state, order = self._state, self._order
        left = order[state.position :]
        first = state.position
        work = partial(_encoded, encoder, left)
        chunks = scan(
            count=len(left),
            work=work,
            workers=self._request.workers,
            advance=advance,
            done=first,
            chunk=_CHUNK,
        )
        with closing(chunks):
            for chunk in chunks:
                for result in chunk:
                    self._add(result, len(order))
                if stops():
                    self._commit()
                    total = f"{state.position:,} of {len(order):,} records"
                    raise Stopped(f"stopped after {total}; the same command continues")
                if self._is_commit_due():
                    self._commit()
        if not state.complete:
            self._finish_shard()
            if not state.written:
                raise UserError("no record can be read, so that there is nothing to pack")
            state.complete, state.sizes = True, {}
            self._commit()

    def verified(self, advance: Advance) -> list[PackedFile]:
        """Read all shards back. Raises UserError, and removes them, if one is not as written."""
        state, target = self._state, self._target
        content = (target.work / _CHECKSUM_FILE).read_bytes()
        checksums: NDArray[np.uint32] = np.frombuffer(content, "<u4")
        ends = np.cumsum([0, *state.shards]).tolist()
        files: list[PackedFile] = []
        for shard, (start, end) in enumerate(pairwise(ends)):
            names = target.names(shard)
            form = target.options.form
            expected = checksums[start:end]
            report = partial(_report, advance, start)
            try:
                files += verify_shard(form, target.work, names, expected, report)
            except UserError:
                _remove_work(target)
                raise
        return files

    def _add(self, result: tuple[int, EncodedRecord | UserError], count: int) -> None:
        """Write one record, or note that it is left out."""
        index, record = result
        state = self._state
        if isinstance(record, UserError):
            source = self._source(index)
            number = number_of_record(self._request.dataset, index)
            if not self._request.skip_bad:
                self._commit()
                raise _unreadable(record)
            state.skipped.append(SkippedRecord(number, source, problem_of(record)))
        else:
            writer = self._shard_for(record, count)
            before = writer.size
            crc = writer.write(record, state.written, self._source(index))
            self._checksums.write(crc.to_bytes(4, "little"))
            self._bytes += writer.size - before
            state.shards[-1] += 1
            state.written += 1
        self._sources.add(index)
        state.position += 1

    def _shard_for(self, record: EncodedRecord, count: int) -> ShardWriter:
        """Return the shard that takes a record: the open one, or a new one."""
        state, options = self._state, self._target.options
        slot = state.position * options.shard_count // count
        full = slot != state.slot
        if options.shard_bytes is not None and self._writer is not None:
            full = self._writer.size_with(record, state.written) > options.shard_bytes
        if self._writer is None or full:
            self._finish_shard()
            state.shards.append(0)
            state.slot = slot
            self._writer = self._open(len(state.shards) - 1)
        return self._writer

    def _open(self, shard: int) -> ShardWriter:
        kind = WRITERS[self._target.options.form]
        return kind(self._target.work, self._target.names(shard), self._state.sizes)

    def _finish_shard(self) -> None:
        if self._writer is not None:
            self._writer.end()
            self._writer.sync()
            self._writer.close()
            self._writer = None
            self._state.sizes = {}

    def _is_commit_due(self) -> bool:
        records = self._state.position - self._committed[0]
        return records >= _COMMIT_RECORDS or self._bytes - self._committed[1] >= _COMMIT_BYTES

    def _commit(self) -> None:
        """Make everything durable and record it."""
        if self._writer is not None:
            self._state.sizes = self._writer.sync()
        self._checksums.sync()
        # The names of the files as well.
        sync_folder(self._target.work)
        self._state.sources = self._sources.hexdigest()
        self._journal.commit()
        self._committed = (self._state.position, self._bytes)

    def _source(self, index: int) -> str:
        """Return the file of a record relative to the source, or a description of the record."""
        dataset = self._request.dataset
        location = location_of_record(dataset, index)
        if location is None:
            return f"{dataset.name} {dataset.split} record {number_of_record(dataset, index)}"
        return str(replace(location, file=os.path.relpath(location.file, self._request.root)))

    def _remove_uncommitted(self) -> None:
        """Remove the files of shards that were begun after the last commit."""
        known = {_CHECKSUM_FILE, JOURNAL_FILE}
        for shard in range(len(self._state.shards)):
            known.update(self._target.names(shard))
        for path in self._target.work.iterdir():
            if path.name not in known:
                path.unlink()


def _order(request: PackRequest) -> NDArray[np.int64]:
    """Return the numbers of the records in the order of the pack."""
    count, options = len(request.dataset), request.target.options
    if options.shuffle:
        return random.permutation(options.seed, "pack", count)
    return np.arange(count, dtype=np.int64)


def _sources_of(dataset: Dataset, order: NDArray[np.int64], position: int) -> str:
    return SourceDigest(dataset, order[:position].tolist()).hexdigest()


def _report(advance: Advance, before: int, count: int) -> None:
    advance(before + count)


def _encoded(
    encoder: RecordEncoder, order: NDArray[np.int64], rows: range
) -> list[tuple[int, EncodedRecord | UserError]]:
    """Return some records of the order, or the errors of those that cannot be read."""
    results: list[tuple[int, EncodedRecord | UserError]] = []
    for index in order[rows.start : rows.stop].tolist():
        try:
            results.append((index, encoder.encode(index)))
        except UserError as error:
            results.append((index, error))
    return results


def _unreadable(error: UserError) -> UserError:
    first, *others = error.diagnostics
    hint = "--on-bad-record skip leaves such records out; the same command continues from here"
    named = Diagnostic(
        first.problem, first.place, first.expected, first.got, hint=first.hint or hint
    )
    return UserError([named, *others])


def _plan(
    target: PackTarget, files: list[PackedFile], classes: bytes, existing: list[Path]
) -> dict[str, Any]:
    """Return the names that the files get, and those of an earlier pack to remove.

    Names of classes are written beside each RecordIO file, which has no place for them.
    """
    names = [file.name for file in files]
    for suffix in CLASSES_SUFFIXES[target.options.form] if classes else ():
        for name in sorted({f"{Path(name).stem}{suffix}" for name in names}):
            write_bytes(target.work / name, classes)
            names.append(name)
    return {
        "files": [asdict(file) for file in files],
        "names": names,
        "obsolete": [path.name for path in existing if path.name not in names],
    }


def _publish(target: PackTarget, plan: Mapping[str, Any]) -> list[PackedFile]:
    """Give the files their places; a plan that was carried out in part is completed."""
    for name in plan["obsolete"]:
        (target.folder / name).unlink(missing_ok=True)
    for name in plan["names"]:
        if (target.work / name).exists():
            (target.work / name).replace(target.folder / name)
    sync_folder(target.folder)
    _remove_work(target)
    return [PackedFile(**file) for file in plan["files"]]


def _remove_work(target: PackTarget) -> None:
    """Remove the hidden folder, the journal first: without the files it would be continued."""
    (target.work / JOURNAL_FILE).unlink(missing_ok=True)
    sync_folder(target.work)
    shutil.rmtree(target.work)
