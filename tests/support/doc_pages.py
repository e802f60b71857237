"""Pages of the documentation as a reader runs them: their blocks in order, in one folder.

A `sh` block runs in bash. In a `console` block each line that begins with `$ ` is a command, and
the lines after it are lines of its output, in order; `...` stands for omitted lines. Numbers with
their units and the widths of blanks and rules may differ, but not places (FILE:LINE:COLUMN).
`exit=N` after `console` is the exit code of the block's last command. A `yaml`, `python` or `csv`
block after a paragraph that ends in "`NAME`:" is written to that file. Other `python` blocks run
one after another in one process.

python tests/support/doc_pages.py PAGE runs the blocks of a page in the working folder, except for
those in `sh`, with the programs of that Python.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hang import HANG_S

_FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.M | re.S)
_FILE = re.compile(r"`([\w./-]+\.\w+)`:\s*$")
_NUMBER = re.compile(
    r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?: ?(?:[KMG]iB|B|ms|us|µs|min|s|k|M|G|T)\b|%)?"
)
# A place is no measurement: its numbers are compared.
_PLACE = re.compile(r"[\w./-]+:\d+:\d+(?=:)")
_RULE = re.compile(r"─[─┼]*")
_SPACES = re.compile(r"\s+")
LANGUAGES = {"sh", "console", "python", "yaml", "csv", "text"}
# Reads one JSON string of code a line, runs it in the same namespace and answers with its error.
_INTERPRETER = """
import json, sys, traceback
answers, sys.stdout = sys.stdout, sys.stderr
namespace = {"__name__": "__main__"}
for line in sys.stdin:
    try:
        exec(compile(json.loads(line), "page", "exec"), namespace)
        error = ""
    except BaseException:
        error = traceback.format_exc()
    print(json.dumps(error), file=answers, flush=True)
"""


@dataclass(frozen=True)
class Block:
    """Fenced block: language, words after it, text, the file that it is written to, its line."""

    language: str
    options: str
    text: str
    file: str | None
    line: int


def blocks_of(text: str) -> Iterator[Block]:
    """Yield the fenced blocks of a page."""
    for found in _FENCE.finditer(text):
        language, options, content = found.groups()
        named = _FILE.search(text[: found.start()])
        file = named[1] if named and language in ("yaml", "python", "csv") else None
        line = text.count("\n", 0, found.start()) + 1
        yield Block(language, options.strip(), content, file, line)


class Reader:
    """Reader who runs the blocks of a page in `folder`.

    programs: folder of the program `mxrun`, by default that of the environment.
    """

    def __init__(self, folder: Path, programs: Path | None = None) -> None:
        self._folder = folder
        own = Path(sys.executable).parent
        path = os.pathsep.join(map(str, (programs or own, own, os.environ["PATH"])))
        self._environment = {**os.environ, "PATH": path, "MXRUN_DEBUG": "0"}
        self._environment.pop("MXRUN_RUNS", None)
        self._python: subprocess.Popen[str] | None = None

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        if self._python is not None:
            self._python.communicate()

    def run(self, block: Block) -> None:
        """Run a block; AssertionError with its line if it does not do what the page shows."""
        if block.file is not None:
            path = self._folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
        elif block.language == "sh":
            self._command(block, block.text, 0)
        elif block.language == "console":
            code = re.fullmatch(r"(?:exit=(\d+))?", block.options)
            assert code is not None, f"line {block.line}: unknown options {block.options!r}"
            shown = list(_commands(block.text))
            for number, (command, lines) in enumerate(shown, 1):
                last = number == len(shown)
                printed = self._command(block, command, int(code[1] or 0) if last else 0)
                compare(f"line {block.line}, $ {command}", lines, printed)
        elif block.language == "python":
            self._execute(block)

    def _command(self, block: Block, command: str, code: int) -> str:
        bash = shutil.which("bash")
        assert bash is not None
        done = subprocess.run(
            [bash, "-e", "-o", "pipefail", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self._folder,
            env=self._environment,
            timeout=HANG_S,
            check=False,
        )
        where = f"line {block.line}, $ {command}"
        assert done.returncode == code, f"{where}: exit code {done.returncode}\n{done.stdout}"
        return done.stdout

    def _execute(self, block: Block) -> None:
        if self._python is None:
            self._python = subprocess.Popen(
                [sys.executable, "-c", _INTERPRETER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=self._folder,
                env=self._environment,
            )
        assert self._python.stdin is not None
        assert self._python.stdout is not None
        self._python.stdin.write(json.dumps(block.text) + "\n")
        self._python.stdin.flush()
        answer = self._python.stdout.readline()
        error = json.loads(answer) if answer else "the process ended"
        assert not error, f"line {block.line}: {error}"


def _commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the commands of a console block, each with the lines that are shown after it."""
    command, lines = "", list[str]()
    for line in text.splitlines():
        if command.endswith("\\"):
            command = f"{command}\n{line.removeprefix('> ')}"
        elif line.startswith("$ "):
            if command:
                yield command, lines
            command, lines = line[2:], []
        else:
            assert command, f"a console block begins with a command, not with {line!r}"
            lines.append(line)
    yield command, lines


def compare(where: str, shown: list[str], printed: str) -> None:
    """Assert that the shown lines occur in this order; only `...` and blank lines skip any.

    Without a first `...`, the first line shown is the first one printed.
    """
    rest = [form for line in printed.splitlines() if (form := _form(line))]
    skip = False
    for line in shown:
        form = _form(line)
        if form == "...":
            skip = True
        elif form:
            while skip and rest and rest[0] != form:
                del rest[0]
            got = rest.pop(0) if rest else None
            assert got == form, f"{where}: shows\n{line}\n  as {form!r}, printed\n{printed}"
            skip = False
    assert skip or not rest or not any(map(_form, shown)), f"{where}: more is printed\n{printed}"


def _form(line: str) -> str:
    """Return a line with numbers, rules and blanks in one form."""
    places, others = _PLACE.findall(line), _PLACE.split(line)
    texts = [_SPACES.sub(" ", _RULE.sub("─", _NUMBER.sub("#", text))) for text in others]
    return "".join(text + place for text, place in zip(texts, [*places, ""], strict=True)).strip()


def take_tour(text: str, folder: Path) -> None:
    """Run the blocks of a page that are not `sh`, which install the program."""
    with Reader(folder) as reader:
        for block in blocks_of(text):
            assert block.language in LANGUAGES, f"line {block.line}: {block.language}"
            if block.language != "sh":
                reader.run(block)


if __name__ == "__main__":
    take_tour(Path(sys.argv[1]).read_text(), Path.cwd())
