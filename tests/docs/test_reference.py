"""The reference pages are current, and every command and section is on a written page."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from reference_pages import COMMAND, FOLDER, command_names, reference_pages

from mxrun.commands.docs import pages
from mxrun.commands.help import TOPICS
from mxrun.config import DatasetSection
from mxrun.inspection.reference import config_reference
from mxrun.io.dataset.registry import DATASETS
from mxrun.operator.register import OPERATORS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PAGES = reference_pages()
WRITTEN = "\n".join(page.text for page in pages() if not page.name.startswith("reference/"))
SECTIONS = [entry.name for entry in config_reference().entries if entry.kind == "section"]


def test_the_pages_are_current() -> None:
    stored = {path.stem: path.read_text() for path in FOLDER.glob("*.md")}
    assert stored == PAGES, f"the program has changed: run {COMMAND}"


def test_everything_to_choose_from_is_on_a_page() -> None:
    operators = {name for name in OPERATORS if not OPERATORS.get(name).is_internal}
    assert operators <= set(re.findall(r"^\| `(\w+)`", PAGES["operators"], re.M))
    for topic, key in TOPICS.items():
        assert topic in PAGES or f"## {key}" in PAGES["network"]
    assert set(DATASETS) == set(re.findall(r"^## (\w+)", PAGES["datasets"], re.M))
    for key in DatasetSection.OWN_KEYS:
        assert f"## data.train.{key}" in PAGES["data"]


@pytest.mark.parametrize("name", command_names())
def test_every_command_is_on_a_written_page(name: str) -> None:
    assert re.search(rf"\bmxrun {name}\b", WRITTEN)


@pytest.mark.parametrize("name", SECTIONS)
def test_every_section_is_on_a_written_page(name: str) -> None:
    assert re.search(rf"^{name}:", WRITTEN, re.M)


def test_every_page_ships() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["mxrun"]
    for path in (ROOT / "mxrun" / "docs").rglob("*.md"):
        folder = path.parent.relative_to(ROOT / "mxrun").as_posix()
        assert f"{folder}/*.md" in patterns, f"{path} would not ship"
