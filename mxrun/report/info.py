"""Tables of `mxrun info`."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from mxrun.report.figures import bytes_text
from mxrun.report.tables import Report, titled_table


def info_parts(report: Report) -> list[RenderableType]:
    """Return the tables of versions and of caches, and notes about what is missing."""
    versions = titled_table(f"mxrun {report['mxrun']}", "what", "value")
    processor = report["processor"]
    versions.add_row("Python", f"{report['python']}, {report['executable']}")
    versions.add_row("system", report["system"])
    versions.add_row("processor", f"{processor['model']}, {processor['cores']} cores")
    versions.add_row("code is generated for", processor["code_generated_for"])
    for card in report["cards"]:
        versions.add_row(card["context"], card["model"])
    for name, version in report["libraries"].items():
        versions.add_row(name, version or "not installed")
    cache = report["cache"]
    versions.add_row("cache", cache["folder"] or "none: the user has no home")
    caches = titled_table("cache")
    caches.add_column("kind")
    for name in ("files", "size"):
        caches.add_column(name, justify="right")
    for kind in cache["kinds"]:
        caches.add_row(kind["kind"], f"{kind['files']:,}", bytes_text(kind["bytes"]))
    return [versions, *map(Text, report["notes"]), caches]


def cleared_text(report: Report) -> Text:
    """Return the sentence about removed files."""
    removed = [f"{count:,} of {kind}" for kind, count in report["cleared"].items()]
    return Text(f"removed from the cache: {', '.join(removed) or 'nothing'}")
