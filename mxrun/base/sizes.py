"""Memory sizes in text: `512 MiB`, `1.5GiB`, `4096`."""

from __future__ import annotations

import re

# Each unit is 1024 times the one before.
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
SIZE_FORM = "a number of bytes, or one of KiB, MiB, GiB or TiB, such as 512 MiB"
_SIZE = re.compile(
    rf"(?P<number>\d{{1,15}}(?:\.\d{{1,15}})?) ?(?P<unit>{'|'.join(UNITS)})?", re.ASCII
)


def parse_size(text: str) -> int | None:
    """Return a size in bytes, rounded down; None if the text is not a size."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        return None
    whole, _, part = found["number"].partition(".")
    scale = 1024 ** UNITS.index(found["unit"] or "B")
    return int(int(whole + part) * scale // 10 ** len(part))
