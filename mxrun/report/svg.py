"""SVG elements as text, and the style shared by all drawings."""

from __future__ import annotations

import re
from collections.abc import Iterable
from xml.sax.saxutils import escape, quoteattr

FONT_SIZE = 12.0
# Width of a monospaced letter, as a fraction of the font size; 0.6 in nearly every font.
_LETTER = 0.6
# Hues visible on white and on black; the first ones are distinct for colour-blind readers (after
# Okabe and Ito). Drawings with more classes repeat them.
COLOURS = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9"),
    *("#8a6fd1", "#7f7f7f", "#c0504d", "#6b8e23", "#1ca3a3", "#a0522d"),
)
# Characters that no XML document may hold, even escaped (XML 1.0, section 2.2).
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_STYLE = """
svg { --ink: #1f2328; --faint: #656d76; --paper: #ffffff; --line: #8c959f; color: var(--ink);
  font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: 12px; }
@media (prefers-color-scheme: dark) {
  svg { --ink: #e6edf3; --faint: #9da7b3; --paper: #0d1117; --line: #768390; }
}
text { fill: var(--ink); }
.paper { fill: var(--paper); }
.faint { fill: var(--faint); font-size: 10px; }
.title { font-size: 16px; font-weight: bold; }
.bold { font-weight: bold; }
.line { fill: none; stroke: var(--line); stroke-width: 1.2px; }
.grid { stroke: var(--line); stroke-width: 0.5px; stroke-opacity: 0.5; }
"""


def text_width(text: str, size: float = FONT_SIZE) -> float:
    """Return the width of a text in pixels."""
    return len(text) * size * _LETTER


def element(name: str, content: str = "", **attributes: str | float) -> str:
    """Return an element; `content` is SVG already, `_` in an attribute name stands for `-`."""
    given = "".join(
        f" {key.rstrip('_').replace('_', '-')}={quoteattr(_value(value))}"
        for key, value in attributes.items()
    )
    return f"<{name}{given}>{content}</{name}>" if content else f"<{name}{given}/>"


def text(content: str, x: float, y: float, class_: str = "", anchor: str = "start") -> str:
    """Return a line of text. `anchor`: its base line starts, is centred or ends at (x, y)."""
    return element("text", clean(content), x=x, y=y, class_=class_ or "label", text_anchor=anchor)


def clean(content: str) -> str:
    """Return a text escaped as the content of an element; characters illegal in XML become `?`."""
    return escape(_FORBIDDEN.sub("?", content))


def document(width: float, height: float, title: str, parts: Iterable[str], style: str = "") -> str:
    """Return a complete SVG document with a background, which follows the light or dark setting."""
    body = [
        element("title", clean(title)),
        element("style", clean(_STYLE + style)),
        element("rect", class_="paper", width="100%", height="100%"),
        *parts,
    ]
    return (
        element(
            "svg",
            "\n" + "\n".join(body) + "\n",
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {_value(width)} {_value(height)}",
            width=width,
            height=height,
            role="img",
        )
        + "\n"
    )


def points(*coordinates: float) -> str:
    """Return coordinates for a path or a list of points."""
    return " ".join(_value(coordinate) for coordinate in coordinates)


def _value(value: str | float) -> str:
    """Return a number rounded to a tenth of a pixel: drawings are small and deterministic."""
    if isinstance(value, str):
        return _FORBIDDEN.sub("?", value)
    return f"{value:.1f}".removesuffix(".0")
