"""Results of `infer`: tables for the terminal; JSON lines, CSV or arrays for programs."""

from __future__ import annotations

import csv
import io
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mxrun.base.files import atomic_file
from mxrun.base.utf8 import valid_text
from mxrun.base.waits import WAIT_NOTICE_S
from mxrun.report.figures import count_text, metrics_text, records_text
from mxrun.report.printable import csv_cells
from mxrun.report.result import standard_output
from mxrun.report.streams import results
from mxrun.train.files import canonical_json

if TYPE_CHECKING:
    from rich.table import Table

Row = Mapping[str, Any]
Arrays = Mapping[str, npt.NDArray[Any]]

# Limit of the numbers of one record in a table.
_SHOWN = 6


def write_jsonl(rows: Iterable[Row], to: Path | None) -> None:
    """Write one line of JSON per record. Raises UserError if it cannot be written."""
    with _opened(to) as file:
        for row in rows:
            file.write(canonical_json(row).encode("ascii"))


def write_csv(rows: Iterable[Row], to: Path | None) -> None:
    """Write a header and one row per record. Raises UserError if it cannot be written."""
    _write_cells(map(_cells, rows), to)


def write_forecast_csv(rows: Iterable[Row], to: Path | None) -> None:
    """Write a header and one row per predicted step, as `write_csv` does."""
    _write_cells((row.items() for row in rows), to)


def write_drawing(content: str, to: Path) -> None:
    """Write an SVG document. Raises UserError if it cannot be written."""
    with _opened(to) as file:
        file.write(content.encode())


def _write_cells(rows: Iterable[Iterable[tuple[str, Any]]], to: Path | None) -> None:
    with _opened(to) as file:
        for number, row in enumerate(rows):
            cells = list(row)
            if number == 0:
                file.write(_csv_line([name for name, _ in cells]))
            file.write(_csv_line([value for _, value in cells]))


def _csv_line(values: Sequence[Any]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(csv_cells(values))
    return valid_text(text.getvalue()).encode()


def write_arrays(arrays: Arrays, archive: bool, to: Path | None) -> None:
    """Write all records of every output: by name as an archive (.npz), or one output as .npy.

    Raises UserError if it cannot be written.
    """
    with _opened(to) as file:
        if archive:
            np.savez(file, allow_pickle=False, **arrays)
        else:
            # Not `write_array`: it calls `tell` on the file, which fails on a pipe.
            (array,) = arrays.values()
            header = np.lib.format.header_data_from_array_1_0(array)
            np.lib.format.write_array_header_1_0(file, header)
            file.write(array.data)


def inference_table(title: str, rows: Sequence[Row]) -> Table:
    """Return one row per record with its likeliest classes, or its first numbers."""
    from rich.text import Text

    from mxrun.report.printable import printable_line
    from mxrun.report.tables import titled_table

    table = titled_table(title)
    table.add_column("input")
    numbered = any(row["record"] for row in rows)
    labelled = "label" in rows[0]
    if numbered:
        table.add_column("record", justify="right")
    if labelled:
        table.add_column("label", justify="right")
    for name, output in _outputs(rows[0]).items():
        if "top" in output:
            table.add_column(f"{name} class".strip())
            table.add_column(f"{name} {_figure(output)}".strip(), justify="right")
        else:
            table.add_column(name or "output")
    for row in rows:
        # Each cell is a list of lines.
        cells = [[row["input"]]]
        cells += [[str(row["record"])]] if numbered else []
        cells += [[row.get("label_name", _label(row["label"]))]] if labelled else []
        for output in _outputs(row).values():
            if "top" in output:
                figure = _figure(output)
                cells.append([each["name"] for each in output["top"]])
                cells.append([f"{each[figure]:.4f}" for each in output["top"]])
            else:
                cells.append([_numbers(output["output"])])
        # Escaped before rich measures widths: a cell that grows later is cut.
        table.add_row(*(Text("\n".join(map(printable_line, lines))) for lines in cells))
    return table


def work_text(summary: Row) -> str:
    """Return the number of records, the speed and the metrics on one line."""
    count, rate = summary["records"], summary["records_per_s"]
    text = f"{records_text(count)}, {count_text(rate)} records/s"
    measured = summary["metrics"]
    return text if measured is None else f"{text}  {metrics_text(measured)}"


@contextmanager
def progress_callback(total: int | None, shown: bool) -> Iterator[Callable[[int], None]]:
    """Context manager that gives a callback for the number of finished records.

    Long work shows a progress bar on a terminal.
    """
    if not (shown and sys.stderr.isatty()):
        yield lambda records: None
        return
    bar = _Bar(total)
    try:
        yield bar.advance
    finally:
        bar.close()


class _Bar:
    """Progress bar that appears only if work takes long; rich is imported only then."""

    def __init__(self, total: int | None) -> None:
        self._total, self._started = total, time.monotonic()
        self._stop: Callable[[], None] = lambda: None
        self._update: Callable[[int], None] | None = None

    def advance(self, records: int) -> None:
        """Set the number of finished records."""
        if self._update is not None:
            self._update(records)
        elif time.monotonic() - self._started > WAIT_NOTICE_S:
            self._show(records)

    def close(self) -> None:
        """Remove the bar."""
        self._stop()

    def _show(self, records: int) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        from mxrun.report.console import stderr

        started, total = self._started, self._total
        progress = Progress(
            BarColumn(bar_width=24),
            TextColumn("{task.completed:.0f} records"),
            TextColumn("{task.fields[rate]} records/s", style="cyan"),
            TimeRemainingColumn(),
            console=stderr(),
            transient=True,
        )
        task = progress.add_task("infer", total=total, completed=records, rate="-")
        progress.start()

        def update(records: int) -> None:
            rate = count_text(records / (time.monotonic() - started))
            progress.update(task, completed=records, rate=rate)

        self._update, self._stop = update, progress.stop


@contextmanager
def _opened(to: Path | None) -> Iterator[IO[bytes]]:
    """Context manager for standard output or a file; a failure leaves no partial file.

    Raises UserError if it cannot be written.
    """
    if to is None:
        with standard_output():
            yield results().buffer
        return
    with atomic_file(to) as file:
        yield file


def _outputs(row: Row) -> Mapping[str, Row]:
    """Return the outputs of a record by name; a single output has the empty name."""
    several: Mapping[str, Row] | None = row.get("outputs")
    return {"": row} if several is None else several


def _figure(output: Row) -> str:
    """Return the key of the number of each class."""
    return "probability" if "probability" in output["top"][0] else "value"


def _cells(row: Row) -> Iterator[tuple[str, Any]]:
    """Yield a record as named cells, one per number."""
    for key in ("input", "record", "label", "label_name"):
        if key in row:
            yield from _numbered(key, row[key])
    for name, output in _outputs(row).items():
        prefix = f"{name}_" if name else ""
        if "top" in output:
            for rank, each in enumerate(output["top"], start=1):
                suffix = "" if len(output["top"]) == 1 else f"_{rank}"
                yield from ((f"{prefix}{key}{suffix}", value) for key, value in each.items())
        else:
            yield from _numbered(name or "output", output["output"])


def _numbered(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield one cell for a scalar, or one per number of an array."""
    if not isinstance(value, list):
        yield name, value
        return
    numbers = np.ravel(value).tolist()
    names = [name] if len(numbers) == 1 else [f"{name}_{i}" for i in range(len(numbers))]
    yield from zip(names, numbers, strict=True)


def _label(label: Any) -> str:
    """Return a class number, or the numbers of a regression label, as text."""
    return str(label) if isinstance(label, int) else _numbers(label)


def _numbers(values: Any) -> str:
    """Return the first numbers of an array as text."""
    flat = np.ravel(values)
    text = "  ".join(f"{value:.4g}" for value in flat[:_SHOWN])
    if flat.size <= _SHOWN:
        return text
    return f"{text}  ... ({'x'.join(map(str, np.shape(values)))})"
