"""Tables and texts of `pack`, made from its JSON report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from mxrun.report.figures import bytes_text, records_text
from mxrun.report.indented import Indented
from mxrun.report.printable import printable_line
from mxrun.report.tables import titled_table

Report = Mapping[str, Any]
_MAX_FILES, _MAX_SKIPPED = 20, 20


def pack_parts(report: Report) -> list[RenderableType]:
    """Return the table of the files, the records that were left out, and how to use the files."""
    count, size = records_text(report["records"]), bytes_text(report["bytes"])
    table = titled_table(f"{count}, {size}, read back and as written")
    table.add_column("file", no_wrap=True)
    table.add_column("records", justify="right")
    table.add_column("size", justify="right")
    files = report["files"]
    for file in files[:_MAX_FILES]:
        table.add_row(
            Text(printable_line(file["name"])), f"{file['records']:,}", bytes_text(file["bytes"])
        )
    if len(files) > _MAX_FILES:
        table.add_row(f"and {len(files) - _MAX_FILES} more", "", "")
    parts: list[RenderableType] = [table]
    if report["resumed"]:
        parts.append(Text(f"continued after {records_text(report['resumed'])}"))
    skipped = report["skipped"]
    if skipped:
        left_out = titled_table(f"{records_text(len(skipped))} left out")
        left_out.add_column("record", justify="right")
        left_out.add_column("problem")
        for each in skipped[:_MAX_SKIPPED]:
            left_out.add_row(str(each["record"]), Text(each["problem"]))
        if len(skipped) > _MAX_SKIPPED:
            left_out.add_row("", f"and {len(skipped) - _MAX_SKIPPED} more: --json lists all")
        parts.append(left_out)
    parts.append(Text(f"SHA-256 of all files: {report['sha256']}"))
    parts += [Text("in a config:", "bold"), Indented(f"train: {report['config']}")]
    if report["options"]["encoding"] == "raw":
        parts.append(Text("arrays (--encoding raw) are mxrun's own: MXNet cannot read them"))
    return parts
