"""Checkpoint format: a folder of plain arrays and a manifest, written atomically.

`checkpoint-<step>/` holds `parameters.safetensors`, `optimizer.safetensors`,
`auxiliary.safetensors` and `carried.safetensors` if there are such states, `measured.safetensors`
with the sums of an epoch's metrics, and `manifest.json`. The manifest has the size and SHA-256 of
each file, its own SHA-256, the progress of the run and the identity of the run. The same state
gives the same bytes.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy.typing as npt
from pydantic import Field

from mxrun.base.array_file import Arrays, UnreadableArrays, file_parts, parse_arrays
from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.files import report_write_errors, sync_folder
from mxrun.base.params import Parameters, Positive, check
from mxrun.io.series.encoding import SeriesEncoding
from mxrun.io.tables.encoding import TableEncoding
from mxrun.train.files import canonical_json, remove
from mxrun.train.progress import Count, Progress

PARAMETERS_FILE = "parameters.safetensors"
OPTIMIZER_FILE = "optimizer.safetensors"
AUXILIARY_FILE = "auxiliary.safetensors"
CARRIED_FILE = "carried.safetensors"
MEASURED_FILE = "measured.safetensors"
MANIFEST_FILE = "manifest.json"
ARRAY_FILES = (PARAMETERS_FILE, OPTIMIZER_FILE, AUXILIARY_FILE, CARRIED_FILE, MEASURED_FILE)
FILES = (*ARRAY_FILES, MANIFEST_FILE)
FORMAT: Literal[4] = 4

CHECKPOINT = re.compile(r"checkpoint-([0-9]+)")
"""Pattern of the name of a checkpoint's folder."""

_MAX_MANIFEST_BYTES = 1 << 26

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}\z")]


class OtherFormat(UserError):
    """Error for a checkpoint that another version of mxrun wrote."""


class FileRecord(Parameters):
    """Expected size and digest of a file of the checkpoint."""

    bytes: Count = Field(description="Size of the file.")
    sha256: Sha256 = Field(description="SHA-256 of the file, in hexadecimal digits.")


class PlanRecord(Parameters):
    """Properties of the plan that determine the last bits of results."""

    device: str = Field(default="cpu", description="The kind of device.")
    library: str = Field(description="The kernel library and its version.")
    micro_batches: Annotated[int, Field(ge=1)] = Field(
        default=1, description="Number of parts in which each batch was computed."
    )
    contexts: Annotated[int, Field(ge=1)] = Field(
        default=1,
        description="Number of contexts that computed parts of each batch side by side. The "
        "auxiliary states, such as moving statistics, are those of the first one.",
    )
    batch_parts: Annotated[int, Field(ge=1)] = Field(
        default=1,
        description="Number of parts of each batch whose gradients were summed in a fixed tree, on "
        "however many processes. The auxiliary states are those of the first one.",
    )
    implementations: dict[str, str] = Field(
        description="The implementation of each step of training, by name."
    )
    others: dict[str, dict[str, str]] = Field(
        default={}, description="The implementations of other phases' steps, by phase and name."
    )
    kernel_plans: dict[str, str] = Field(
        default={},
        description="Plans that the kernel library made, by the digest of what they are for; a "
        "resumed run uses them again.",
    )


class StartedFrom(Parameters):
    """Warm start of a run: the other run's folder or file of weights, and the names of variables by
    what became of them.
    """

    run: str = Field(description="The folder of the other run, or the file of weights.")
    loaded: tuple[str, ...] = Field(description="Variables whose values were loaded.")
    missing: tuple[str, ...] = Field(description="Variables that the other run does not have.")
    misshapen: tuple[str, ...] = Field(description="Variables that have another shape there.")
    unexpected: tuple[str, ...] = Field(description="Tensors there that were not loaded.")


class RunState(Parameters):
    """Progress of a run, and its identity."""

    progress: Progress = Field(description="The progress of the run.")
    due: bool = Field(description="Whether the policy required it; false after an interruption.")
    seed: Count = Field(description="The seed of every random number.")
    plan: PlanRecord = Field(description="The plan the arrays were computed by.")
    config_sha256: Sha256 = Field(
        description="The SHA-256 of the config's keys that affect results."
    )
    inference_sha256: Sha256 = Field(
        description="The SHA-256 of the config's keys that affect inference."
    )
    data: dict[str, Sha256] = Field(description="The SHA-256 of each data set read, by its role.")
    classes: tuple[str, ...] = Field(
        default=(), description="The names of the classes that were learned, if they have names."
    )
    columns: tuple[str, ...] = Field(
        default=(), description="The names of the data columns, for tables with a header."
    )
    label_column: str = Field(
        default="", description="The name of the label column, for tables with a header."
    )
    encoding: SeriesEncoding | TableEncoding | None = Field(
        default=None, description="What was learned of the columns of a table, if it was encoded."
    )
    vocabulary: Sha256 | None = Field(
        default=None,
        description="The SHA-256 of the run's vocabulary.json, if it was trained on text.",
    )
    plugins: dict[str, Sha256] = Field(
        default={}, description="The SHA-256 of each plugin, by its file's name."
    )
    whites: dict[str, Positive] = Field(
        default={},
        description="The pixel value of white, for the inputs whose records are images; all other "
        "inputs read numbers as they are.",
    )
    started_from: StartedFrom | None = Field(
        default=None, description="The warm start from another run, if any."
    )


class Manifest(RunState):
    """Content of `manifest.json`."""

    format: Literal[4] = Field(description="The number of this format.")
    files: dict[str, FileRecord] = Field(description="The files beside the manifest.")


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Checkpoint that has been read and verified."""

    folder: Path
    manifest: Manifest
    parameters: Arrays
    optimizer: Arrays
    auxiliary: Arrays
    carried: Arrays
    measured: Arrays


def checkpoint_folder(run_folder: Path, step: int) -> Path:
    """Return the folder of the checkpoint after `step` steps."""
    return run_folder / f"checkpoint-{step}"


def save_checkpoint(run_folder: Path, state: RunState, groups: Mapping[str, Arrays]) -> Path:
    """Write a checkpoint and return its folder; `groups` are the arrays of each file.

    Everything is written and fsynced under another name, the manifest last, and then renamed: a
    folder named `checkpoint-...` is always complete. Raises UserError naming the file if writing
    fails, such as on a full disk.
    """
    step = state.progress.step
    folder = checkpoint_folder(run_folder, step)
    partial = folder.with_name(f".{folder.name}.partial")
    with report_write_errors(folder):
        with suppress(FileNotFoundError):
            remove(partial)
        try:
            partial.mkdir()
            _write_all(partial, state, groups)
            _put(partial, folder)
        finally:
            # After the rename it no longer exists.
            with suppress(OSError):
                remove(partial)
        sync_folder(run_folder)
    return folder


def _put(partial: Path, folder: Path) -> None:
    """Rename a written checkpoint to its final name, replacing an existing one.

    If the rename fails, the existing checkpoint is restored. If the process is killed in between,
    it remains complete under its hidden name: see `recover_checkpoint`.
    """
    replaced = _replaced(folder)
    _clear(replaced, folder)
    with suppress(FileNotFoundError):
        folder.rename(replaced)
    try:
        partial.rename(folder)
    except OSError:
        with suppress(OSError):
            replaced.rename(folder)
        raise
    with suppress(OSError):
        _clear(replaced, folder)


def recover_checkpoint(run_folder: Path, step: int) -> None:
    """Restore a checkpoint that was about to be replaced, if nothing has its name."""
    folder = checkpoint_folder(run_folder, step)
    with report_write_errors(folder):
        if not folder.exists():
            # Its integrity is verified on reading, like that of every checkpoint.
            with suppress(FileNotFoundError):
                _replaced(folder).rename(folder)


def _replaced(folder: Path) -> Path:
    """Return the hidden name of a checkpoint while another takes its name."""
    return folder.with_name(f".{folder.name}.replaced")


def discard_checkpoint(run_folder: Path, step: int) -> None:
    """Remove a checkpoint if it exists; it is renamed to a hidden name first.

    Other files in its folder are left there, and so is the folder then.
    """
    folder = checkpoint_folder(run_folder, step)
    # Otherwise the checkpoint that it replaced would be restored in its place.
    clear_hidden(run_folder, step)
    with report_write_errors(folder), suppress(FileNotFoundError):
        folder.rename(_removed(folder))
        _clear(_removed(folder), folder)


def clear_hidden(run_folder: Path, step: int) -> None:
    """Finish the removal of a checkpoint that a killed process had removed or replaced."""
    folder = checkpoint_folder(run_folder, step)
    with report_write_errors(folder):
        for left in (_removed(folder), _replaced(folder)):
            _clear(left, folder)


def _removed(folder: Path) -> Path:
    """Return the hidden name of a checkpoint that is being removed."""
    return folder.with_name(f".{folder.name}.removed")


def _clear(hidden: Path, folder: Path) -> None:
    """Remove a checkpoint with a hidden name, if it exists.

    The name is made durable first, so that no loss of power leaves it the name of a checkpoint
    without files. Files that are not part of a checkpoint are moved back to `folder`, under a
    numbered name if theirs is taken there.
    """
    if not hidden.is_dir() or hidden.is_symlink():
        hidden.unlink(missing_ok=True)
        return
    sync_folder(hidden.parent)
    for name in FILES:
        (hidden / name).unlink(missing_ok=True)
    others = sorted(hidden.iterdir())
    if others and not folder.exists():
        hidden.rename(folder)
        return
    for entry in others:
        entry.rename(_unused(folder / entry.name))
    hidden.rmdir()


def _unused(path: Path) -> Path:
    """Return `path`, or the first of path.1, path.2, ... that does not exist."""
    numbered = (path.with_name(f"{path.name}.{number}") for number in itertools.count(1))
    return next(each for each in itertools.chain((path,), numbered) if not os.path.lexists(each))


def _write_all(folder: Path, state: RunState, groups: Mapping[str, Arrays]) -> None:
    files = {
        name: _write_arrays(folder / name, arrays) for name, arrays in groups.items() if arrays
    }
    manifest = Manifest(format=FORMAT, files=files, **dict(state))
    with (folder / MANIFEST_FILE).open("wb") as file:
        file.write(_sealed(manifest.model_dump()))
        file.flush()
        os.fsync(file.fileno())
    sync_folder(folder)


def _sealed(manifest: Mapping[str, Any]) -> bytes:
    """Return the bytes of `manifest.json` in canonical form, including its own SHA-256."""
    digest = hashlib.sha256(canonical_json(manifest).encode("ascii")).hexdigest()
    return canonical_json({**manifest, "sha256": digest}).encode("ascii")


def _write_arrays(path: Path, arrays: Arrays) -> FileRecord:
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for part in file_parts(arrays):
            file.write(part)
            digest.update(part)
        size = file.tell()
        file.flush()
        os.fsync(file.fileno())
    return FileRecord(bytes=size, sha256=digest.hexdigest())


def load_checkpoint(folder: Path) -> Checkpoint:
    """Read a checkpoint and verify the size and SHA-256 of every file.

    Raises UserError naming a file that is missing, damaged or of another version.
    """
    manifest = read_manifest(folder)
    found = {name: _read_arrays(folder / name, each) for name, each in manifest.files.items()}
    groups = {name: found.get(name, {}) for name in ARRAY_FILES}
    return Checkpoint(folder, manifest, *groups.values())


def read_manifest(folder: Path) -> Manifest:
    """Read a checkpoint's manifest without looking at the other files.

    Raises UserError, or OtherFormat if another version of mxrun wrote it.
    """
    path = folder / MANIFEST_FILE
    try:
        with path.open("rb") as file:
            # `read` allocates a buffer of the requested size before it reads.
            size = min(os.fstat(file.fileno()).st_size, _MAX_MANIFEST_BYTES)
            text = file.read(size + 1)
        content = json.loads(text) if len(text) <= _MAX_MANIFEST_BYTES else None
        intact = isinstance(content, dict) and text == _sealed(_without(content, "sha256"))
    except OSError as error:
        raise _unusable(path, _reason(error)) from error
    except (ValueError, RecursionError) as error:
        raise _unusable(path, "it is not JSON") from error
    if not isinstance(content, dict):
        raise _unusable(path, "it is not a manifest")
    # A damaged manifest may state any format; that of another version is intact, or has no seal.
    if (number := content.get("format")) != FORMAT and (intact or "sha256" not in content):
        got = "another or none" if number is None else repr(number)[:40]
        problem = f"cannot use the checkpoint's {path}: another version of mxrun wrote it"
        hint = (
            "use the mxrun that wrote it, or train again: runs with formats before 4 do not say "
            "which inputs are images, and divided gradients by the batch size"
        )
        raise OtherFormat(Diagnostic(problem, None, f"format {FORMAT}", got, hint=hint))
    if not intact:
        raise _unusable(path, "damaged", "the SHA-256 that it states")
    manifest, problems = check(Manifest, _without(content, "sha256"))
    if manifest is None:
        first = problems[0]
        raise _unusable(path, first.problem[:200], first.expected, first.got[:80])
    unknown = [name for name in manifest.files if name not in ARRAY_FILES]
    if unknown or PARAMETERS_FILE not in manifest.files:
        expected = f"{PARAMETERS_FILE} and optionally {', '.join(ARRAY_FILES[1:])}"
        got = ", ".join(manifest.files)[:80] or "none"
        raise _unusable(path, "it lists other files than those of a checkpoint", expected, got)
    named = CHECKPOINT.fullmatch(folder.name)
    if named and int(named[1]) != manifest.progress.step:
        expected, got = f"step {int(named[1])}", f"step {manifest.progress.step}"
        raise _unusable(path, "its step differs from that in the folder's name", expected, got)
    return manifest


def _without(content: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in content.items() if name != key}


def _read_arrays(path: Path, record: FileRecord) -> dict[str, npt.NDArray[Any]]:
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size != record.bytes:
                raise _unusable(path, "wrong size", f"{record.bytes} bytes", f"{size} bytes")
            # Read once: another process may replace the file at any time.
            content = file.read(size)
    except OSError as error:
        raise _unusable(path, _reason(error)) from error
    digest = hashlib.sha256(content).hexdigest()
    if digest != record.sha256:
        raise _unusable(path, "damaged", f"SHA-256 {record.sha256}", digest)
    try:
        return parse_arrays(content)
    except UnreadableArrays as error:
        raise _unusable(path, error.problem, error.expected, error.got) from error


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _unusable(path: Path, problem: str, expected: str = "", got: str = "") -> UserError:
    return UserError(
        Diagnostic(
            f"cannot use the checkpoint's {path}: {problem}",
            expected=expected,
            got=got,
            hint="use another checkpoint of the run",
        )
    )
