"""HTML page of an arena: the drawing, with a description of the block under the pointer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from mxrun.graph.naming import in_words
from mxrun.report.figures import bytes_text
from mxrun.report.memory import tensor_label
from mxrun.report.memory_page import SCRIPT, STYLE
from mxrun.report.memory_svg import LEFT, drawn_blocks, memory_svg, step_width
from mxrun.report.svg import clean, element
from mxrun.report.what_if import change_cells

Report = Mapping[str, Any]

_COLUMNS = ("tensor", "bytes", "offset", "steps", "why")
_CHANGES = ("change", "bytes", "step", "a sample", "with")
_USAGE = "Point at a block to see why it is live; click to list all live tensors of a step."


def memory_html(report: Report) -> str:
    """Return the page, which loads nothing else. Deterministic: equal reports give equal bytes."""
    head = [
        '<meta charset="utf-8"/>',
        '<meta name="viewport" content="width=device-width"/>',
        element("title", clean(f"Memory of {report['name']}")),
        element("style", STYLE),
    ]
    body = [
        element("div", clean(_USAGE), id="step"),
        memory_svg(report),
        '<div id="tooltip"></div>',
        *_live(report),
        *_changes(report["what_if"]),
        element("script", _script_data(report), id="course", type="application/json"),
        element("script", SCRIPT),
    ]
    return "\n".join(
        (
            "<!DOCTYPE html>",
            '<html lang="en">',
            element("head", "\n" + "\n".join(head) + "\n"),
            element("body", "\n" + "\n".join(body) + "\n"),
            "</html>\n",
        )
    )


def _script_data(report: Report) -> str:
    """Return the data of the script as JSON: steps, and blocks in the order of the drawing."""
    peak = report["peak"]
    course = report["timeline"][peak["phase"]]
    embedded = json.dumps(
        {
            "phase": peak["phase"],
            "left": LEFT,
            "step": step_width(max(1, len(course["operators"]))),
            "operators": [in_words(name) for name in course["operators"]],
            "bytes": [bytes_text(nbytes) for nbytes in course["bytes"]],
            "blocks": [
                [
                    *(tensor_label(block), block["bytes"], block["offset"]),
                    *(block["first"], block["last"], block["reason"]),
                ]
                for block in drawn_blocks(report)
            ],
        }
    )
    # Entities are not decoded within a script, but `</script>` would end it.
    return embedded.replace("<", "\\u003c")


def _live(report: Report) -> Iterator[str]:
    """Yield the table of live tensors at the peak; each row has the number of its block in the
    drawing.
    """
    peak = report["peak"]
    last = len(report["timeline"][peak["phase"]]["operators"]) - 1
    numbers = {
        block["offset"]: number
        for number, block in enumerate(drawn_blocks(report))
        if block["first"] <= peak["step"] <= block["last"]
    }
    operator = in_words(peak["operator"])
    title = (
        f"live at the peak: {peak['phase']}, {operator} (step {peak['step']}), "
        f"{peak['bytes']:,} bytes"
    )
    yield '<table id="live">' + element("caption", clean(title))
    yield element("thead", _row("th", _COLUMNS))
    yield "<tbody>"
    for live in peak["live"]:
        always = live["last"] - live["first"] == last
        cells = (
            tensor_label(live),
            f"{live['bytes']:,}",
            f"{live['offset']:,}",
            "always" if always else f"{live['first']}-{live['last']}",
            live["reason"],
        )
        yield _row("td", cells, data_block=str(numbers[live["offset"]]))
    yield "</tbody></table>"


def _changes(found: Report | None) -> Iterator[str]:
    """Yield the table of other settings if `--what-if` is given."""
    if found is None:
        return
    yield "<table>" + element("caption", "what if: each line is planned alone, times are predicted")
    yield element("thead", _row("th", _CHANGES))
    yield "<tbody>"
    for change in found["changes"]:
        yield _row("td", change_cells(change))
    yield "</tbody></table>"


def _row(cell: str, texts: tuple[str, ...], **attributes: str) -> str:
    """Return a row of a table. The three columns in the middle hold numbers."""
    cells = (
        element(cell, clean(text) or " ", class_="number" if 1 <= column <= 3 else "text")
        for column, text in enumerate(texts)
    )
    return element("tr", "".join(cells), **attributes)
