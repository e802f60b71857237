"""Tables and texts of `datasets`, made from its JSON reports."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from mxrun.report.figures import bytes_text, records_text
from mxrun.report.fitted_table import shortened
from mxrun.report.indented import Indented
from mxrun.report.tables import titled_table

Report = Mapping[str, Any]
_MAX_CLASSES, _MAX_CHANNELS, _MAX_COLUMNS = 20, 40, 12
_MAX_DAMAGED = 50
# Characters of a text that are shown.
_MAX_TEXT = 160


def list_tables(rows: Sequence[Report]) -> list[RenderableType]:
    """Return the table of `list`."""
    table = titled_table("data sets and formats: mxrun datasets describe NAME")
    table.add_column("dataset", no_wrap=True)
    table.add_column("records", no_wrap=True)
    table.add_column("about")
    for row in rows:
        table.add_row(*map(Text, (row["name"], row["kind"], row["about"])))
    return [table]


def description_parts(report: Report) -> list[RenderableType]:
    """Return what `describe` shows."""
    splits = report["splits"]
    facts = [
        ("records", report["kind"]),
        ("splits", "those of its files" if splits is None else ", ".join(splits)),
    ]
    files = report["files"]
    if files is not None:
        count = len(files["files"])
        size = f"{bytes_text(files['bytes'])} in {count} file{'' if count == 1 else 's'}"
        facts += [
            ("homepage", files["homepage"]),
            ("size", size),
            ("digests", files["digests"]),
            ("fetch it", files["fetch"]),
        ]
    facts += [("licence", report["licence"])] if report["licence"] else []
    grid = Table.grid(padding=(0, 2))
    for name, value in facts:
        grid.add_row(f"  {name}", Text(value))
    parts: list[RenderableType] = [
        Text(report["name"], "bold"),
        Indented(report["description"]),
        grid,
    ]
    if report["options"]:
        table = titled_table("options")
        table.add_column("key", no_wrap=True)
        table.add_column("about")
        table.add_column("default")
        for option in report["options"]:
            default = "required" if option["required"] else option["default"]
            table.add_row(*map(Text, (option["name"], option["about"], default)))
        parts.append(table)
    return [*parts, Text("example", "bold"), Indented(report["example"])]


def sample_parts(report: Report) -> list[RenderableType]:
    """Return the table of `peek`: a row for each record, with the numbers of its vectors."""
    records = report["records"]
    title = f"{report['name']}: data.{report['section']}, epoch {report['epoch']}"
    table = titled_table(title, names=("file",), least_important=("file",))
    table.add_column("record", justify="right")
    shows_label = any(record["label"] for record in records)
    shows_file = any(record["file"] for record in records)
    if shows_label:
        table.add_column("label")
    if shows_file:
        table.add_column("file")
    texts = [name for name in records[0].get("texts", ()) if not name.endswith("label")]
    inputs = [] if texts else _shown_inputs(records[0])
    headings = {name: _headings(name, records[0]["inputs"][name], report) for name in inputs}
    for names in headings.values():
        for name in names:
            table.add_column(name, justify="right")
    for name in texts:
        table.add_column(name, overflow="fold")
    for record in records:
        cells = [str(record["record"])]
        cells += [record["label"] or ""] if shows_label else []
        cells += [record["file"] or ""] if shows_file else []
        for name in inputs:
            cells += _cells(record["inputs"][name], len(headings[name]))
        cells += [_quoted(record["texts"][name]) for name in texts]
        table.add_row(*map(Text, cells))
    return [table, *map(Text, report["notes"])]


def _shown_inputs(record: Report) -> list[str]:
    return [name for name in record["inputs"] if not name.endswith("label")]


def _quoted(text: str) -> str:
    """Return the beginning of a text on one line, its line ends as symbols."""
    shown = "".join(each if each.isprintable() else "↵" if each == "\n" else "·" for each in text)
    return shown if len(shown) <= _MAX_TEXT else f"{shown[:_MAX_TEXT]}…"


def _headings(name: str, value: Any, report: Report) -> list[str]:
    """Return the headings of an input's columns."""
    if isinstance(value, Mapping):
        return [f"{name} min", f"{name} max"]
    numbers = _flat(value)
    columns = report["columns"]
    names = columns if len(columns) == len(numbers) else range(len(numbers))
    shown = [str(each) for each in names[:_MAX_COLUMNS]]
    return [*shown, "..."] if len(numbers) > _MAX_COLUMNS else shown


def _cells(value: Any, count: int) -> list[str]:
    if isinstance(value, Mapping):
        return [f"{value[key]:.4g}" for key in ("min", "max")]
    cells = [f"{number:.4g}" for number in _flat(value)[:_MAX_COLUMNS]]
    return [*cells, ""][:count]


def _flat(value: Any) -> list[float]:
    if not isinstance(value, Sequence):
        return [value]
    return [number for part in value for number in _flat(part)]


def statistics_parts(report: Report) -> list[RenderableType]:
    """Return the tables of `stats`, and the transforms to copy into a config."""
    parts: list[RenderableType] = list(_class_table(report))
    for role, section in report["sections"].items():
        parts += _section(role, section)
    if report["transforms"]:
        parts.append(Text("for `transforms` of data.train:", "bold"))
        several = len(report["transforms"]) > 1
        for name, text in report["transforms"].items():
            parts.append(Indented(f"- {text}{f'  # {name}' if several else ''}"))
    return parts


def _class_table(report: Report) -> Iterator[Table]:
    sections = report["sections"]
    counts = {role: section["classes"] for role, section in sections.items()}
    names = list(dict.fromkeys(name for section in counts.values() for name in section))
    if not names:
        return
    table = titled_table(f"{report['name']}: {len(names)} classes")
    table.add_column("class", no_wrap=True)
    for role in sections:
        table.add_column(f"{role} records", justify="right")
    for name in names[:_MAX_CLASSES]:
        cells = (f"{section.get(name, 0):,}" for section in counts.values())
        table.add_row(Text(shortened(name, 40)), *cells)
    if len(names) > _MAX_CLASSES:
        table.add_row(f"and {len(names) - _MAX_CLASSES} more", *("" for _ in sections))
    yield table


def _section(role: str, section: Report) -> Iterator[RenderableType]:
    split = f" {section['split']}" if section["split"] else ""
    line = f"data.{role}: {records_text(section['records'])} of {section['dataset']}{split}"
    yield Text(line)
    if section["values"]:
        yield Text(f"  {section['values']}")
    if section["unreadable"]:
        count = records_text(section["unreadable"])
        yield Text(f"  {count} cannot be read: `mxrun datasets check` lists them")
    for name, text in section["texts"].items():
        yield from _text(role, name, text)
    for name, field in section["fields"].items():
        sizes = field["sizes"]
        if sizes is not None:
            yield Text(f"  {name}: {_sizes(sizes)}")
        heading = "column" if field["names"] else "channel"
        table = titled_table(f"{name} of data.{role}", heading)
        for column in ("mean", "deviation", "min", "max"):
            table.add_column(column, justify="right")
        names = field["names"] or [str(number) for number in range(len(field["mean"]))]
        rows = zip(names, *(field[key] for key in ("mean", "std", "min", "max")), strict=True)
        for each in [*rows][:_MAX_CHANNELS]:
            table.add_row(Text(each[0]), *map(str, each[1:]))
        if len(names) > _MAX_CHANNELS:
            table.add_row(f"and {len(names) - _MAX_CHANNELS} more", "", "", "", "")
        yield table


def _text(role: str, name: str, text: Report) -> Iterator[RenderableType]:
    """Yield what is known about the texts of a section."""
    unknown = "" if text["unknown"] is None else f", {text['unknown']:,} of them unknown"
    yield Text(
        f"  {name}: {text['tokens']:,} tokens{unknown}; vocabulary of {text['vocabulary']:,} "
        f"({text['kind']}); loss of guessing by frequency {text['entropy']:.3f} nats"
    )
    table = titled_table(f"frequent tokens of data.{role}", "token")
    table.add_column("count", justify="right")
    table.add_column("share", justify="right")
    for token, count in text["frequent"]:
        table.add_row(Text(repr(token)), f"{count:,}", f"{count / text['tokens']:.2%}")
    yield table


def _sizes(sizes: Report) -> str:
    least, median, greatest = (
        " x ".join(map(str, sizes[key])) for key in ("least", "median", "greatest")
    )
    if least == greatest:
        return f"{median} pixels (height x width)"
    return f"{least} to {greatest} pixels (height x width), median {median}"


def check_parts(report: Report) -> list[RenderableType]:
    """Return the table of damaged records, or the line that there are none."""
    counts = ", ".join(
        f"data.{role} {records_text(count)}{_images_text(report, role)}"
        for role, count in report["records"].items()
    )
    damaged = report["damaged"]
    if not damaged:
        return [Text(f"{report['name']}: {counts}: all can be read")]
    table = titled_table(f"{report['name']}: {len(damaged)} damaged of {counts}", names=("file",))
    table.add_column("section", no_wrap=True)
    table.add_column("record", justify="right")
    table.add_column("file")
    table.add_column("byte", justify="right")
    table.add_column("problem")
    for each in damaged[:_MAX_DAMAGED]:
        offset = "" if each["offset"] is None else str(each["offset"])
        cells = (each["section"], str(each["record"]), each["file"] or "", offset, each["problem"])
        table.add_row(*map(Text, cells))
    if len(damaged) > _MAX_DAMAGED:
        table.add_row("", "", f"and {len(damaged) - _MAX_DAMAGED} more: --json lists all", "", "")
    return [table]


def _images_text(report: Report, role: str) -> str:
    """Return how many images of a section are turned, or one of several; empty if none are."""
    turned, framed = report["turned"][role], report["framed"][role]
    texts = [f"{turned:,} turned by their EXIF orientation"] if turned else []
    texts += [f"{framed:,} the first of several pages or frames"] if framed else []
    return f" ({', '.join(texts)})" if texts else ""


def fetch_parts(report: Report) -> list[RenderableType]:
    """Return the table of `fetch`, and the lines that use the files."""
    table = titled_table(f"{report['dataset']} in {report['folder']}")
    table.add_column("file", no_wrap=True)
    table.add_column("size", justify="right")
    table.add_column("from")
    for file in report["files"]:
        source = file["source"] or "there already"
        if file["resumed"]:
            source += f" (continued after {bytes_text(file['resumed'])})"
        table.add_row(*map(Text, (file["name"], bytes_text(file["bytes"]), source)))
    lines: list[RenderableType] = [
        table,
        Text(f"SHA-256 digests agree with {report['digests']}"),
        Text(f"licence: {report['licence']}"),
        Text("in a config:", "bold"),
        Indented(report["config"]),
    ]
    if report["next"]:
        lines += [Text("next:", "bold"), Indented(report["next"])]
    return lines


@contextmanager
def transfer_progress(shown: bool) -> Iterator[Callable[[str, int, int], None]]:
    """Context manager that gives a callback for the bytes of a file that have arrived."""
    if not (shown and sys.stderr.isatty()):
        yield lambda name, have, size: None
        return
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    from mxrun.report.console import stderr

    tasks: dict[str, Any] = {}
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=stderr(),
        transient=True,
    ) as progress:

        def advance(name: str, have: int, size: int) -> None:
            if name not in tasks:
                tasks[name] = progress.add_task(name, total=size)
            progress.update(tasks[name], completed=have)

        yield advance
