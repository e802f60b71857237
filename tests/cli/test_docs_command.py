"""`mxrun docs` in real processes."""

from __future__ import annotations

import json
from pathlib import Path

from commands import mxrun, refused, result, succeeded

from mxrun.commands.docs import pages


def test_all_pages_are_listed(tmp_path: Path) -> None:
    printed = succeeded(mxrun("docs", cwd=tmp_path)).stdout
    listed = result("docs", cwd=tmp_path)
    assert [each["name"] for each in listed["pages"]] == [page.name for page in pages()]
    for page in pages():
        assert page.name in printed
        assert page.title in printed


def test_a_page_in_a_pipe_is_its_markdown(tmp_path: Path) -> None:
    (page,) = [each for each in pages() if each.name == "architecture"]
    assert succeeded(mxrun("docs", "Architecture.md", cwd=tmp_path)).stdout == page.text
    said = json.loads(succeeded(mxrun("docs", "architecture", "--json", cwd=tmp_path)).stdout)
    assert said == page.to_json()


def test_an_unknown_page_gets_the_nearest(tmp_path: Path) -> None:
    said = refused("docs", "architectur", cwd=tmp_path)
    assert "did you mean 'architecture'?" in said


def test_a_word_that_is_no_page_gets_the_pages_about_it(tmp_path: Path) -> None:
    said = refused("docs", "LSTM", cwd=tmp_path)
    assert "`mxrun docs PAGE` has it on: " in said
    assert "recurrences, " in said
    assert "expected: one of first_network, " in refused("docs", "qqqqq", cwd=tmp_path)


def test_the_help_says_how_to_leave_a_page(tmp_path: Path) -> None:
    said = succeeded(mxrun("docs", "--help", cwd=tmp_path)).stdout
    assert "opens in $PAGER (q leaves it)" in " ".join(said.replace("│", " ").split())
