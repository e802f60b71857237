"""`show` lists the bundled configs and prints them."""

from __future__ import annotations

from pathlib import Path

import pytest
from layer_configs import config_file

from mxrun.base.errors import UserError
from mxrun.commands import show
from mxrun.commands.check import check
from mxrun.config import load_config
from mxrun.config.bundled import bundled_configs


def test_all_bundled_configs_are_listed_with_their_sizes() -> None:
    rows = show.bundled()
    assert {row.name for row in rows} == set(bundled_configs())
    assert [row.parameters for row in rows] == sorted(row.parameters for row in rows)
    assert all(row.about.endswith(".") for row in rows)
    (lenet,) = (row for row in rows if row.name == "digits_lenet")
    assert (lenet.dataset, lenet.inputs["data"]) == ("digits", (1, 8, 8))
    assert lenet.parameters == check("digits_lenet").parameters


@pytest.mark.parametrize("name", bundled_configs())
def test_a_printed_config_works_in_any_folder(name: str, tmp_path: Path) -> None:
    original = load_config(bundled_configs()[name])
    text = show.text_of(name)
    assert text.startswith("# ")
    for copy in (text, show.text_of(name, resolved=True)):
        path = config_file(tmp_path, copy, "mine.yaml")
        assert load_config(path).identity() == original.identity()


def test_a_resolved_config_extends_nothing() -> None:
    text = show.text_of("resnet152_imagenet", resolved=True)
    assert "extends" not in text
    assert "${" not in text


def test_files_and_unknown_names(tmp_path: Path) -> None:
    path = config_file(tmp_path, "extends: digits_lenet\n")
    assert show.text_of(str(path)) == "extends: digits_lenet\n"
    assert "Convolution" in show.text_of(str(path), resolved=True)
    with pytest.raises(UserError, match="did you mean 'digits_lenet'"):
        show.text_of("digit_lenet")
    path.write_bytes(b"\xff")
    with pytest.raises(UserError, match="not UTF-8"):
        show.text_of(str(path))
