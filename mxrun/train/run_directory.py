"""A run's folder: what was run, how it went and what came of it."""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.files import whole_file, writing
from mxrun.train.checkpoint import FILES, recover_checkpoint
from mxrun.train.files import canonical_json, remove
from mxrun.train.observer import EpochDone

ROOT = Path("runs")

_CONFIG = "config.yaml"
_METRICS = "metrics.jsonl"
_TIMING = "timing.jsonl"
_SUMMARY = "summary.json"
_OWN_FILES = (_CONFIG, _METRICS, _TIMING, _SUMMARY)
_NAMES = "|".join(map(re.escape, _OWN_FILES))
_OWN_FILE = re.compile(rf"{_NAMES}|\.({_NAMES})\.partial")
_CHECKPOINT = re.compile(r"checkpoint-[0-9]+|\.checkpoint-[0-9]+\.(partial|replaced|removed)")
_REPLACED = re.compile(r"\.checkpoint-([0-9]+)\.replaced")
_LOCK = ".lock"


def run_path(name: str) -> Path:
    """Where the run `name` lies."""
    return ROOT / name


@contextmanager
def only_writer(path: Path) -> Iterator[None]:
    """While it is entered no other process writes the run in `path`; the folder is made.

    The lock is the system's (flock) on a file with this process's number, so that it ends with the
    process, however that ends. Raises UserError naming the process that has it.
    """
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
        descriptor = _locked(path / _LOCK)
    try:
        with writing(path):
            os.truncate(descriptor, 0)
            os.write(descriptor, b"%d\n" % os.getpid())
        yield
    finally:
        # While it is still locked: who opens it by then sees that it is not there any more.
        with suppress(OSError):
            (path / _LOCK).unlink()
        os.close(descriptor)


def _locked(path: Path) -> int:
    """The descriptor of a locked file that still has its name."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.exists(path) and os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        except BlockingIOError as error:
            holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise UserError(
                Diagnostic(
                    f"another process is writing the run in {path.parent}",
                    got=f"process {holder or 'not known yet'}",
                    hint="wait for it, stop it (SIGTERM saves first), or say name=OTHER",
                )
            ) from error
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)


class RunDirectory:
    """`runs/<name>/`: config.yaml, metrics.jsonl (no times), timing.jsonl, summary.json.

    Make one with `create` or `reopen`. Every method raises UserError, naming the path, when it
    cannot write.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(
        cls, name: str, config_text: str, overwrite: bool, root: Path = ROOT
    ) -> RunDirectory:
        """Make the folder of the run `name` and save its resolved config.

        Raises UserError when the folder holds another run, unless `overwrite`: then what that run
        wrote is removed, and nothing else.
        """
        path = root / name
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
            if overwrite:
                _remove_run(path)
            if any(_of_a_run(path)):
                raise _occupied(path)
        created = cls(path)
        created.replace_config(config_text)
        return created

    @classmethod
    def reopen(cls, name: str, root: Path = ROOT) -> RunDirectory | None:
        """The folder of the run `name`, where there is anything of one."""
        path = root / name
        with writing(path):
            return cls(path) if path.is_dir() and any(_of_a_run(path)) else None

    @property
    def config_path(self) -> Path:
        """The resolved config of the run."""
        return self.path / _CONFIG

    def replace_config(self, text: str) -> None:
        """Make it the folder of a run with another config."""
        with whole_file(self.config_path) as file:
            file.write(text.encode("utf-8"))

    def clean_up(self) -> None:
        """Put back a checkpoint that a killed process was about to replace, and remove what it
        left half written or half removed.
        """
        with writing(self.path):
            for entry in list(_of_a_run(self.path)):
                if match := _REPLACED.fullmatch(entry.name):
                    recover_checkpoint(self.path, int(match[1]))
                if entry.name.startswith(".") and (entry.exists() or entry.is_symlink()):
                    remove(entry)

    def go_back(self, epoch: int) -> None:
        """Forget what was recorded of `epoch` and later ones, and a line that was left torn."""
        for name in (_METRICS, _TIMING):
            path = self.path / name
            with writing(path):
                if path.exists():
                    lines = path.read_bytes().splitlines(keepends=True)
                    kept = b"".join(line for line in lines if _recorded_before(line, epoch))
                    with whole_file(path) as file:
                        file.write(kept)

    def summary(self) -> Mapping[str, Any] | None:
        """summary.json of a finished run; None where there is none or it cannot be read."""
        try:
            content = json.loads((self.path / _SUMMARY).read_bytes())
        except (OSError, ValueError):
            return None
        return content if isinstance(content, dict) else None

    def unfinish(self) -> None:
        """Remove the summary: the run goes on."""
        with writing(self.path / _SUMMARY), suppress(FileNotFoundError):
            (self.path / _SUMMARY).unlink()

    def record(self, done: EpochDone) -> None:
        """Append an epoch to metrics.jsonl, and its time to timing.jsonl."""
        position = {"epoch": done.epoch, "step": done.step}
        measured = {
            "learning_rate": done.learning_rate,
            "train": done.train,
            "eval": done.evaluation,
        }
        _append(self.path / _METRICS, {**position, **measured})
        _append(self.path / _TIMING, {**position, "seconds": done.seconds})

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write summary.json: all of it or, after a crash, the one before."""
        with whole_file(self.path / _SUMMARY) as file:
            file.write(canonical_json(summary).encode("ascii"))


def _append(path: Path, record: Mapping[str, Any]) -> None:
    """Add one line; a line that does not fit on the disk leaves no torn end."""
    line = canonical_json(record).encode("ascii")
    with writing(path), path.open("ab", buffering=0) as file:
        before = file.tell()
        try:
            written = file.write(line)
            while written < len(line):
                written += file.write(line[written:])
            # Durable before any checkpoint that counts on it.
            os.fsync(file.fileno())
        except OSError:
            os.truncate(path, before)
            raise


def _recorded_before(line: bytes, epoch: int) -> bool:
    """Whether a line is whole and of an epoch before `epoch`."""
    try:
        record = json.loads(line)
    except ValueError:
        return False
    recorded = record.get("epoch") if isinstance(record, dict) else None
    return line.endswith(b"\n") and isinstance(recorded, int) and recorded < epoch


def _of_a_run(path: Path) -> Iterator[Path]:
    """What in a folder a run has written."""
    for entry in sorted(path.iterdir()):
        if _OWN_FILE.fullmatch(entry.name) or _CHECKPOINT.fullmatch(entry.name):
            yield entry


def _remove_run(path: Path) -> None:
    """Remove what a run wrote; nothing at all where something else lies in between."""
    files: list[Path] = []
    folders: list[Path] = []
    for entry in _of_a_run(path):
        if entry.is_dir() and not entry.is_symlink() and _CHECKPOINT.fullmatch(entry.name):
            folders.append(entry)
            files += entry.iterdir()
        else:
            files.append(entry)
    strange = [file for file in files if file.parent in folders and file.name not in FILES]
    strange += [file for file in files if file.is_dir() and not file.is_symlink()]
    if strange:
        raise UserError(
            Diagnostic(
                f"{path} cannot be overwritten: {strange[0]} was not written by a run",
                hint="move it away",
            )
        )
    for file in files:
        file.unlink()
    for folder in folders:
        folder.rmdir()


def _occupied(path: Path) -> UserError:
    what = "another run" if (path / _SUMMARY).exists() else "an unfinished run"
    return UserError(
        Diagnostic(
            f"{path} holds {what}",
            hint="--resume goes on with it, --overwrite replaces it, name=OTHER starts another",
        )
    )
