"""`mxrun init`: its output, and its errors, in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import mxrun, refused, result, succeeded
from consoles import printed

from mxrun.report.init import init_tables


def test_it_says_what_it_saw_and_what_comes_next(tmp_path: Path) -> None:
    text = succeeded(mxrun("init", "digits", cwd=tmp_path)).stdout
    assert "1,797 records of 1x8x8" in text
    assert "written to digits.yaml:" in text
    assert "mxrun train digits.yaml" in text
    assert "digits.yaml exists already" in refused("init", "digits", cwd=tmp_path)
    report = result("init", "digits", "--to", "net.yaml", "--name", "first", cwd=tmp_path)
    assert report["classes"]["3"] == {"train": 131, "eval": 52}
    assert report["next"] == ["mxrun train net.yaml", "mxrun evaluate runs/first"]
    checked = result("check", "net.yaml", cwd=tmp_path)
    assert checked["name"] == "first"


def test_wrong_data_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    text = refused("init", "empty", cwd=tmp_path)
    assert "empty: the folder is empty" in text
    assert "expected: a folder for each class" in text
    assert not (tmp_path / "empty.yaml").exists()


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_summary_fits_the_console(width: int) -> None:
    counts = {f"a_class_with_a_long_name_number_{at}": {"train": 5, "eval": 1} for at in range(30)}
    report = {
        "classes": counts,
        "facts": ["a sentence of many words that is longer than a narrow console " * 3],
        "warnings": [],
        "left_out": [],
        "doubts": ["a choice in as many words, and what changes it " * 4],
        "imbalanced": True,
        "file": "x.yaml",
        "choices": ["40 epochs"],
        "next": ["mxrun train x.yaml"],
    }
    lines = printed(*init_tables(report), width=width).splitlines()
    assert max(map(len, lines)) <= width
    assert any("and 10 more" in line for line in lines)
    assert any("balanced_accuracy" in line for line in lines)
