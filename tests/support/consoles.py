"""Text that rich prints to a console of fixed width."""

from __future__ import annotations

import io

from rich.console import Console, RenderableType


def printed(*parts: RenderableType, width: int = 120) -> str:
    file = io.StringIO()
    console = Console(file=file, width=width, legacy_windows=False)
    for part in parts:
        console.print(part)
    return file.getvalue()
