"""Folder of a run: its config, metrics, times, summary and checkpoints."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.files import PARTIAL, atomic_file, make_folder, report_write_errors, sync_folder
from mxrun.io.vocabulary.saved import VOCABULARY_FILE
from mxrun.io.vocabulary.vocabulary import Vocabulary
from mxrun.train.checkpoint import FILES, MANIFEST_FILE, clear_hidden, recover_checkpoint
from mxrun.train.files import canonical_json, remove
from mxrun.train.observer import EpochDone, StepLogged
from mxrun.train.run_lock import LOCK_FILE

CONFIG_FILE = "config.yaml"
METRICS_FILE = "metrics.jsonl"
SUMMARY_FILE = "summary.json"
BAD_RECORDS_FILE = "bad_records.jsonl"
_TIMING = "timing.jsonl"
_RUN_FILES = (
    CONFIG_FILE,
    METRICS_FILE,
    _TIMING,
    SUMMARY_FILE,
    BAD_RECORDS_FILE,
    VOCABULARY_FILE,
)
_NAMES = "|".join(map(re.escape, _RUN_FILES))
_RUN_FILE = re.compile(rf"{_NAMES}|\.({_NAMES}){PARTIAL}")
_CHECKPOINT = re.compile(r"checkpoint-[0-9]+|\.checkpoint-[0-9]+\.(partial|replaced|removed)")
_HIDDEN = re.compile(r"\.checkpoint-([0-9]+)\.(?:removed|replaced)")
_REPLACED = re.compile(r"\.checkpoint-([0-9]+)\.replaced")


def find_run(given: str | Path, runs: Path) -> Path:
    """Return the path of a run or of one of its checkpoints.

    given: the path, or the path below the folder `runs`, such as the run's name. Returns `given` if
    there is no run at either.
    """
    path = Path(given)
    return path if is_run(path) or not is_run(runs / path) else runs / path


def run_of(path: Path) -> Path:
    """Return the folder of the run that a checkpoint is of; any other path as it is."""
    return path.parent if os.path.isfile(path / MANIFEST_FILE) else path


def is_run(path: Path) -> bool:
    """Return whether a folder is that of a run, or one of a run's checkpoints."""
    # Unlike Path.is_file it raises nothing, such as for a name that is too long.
    return any(os.path.isfile(path / name) for name in (CONFIG_FILE, METRICS_FILE, MANIFEST_FILE))


def is_without_progress(path: Path) -> bool:
    """Return whether a folder holds nothing but a run's config and records without an epoch."""
    with report_write_errors(path):
        entries = [entry for entry in path.iterdir() if entry.name != LOCK_FILE]
        allowed = (CONFIG_FILE, METRICS_FILE, _TIMING, BAD_RECORDS_FILE, VOCABULARY_FILE)
        return all(
            entry.name in allowed
            and entry.is_file()
            and not entry.is_symlink()
            and (
                entry.name in (CONFIG_FILE, BAD_RECORDS_FILE, VOCABULARY_FILE)
                or not entry.stat().st_size
            )
            for entry in entries
        )


def config_of(path: Path) -> Path:
    """Return the config of a run's or a checkpoint's folder; any other path as it is."""
    return run_of(path) / CONFIG_FILE if os.path.isdir(path) else path


def is_beside_results(path: Path) -> bool:
    """Return whether a file is the config of a run's folder and lies beside what the run wrote."""
    if path.name != CONFIG_FILE:
        return False
    with report_write_errors(path.parent):
        others = (entry.name for entry in _of_a_run(path.parent) if entry.name != CONFIG_FILE)
        return any(others) or any(path.parent.glob(f"*/{MANIFEST_FILE}"))


class RunDirectory:
    """Folder of a run: config.yaml, metrics.jsonl (no times), timing.jsonl, summary.json.

    Make one with `create` or `reopen`. Every method raises UserError naming the path if it cannot
    write. Links among the run's own files are never followed for writing.

    check: called before a result is written; raises if the folder has been replaced.
    """

    def __init__(self, path: Path, check: Callable[[], None] = lambda: None) -> None:
        self.path = path
        self._check = check
        # Whether records of steps may not be on disk yet.
        self._unflushed = False

    @classmethod
    def create(cls, path: Path, config_text: str, overwrite: bool, hint: str = "") -> RunDirectory:
        """Create the folder of a run and save its resolved config.

        Raises UserError with `hint` if the folder has a run, unless `overwrite` is set: then the
        files of that run, and no others, are removed.
        """
        with report_write_errors(path):
            make_folder(path)
            if overwrite:
                _remove_run(path)
            if any(_of_a_run(path)):
                raise _occupied(path, hint)
        created = cls(path)
        created.replace_config(config_text)
        return created

    @classmethod
    def reopen(cls, path: Path) -> RunDirectory | None:
        """Return the folder of a run, or None if it has no files of one.

        Raises UserError if a file or checkpoint of the run is a link.
        """
        with report_write_errors(path):
            if not path.is_dir() or not any(_of_a_run(path)):
                return None
        _check_no_links(path)
        return cls(path)

    @property
    def config_path(self) -> Path:
        """Path of the run's resolved config."""
        return self.path / CONFIG_FILE

    def replace_config(self, text: str) -> None:
        """Replace the run's config."""
        with atomic_file(self.config_path, follow=False) as file:
            file.write(text.encode("utf-8"))

    def write_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Write the tokens of the text that the run is trained on."""
        with atomic_file(self.path / VOCABULARY_FILE, follow=False) as file:
            file.write(vocabulary.content.encode("utf-8"))

    def clean_up(self) -> None:
        """Restore a checkpoint that a killed process was replacing; remove its partial files."""
        with report_write_errors(self.path):
            for entry in list(_of_a_run(self.path)):
                if match := _REPLACED.fullmatch(entry.name):
                    recover_checkpoint(self.path, int(match[1]))
                if hidden := _HIDDEN.fullmatch(entry.name):
                    clear_hidden(self.path, int(hidden[1]))
                elif entry.name.startswith(".") and (entry.exists() or entry.is_symlink()):
                    remove(entry)

    def remove_records_from(self, epoch: int, step: int = 0) -> None:
        """Remove the records of `epoch` and later ones, and an incomplete last line.

        Those of the epoch's steps up to `step` are retained.
        """
        for name in (METRICS_FILE, _TIMING):
            path = self.path / name
            with report_write_errors(path):
                if path.exists():
                    lines = path.read_bytes().splitlines(keepends=True)
                    earlier = b"".join(
                        line for line in lines if _recorded_before(line, epoch, step)
                    )
                    with atomic_file(path, follow=False) as file:
                        file.write(earlier)

    def summary(self) -> Mapping[str, Any] | None:
        """Return summary.json of a finished run; None if it does not exist or cannot be read."""
        try:
            content = json.loads((self.path / SUMMARY_FILE).read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        return content if isinstance(content, dict) else None

    def unfinish(self) -> None:
        """Remove the summary of a run that continues."""
        with report_write_errors(self.path / SUMMARY_FILE), suppress(FileNotFoundError):
            (self.path / SUMMARY_FILE).unlink()

    def record(self, done: EpochDone) -> None:
        """Append an epoch to metrics.jsonl, and its time to timing.jsonl."""
        self._check()
        position = {"epoch": done.epoch, "step": done.step}
        measured = {
            "learning_rate": done.learning_rate,
            "train": done.train,
            "eval": done.evaluation,
        }
        _append(self.path / METRICS_FILE, {**position, **measured})
        times = {"seconds": done.seconds, "data_wait_seconds": done.waited_seconds}
        _append(self.path / _TIMING, {**position, **times})

    def record_step(self, done: StepLogged) -> None:
        """Append the training metrics of a step to metrics.jsonl."""
        self._check()
        record = {
            "epoch": done.epoch,
            "step": done.step,
            "learning_rate": done.learning_rate,
            "train": done.train,
        }
        _append(self.path / METRICS_FILE, record, flush=False)
        self._unflushed = True

    def flush_records(self) -> None:
        """Bring the records of steps to disk, before a checkpoint that relies on them.

        Another thread may record further steps meanwhile.
        """
        if self._unflushed:
            # Before: what is recorded during the call may not be on disk after it.
            self._unflushed = False
            path = self.path / METRICS_FILE
            with report_write_errors(path), open(path, "ab", opener=_unfollowed) as file:
                os.fsync(file.fileno())

    def bad_records(self) -> list[bytes]:
        """Return the lines of bad_records.jsonl; an incomplete last one is removed."""
        path = self.path / BAD_RECORDS_FILE
        with report_write_errors(path):
            content = path.read_bytes() if path.exists() else b""
        complete = content[: content.rfind(b"\n") + 1]
        if complete != content:
            with atomic_file(path, follow=False) as file:
                file.write(complete)
        return complete.splitlines()

    def list_bad_record(self, record: Mapping[str, Any]) -> None:
        """Append a record that is left out to bad_records.jsonl."""
        self._check()
        _append(self.path / BAD_RECORDS_FILE, record)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write summary.json atomically: after a crash it is the new or the previous one."""
        self._check()
        with atomic_file(self.path / SUMMARY_FILE, follow=False) as file:
            file.write(canonical_json(summary).encode("ascii"))


def _append(path: Path, record: Mapping[str, Any], flush: bool = True) -> None:
    """Append one line; if the disk is full, the file is truncated to its previous size."""
    line = canonical_json(record).encode("ascii")
    with report_write_errors(path), open(path, "ab", buffering=0, opener=_unfollowed) as file:
        before = file.tell()
        try:
            written = file.write(line)
            while written < len(line):
                written += file.write(line[written:])
            if flush:
                # It must be on disk before any checkpoint that relies on it.
                os.fsync(file.fileno())
            if before == 0:
                sync_folder(path.parent)
        except OSError:
            os.truncate(file.fileno(), before)
            raise


def _unfollowed(path: str, mode: int) -> int:
    """Open a file without following a symbolic link."""
    return os.open(path, mode | os.O_NOFOLLOW, 0o666)


def is_step_record(record: Mapping[str, Any]) -> bool:
    """Return whether a record of metrics.jsonl is of a step, not of an epoch's end."""
    return "eval" not in record and "seconds" not in record


def _recorded_before(line: bytes, epoch: int, step: int) -> bool:
    """Return whether a line is complete and records an epoch before `epoch`, or a step of it up to
    `step`.
    """
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return False
    if not isinstance(record, dict) or not line.endswith(b"\n"):
        return False
    recorded, at = record.get("epoch"), record.get("step")
    if not isinstance(recorded, int) or not isinstance(at, int):
        return False
    return recorded < epoch or (recorded == epoch and at <= step and is_step_record(record))


def _of_a_run(path: Path) -> Iterator[Path]:
    """Yield the files and folders in `path` that a run has written."""
    for entry in sorted(path.iterdir()):
        if _RUN_FILE.fullmatch(entry.name) or _CHECKPOINT.fullmatch(entry.name):
            yield entry


def _check_no_links(path: Path) -> None:
    """Raise UserError if files of a run are links: their targets may be anywhere."""
    links = [entry for entry in _of_a_run(path) if entry.is_symlink()]
    if links:
        raise UserError(
            Diagnostic(
                f"{link} is a link: its target would be changed with the run",
                got=f"a link to {link.readlink()}",
                hint="replace the link by the file, or start another run with name=OTHER",
            )
            for link in links
        )


def _remove_run(path: Path) -> None:
    """Remove the files of a run; raises UserError, removing nothing, if its folders have others."""
    files: list[Path] = []
    folders: dict[Path, list[Path]] = {}
    for entry in _of_a_run(path):
        if entry.is_dir() and not entry.is_symlink() and _CHECKPOINT.fullmatch(entry.name):
            folders[entry] = list(entry.iterdir())
        else:
            files.append(entry)
    saved = [file for inside in folders.values() for file in inside]
    strange = [file for file in saved if file.name not in FILES]
    strange += [file for file in (*saved, *files) if file.is_dir() and not file.is_symlink()]
    if strange:
        raise UserError(
            Diagnostic(
                f"{path} cannot be overwritten: {strange[0]} was not written by a run",
                hint="move it away",
            )
        )
    for folder, inside in folders.items():
        for file in inside:
            file.unlink()
        folder.rmdir()
    # No checkpoint may be left after a loss of power without the records that led to it.
    sync_folder(path)
    for file in files:
        file.unlink()


def _occupied(path: Path, hint: str) -> UserError:
    finished = (path / SUMMARY_FILE).exists()
    state = "exists already" if finished else "holds an unfinished run"
    return UserError(Diagnostic(f"{path} {state}", hint=hint))
