"""README.md: short, with links that lead somewhere, and true where it shows commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from doc_pages import blocks_of, take_tour

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def test_it_has_at_most_200_lines() -> None:
    assert len(README.splitlines()) <= 200


def test_its_first_commands_install_mxrun() -> None:
    train, test = (block.text for block in blocks_of(README) if block.language == "sh")
    for command in train, test:
        assert command.count("\n") == 1
        assert command.startswith("python3 -m venv .venv && .venv/bin/pip install ")
    assert train.endswith(" . && .venv/bin/mxrun train digits_lenet\n")
    assert test.endswith(" -e '.[test]' && .venv/bin/pytest\n")


@pytest.mark.full
def test_a_reader_takes_the_tour(tmp_path: Path) -> None:
    # Continuous integration takes it in a fresh clone, between the two installing commands.
    take_tour(README, tmp_path)
    # Processors may differ in the last digits of the curves.
    drawn, shown = (
        re.sub(r"[\d.]+", "", file.read_text())
        for file in (tmp_path / "curves.svg", ROOT / "mxrun/docs/curves.svg")
    )
    assert drawn == shown


@pytest.mark.parametrize(
    "path",
    sorted(
        {
            *re.findall(r"`((?:\.?\w+/)+[\w.]*)`", README),
            *re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", README),
        }
    ),
)
def test_its_paths_and_links_exist(path: str) -> None:
    assert (ROOT / path).exists()
