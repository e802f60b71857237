"""Style and script of an arena's page, the same for every report."""

from __future__ import annotations

STYLE = """
body { margin: 16px; background: #ffffff; color: #1f2328;
  font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: 12px; }
svg { max-width: 100%; height: auto; cursor: crosshair; }
.block.lit { stroke: currentColor; stroke-width: 1.5px; fill-opacity: 0.75; }
.pointer { stroke: currentColor; stroke-width: 1px; stroke-opacity: 0.6; pointer-events: none; }
#tooltip { position: fixed; display: none; max-width: 48em; padding: 6px 9px; white-space: pre-wrap;
  overflow-wrap: anywhere; pointer-events: none; background: #1f2328; color: #ffffff;
  border-radius: 4px; }
#tooltip::first-line { font-weight: bold; }
#step { position: sticky; top: 0; padding: 4px 0; background: inherit; min-height: 1.3em;
  font-weight: bold; }
table { border-collapse: collapse; margin-top: 16px; max-width: 100%; }
caption { text-align: left; font-weight: bold; padding: 4px 0; }
th, td { text-align: left; vertical-align: top; padding: 2px 12px 2px 0;
  border-bottom: 1px solid #8c959f55; overflow-wrap: anywhere; }
.number { text-align: right; white-space: nowrap; }
tr.lit { background: #8c959f44; }
@media (prefers-color-scheme: dark) {
  body { background: #0d1117; color: #e6edf3; }
  #tooltip { background: #e6edf3; color: #0d1117; }
}
"""
SCRIPT = """
"use strict";
const course = JSON.parse(document.getElementById("course").textContent);
const drawing = document.querySelector("svg");
const tooltip = document.getElementById("tooltip");
const step = document.getElementById("step");
const live = document.getElementById("live");
const rectangles = [...drawing.querySelectorAll(".block")];
const numbers = new Map(rectangles.map((block, number) => [block, number]));
const texts = rectangles.map((block) => {
  const title = block.querySelector("title");
  title.remove();
  return title.textContent;
});
const last = course.operators.length - 1;
const pointer = document.createElementNS(drawing.namespaceURI, "line");
pointer.setAttribute("class", "pointer");
drawing.append(pointer);
const high = drawing.querySelector(".peak").getBBox();
let lit = [];

function light(number) {
  for (const element of lit) element.classList.remove("lit");
  lit = number === undefined ? []
    : [rectangles[number], ...live.querySelectorAll(`[data-block="${number}"]`)];
  for (const element of lit) element.classList.add("lit");
}

function showTooltip(event, number) {
  tooltip.style.display = number === undefined ? "none" : "block";
  if (number === undefined) return;
  tooltip.textContent = texts[number];
  const right = event.clientX + 16, below = event.clientY + 16;
  tooltip.style.left = Math.max(0, Math.min(right, innerWidth - tooltip.offsetWidth - 8)) + "px";
  tooltip.style.top = below + tooltip.offsetHeight < innerHeight
    ? below + "px" : Math.max(0, event.clientY - tooltip.offsetHeight - 12) + "px";
}

function pointed(event) {
  const frame = drawing.getBoundingClientRect();
  const across = (event.clientX - frame.left) * drawing.viewBox.baseVal.width / frame.width;
  const position = Math.floor((across - course.left) / course.step);
  return position >= 0 && position <= last ? position : undefined;
}

function show(position) {
  const name = course.operators[position];
  step.textContent = `step ${position}, ${name}: ${course.bytes[position]} live`;
  const across = course.left + (position + 0.5) * course.step;
  const ends = {x1: across, x2: across, y1: high.y, y2: high.y + high.height};
  for (const [key, value] of Object.entries(ends)) pointer.setAttribute(key, value);
}

function list(position) {
  const rows = course.blocks.map((block, number) => [number, ...block])
    .filter(([, , , , begin, end]) => begin <= position && position <= end)
    .sort((one, other) => other[2] - one[2] || one[3] - other[3]);
  const bytes = rows.reduce((sum, row) => sum + row[2], 0);
  const name = course.operators[position];
  live.caption.textContent = `live in ${course.phase} at step ${position}, ${name}: `
    + `${bytes.toLocaleString("en")} bytes`;
  live.tBodies[0].replaceChildren(...rows.map(([number, tensor, size, offset, begin, end, why]) => {
    const row = document.createElement("tr");
    row.dataset.block = number;
    const steps = end - begin === last ? "always" : `${begin}-${end}`;
    const cells = [tensor, size.toLocaleString("en"), offset.toLocaleString("en"), steps, why];
    cells.forEach((text, column) => {
      const cell = row.insertCell();
      cell.textContent = text;
      cell.className = column >= 1 && column <= 3 ? "number" : "text";
    });
    return row;
  }));
}

drawing.addEventListener("mousemove", (event) => {
  const number = numbers.get(event.target), position = pointed(event);
  showTooltip(event, number);
  light(number);
  if (position !== undefined) show(position);
});
drawing.addEventListener("mouseleave", () => { showTooltip(null, undefined); light(undefined); });
drawing.addEventListener("click", (event) => {
  const position = pointed(event);
  if (position !== undefined) list(position);
});
live.addEventListener("mouseover", (event) => {
  const row = event.target.closest("[data-block]");
  light(row === null ? undefined : Number(row.dataset.block));
});
live.addEventListener("mouseleave", () => light(undefined));
"""
