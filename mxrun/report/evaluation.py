"""Tables of `evaluate`: figures of the network and each class, confusion, worst records."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from mxrun.report.confusion import confusion_table, mistakes_table
from mxrun.report.figures import metric_text
from mxrun.report.printable import printable_line
from mxrun.report.tables import titled_table

Report = Mapping[str, Any]
# Classes with rows of their own; of more, those with the lowest F1 are shown.
_MAX_CLASSES = 40
_FIGURES = ("precision", "recall", "f1")
_ERRORS = ("mae", "rmse", "r2")
# Numbers of one record in a table, and relative difference below which two figures are one.
_MAX_NUMBERS = 4
_SAME = 1e-5


def evaluation_tables(report: Report) -> list[Table]:
    """Return the tables of an evaluation in JSON."""
    return list(_tables(report))


def _tables(report: Report) -> Iterator[Table]:
    several = len(report["heads"]) > 1
    yield _summary(report, several)
    for head in report["heads"]:
        prefix = f"{head['name']}: " if several else ""
        if several:
            yield _metrics(head)
        if head["forecasts"]:
            yield _forecasts(head, prefix)
        if head["averages"] is not None:
            yield _classes(head, prefix)
        elif head["rows"]:
            yield _outputs(head, prefix)
        if head["classes"]:
            yield from _confusion(head, prefix)
        if head["errors"]:
            yield _worst(head, prefix)


def _summary(report: Report, several: bool) -> Table:
    """Return the table of the records, the loss and, of a single head, the metrics."""
    table = titled_table(f"{report['run']}, step {report['step']}")
    table.add_column("what")
    table.add_column("value", justify="right")
    table.add_row("records", f"{report['records']:,}")
    table.add_row("from", Text(printable_line(report["source"]), overflow="fold"))
    table.add_row("loss", _number(report["loss"]))
    if not several:
        _add_metrics(table, report["metrics"], report["loss"])
    return table


def _metrics(head: Report) -> Table:
    """Return the table of one head's metrics."""
    table = titled_table(printable_line(head["name"]))
    table.add_column("metric")
    table.add_column("value", justify="right")
    _add_metrics(table, head["metrics"], None)
    return table


def _add_metrics(table: Table, metrics: Report, loss: float | None) -> None:
    """Add a row for each metric except the one that is the loss under another name."""
    for name, value in metrics.items():
        is_loss = name == "cross_entropy" and loss is not None and value is not None
        if not (is_loss and loss is not None and math.isclose(value, loss, rel_tol=_SAME)):
            table.add_row(Text(name), _number(value))


def _classes(head: Report, prefix: str) -> Table:
    """Return the table of the classes and their averages."""
    rows = head["rows"]
    title = f"{prefix}classes"
    if len(rows) > _MAX_CLASSES:
        title = f"{prefix}the {_MAX_CLASSES} classes with the lowest F1, of {len(rows)}"
        with_records = [row for row in rows if row["support"]]
        rows = sorted(with_records, key=lambda row: row["f1"])[:_MAX_CLASSES]
    table = titled_table(title)
    table.add_column("class", overflow="fold")
    for heading in ("precision", "recall", "F1", "support"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(Text(printable_line(row["name"])), *_class_cells(row))
    table.add_section()
    for name, row in head["averages"].items():
        table.add_row(f"{name} average", *_class_cells(row))
    return table


def _class_cells(row: Report) -> list[str]:
    return [*(f"{row[figure]:.4f}" for figure in _FIGURES), f"{row['support']:,}"]


def _outputs(head: Report, prefix: str) -> Table:
    """Return the table of a regression's outputs."""
    table = titled_table(f"{prefix}outputs")
    table.add_column("output")
    for figure in _ERRORS:
        table.add_column(figure, justify="right")
    for row in head["rows"]:
        table.add_row(str(row["output"]), *(_number(row[figure]) for figure in _ERRORS))
    return table


def _forecasts(head: Report, prefix: str) -> Table:
    """Return the errors of forecasts, in the units of the series, beside naive ones."""
    rows = head["forecasts"]
    several = len({row["target"] for row in rows}) > 1
    table = titled_table(f"{prefix}forecasts")
    if several:
        table.add_column("target", overflow="fold")
    table.add_column("forecast")
    for figure in ("mae", "rmse", "mase"):
        table.add_column(figure, justify="right")
    for row in rows:
        cells = [Text(printable_line(row["target"]))] if several else []
        figures = (_number(row[figure]) for figure in ("mae", "rmse", "mase"))
        table.add_row(*cells, row["forecast"], *figures)
    return table


def _confusion(head: Report, prefix: str) -> Iterator[Table]:
    """Yield the confusion matrix, or the most frequent mistakes of many classes."""
    title = f"{prefix}confusion matrix"
    if head["confusion_matrix"] is not None:
        yield confusion_table(title, head["confusion_matrix"], head["classes"])
    elif head["mistakes"]:
        names = [Text(printable_line(name)) for name in head["classes"]]
        mistakes = [(row["label"], row["predicted"], row["count"]) for row in head["mistakes"]]
        yield mistakes_table(title, mistakes, names)


def _worst(head: Report, prefix: str) -> Table:
    """Return the table of the worst records."""
    table = titled_table(f"{prefix}worst records")
    rows = head["errors"]
    table.add_column("input", overflow="fold")
    numbered = any(row["record"] for row in rows)
    if numbered:
        table.add_column("record", justify="right", no_wrap=True)
    columns = _error_columns(rows[0])
    for heading in columns:
        if heading in ("label", "prediction"):
            table.add_column(heading, overflow="fold", min_width=len(heading))
        else:
            table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        cells = [Text(printable_line(row["input"]))]
        cells += [Text(str(row["record"]))] if numbered else []
        table.add_row(*cells, *(_error_cell(row, heading) for heading in columns))
    return table


def _error_columns(row: Report) -> list[str]:
    """Return the columns of a kind of error."""
    if "probability" in row:
        return ["label", "prediction", "probability", "loss"]
    found = [key for key in ("label", "prediction") if key in row]
    return [*found, "error"] if "error" in row else [*found, "wrong", "loss"]


def _error_cell(row: Report, heading: str) -> Text:
    """Return one cell of a record; a wrong class is bold."""
    if heading in ("label", "prediction"):
        name = row.get(f"{heading}_name")
        style = "bold" if heading == "prediction" and row.get("label") != row[heading] else ""
        return Text(_values(row[heading])) if name is None else Text(printable_line(name), style)
    if heading == "wrong":
        return Text(f"{row['wrong']} of {row['predictions']}")
    return Text(_number(row[heading]))


def _values(values: float | Sequence[float]) -> str:
    """Return numbers as text, the first ones of many."""
    listed = [values] if isinstance(values, (int, float)) else list(values)
    text = " ".join(f"{value:.4g}" for value in listed[:_MAX_NUMBERS])
    return f"{text} ... ({len(listed)})" if len(listed) > _MAX_NUMBERS else text


def _number(value: float | None) -> str:
    return "nan" if value is None else metric_text(value)
