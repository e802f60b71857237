"""An arena's drawing as a page of its own: what the pointer is over is told beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from mxrun.report.figures import bytes_text
from mxrun.report.memory_svg import LEFT, memory_svg, step_width
from mxrun.report.svg import clean, element

Report = Mapping[str, Any]

_STYLE = """
body { margin: 16px; background: #ffffff; color: #1f2328;
  font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: 12px; }
svg { max-width: 100%; height: auto; }
#told { position: fixed; display: none; max-width: 48em; padding: 6px 9px; white-space: pre-wrap;
  overflow-wrap: anywhere; pointer-events: none; background: #1f2328; color: #ffffff;
  border-radius: 4px; }
#told::first-line { font-weight: bold; }
#step { position: sticky; top: 0; padding: 4px 0; background: inherit; min-height: 1.3em; }
table { border-collapse: collapse; margin-top: 16px; }
caption { text-align: left; font-weight: bold; padding: 4px 0; }
th, td { text-align: left; padding: 2px 12px 2px 0; border-bottom: 1px solid #8c959f55; }
.number { text-align: right; }
@media (prefers-color-scheme: dark) {
  body { background: #0d1117; color: #e6edf3; }
  #told { background: #e6edf3; color: #0d1117; }
}
"""
_SCRIPT = """
"use strict";
const course = JSON.parse(document.getElementById("course").textContent);
const drawing = document.querySelector("svg");
const told = document.getElementById("told");
const step = document.getElementById("step");
const texts = new Map();
for (const block of drawing.querySelectorAll(".block")) {
  const title = block.querySelector("title");
  texts.set(block, title.textContent);
  title.remove();
}
drawing.addEventListener("mousemove", (event) => {
  const text = texts.get(event.target);
  told.style.display = text === undefined ? "none" : "block";
  if (text !== undefined) {
    told.textContent = text;
    const right = event.clientX + 16, below = event.clientY + 16;
    told.style.left = Math.max(0, Math.min(right, innerWidth - told.offsetWidth - 8)) + "px";
    told.style.top = below + told.offsetHeight < innerHeight
      ? below + "px" : Math.max(0, event.clientY - told.offsetHeight - 12) + "px";
  }
  const frame = drawing.getBoundingClientRect();
  const across = (event.clientX - frame.left) * drawing.viewBox.baseVal.width / frame.width;
  const position = Math.floor((across - course.left) / course.step);
  if (position >= 0 && position < course.operators.length) {
    const name = course.operators[position];
    step.textContent = `step ${position}, ${name}: ${course.bytes[position]} alive`;
  }
});
drawing.addEventListener("mouseleave", () => { told.style.display = "none"; });
"""


def memory_html(report: Report) -> str:
    """The page, which needs no other file and no network; the same report gives the same bytes."""
    course = report["timeline"][report["peak"]["phase"]]
    embedded = json.dumps(
        {
            "left": LEFT,
            "step": step_width(max(1, len(course["operators"]))),
            "operators": course["operators"],
            "bytes": [bytes_text(nbytes) for nbytes in course["bytes"]],
        }
    )
    # Within a script nothing is escaped, but nothing may look like its end either.
    embedded = embedded.replace("<", "\\u003c")
    head = [
        '<meta charset="utf-8"/>',
        element("title", clean(f"Memory of {report['name']}")),
        element("style", _STYLE),
    ]
    body = [
        '<div id="step">Point at the drawing.</div>',
        memory_svg(report),
        '<div id="told"></div>',
        *_live(report["peak"], course["operators"]),
        element("script", embedded, id="course", type="application/json"),
        element("script", _SCRIPT),
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


def _live(peak: Report, operators: list[str]) -> Iterator[str]:
    """All that is alive at the peak, as a table."""
    title = f"alive at the peak: {peak['phase']}, {peak['operator']}, {peak['bytes']:,} bytes"
    yield "<table>" + element("caption", clean(title))
    names = ("tensor", "bytes", "offset", "from", "to", "why")
    yield element("tr", "".join(element("th", name) for name in names))
    for live in peak["live"]:
        cells = [
            element("td", clean(live["tensor"])),
            element("td", f"{live['bytes']:,}", class_="number"),
            element("td", f"{live['offset']:,}", class_="number"),
            element("td", clean(operators[live["first"]])),
            element("td", clean(operators[live["last"]])),
            element("td", clean(live["reason"])),
        ]
        yield element("tr", "".join(cells))
    yield "</table>"
