"""Tables and texts of `help`, made from its JSON report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mxrun.base.near_names import listed
from mxrun.report.operators import operator_parts, operators_table
from mxrun.report.tables import titled_table

Report = Mapping[str, Any]
_MAX_OTHERS = 6


def overview_parts(overview: Report) -> list[RenderableType]:
    """Return the tables of a config's keys, of what else can be looked up, and of the commands."""
    topics = [(each["name"], listed(each["kinds"], 6)) for each in overview["topics"]]
    return [
        _lines("sections of a config: mxrun help SECTION", "key", _about(overview["sections"])),
        _lines("settings of a run, at the top of a config", "key", _about(overview["settings"])),
        _lines("to choose from: mxrun help NAME", "name", topics),
        _lines("commands: mxrun COMMAND --help", "command", overview["commands"].items()),
    ]


def _about(rows: Sequence[Report]) -> list[tuple[str, str]]:
    return [(row["key"], row["about"]) for row in rows]


def _lines(title: str, column: str, rows: Iterable[tuple[str, str]]) -> Table:
    """Return a table with a line for each row; texts that do not fit are cut."""
    table = titled_table(title)
    table.expand = True
    table.add_column(column, no_wrap=True)
    table.add_column("about", no_wrap=True, overflow="ellipsis", ratio=1)
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def report_parts(report: Report) -> list[RenderableType]:
    """Return what `help` shows of a key."""
    parts: list[RenderableType] = []
    if "operators" in report:
        parts.append(operators_table(report["operators"]))
    elif "operator" in report:
        parts += operator_parts(report["operator"])
    elif "entry" in report:
        parts += _entry(report["entry"])
        others = [other["key"] for other in report["others"]]
        if others:
            parts.append(Text(f"also: {listed(others, _MAX_OTHERS)}", "dim"))
    elif report["candidates"]:
        parts.append(_keys("several keys have this name", report["candidates"], "key"))
    if parts:
        for name, about in report["commands"].items():
            parts.append(Text(f"also the command mxrun {name}: {about} See mxrun {name} --help"))
    return parts


def _entry(entry: Report) -> list[RenderableType]:
    title = Text(entry["key"], "bold")
    facts = Table.grid(padding=(0, 2))
    if entry["accepts"]:
        facts.add_row("  accepts", Text(entry["accepts"]))
    if entry["required"] or entry["default"]:
        facts.add_row("  default", Text("required" if entry["required"] else entry["default"]))
    parts: list[RenderableType] = [title, _indented(entry["description"])]
    parts += [facts] if facts.row_count else []
    if entry["example"]:
        parts += [Text("example", "bold"), _indented(entry["example"])]
    if entry["entries"]:
        parts += [Text(), _below(entry)]
    if entry["operators"]:
        parts.append(Text(f"{len(entry['operators'])} operators: mxrun help operators"))
    return parts


def _indented(text: str) -> Padding:
    return Padding(Text(text.rstrip()), (0, 0, 0, 2))


def _below(entry: Report) -> Table:
    if entry["kind"] == "choice":
        table = titled_table(f"kinds: mxrun help {entry['name']}.NAME", "kind", "about")
        for kind in entry["entries"]:
            table.add_row(*map(Text, (kind["name"], kind["about"])))
        return table
    return _keys("keys" if entry["kind"] != "kind" else "parameters", entry["entries"], "name")


def _keys(title: str, rows: Sequence[Report], column: str) -> Table:
    """Return a table of keys; column: the key of the rows that names them."""
    table = titled_table(title, "key", "about", "default")
    for row in rows:
        default = "required" if row["required"] else row["default"]
        table.add_row(*map(Text, (row[column], row["about"], default)))
    return table
