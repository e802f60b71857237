"""HTML for notebooks: tables that inherit the page's colours, and drawings as images.

A drawing is embedded as an image, so that its style sheet and ids stay apart from the notebook's.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape

# Visible on white and on black.
_LINE = "#8c959f"
_CELL = f"padding:2px 12px 2px 0;border:0;border-bottom:1px solid {_LINE}55;vertical-align:top"


def section(*parts: str) -> str:
    """Return parts one below the other."""
    style = "font-family:monospace;font-size:12px;overflow-x:auto"
    return f'<div style="{style}">{"".join(parts)}</div>'


def heading(text: str) -> str:
    """Return a line in bold."""
    return f'<div style="font-weight:bold;padding:4px 0">{escape(text)}</div>'


def paragraph(text: str) -> str:
    """Return a line of text."""
    return f'<div style="padding:2px 0;white-space:pre-wrap">{escape(text)}</div>'


def drawing(svg: str, title: str) -> str:
    """Return an SVG document as an image with an alternative text."""
    data = b64encode(svg.encode()).decode()
    return (
        f'<img alt="{escape(title, quote=True)}" style="max-width:100%;height:auto" '
        f'src="data:image/svg+xml;base64,{data}">'
    )


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], shades: Shades = None) -> str:
    """Return a table; numbers are aligned to the right.

    shades: for each row the share of a shade behind each of its cells, 0 to 1.
    """
    rows = list(rows)
    first = rows[0] if rows else columns
    head = "".join(_cell("th", name, value) for name, value in zip(columns, first, strict=True))
    body = []
    for number, row in enumerate(rows):
        shade = [0.0] * len(row) if shades is None else shades[number]
        cells = (_cell("td", value, value, share) for value, share in zip(row, shade, strict=True))
        body.append(f'<tr style="background:transparent">{"".join(cells)}</tr>')
    return (
        '<table style="border-collapse:collapse;margin:6px 0;color:inherit">'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
    )


Shades = Sequence[Sequence[float]] | None


def _cell(tag: str, value: object, kind: object, shade: float = 0.0) -> str:
    align = "right" if isinstance(kind, (int, float)) else "left"
    text = f"{value:,}" if isinstance(value, int) else str(value)
    colour = f";background:rgba(0,114,178,{0.55 * shade:.2f})" if shade > 0 else ""
    return f'<{tag} style="{_CELL};text-align:{align}{colour}">{escape(text)}</{tag}>'
