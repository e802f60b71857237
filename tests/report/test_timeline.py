"""Curves of bytes over steps, as wide as the console."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from mxrun.report.timeline import Timeline


def drawn(
    nbytes: list[int], width: int, encoding: str = "utf-8", name: str = "step{}"
) -> list[str]:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    names = [name.format(number) for number in range(len(nbytes))]
    Console(file=file, width=width).print(Timeline(names, nbytes))
    file.seek(0)
    return file.read().splitlines()


def columns(lines: list[str]) -> list[str]:
    """The curve's columns from the bottom up, without the labels."""
    margin = len("1.00 KiB ")
    return [
        "".join(cells) for cells in zip(*(line[margin:] for line in lines[-2::-1]), strict=True)
    ]


def test_heights_are_the_bytes() -> None:
    """Eight rows of eight eighths: 1024 bytes are 64."""
    lines = drawn([16, 1024, 512, 0, 1], 80)
    found = columns(lines)
    # Five steps of four columns each.
    assert found[::4] == ["▁       ", "████████", "████    ", "        ", "▁       "]
    assert all(found[4 * step : 4 * step + 4] == [found[4 * step]] * 4 for step in range(5))
    assert lines[0].startswith("1.00 KiB ")
    assert lines[4].startswith("   512 B ")


def test_the_peak_is_marked_and_named() -> None:
    lines = drawn([1, 2, 1024, 2], 80)
    assert lines[-1] == " " * (9 + 8) + "▲ step2, step 2"


def test_the_name_stands_where_there_is_room() -> None:
    (mark,) = drawn([1] * 29 + [1024], 40)[-1:]
    assert mark.endswith("step29, step 29 ▲")
    assert len(mark) == 9 + 29 + 1


@pytest.mark.parametrize("peak", [10, 20])
def test_a_long_name_is_shortened_on_the_side_with_more_room(peak: int) -> None:
    nbytes = [1] * 31
    nbytes[peak] = 1024
    (mark,) = drawn(nbytes, 40, name="stage4/unit3/branch/narrow/norm/conv")[-1:]
    left, right = "stage4/…/norm/conv, step 20 ▲", "▲ stage…conv, step 10"
    assert mark.strip() == (right if peak == 10 else left)
    assert mark.index("▲") == 9 + peak
    assert len(mark) <= 40


def test_many_steps_share_columns_and_no_peak_is_lost() -> None:
    for width in (12, 40, 200):
        nbytes = [100] * 5000
        nbytes[4321] = 1024
        lines = drawn(nbytes, width)
        assert len(lines) == 9
        assert max(map(len, lines)) <= width
        assert ("step4321" in lines[-1]) == (width > 12)
        found = columns(lines)
        assert found.count("████████") == 1
        assert lines[-1].index("▲") == 9 + found.index("████████")


def test_plain_characters_where_there_are_no_others() -> None:
    text = "\n".join(drawn([16, 1024, 512], 60, "ascii"))
    assert text.isascii()
    assert "####" in text
    assert "^ step1" in text


def test_nothing_is_drawn_of_nothing() -> None:
    assert drawn([], 40) == []
    assert drawn([0, 0], 40) == []
