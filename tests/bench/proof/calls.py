"""What commands print, write and return, for good and bad calls."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from proof.call_files import EDITS
from proof.call_group import Group
from proof.call_output import normalised
from proof.call_table_data import DATA
from proof.call_table_help import HELP
from proof.call_table_infer import INFER
from proof.call_table_train import TRAIN
from proof.forked_calls import ForkedCalls, forked_calls
from proof.installation import Facts, Installation
from proof.part import Part

GROUPS: Mapping[str, Group] = {**HELP, **TRAIN, **INFER, **DATA}

# Lines of a file that are compared one by one; longer files are compared by their digest.
_MAX_LINES = 60
_TEXTS = {".json", ".jsonl", ".yaml", ".csv", ".txt", ".svg", ".html", ".dot", ".lst", ".classes"}


def facts_of(mxrun: Installation, name: str) -> Facts:
    """Run the calls of a group; a fact for each: exit code, output, and what it wrote, by line."""
    group = GROUPS[name]
    folder = mxrun.folder / "calls" / name
    for file, content in group.files.items():
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content())
    folder.mkdir(parents=True, exist_ok=True)
    facts: Facts = {}
    seen: Counter[str] = Counter()
    with forked_calls(mxrun) as forked:
        for line in group.calls.splitlines():
            words = shlex.split(line, comments=True)
            if not words:
                continue
            if words[0] in EDITS:
                EDITS[words[0]](folder, *words[1:])
                continue
            call = _parsed(words, folder)
            first = not seen[call.words[0]]
            seen.update({call.words[0], line})
            number = f", time {seen[line]}" if seen[line] > 1 else ""
            facts[line + number] = _lines_of(mxrun, None if first else forked, call, folder)
    return facts


@dataclass(frozen=True)
class _Call:
    words: Sequence[str]
    text: str
    environment: Mapping[str, str]


def _parsed(words: Sequence[str], folder: Path) -> _Call:
    text = ""
    if words[-2:-1] == ["<"]:
        text = (folder / words[-1]).read_text()
        words = words[:-2]
    key, _, value = words[0].partition("=")
    if value:
        return _Call(words[1:], text, {key: value})
    return _Call(words, text, {})


def _lines_of(
    mxrun: Installation, forked: ForkedCalls | None, call: _Call, folder: Path
) -> list[str]:
    """Run a call; return its exit code, the lines of its output and what it wrote.

    The first call of each command in a group is a process of its own: it imports all that it needs.
    """
    before = _files(folder)
    if forked:
        done = forked.call(call.words, folder, call.text, call.environment)
    else:
        command = [str(mxrun.program), *call.words]
        done = mxrun.call(command, folder, call.text, **call.environment)
    places = {str(folder): "FOLDER", str(mxrun.folder): "ENVIRONMENT"}
    lines = [f"exit code {done.returncode}"]
    for stream, output in (("out", done.stdout), ("err", done.stderr)):
        lines += [f"{stream}: {each}" for each in _output_lines(output, call.words, places)]
    after = _files(folder)
    lines += [f"removed {path}" for path in before if path not in after]
    for path, digest in after.items():
        if before.get(path) != digest:
            lines += _file_lines(folder / path, path, digest, places)
    return lines


def _output_lines(output: str, words: Sequence[str], places: Mapping[str, str]) -> list[str]:
    for path, replacement in places.items():
        output = output.replace(path, replacement)
    # Names of cached files follow from paths.
    output = re.sub(r"(ENVIRONMENT/cache/mxrun/\w+/)[0-9a-f]+", r"\1DIGEST", output)
    # Numbers that are written as bytes are no text.
    valid = output.encode(errors="surrogateescape").decode(errors="backslashreplace")
    return normalised(valid, words)


def _files(folder: Path) -> dict[str, str]:
    """The files of a folder: path and SHA-256."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def _file_lines(file: Path, name: str, digest: str, places: Mapping[str, str]) -> list[str]:
    """A file that a call wrote: its lines if it is a short text, else its digest."""
    if file.name.startswith(_OF_TIMES):
        return [f"wrote {name}"]
    if file.suffix not in _TEXTS:
        return [f"wrote {name}: {digest}"]
    lines = _output_lines(file.read_text(), ["file"], places)
    if len(lines) > _MAX_LINES:
        return [f"wrote {name}: {hashlib.sha256(chr(10).join(lines).encode()).hexdigest()}"]
    return [f"wrote {name}: {line}" for line in lines]


# Files of times.
_OF_TIMES = ("trace", "timing", "journal")

PART = Part(tuple(GROUPS), facts_of)
