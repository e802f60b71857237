"""Fetching the files of a published data set into a folder, checked and whole.

A file that is being fetched has a temporary name, under which a later attempt continues it. It gets
its own name when it has the published digest, so that a file that is there is whole. The folder's
`SOURCE.json` says where the files came from and what their digests are.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import Any, BinaryIO

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.files import (
    atomic_file,
    make_folder,
    report_write_errors,
    sync_folder,
    write_text,
)
from mxrun.io.fetch.digests import content_sha256, sha256_of
from mxrun.io.fetch.published import PUBLISHED, ArchiveMember, PublishedDataset, PublishedFile
from mxrun.io.fetch.transfer import TransferPolicy, check_url, download, write_all
from mxrun.io.files import unreadable_error

SOURCE_FILE = "SOURCE.json"
_CHUNK = 1 << 20
# Limit of a text in an archive, whose size is not known.
_MAX_TEXT = 1 << 16

# Receives the name of a file, the bytes of it that are there, and its size.
FileProgress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class FetchedFile:
    """File of a data set in its folder.

    source: where it came from; empty if it was there already. resumed: the bytes that an earlier
    attempt had left.
    """

    name: str
    bytes: int
    sha256: str
    source: str = ""
    resumed: int = 0


@dataclass(frozen=True)
class FetchRequest:
    """Data set to fetch and its target folder.

    origin: an address or a folder that has the files, in place of the published addresses.
    overwrite: whether other files of the same names are replaced.
    """

    dataset: PublishedDataset
    folder: Path
    origin: str = ""
    overwrite: bool = False
    policy: TransferPolicy = field(default_factory=TransferPolicy)


def fetch_files(request: FetchRequest, progress: FileProgress) -> tuple[FetchedFile, ...]:
    """Fetch the files of a data set that are not there yet, and return all of them.

    Raises UserError if a file cannot be fetched, does not have the published digest, or cannot be
    written. What has arrived by then stays for the next attempt.
    """
    folder = request.folder
    with report_write_errors(folder):
        make_folder(folder)
    recorded = _recorded(folder)
    found: list[FetchedFile] = []
    for file in request.dataset.files:
        present = _present(request, file, recorded)
        files = _fetched(request, file, progress) if present is None else present
        found += files
        recorded |= {each.name: {"bytes": each.bytes, "sha256": each.sha256} for each in files}
        if present is None:
            record = {"dataset": request.dataset.name, "files": dict(sorted(recorded.items()))}
            write_text(folder / SOURCE_FILE, json.dumps(record, indent=2) + "\n")
    return tuple(found)


def _present(
    request: FetchRequest, file: PublishedFile, recorded: Mapping[str, Any]
) -> list[FetchedFile] | None:
    """Return the files that were fetched before; None if some of them are missing.

    Raises UserError, unless they may be overwritten, if other files have their names.
    """
    names = [member.name for member in file.members] or [file.name]
    paths = [request.folder / name for name in names]
    there = [path for path in paths if os.path.lexists(path)]
    if not there:
        return None
    digests = {path.name: sha256_of(path) for path in there if path.is_file()}
    if file.members:
        wanted = {name: recorded.get(name, {}).get("sha256", "") for name in names}
        wrong = [path for path in there if digests.get(path.name) != wanted[path.name]]
    else:
        wrong = [] if _is_published(there[0], file, digests.get(file.name, "")) else there
    if wrong:
        if request.overwrite:
            return None
        what = "was not fetched as it is" if file.members else "is not the published file"
        raise UserError(
            Diagnostic(
                f"{path} is there, but {what}",
                hint="--overwrite replaces it, and --to FOLDER fetches into another folder",
            )
            for path in wrong
        )
    if len(there) < len(paths):
        return None
    return [FetchedFile(path.name, path.stat().st_size, digests[path.name]) for path in paths]


def _fetched(
    request: FetchRequest, file: PublishedFile, progress: FileProgress
) -> list[FetchedFile]:
    """Fetch one file, and take out its members if it is an archive."""
    folder = request.folder
    partial = folder / f".{file.name}.partial"
    with report_write_errors(folder / file.name), _locked(partial) as stream:
        _check_space(folder, file, stream.seek(0, 2))
        try:
            source, digest, resumed = _transferred(request, file, stream, progress)
        except UserError:
            if not stream.seek(0, 2):
                partial.unlink()
            raise
        stream.flush()
        os.fsync(stream.fileno())
        if file.members:
            found = _extracted(folder, file, stream, source, resumed)
            partial.unlink()
        else:
            partial.replace(folder / file.name)
            found = [FetchedFile(file.name, file.size, digest, source, resumed)]
        sync_folder(folder)
    return found


@contextmanager
def _locked(partial: Path) -> Iterator[BinaryIO]:
    """Context manager that opens a partial file for this process alone.

    Raises UserError if another process has it open: both would write into it.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(partial, flags, 0o666)
    with os.fdopen(descriptor, "r+b", buffering=0) as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            problem = f"{partial.parent}: another process fetches into this folder"
            raise UserError(Diagnostic(problem, hint="wait until it has ended")) from None
        if not (partial.exists() and os.path.samestat(os.fstat(descriptor), partial.stat())):
            raise UserError(f"{partial.parent}: another process has just fetched into this folder")
        yield stream


def _check_space(folder: Path, file: PublishedFile, have: int) -> None:
    """Raise UserError if the disk has no room for the rest of a file and for its members."""
    needed = max(0, file.size - have) + sum(member.size or 0 for member in file.members)
    free = shutil.disk_usage(folder).free
    if needed > free:
        problem = f"{folder}: there is no room for {file.name}"
        hint = "free some space, or fetch to another disk with --to FOLDER"
        raise UserError(
            Diagnostic(problem, None, f"{needed:,} bytes", f"{free:,} bytes free", hint=hint)
        )


def _transferred(
    request: FetchRequest, file: PublishedFile, stream: BinaryIO, progress: FileProgress
) -> tuple[str, str, int]:
    """Fill `stream` with the file from the first source that has it.

    Returns the source, the digest and the bytes that were there before. Raises UserError with the
    reason of each source.
    """
    problems: list[Diagnostic] = []
    for source in _sources(request, file):
        resumed = min(stream.seek(0, 2), file.size)
        # What is continued may be of another file: then once more from the beginning.
        for begun in (resumed, 0) if resumed else (0,):
            stream.truncate(begun)
            try:
                _transfer(source, file, stream, request.policy, progress)
            except UserError as error:
                problems += error.diagnostics
                break
            digest = sha256_of(stream)
            if _is_published(stream, file, digest):
                return source, digest, begun
            if not begun:
                problem = f"{source}: the file there is not the published one"
                expected, got = f"SHA-256 {file.sha256}", digest
                problems.append(Diagnostic(problem, None, expected, got))
                stream.truncate(0)
    raise UserError(problems)


def _sources(request: FetchRequest, file: PublishedFile) -> Sequence[str]:
    """Return the addresses or the path from which a file can be had, in order of preference."""
    origin = request.origin
    if not origin:
        return [f"{mirror}{file.name}" for mirror in file.mirrors]
    if "://" in origin:
        check_url(origin)
        return [origin if origin.endswith(f"/{file.name}") else f"{origin.rstrip('/')}/{file.name}"]
    folder = Path(os.path.expanduser(origin))
    if not folder.is_dir():
        problem = f"{origin}: neither an address nor a folder"
        raise UserError(Diagnostic(problem, None, "http://..., https://... or a folder"))
    return [str(folder / file.name)]


def _transfer(
    source: str,
    file: PublishedFile,
    stream: BinaryIO,
    policy: TransferPolicy,
    progress: FileProgress,
) -> None:
    """Append what is missing from an address or a path."""

    def advance(have: int) -> None:
        progress(file.name, have, file.size)

    if "://" in source:
        download(source, stream, file.size, policy, advance)
    else:
        _copy(Path(source), stream, file.size, advance)


def _copy(source: Path, target: BinaryIO, size: int, advance: Callable[[int], None]) -> None:
    """Append what is missing from a file; raises UserError for one of another size."""
    try:
        if source.exists():
            if not source.is_file():
                # Opening a pipe would wait for its writer.
                raise UserError(Diagnostic(f"{source}: not a regular file", None, "a file"))
            found = source.stat().st_size
            if found != size:
                problem = f"{source}: the file has the wrong size"
                raise UserError(Diagnostic(problem, None, f"{size:,} bytes", f"{found:,} bytes"))
        with source.open("rb") as stream:
            have = stream.seek(target.seek(0, 2))
            while have < size and (chunk := stream.read(min(_CHUNK, size - have))):
                write_all(target, chunk)
                have += len(chunk)
                advance(have)
    except OSError as error:
        if error.filename is None:
            raise
        raise unreadable_error(source, error) from error


def _is_published(content: BinaryIO | Path, file: PublishedFile, digest: str) -> bool:
    """Return whether a file has the published digest, or holds the published content."""
    if digest == file.sha256:
        return True
    return bool(file.content_sha256) and content_sha256(content) == file.content_sha256


def _extracted(
    folder: Path, file: PublishedFile, stream: BinaryIO, source: str, resumed: int
) -> list[FetchedFile]:
    """Write the members of an archive, each under its own name when it is whole."""
    members = {member.path: member for member in file.members}
    found: dict[str, FetchedFile] = {}
    stream.seek(0)
    try:
        with tarfile.open(fileobj=stream, mode="r:gz") as archive:
            for entry in archive:
                member = members.get(entry.name.removeprefix("./"))
                content = archive.extractfile(entry) if member and entry.isreg() else None
                if member is None or content is None:
                    continue
                digest = _write_member(folder, member, entry.size, content)
                found[member.path] = FetchedFile(member.name, entry.size, digest, source, resumed)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise UserError(f"{source}: cannot be unpacked: {error}") from error
    missing = [path for path in members if path not in found]
    if missing:
        raise UserError(f"{source}: the archive lacks {', '.join(missing)}")
    return [found[path] for path in members]


def _write_member(folder: Path, member: ArchiveMember, size: int, content: Any) -> str:
    """Write a member of `size` bytes and return its digest; raises UserError for a wrong size."""
    if size != member.size and (member.size is not None or size > _MAX_TEXT):
        expected = f"at most {_MAX_TEXT:,}" if member.size is None else f"{member.size:,}"
        problem = f"{member.path} in the archive has the wrong size"
        raise UserError(Diagnostic(problem, None, f"{expected} bytes", f"{size:,} bytes"))
    digest = hashlib.sha256()
    with atomic_file(folder / member.name, follow=False) as target:
        while chunk := content.read(_CHUNK):
            digest.update(chunk)
            target.write(chunk)
    return digest.hexdigest()


def recorded_dataset(folder: Path) -> str:
    """Return the name of the data set that was fetched into a folder; empty if none was."""
    name = _record(folder).get("dataset")
    return name if isinstance(name, str) and name in PUBLISHED else ""


def _recorded(folder: Path) -> dict[str, Any]:
    """Return the digests by file name that an earlier fetch has recorded; empty without one."""
    files = _record(folder).get("files")
    if not isinstance(files, dict):
        return {}
    return {name: entry for name, entry in files.items() if isinstance(entry, dict)}


def _record(folder: Path) -> dict[str, Any]:
    """Return the content of a folder's SOURCE.json; empty if there is none, or another file."""
    try:
        record = json.loads((folder / SOURCE_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}
