"""Parsing of memory sizes."""

from __future__ import annotations

import pytest

from mxrun.base.sizes import parse_size


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("0", 0),
        ("4096", 4096),
        ("4096 B", 4096),
        ("512 MiB", 512 << 20),
        ("2GiB", 2 << 30),
        (" 1.5 KiB ", 1536),
        ("0.1 KiB", 102),
        ("3 TiB", 3 << 40),
        # A binary fraction would lose the last bytes.
        ("4095.999999 TiB", (4096 << 40) - 1099512),
    ],
)
def test_a_size_is_whole_bytes(text: str, nbytes: int) -> None:
    assert parse_size(text) == nbytes


@pytest.mark.parametrize(
    "text",
    ["", "MiB", "-1", "+1", "1e3", "1.", ".5 MiB", "2 GB", "2 gib", "1  KiB", "1 KiB x"],
)
def test_anything_else_is_no_size(text: str) -> None:
    assert parse_size(text) is None
