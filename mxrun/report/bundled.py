"""Table of `show`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from mxrun.report.figures import count_text
from mxrun.report.tables import titled_table


def bundled_table(configs: Sequence[Mapping[str, Any]]) -> Table:
    """Return a row for each bundled config."""
    table = titled_table("bundled configs: mxrun show NAME")
    table.add_column("config", no_wrap=True)
    table.add_column("about")
    table.add_column("data set")
    table.add_column("parameters", justify="right", no_wrap=True)
    for config in configs:
        size = count_text(config["parameters"])
        table.add_row(*map(Text, (config["name"], config["about"], config["dataset"], size)))
    return table
