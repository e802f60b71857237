"""Output of `plot`: a network or learning curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mxrun.base.errors import Diagnostic, UserError
from mxrun.report.curves import curve_parts
from mxrun.report.curves_svg import curves_svg
from mxrun.report.network import network_parts
from mxrun.report.network_dot import network_dot
from mxrun.report.network_svg import network_svg

if TYPE_CHECKING:
    from rich.console import RenderableType


def parts(
    report: Mapping[str, Any], log: bool | None = None, depth: int | None = None
) -> Sequence[RenderableType]:
    """Return the drawing for a terminal; `log`: see `curve_panels`, `depth`: see `fold`."""
    return network_parts(report, depth) if report["kind"] == "network" else curve_parts(report, log)


def dot_text(report: Mapping[str, Any], depth: int | None = None) -> str:
    """Return a network in the DOT language; `depth`: see `fold`.

    Raises UserError for curves, which are no graph.
    """
    if report["kind"] != "network":
        hint = "--svg draws the curves"
        raise UserError(Diagnostic("--dot is for networks and operators", hint=hint))
    return network_dot(report, depth)


def drawing(report: Mapping[str, Any], log: bool | None = None, depth: int | None = None) -> str:
    """Return the drawing as SVG; `log`: see `curve_panels`, `depth`: see `fold`."""
    return network_svg(report, depth) if report["kind"] == "network" else curves_svg(report, log)
