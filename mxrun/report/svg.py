"""SVG elements as text, and the look shared by all drawings.

Colours and fonts are attributes of the elements, which every viewer of SVG 1.1 understands, also
those without style sheets. The style sheet only adds the colours of dark mode.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from xml.sax.saxutils import escape, quoteattr

from mxrun.report.palette import (
    FAINT,
    FAINT_ON_BLACK,
    INK,
    INK_ON_BLACK,
    LINE,
    LINE_ON_BLACK,
    PAPER,
    PAPER_ON_BLACK,
)

FONT_SIZE = 12.0
SMALL_SIZE = 10.0
TITLE_SIZE = 16.0
# Some viewers know only the first name of a list, so that it is one that most systems replace by a
# monospaced font if they do not have it.
_FONTS = "DejaVu Sans Mono, Menlo, Consolas, Liberation Mono, monospace"
# Upper bounds on the width of a character, as fractions of the font size: of monospaced fonts, of
# fonts that replace them for other scripts, and of wide characters.
_LETTER, _FOREIGN, _WIDE = 0.61, 1.0, 1.25
# Attributes of each style of text.
_TEXT: Mapping[str, Mapping[str, str | float]] = {
    "label": {"class_": "ink", "fill": INK},
    "bold": {"class_": "ink", "fill": INK, "font_weight": "bold"},
    "title": {"class_": "ink", "fill": INK, "font_weight": "bold", "font_size": TITLE_SIZE},
    "faint": {"class_": "faint", "fill": FAINT, "font_size": SMALL_SIZE},
}
# Characters that no XML document may hold, even escaped (XML 1.0, section 2.2).
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# All rules name the root's class: a drawing within a page changes nothing else there.
_ROOT = "mxrun"
_DARK = f"""
@media (prefers-color-scheme: dark) {{
  .{_ROOT} .ink {{ fill: {INK_ON_BLACK}; }}
  .{_ROOT} .faint {{ fill: {FAINT_ON_BLACK}; }}
  .{_ROOT} .paper {{ fill: {PAPER_ON_BLACK}; }}
  .{_ROOT} .line {{ stroke: {LINE_ON_BLACK}; }}
  .{_ROOT} .tip {{ fill: {LINE_ON_BLACK}; }}
  .{_ROOT} .outline {{ stroke: {INK_ON_BLACK}; }}
}}
"""


def text_width(text: str, size: float = FONT_SIZE) -> float:
    """Return an upper bound on the width of a text in pixels."""
    return size * sum(map(_letter_width, text))


def _letter_width(letter: str) -> float:
    if letter <= "\u024f" or letter in "…×":
        return _LETTER
    return _WIDE if unicodedata.east_asian_width(letter) in "WF" else _FOREIGN


def element(name: str, content: str = "", /, **attributes: str | float) -> str:
    """Return an element; `content` is SVG already, `_` in an attribute name stands for `-`."""
    given = "".join(
        f" {key.rstrip('_').replace('_', '-')}={quoteattr(_value(value))}"
        for key, value in attributes.items()
    )
    return f"<{name}{given}>{content}</{name}>" if content else f"<{name}{given}/>"


def text(
    content: str,
    x: float,
    y: float,
    style: str = "label",
    anchor: str = "start",
    **attributes: str | float,
) -> str:
    """Return a line of text in a style: label, bold, title or faint (small).

    anchor: its base line starts, is centred or ends at (x, y).
    """
    look: dict[str, str | float] = {"text_anchor": anchor, **_TEXT[style], **attributes}
    return element("text", clean(content), x=x, y=y, **look)


def rectangle(
    content: str = "",
    /,
    *,
    x: float,
    y: float,
    width: float,
    height: float,
    **attributes: str | float,
) -> str:
    """Return a rectangle; its attributes give the colours, `content` holds SVG."""
    return element("rect", content, x=x, y=y, width=width, height=height, **attributes)


def line(x1: float, y1: float, x2: float, y2: float, **attributes: str | float) -> str:
    """Return a straight line in the colour of lines, unless `attributes` give another."""
    look: dict[str, str | float] = {"class_": "line", "stroke": LINE, **attributes}
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, **look)


def grid_line(x1: float, y1: float, x2: float, y2: float) -> str:
    """Return a thin line behind a drawing."""
    return line(x1=x1, y1=y1, x2=x2, y2=y2, stroke_width=0.5, stroke_opacity=0.5)


def clean(content: str) -> str:
    """Return a text escaped as the content of an element; characters illegal in XML become `?`."""
    return escape(_FORBIDDEN.sub("?", content))


def document(width: float, height: float, title: str, parts: Iterable[str], style: str = "") -> str:
    """Return a complete SVG document on white, or on black where the viewer has a dark mode.

    style: rules of a style sheet, for what viewers without style sheets may leave out.
    """
    body = [
        element("title", clean(title)),
        element("style", clean(_DARK + style)),
        rectangle(x=0.0, y=0.0, width=width, height=height, class_="paper", fill=PAPER),
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
            class_=_ROOT,
            font_family=_FONTS,
            font_size=FONT_SIZE,
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
