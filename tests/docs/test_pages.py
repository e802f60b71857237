"""Every page of the documentation does what it shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest
from command_servers import write_program
from doc_pages import LANGUAGES, Reader, blocks_of, compare
from pydantic import BaseModel

from mxrun.commands.docs import DocsPage, pages
from mxrun.config.run_config import RunConfig

PAGES = {page.name: page for page in pages()}
# Pages generated from the program have blocks that are read, not run.
WRITTEN = [name for name in PAGES if not name.startswith("reference/")]
# Their blocks take a quarter of a minute or more.
LONG = ("configs", "pictures")


@pytest.mark.commands
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.full) if name in LONG else name for name in WRITTEN],
)
def test_a_reader_runs_its_blocks(
    name: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    programs = tmp_path_factory.mktemp("programs")
    write_program(programs / "mxrun")
    with Reader(tmp_path, programs) as reader:
        for block in blocks_of(PAGES[name].text):
            assert block.language in LANGUAGES, f"line {block.line}: {block.language}"
            reader.run(block)


@pytest.mark.parametrize("page", PAGES.values(), ids=lambda page: page.name)
def test_links_to_other_pages_exist(page: DocsPage) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", page.text):
        folder = Path(page.name).parent
        linked = (folder / target).as_posix().removesuffix(".md")
        assert linked in PAGES, f"{page.name} links to {target}"


@pytest.mark.parametrize("name", WRITTEN)
def test_keys_in_the_text_exist(name: str) -> None:
    for key in re.findall(r"`((?:network|data|train|memory)\.[a-z_.]+)", PAGES[name].text):
        section: type[BaseModel] | None = RunConfig
        for word in key.rstrip(".").split("."):
            assert section is None or word in section.model_fields, key
            section = section and model_in(section.model_fields[word].annotation)


def model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the section in the annotation of a key, if it has one."""
    kinds = (annotation, *get_args(annotation))
    models = (kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel))
    return next(models, None)


def test_a_shown_line_that_is_not_printed_is_found() -> None:
    compare("", ["a  12 ms", "...", "c"], "a 7.5 s\nb\nc\n")
    compare("", ["...", "b", "..."], "a\nb\nc\n")
    compare("", ["a.yaml:14:3: at 3 ms"], "a.yaml:14:3: at 4 ms\n")
    with pytest.raises(AssertionError, match="shows"):
        compare("", ["a.yaml:14:3: at 3 ms"], "a.yaml:15:3: at 3 ms\n")
    with pytest.raises(AssertionError, match="shows"):
        compare("", ["a", "c"], "a\nb\nc\n")
    with pytest.raises(AssertionError, match="more is printed"):
        compare("", ["a"], "a\nb\n")
