"""docs/architecture.md names files and folders that exist, and every folder of the package."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "mxrun/docs/architecture.md").read_text()
NAMES = sorted(set(re.findall(r"`([\w/.]+/[\w/.]*)`", TEXT)))


@pytest.mark.parametrize("name", NAMES)
def test_a_path_that_is_named_exists(name: str) -> None:
    found = [ROOT / folder / name for folder in (".", "mxrun", "mxrun/planner")]
    assert any(path.exists() for path in found)


def test_every_folder_has_its_row() -> None:
    rows = set(re.findall(r"^\| `(\w+)/` \|", TEXT, re.M))
    folders = {path.parent.name for path in (ROOT / "mxrun").glob("*/__init__.py")}
    assert folders <= rows


def test_tests_stand_where_the_page_says() -> None:
    (row,) = re.findall(r"^\| `tests/` \|.*", TEXT, re.M)
    packages = [path.parent.name for path in (ROOT / "mxrun").glob("*/__init__.py")]
    without = [each for each in packages if not (ROOT / "tests" / each).is_dir()]
    assert without
    assert all(f"`{each}/`" in row for each in without)
