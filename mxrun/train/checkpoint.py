"""Checkpoints: a folder of plain arrays and a manifest, written whole or not at all.

`checkpoint-<step>/` holds `parameters.safetensors`, `optimizer.safetensors` and
`auxiliary.safetensors` where there are such states, `measured.safetensors` with the sums of an
epoch's metrics, and `manifest.json` with the size and SHA-256 of each and of itself, how far the
run was and what it was a run of. The same state gives the same bytes.

The format of a `.safetensors` file (https://github.com/huggingface/safetensors): the length of the
header as 64 bits, little endian; the header in JSON, padded with spaces to a multiple of 8; the
arrays one after the other, row-major. It is written here array by array, because the package's own
functions first copy everything into memory; reading, where input must be distrusted, is theirs.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.files import sync_folder, writing
from mxrun.base.params import Parameters, check
from mxrun.io.record import Scale
from mxrun.train.files import canonical_json, remove
from mxrun.train.progress import Count, Progress

Arrays = Mapping[str, npt.NDArray[Any]]

PARAMETERS_FILE = "parameters.safetensors"
OPTIMIZER_FILE = "optimizer.safetensors"
AUXILIARY_FILE = "auxiliary.safetensors"
MEASURED_FILE = "measured.safetensors"
MANIFEST_FILE = "manifest.json"
ARRAY_FILES = (PARAMETERS_FILE, OPTIMIZER_FILE, AUXILIARY_FILE, MEASURED_FILE)
FILES = (*ARRAY_FILES, MANIFEST_FILE)
FORMAT: Literal[3] = 3

CHECKPOINT = re.compile(r"checkpoint-([0-9]+)")
"""The name of a checkpoint's folder."""

_MAX_MANIFEST_BYTES = 1 << 26
_CHUNK = 1 << 20
_TYPES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "int64": "I64",
    "int32": "I32",
    "int8": "I8",
    "uint8": "U8",
}

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}\z")]


class OtherFormat(UserError):
    """A checkpoint that another version of mxrun wrote."""


class FileRecord(Parameters):
    """What a file of the checkpoint must be."""

    bytes: Count = Field(description="Its size.")
    sha256: Sha256 = Field(description="Its SHA-256, in hexadecimal digits.")


class PlanRecord(Parameters):
    """What of the plan decides the last bits of a result."""

    threads: Annotated[int, Field(ge=1)] = Field(description="The size of the compute team.")
    library: str = Field(description="The kernel library and its version.")
    micro_batches: Annotated[int, Field(ge=1)] = Field(
        default=1, description="In how many parts each batch was computed."
    )
    implementations: dict[str, str] = Field(
        description="The implementation of each step of training, by name."
    )
    others: dict[str, dict[str, str]] = Field(
        default={}, description="The implementations of other phases' steps, by phase and name."
    )


class RunState(Parameters):
    """Where a run stands, and what it is a run of."""

    progress: Progress = Field(description="How far it is.")
    due: bool = Field(description="Whether the policy asked for it, or an interruption.")
    seed: Count = Field(description="The seed of every random number.")
    plan: PlanRecord = Field(description="The plan the arrays were computed by.")
    config_sha256: Sha256 = Field(description="The SHA-256 of what the config decides.")
    inference_sha256: Sha256 = Field(
        description="The SHA-256 of what the config says of inference."
    )
    data: dict[str, Sha256] = Field(description="The SHA-256 of each data set read, by its role.")
    classes: tuple[str, ...] = Field(
        default=(), description="The names of the classes that were learned, where they have any."
    )
    columns: tuple[str, ...] = Field(
        default=(), description="The names of the columns that were data, of tables with a header."
    )
    label_column: str = Field(
        default="", description="The name of the column that was the label, likewise."
    )
    plugins: dict[str, Sha256] = Field(
        default={}, description="The SHA-256 of each plugin, by its file's name."
    )
    scales: dict[str, Scale] = Field(
        default={}, description="What bytes are, for the inputs whose records are bytes."
    )
    started_from: dict[str, Any] | None = Field(
        default=None, description="What of another run it began with, if anything."
    )


class Manifest(RunState):
    """The content of `manifest.json`."""

    format: Literal[3] = Field(description="The number of this format.")
    files: dict[str, FileRecord] = Field(description="The files beside the manifest.")


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A verified checkpoint."""

    folder: Path
    manifest: Manifest
    parameters: Arrays
    optimizer: Arrays
    auxiliary: Arrays
    measured: Arrays


def checkpoint_folder(run_folder: Path, step: int) -> Path:
    """Where the checkpoint after `step` steps lies."""
    return run_folder / f"checkpoint-{step}"


def save_checkpoint(run_folder: Path, state: RunState, groups: Mapping[str, Arrays]) -> Path:
    """Write a checkpoint and return its folder; `groups` are the arrays of each file.

    Everything is written and synced under another name, the manifest last, and then renamed, so
    that a folder called `checkpoint-...` is always complete. Raises UserError, naming the file,
    when the disk is full or the like.
    """
    step = state.progress.step
    folder = checkpoint_folder(run_folder, step)
    partial = folder.with_name(f".{folder.name}.partial")
    with writing(folder):
        with suppress(FileNotFoundError):
            remove(partial)
        try:
            partial.mkdir()
            _write_all(partial, state, groups)
            _put(partial, folder)
        finally:
            # Once renamed it is not there any more.
            with suppress(OSError):
                remove(partial)
        sync_folder(run_folder)
    return folder


def _put(partial: Path, folder: Path) -> None:
    """Give a written checkpoint its name; one that has it already goes, unless that fails.

    Killed in between, the one before is whole under its hidden name: see `recover_checkpoint`.
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
    """Give the checkpoint that was to be replaced its name again, where nothing has the name."""
    folder = checkpoint_folder(run_folder, step)
    with writing(folder):
        if not folder.exists():
            # Whether it is whole is judged when it is read, as of every checkpoint.
            with suppress(FileNotFoundError):
                _replaced(folder).rename(folder)


def _replaced(folder: Path) -> Path:
    """What a checkpoint is called while another takes its name."""
    return folder.with_name(f".{folder.name}.replaced")


def discard_checkpoint(run_folder: Path, step: int) -> None:
    """Remove a checkpoint, if it is there; half removed it has another name.

    Files in its folder that are none of a checkpoint's stay, and the folder with them.
    """
    folder = checkpoint_folder(run_folder, step)
    # What it has replaced must not come back in its place.
    clear_hidden(run_folder, step)
    with writing(folder), suppress(FileNotFoundError):
        folder.rename(_removed(folder))
        _clear(_removed(folder), folder)


def clear_hidden(run_folder: Path, step: int) -> None:
    """Finish what a killed process had begun: removing a checkpoint, or one that was replaced."""
    folder = checkpoint_folder(run_folder, step)
    with writing(folder):
        for left in (_removed(folder), _replaced(folder)):
            _clear(left, folder)


def _removed(folder: Path) -> Path:
    """What a checkpoint is called while it goes."""
    return folder.with_name(f".{folder.name}.removed")


def _clear(hidden: Path, folder: Path) -> None:
    """Remove a checkpoint that has a hidden name, if it is there; what else lies in it goes back
    to `folder`, under a number of its own where its name is taken there.
    """
    if not hidden.is_dir() or hidden.is_symlink():
        hidden.unlink(missing_ok=True)
        return
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
    """`path`, or the first of path.1, path.2, ... that nothing has as its name."""
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
    """The bytes of `manifest.json`: one spelling, with its own SHA-256 among the entries."""
    own = hashlib.sha256(canonical_json(manifest).encode("ascii")).hexdigest()
    return canonical_json({**manifest, "sha256": own}).encode("ascii")


def _write_arrays(path: Path, arrays: Arrays) -> FileRecord:
    digest = hashlib.sha256()
    contents = (_content(arrays[name]) for name in sorted(arrays))
    with path.open("wb") as file:
        for part in itertools.chain([_header(arrays)], contents):
            file.write(part)
            digest.update(part)
        size = file.tell()
        file.flush()
        os.fsync(file.fileno())
    return FileRecord(bytes=size, sha256=digest.hexdigest())


def _content(array: npt.NDArray[Any]) -> bytes | memoryview:
    little_endian = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
    return little_endian.reshape(-1).view(np.uint8).data


def _header(arrays: Arrays) -> bytes:
    entries = {}
    offset = 0
    for name in sorted(arrays):
        array = arrays[name]
        end = offset + array.nbytes
        entries[name] = {
            "dtype": _TYPES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def load_checkpoint(folder: Path) -> Checkpoint:
    """Read a checkpoint after verifying the size and SHA-256 of every file.

    Raises UserError, naming the file, for whatever is missing, damaged or of another version.
    """
    manifest = read_manifest(folder)
    for name, record in manifest.files.items():
        _verify(folder / name, record)
    groups = {
        name: _read_arrays(folder / name) if name in manifest.files else {} for name in ARRAY_FILES
    }
    return Checkpoint(folder, manifest, *groups.values())


def read_manifest(folder: Path) -> Manifest:
    """A checkpoint's manifest; the other files are not looked at. Raises UserError."""
    path = folder / MANIFEST_FILE
    try:
        with path.open("rb") as file:
            # A buffer of all that is asked for is made before anything is read.
            size = min(os.fstat(file.fileno()).st_size, _MAX_MANIFEST_BYTES)
            text = file.read(size + 1)
        content = json.loads(text) if len(text) <= _MAX_MANIFEST_BYTES else None
        whole = isinstance(content, dict) and text == _sealed(_without(content, "sha256"))
    except OSError as error:
        raise _unusable(path, _reason(error)) from error
    except (ValueError, RecursionError) as error:
        raise _unusable(path, "it is not JSON") from error
    if not isinstance(content, dict):
        raise _unusable(path, "it is not a manifest")
    if (number := content.get("format")) != FORMAT:
        got = "another or none" if number is None else repr(number)[:40]
        problem = f"cannot use the checkpoint's {path}: another version of mxrun wrote it"
        hint = "use the mxrun that wrote it, or train again"
        raise OtherFormat(Diagnostic(problem, None, f"format {FORMAT}", got, hint))
    if not whole:
        raise _unusable(path, "damaged", "the SHA-256 that it says it has")
    manifest, problems = check(Manifest, _without(content, "sha256"))
    if manifest is None:
        first = problems[0]
        raise _unusable(path, first.problem[:200], first.expected, first.got[:80])
    unknown = [name for name in manifest.files if name not in ARRAY_FILES]
    if unknown or PARAMETERS_FILE not in manifest.files:
        expected = f"{PARAMETERS_FILE} and perhaps {', '.join(ARRAY_FILES[1:])}"
        got = ", ".join(manifest.files)[:80] or "none"
        raise _unusable(path, "it names other files than a checkpoint's", expected, got)
    named = CHECKPOINT.fullmatch(folder.name)
    if named and int(named[1]) != manifest.progress.step:
        expected, got = f"step {int(named[1])}", f"step {manifest.progress.step}"
        raise _unusable(path, "it is of another step than its folder says", expected, got)
    return manifest


def _without(content: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in content.items() if name != key}


def _verify(path: Path, record: FileRecord) -> None:
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size != record.bytes:
                raise _unusable(path, "wrong size", f"{record.bytes} bytes", f"{size} bytes")
            digest = hashlib.sha256()
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except OSError as error:
        raise _unusable(path, _reason(error)) from error
    if digest.hexdigest() != record.sha256:
        raise _unusable(path, "damaged", f"SHA-256 {record.sha256}", digest.hexdigest())


def _read_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    import safetensors
    from safetensors.numpy import load_file

    try:
        arrays: dict[str, npt.NDArray[Any]] = load_file(path)
    # It looks the names of types up in NumPy, which has not all of them.
    except (safetensors.SafetensorError, ValueError, TypeError, AttributeError, OSError) as error:
        raise _unusable(path, f"not a safetensors file: {error}") from error
    for name, array in arrays.items():
        if array.dtype.name not in _TYPES:
            expected = f"one of {', '.join(_TYPES)}"
            raise _unusable(path, f"the type of {name!r}"[:200], expected, array.dtype.name)
    return {name: arrays[name] for name in sorted(arrays)}


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
