"""Tables and texts of `help`, made from its JSON report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from mxrun.base.near_names import listed
from mxrun.report.indented import Indented, Unclipped
from mxrun.report.operators import operator_parts, operators_table
from mxrun.report.tables import titled_table

Report = Mapping[str, Any]
_MAX_OTHERS = 6
_MAX_RELATED = 12


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
        others = [other["key"] for other in report["others"]]
        if others:
            parts.append(Text(f"see also {listed(others, _MAX_OTHERS)}", "dim"))
    elif "entry" in report:
        parts += _entry(report["entry"])
        others = [other["key"] for other in report["others"]]
        if others:
            parts.append(Text(f"also: {listed(others, _MAX_OTHERS)}", "dim"))
    elif "related" in report:
        parts += _related(report["related"])
    elif report["candidates"]:
        parts.append(_keys("several keys have this name", report["candidates"], "key"))
    if parts:
        for name, about in report["commands"].items():
            parts.append(Text(f"also the command mxrun {name}: {about} See mxrun {name} --help"))
    return parts


def _related(rows: Sequence[Report]) -> list[RenderableType]:
    table = titled_table("no key has this name; these have to do with it: mxrun help KEY")
    _add_keys_column(table, "key", [row["key"] for row in rows[:_MAX_RELATED]])
    table.add_column("about")
    for row in rows[:_MAX_RELATED]:
        table.add_row(*map(Text, (row["key"], row["about"])))
    more = len(rows) - _MAX_RELATED
    return [table, Text(f"and {more} more; --json lists all")] if more > 0 else [table]


def _entry(entry: Report) -> list[RenderableType]:
    title = Text(entry["key"], "bold")
    facts = Table.grid(padding=(0, 2))
    if entry["accepts"]:
        facts.add_row("  accepts", Text(entry["accepts"]))
    if entry["required"] or entry["default"]:
        facts.add_row("  default", Text("required" if entry["required"] else entry["default"]))
    parts: list[RenderableType] = [title, Indented(entry["description"])]
    parts += [Unclipped(facts)] if facts.row_count else []
    if entry["example"]:
        parts += [Text("example", "bold"), Indented(entry["example"])]
    if entry["entries"]:
        parts += [Text(), _below(entry)]
    if entry["operators"]:
        parts.append(Text(f"{len(entry['operators'])} operators: mxrun help operators"))
    return parts


def _below(entry: Report) -> Table:
    if entry["kind"] == "choice":
        table = titled_table(f"kinds: mxrun help {entry['name']}.NAME")
        _add_keys_column(table, "kind", [kind["name"] for kind in entry["entries"]])
        table.add_column("about")
        for kind in entry["entries"]:
            table.add_row(*map(Text, (kind["name"], kind["about"])))
        return table
    return _keys("keys" if entry["kind"] != "kind" else "parameters", entry["entries"], "name")


def _keys(title: str, rows: Sequence[Report], column: str) -> Table:
    """Return a table of keys; column: the key of the rows that names them."""
    table = titled_table(title, least_important=("default",))
    _add_keys_column(table, "key", [row[column] for row in rows])
    table.add_column("about")
    table.add_column("default")
    for row in rows:
        default = "required" if row["required"] else row["default"]
        table.add_row(*map(Text, (row[column], row["about"], default)))
    return table


def _add_keys_column(table: Table, heading: str, keys: Sequence[str]) -> None:
    """Add a column of words that users type, which is never shortened."""
    table.add_column(heading, no_wrap=True, min_width=max(map(len, (heading, *keys))))
