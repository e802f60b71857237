"""A run's folder: what was run, how it went and what came of it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.files import PARTIAL, whole_file, writing
from mxrun.train.checkpoint import FILES, MANIFEST_FILE, clear_hidden, recover_checkpoint
from mxrun.train.files import canonical_json, remove
from mxrun.train.observer import EpochDone

ROOT = Path("runs")

CONFIG_FILE = "config.yaml"
_METRICS = "metrics.jsonl"
_TIMING = "timing.jsonl"
_SUMMARY = "summary.json"
_OWN_FILES = (CONFIG_FILE, _METRICS, _TIMING, _SUMMARY)
_NAMES = "|".join(map(re.escape, _OWN_FILES))
_OWN_FILE = re.compile(rf"{_NAMES}|\.({_NAMES}){PARTIAL}")
_CHECKPOINT = re.compile(r"checkpoint-[0-9]+|\.checkpoint-[0-9]+\.(partial|replaced|removed)")
_HIDDEN = re.compile(r"\.checkpoint-([0-9]+)\.(?:removed|replaced)")
_REPLACED = re.compile(r"\.checkpoint-([0-9]+)\.replaced")


def run_path(name: str) -> Path:
    """Where the run `name` lies."""
    return ROOT / name


def is_run_config(path: Path) -> bool:
    """Whether a file is the config that a run saved, beside what came of it.

    Such a folder may be anybody's; what its config names was not chosen by who opens it.
    """
    # By the name that it is opened by as well as by the one that a link leads to.
    return any(_lies_beside_results(each) for each in {path, path.resolve()})


def _lies_beside_results(path: Path) -> bool:
    if path.name != CONFIG_FILE:
        return False
    with writing(path.parent):
        others = (entry.name for entry in _of_a_run(path.parent) if entry.name != CONFIG_FILE)
        return any(others) or any(path.parent.glob(f"*/{MANIFEST_FILE}"))


class RunDirectory:
    """`runs/<name>/`: config.yaml, metrics.jsonl (no times), timing.jsonl, summary.json.

    Make one with `create` or `reopen`. Every method raises UserError, naming the path, when it
    cannot write. Links among the run's own files are never written through.

    check: called before a result is written; raises where the folder is another one by now.
    """

    def __init__(self, path: Path, check: Callable[[], None] = lambda: None) -> None:
        self.path = path
        self._check = check

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
        """The folder of the run `name`, where there is anything of one.

        Raises UserError where a link stands in the place of a file or checkpoint of the run.
        """
        path = root / name
        with writing(path):
            if not path.is_dir() or not any(_of_a_run(path)):
                return None
        _check_no_links(path)
        return cls(path)

    @property
    def config_path(self) -> Path:
        """The resolved config of the run."""
        return self.path / CONFIG_FILE

    def replace_config(self, text: str) -> None:
        """Make it the folder of a run with another config."""
        with whole_file(self.config_path, follow=False) as file:
            file.write(text.encode("utf-8"))

    def withdraw(self) -> None:
        """Remove the config of a run that nothing has come of, so that the next one may begin."""
        with writing(self.path):
            if [entry.name for entry in _of_a_run(self.path)] == [CONFIG_FILE]:
                self.config_path.unlink()

    def clean_up(self) -> None:
        """Put back a checkpoint that a killed process was about to replace, and remove what it
        left half written or half removed.
        """
        with writing(self.path):
            for entry in list(_of_a_run(self.path)):
                if match := _REPLACED.fullmatch(entry.name):
                    recover_checkpoint(self.path, int(match[1]))
                if hidden := _HIDDEN.fullmatch(entry.name):
                    clear_hidden(self.path, int(hidden[1]))
                elif entry.name.startswith(".") and (entry.exists() or entry.is_symlink()):
                    remove(entry)

    def go_back(self, epoch: int) -> None:
        """Forget what was recorded of `epoch` and later ones, and a line that was left torn."""
        for name in (_METRICS, _TIMING):
            path = self.path / name
            with writing(path):
                if path.exists():
                    lines = path.read_bytes().splitlines(keepends=True)
                    kept = b"".join(line for line in lines if _recorded_before(line, epoch))
                    with whole_file(path, follow=False) as file:
                        file.write(kept)

    def summary(self) -> Mapping[str, Any] | None:
        """summary.json of a finished run; None where there is none or it cannot be read."""
        try:
            content = json.loads((self.path / _SUMMARY).read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        return content if isinstance(content, dict) else None

    def unfinish(self) -> None:
        """Remove the summary: the run goes on."""
        with writing(self.path / _SUMMARY), suppress(FileNotFoundError):
            (self.path / _SUMMARY).unlink()

    def record(self, done: EpochDone) -> None:
        """Append an epoch to metrics.jsonl, and its time to timing.jsonl."""
        self._check()
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
        self._check()
        with whole_file(self.path / _SUMMARY, follow=False) as file:
            file.write(canonical_json(summary).encode("ascii"))


def _append(path: Path, record: Mapping[str, Any]) -> None:
    """Add one line; a line that does not fit on the disk leaves no torn end."""
    line = canonical_json(record).encode("ascii")
    with writing(path), open(path, "ab", buffering=0, opener=_unfollowed) as file:
        before = file.tell()
        try:
            written = file.write(line)
            while written < len(line):
                written += file.write(line[written:])
            # Durable before any checkpoint that counts on it.
            os.fsync(file.fileno())
        except OSError:
            os.truncate(file.fileno(), before)
            raise


def _unfollowed(path: str, mode: int) -> int:
    """Open what has this name and nothing that it links to."""
    return os.open(path, mode | os.O_NOFOLLOW, 0o666)


def _recorded_before(line: bytes, epoch: int) -> bool:
    """Whether a line is whole and of an epoch before `epoch`."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return False
    recorded = record.get("epoch") if isinstance(record, dict) else None
    return line.endswith(b"\n") and isinstance(recorded, int) and recorded < epoch


def _of_a_run(path: Path) -> Iterator[Path]:
    """What in a folder a run has written."""
    for entry in sorted(path.iterdir()):
        if _OWN_FILE.fullmatch(entry.name) or _CHECKPOINT.fullmatch(entry.name):
            yield entry


def _check_no_links(path: Path) -> None:
    """Raise UserError for links in the place of what a run writes: they may lead anywhere."""
    links = [entry for entry in _of_a_run(path) if entry.is_symlink()]
    if links:
        raise UserError(
            Diagnostic(
                f"{link} is a link: what it leads to would be changed with the run",
                got=f"a link to {link.readlink()}",
                hint="put the file itself there, or start another run with name=OTHER",
            )
            for link in links
        )


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
