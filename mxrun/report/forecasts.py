"""Forecasts of series: a table of their steps, and a drawing of them after the last window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mxrun.report.curve_panels import Axis, Curve, CurvePanel, bounds
from mxrun.report.curves_svg import panels_svg
from mxrun.report.figures import metric_text

if TYPE_CHECKING:
    from rich.table import Table

Row = Mapping[str, Any]

# Series that are drawn.
_MAX_SERIES = 12


def forecast_table(title: str, rows: Sequence[Row]) -> Table:
    """Return one row per predicted step."""
    from rich.text import Text

    from mxrun.report.printable import printable_line
    from mxrun.report.tables import titled_table

    table = titled_table(title)
    for name in rows[0]:
        is_text = name in ("series", "time")
        table.add_column(Text(printable_line(name)), justify="left" if is_text else "right")
    for row in rows:
        values = (
            metric_text(value) if isinstance(value, float) else str(value) for value in row.values()
        )
        table.add_row(*(Text(printable_line(value)) for value in values))
    return table


def forecast_svg(title: str, report: Row) -> str:
    """Return the SVG document: a panel for each series and target, the last window as a solid line.

    The horizontal axis counts steps, of which the last known one is 0.
    """
    panels = []
    for series in report["series"][:_MAX_SERIES]:
        for target, before, values in zip(
            report["targets"], series["history"], series["values"], strict=True
        ):
            first, last = 1 - len(before), len(values)
            curves = (
                Curve(0, "history", range(first, 1), before),
                Curve(0, "forecast", range(last + 1), [before[-1], *values]),
            )
            axis = Axis(*bounds([*before, *values]))
            heading = f"{series['name']} {target}".strip()
            panels.append(CurvePanel(heading, curves, axis, first, last, "step"))
    return panels_svg((title, f"Forecast of {', '.join(report['targets'])}"), panels)
