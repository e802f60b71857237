"""Sizes of memory as people write them: `512 MiB`, `1.5GiB`, `4096`."""

from __future__ import annotations

import re

# Each 1024 times the one before it.
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
SIZE_FORM = "a number of bytes, or one of KiB, MiB, GiB or TiB, such as 512 MiB"
_SIZE = re.compile(
    rf"(?P<number>\d{{1,15}}(?:\.\d{{1,15}})?) ?(?P<unit>{'|'.join(UNITS)})?", re.ASCII
)


def parse_size(text: str) -> int | None:
    """Whole bytes of a text, what is left of a byte cut off; None where it is no size."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        return None
    whole, _, part = found["number"].partition(".")
    scale = 1024 ** UNITS.index(found["unit"] or "B")
    return int(int(whole + part) * scale // 10 ** len(part))
