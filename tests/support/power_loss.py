"""Files that a loss of power may leave, from the recorded calls of a process.

The disk holds what was synced. Of later calls it holds any part in any order: each write entirely,
in part, as zeros or not at all, and each creation, renaming and removal or not, whatever came
before it. `fsync` of a file makes its content durable, but not its name; `fsync` of a folder makes
the names in it durable, but not their contents. A renaming is never done by half.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from commands import HANG_S

_HEADER = struct.Struct("=ciiqiii")
# A disk writes sectors of this size entirely or not at all.
SECTOR = 512

# Files and folders by relative path; the content of a folder is None.
Tree = dict[str, bytes | None]


@dataclass(frozen=True)
class Call:
    """Recorded call: open, write, truncate, sync (fsync), rename, unlink, rmdir or mkdir; `mark` is
    a note of the program. number: flags of open, offset of write, size of truncate. path: relative
    to the recorded folder; that of a descriptor is the path that was opened.
    """

    name: str
    process: int
    descriptor: int
    number: int
    path: str
    other: str
    data: bytes

    @property
    def marked_step(self) -> int | None:
        return int(self.path) if self.name == "mark" else None


_NAMES = {
    b"o": "open",
    b"w": "write",
    b"t": "truncate",
    b"s": "sync",
    b"r": "rename",
    b"u": "unlink",
    b"d": "rmdir",
    b"m": "mkdir",
    b"!": "mark",
}


def record(
    library: Path, folder: Path, *arguments: str | Path, code: int = 0, trace: Path
) -> list[Call]:
    """Run Python with these arguments in a folder; return its calls there.

    The process must end with exit code `code`.
    """
    environment = {
        **os.environ,
        "MXRUN_DEBUG": "0",
        "LD_PRELOAD": str(library),
        "RECORDED_FOLDER": str(folder),
        "RECORDED_TRACE": str(trace),
    }
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return list(_calls(trace.read_bytes(), folder))


def _calls(content: bytes, folder: Path) -> Iterator[Call]:
    place = 0
    opened: dict[tuple[int, int], str] = {}
    while place < len(content):
        kind, process, descriptor, number, *sizes = _HEADER.unpack_from(content, place)
        place += _HEADER.size
        parts = []
        for size in sizes:
            parts.append(content[place : place + size])
            place += size
        full, other = (os.path.normpath(part.decode()) if part else "" for part in parts[:2])
        if kind == b"o":
            opened[process, descriptor] = full
        elif descriptor >= 0:
            full = opened[process, descriptor]
        # Such as FOLDER/../other.
        if kind != b"!" and not f"{full}/".startswith(f"{folder}/"):
            continue
        path, other = (each.removeprefix(str(folder)).removeprefix("/") for each in (full, other))
        yield Call(_NAMES[kind], process, descriptor, number, path, other, parts[2])


def tree_of(folder: Path) -> Tree:
    """Return the files and folders below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def write_tree(folder: Path, tree: Tree, before: Tree | None = None) -> None:
    """Make a folder hold these files and no others; `before` is what it holds, if anything."""
    if before is None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        before = {}
    for path in sorted(before, reverse=True):
        if path not in tree or (before[path] is None) != (tree[path] is None):
            (folder / path).unlink() if before[path] is not None else (folder / path).rmdir()
    for path in sorted(tree):
        content = tree[path]
        if content is None:
            (folder / path).mkdir(exist_ok=True)
        elif before.get(path) != content:
            (folder / path).write_bytes(content)


@dataclass(frozen=True)
class _Names:
    """Change of names in folders: (folder, name, what it names then, what it must name before)."""

    changes: tuple[tuple[int, str, int | None, int | None], ...]

    def is_made_durable(self, node: int) -> bool:
        return any(folder == node for folder, *_ in self.changes)

    def is_of_any(self, nodes: set[int]) -> bool:
        return any(folder in nodes for folder, *_ in self.changes)

    def apply(self, disk: _Disk) -> None:
        for folder, name, now, then in self.changes:
            names = disk.folders.setdefault(folder, {})
            if now is not None:
                names[name] = now
            elif names.get(name) == then:
                del names[name]


@dataclass(frozen=True)
class _Content:
    """Change of a file's content: bytes at an offset, or the new size."""

    node: int
    offset: int
    data: bytes | None

    def is_made_durable(self, node: int) -> bool:
        return self.node == node

    def is_of_any(self, nodes: set[int]) -> bool:
        return self.node in nodes

    def apply(self, disk: _Disk) -> None:
        old = disk.files.get(self.node, b"")
        padded = old[: self.offset].ljust(self.offset, b"\0")
        if self.data is None:
            disk.files[self.node] = padded
        else:
            disk.files[self.node] = padded + self.data + old[self.offset + len(self.data) :]


_Change = _Names | _Content
_ROOT = 0


@dataclass
class _Disk:
    """Contents of files and folders by number; folder 0 is the recorded one."""

    files: dict[int, bytes] = field(default_factory=dict)
    folders: dict[int, dict[str, int]] = field(default_factory=lambda: {_ROOT: {}})

    def with_changes(self, changes: Iterable[_Change]) -> _Disk:
        copy = _Disk(dict(self.files), {key: dict(names) for key, names in self.folders.items()})
        for change in changes:
            change.apply(copy)
        return copy

    def tree(self) -> Tree:
        found: Tree = {}
        self._add(_ROOT, "", found)
        return found

    def _add(self, folder: int, prefix: str, found: Tree) -> None:
        for name, node in self.folders.get(folder, {}).items():
            path = f"{prefix}{name}"
            if node in self.folders:
                found[path] = None
                self._add(node, f"{path}/", found)
            else:
                found[path] = self.files.get(node, b"")

    def find(self, path: str) -> tuple[int, str, int | None]:
        """Return the folder, the name and the number, if any, of a path."""
        *above, name = path.split("/")
        folder = _ROOT
        for each in above:
            folder = self.folders[folder][each]
        return folder, name, self.folders[folder].get(name)


class Replay:
    """Replay of calls: what is on disk for certain, and the changes that may be there."""

    def __init__(self, before: Tree) -> None:
        self._durable, self._live = _Disk(), _Disk()
        self._pending: list[_Change] = []
        self._descriptors: dict[tuple[int, int], int] = {}
        self._newest = _ROOT
        for path in sorted(before):
            content = before[path]
            node = self._create(path, is_folder=content is None)
            if content is not None:
                self._change(_Content(node, 0, content))
        self._durable, self._pending = self._durable.with_changes(self._pending), []

    def tree(self) -> Tree:
        """Return the files as the process sees them."""
        return self._live.tree()

    def take(self, call: Call) -> None:
        """Take the next call."""
        getattr(self, f"_{call.name}")(call)

    def _change(self, change: _Change) -> None:
        self._pending.append(change)
        change.apply(self._live)

    def _create(self, path: str, is_folder: bool = False) -> int:
        folder, name, _ = self._live.find(path)
        self._newest += 1
        if is_folder:
            for disk in (self._durable, self._live):
                disk.folders[self._newest] = {}
        self._change(_Names(((folder, name, self._newest, None),)))
        return self._newest

    def _open(self, call: Call) -> None:
        node = self._live.find(call.path)[2] if call.path else _ROOT
        if node is None:
            node = self._create(call.path)
        elif call.number & os.O_TRUNC and self._live.files.get(node):
            self._change(_Content(node, 0, None))
        self._descriptors[call.process, call.descriptor] = node

    def _node_of(self, call: Call) -> int:
        return self._descriptors[call.process, call.descriptor]

    def _write(self, call: Call) -> None:
        if call.data:
            self._change(_Content(self._node_of(call), call.number, call.data))

    def _truncate(self, call: Call) -> None:
        node = self._node_of(call)
        if len(self._live.files.get(node, b"")) != call.number:
            self._change(_Content(node, call.number, None))

    def _sync(self, call: Call) -> None:
        node = self._node_of(call)
        synced = [each for each in self._pending if each.is_made_durable(node)]
        self._durable = self._durable.with_changes(synced)
        left = [each for each in self._pending if not each.is_made_durable(node)]
        self._pending = [each for each in left if each.is_of_any(self._named(left))]

    def _named(self, pending: Sequence[_Change]) -> set[int]:
        """Return the files and folders that have a name in some state of the disk."""
        named = {_ROOT}
        for change in pending:
            if isinstance(change, _Names):
                named |= {now for _, _, now, _ in change.changes if now is not None}
        while True:
            inside = {
                node
                for folder in named & self._durable.folders.keys()
                for node in self._durable.folders[folder].values()
            }
            if inside <= named:
                return named
            named |= inside

    def _mkdir(self, call: Call) -> None:
        self._create(call.path, is_folder=True)

    def _unlink(self, call: Call) -> None:
        folder, name, node = self._live.find(call.path)
        self._change(_Names(((folder, name, None, node),)))

    _rmdir = _unlink

    def _rename(self, call: Call) -> None:
        folder, name, node = self._live.find(call.path)
        target, new_name, _ = self._live.find(call.other)
        self._change(_Names(((folder, name, None, node), (target, new_name, node, None))))

    def _mark(self, call: Call) -> None:
        """Take a note of the program, which changes nothing."""

    def states(self, draw: random.Random, samples: int) -> Iterator[Tree]:
        """Yield trees that a loss of power now may leave.

        samples: number of random subsets of the changes that are not durable.
        """
        pending = self._pending
        for kept in _choices(pending, draw, samples):
            yield self._durable.with_changes(kept).tree()


def _choices(
    pending: Sequence[_Change], draw: random.Random, samples: int
) -> Iterator[list[_Change]]:
    """Yield lists of changes that may have reached the disk, of those that are not durable."""
    count = len(pending)
    names = [each for each in pending if isinstance(each, _Names)]
    contents = [each for each in pending if isinstance(each, _Content)]
    for index in {*range(0, count, 1 + count // 64), count}:
        yield list(pending[:index])
    if contents and names:
        yield list(names)
        yield list(contents)
    # Files may have got their sizes without their contents.
    if contents:
        yield [_zeros(each) for each in pending]
    # All of them, unless they are very many.
    for index in {*range(0, count, 1 + count // 64), *range(max(0, count - 16), count)}:
        others = [*pending[:index], *pending[index + 1 :]]
        yield others
        yield [pending[index]]
        for torn in _torn(pending[index]):
            yield [*pending[:index], torn, *pending[index + 1 :]]
            yield [*pending[:index], torn]
    for _ in range(samples if count > 1 else 0):
        share = draw.random()
        kept = [each for each in pending if draw.random() < share]
        yield [_damaged(each, draw) for each in kept]


def _zeros(change: _Change) -> _Change:
    if isinstance(change, _Names) or change.data is None:
        return change
    return replace(change, data=bytes(len(change.data)))


def _torn(change: _Change) -> Iterator[_Change]:
    """Yield parts of a write that may have reached the disk: those before the end of a sector, and
    those without its first sector.
    """
    if isinstance(change, _Names) or change.data is None:
        return
    end = change.offset + len(change.data)
    for cut in range(change.offset // SECTOR * SECTOR + SECTOR, end, SECTOR):
        yield replace(change, data=change.data[: cut - change.offset])
    first = min(SECTOR - change.offset % SECTOR, len(change.data))
    yield replace(change, data=bytes(first) + change.data[first:])


def _damaged(change: _Change, draw: random.Random) -> _Change:
    if draw.random() < 0.8:
        return change
    return draw.choice([change, _zeros(change), *_torn(change)])


@dataclass(frozen=True)
class Crash:
    """State of the disk after a loss of power.

    call: number of calls made by then. step: newest step by then of which the program knew that its
    checkpoint was saved; 0 if there was none.
    """

    tree: Tree
    call: int
    step: int


def crashes(before: Tree, calls: Sequence[Call], samples: int) -> Iterator[Crash]:
    """Yield all distinct states of the disk after a loss of power between two of the calls.

    before: files that were there, all of them durable. Of equal states the last is yielded, which
    demands most.
    """
    replay, step, draw = Replay(before), 0, random.Random(0)
    found: dict[frozenset[tuple[str, bytes | None]], Crash] = {}
    for number in range(len(calls) + 1):
        # What a loss of power leaves before a write, it may also leave after it.
        if number == len(calls) or calls[number].name != "write":
            for tree in replay.states(draw, samples):
                found[frozenset(tree.items())] = Crash(tree, number, step)
        if number < len(calls):
            step = calls[number].marked_step or step
            replay.take(calls[number])
    yield from found.values()


def final_tree(before: Tree, calls: Iterable[Call]) -> Tree:
    """Return the files after all calls, as recorded."""
    replay = Replay(before)
    for call in calls:
        replay.take(call)
    return replay.tree()
