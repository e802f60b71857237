"""Allocation problems in MiniMalloc's CSV format: one block per line as id,lower,upper,size."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

from mxrun.report.printable import csv_cells

Report = Mapping[str, Any]


def memory_csv(report: Report) -> str:
    """Return the blocks of the largest phase: half-open lifetimes [lower, upper), sizes in bytes.

    An id is the name of the block's tensor, with a number if several blocks have the same name.
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(("id", "lower", "upper", "size"))
    counts: dict[str, int] = {}
    for block in report["blocks"][report["peak"]["phase"]]:
        name = block["tensor"]
        counts[name] = counts.get(name, 0) + 1
        identity = name if counts[name] == 1 else f"{name}#{counts[name]}"
        cells = (identity, block["first"], block["last"] + 1, block["bytes"])
        writer.writerow(csv_cells(cells))
    return file.getvalue()
