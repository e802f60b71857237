"""Implementation of `inspect-memory --problem`: placement of blocks from MiniMalloc's CSV format.

The first line names the columns id, lower, upper and size in any order. Each other line is a block
of `size` bytes, live during [lower, upper).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, SourceLocation, UserError
from mxrun.base.near_names import nearest
from mxrun.io.files import read_all_bytes
from mxrun.planner.allocator.allocate import Allocation, solve_incrementally

_COLUMNS = ("id", "lower", "upper", "size")
_OPTIONAL = ("alignment", "gaps", "hint", "offset")
# Cell and the following comma; a cell that begins with a quote may contain commas.
_CELL = re.compile(r'\s*(?:"(?P<quoted>(?:[^"]|"")*)"\s*|(?P<plain>[^,]*))(?P<comma>,|$)')
_NUMBER = re.compile(r"-?[0-9]{1,19}", re.ASCII)
# Limit of numbers and of their sum, so that sums and offsets fit into 64 bits.
_MAX_SUM = 1 << 60


@dataclass(frozen=True)
class PlacedProblem:
    """Solution of a placement problem: the offset of each block by its id."""

    name: str
    offsets: Mapping[str, int]
    allocation: Allocation
    planning_ms: float

    def to_json(self) -> dict[str, Any]:
        """Return the solution as JSON; `gap_bytes` is planned_bytes minus the proved minimum."""
        allocation = self.allocation
        return {
            "name": self.name,
            "planned_bytes": allocation.arena_bytes,
            "lower_bound_bytes": allocation.lower_bound_bytes,
            "proved_optimal": allocation.proved_optimal,
            "gap_bytes": allocation.arena_bytes - allocation.proved_bytes,
            "offsets": dict(self.offsets),
            "planning_ms": self.planning_ms,
        }


# Receives the elapsed seconds of a search, and its best allocation so far.
Advance = Callable[[float, Allocation], None]


def place_problem(
    path: Path, time_limit_s: float | None = None, advance: Advance = lambda seconds, found: None
) -> PlacedProblem:
    """Place the blocks of a file. Raises UserError with the location of an error in it.

    Without a time limit the search has a work limit, and its result is always the same. With one
    the search continues in portions of about half a second until the limit, or until the placement
    is optimal; Ctrl-C ends it early with the best placement so far.
    """
    blocks = read_problem(path)
    start = time.perf_counter()
    improved = solve_incrementally(blocks)
    offsets, allocation = next(improved)
    seconds = time.perf_counter() - start
    try:
        while time_limit_s is not None and seconds < time_limit_s:
            advance(seconds, allocation)
            improvement = next(improved, None)
            seconds = time.perf_counter() - start
            if improvement is None:
                break
            offsets, allocation = improvement
    except KeyboardInterrupt:
        seconds = time.perf_counter() - start
    return PlacedProblem(str(path), offsets, allocation, seconds * 1e3)


def read_problem(path: Path) -> list[tuple[str, int, int, int]]:
    """Return the blocks of a file as (id, lower, upper, size).

    Raises UserError for the first error.
    """
    lines = _text(path).split("\n")
    columns = _columns(_cells(path, 1, lines[0]))
    blocks: dict[str, tuple[str, int, int, int]] = {}
    total = 0
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip():
            continue
        cells = _cells(path, number, line)
        if len(cells) != len(columns):
            got = f"{len(cells)} values"
            _fail(cells[-1], "the line does not fit the header", f"{len(columns)} values", got)
        row = dict(zip(columns, cells, strict=True))
        block = _block(row)
        if block[0] in blocks:
            _fail(row["id"], "two blocks have the same id", "a unique id", repr(block[0]))
        blocks[block[0]] = block
        total += block[3]
        if total > _MAX_SUM:
            _fail(
                row["size"],
                "the sum of the sizes is too large",
                f"at most {_MAX_SUM:,}",
                f"{total:,}",
            )
    return list(blocks.values())


@dataclass(frozen=True)
class _Cell:
    text: str
    place: SourceLocation


def _text(path: Path) -> str:
    content = bytes(read_all_bytes(path))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        column = error.start - before.rfind(b"\n")
        place = SourceLocation(str(path), before.count(b"\n") + 1, column)
        got = f"byte 0x{content[error.start]:02x}"
        raise UserError(Diagnostic("this is not text", place, "UTF-8", got)) from error


def _cells(path: Path, number: int, line: str) -> list[_Cell]:
    """Return the cells of a line, without surrounding spaces and quotes."""
    cells = []
    for match in _CELL.finditer(line):
        start = match.start("quoted") if match["quoted"] is not None else match.start("plain")
        text = match["plain"] if match["quoted"] is None else match["quoted"].replace('""', '"')
        cell = _Cell(text.strip(), SourceLocation(str(path), number, start + 1))
        if match["quoted"] is None and cell.text.startswith('"'):
            _fail(cell, "the quote does not end with its cell", 'a quote as in "a,b"', repr(text))
        cells.append(cell)
        if not match["comma"]:
            break
    return cells


def _columns(header: list[_Cell]) -> list[str]:
    """Return the names of the columns; each of the four occurs once."""
    expected = "the columns " + ", ".join(_COLUMNS)
    names: list[str] = []
    for cell in header:
        name = cell.text
        if name in _OPTIONAL:
            problem = f"the column {name!r} is not supported"
            hint = "leave the column out where it sets no condition"
            _fail(cell, problem, f"no more than {expected}", hint=hint)
        if name not in _COLUMNS:
            _fail(
                cell,
                "this is not a known column",
                expected,
                repr(name),
                hint=nearest(name, _COLUMNS),
            )
        if name in names:
            _fail(cell, f"there are two columns {name!r}", expected)
        names.append(name)
    missing = [name for name in _COLUMNS if name not in names]
    if missing:
        got = ", ".join(names)
        _fail(header[0], f"there is no column {missing[0]!r}", expected, got)
    return names


def _block(row: Mapping[str, _Cell]) -> tuple[str, int, int, int]:
    name = row["id"]
    if not name.text:
        _fail(name, "the block has no id", "a name or a number", "nothing")
    if not name.text.isprintable():
        # Terminals interpret some unprintable characters as commands.
        _fail(name, "this id cannot be printed", "characters that can", ascii(name.text))
    lower, upper, size = (_number(row[column]) for column in _COLUMNS[1:])
    if upper <= lower:
        _fail(row["upper"], "the block is never live", f"an upper above {lower}", str(upper))
    if size < 0:
        _fail(row["size"], "a size cannot be negative", "bytes, 0 or more", str(size))
    return name.text, lower, upper, size


def _number(cell: _Cell) -> int:
    number = int(cell.text) if _NUMBER.fullmatch(cell.text) else None
    if number is None or abs(number) > _MAX_SUM:
        expected = f"an integer of at most {_MAX_SUM:,}"
        _fail(cell, "this number cannot be used", expected, repr(cell.text))
    return number


def _fail(cell: _Cell, problem: str, expected: str, got: str = "", hint: str = "") -> NoReturn:
    raise UserError(Diagnostic(problem, cell.place, expected, got, hint=hint))
