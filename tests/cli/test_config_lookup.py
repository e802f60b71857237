"""Lookup of configs by name or path, and the start time of the program."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from commands import python_output

from mxrun.base.errors import UserError
from mxrun.config.bundled import bundled_configs, find_config


def test_bundled_configs_are_files() -> None:
    bundled = bundled_configs()
    assert {"digits_lenet", "lenet_mnist", "mlp_mnist"} <= set(bundled)
    assert all(path.is_file() for path in bundled.values())
    assert find_config("digits_lenet") == bundled["digits_lenet"]
    assert find_config("digits_lenet.yaml") == bundled["digits_lenet"]


def test_a_file_goes_before_a_bundled_config(empty_folder: Path) -> None:
    Path("digits_lenet").touch()
    assert find_config("digits_lenet") == Path("digits_lenet")


def test_a_folder_does_not_hide_a_bundled_config(empty_folder: Path) -> None:
    Path("digits_lenet").mkdir()
    assert find_config("digits_lenet") == bundled_configs()["digits_lenet"]


@pytest.mark.parametrize("name", ["configs/mlp_mnit.yaml", "mlp_mnit", "MLP_MNIST"])
def test_near_misses_are_answered(name: str) -> None:
    with pytest.raises(UserError, match="did you mean 'mlp_mnist'"):
        find_config(name)


@pytest.mark.parametrize("name", ["", "x" * 5000, "a/../b", "no\0name"])
def test_strange_names_are_refused(name: str) -> None:
    with pytest.raises(UserError, match="there is no config"):
        find_config(name)


def test_a_folder_is_no_config(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is a folder"):
        find_config(str(tmp_path))


def test_the_folder_of_a_run_is_answered_with_its_config(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").touch()
    with pytest.raises(UserError, match=f"(?s)is a folder.*hint: write {tmp_path}/config.yaml"):
        find_config(str(tmp_path))


def test_the_program_starts_before_its_imports_and_after_its_shell() -> None:
    script = "from mxrun.cli.clock import STARTED_AT; print(STARTED_AT)"
    before = time.monotonic()
    output = python_output("-c", script)
    assert before - 0.02 <= float(output) < time.monotonic()


def test_the_command_line_is_light() -> None:
    heavy = ("rich", "numpy", "pydantic", "yaml", "mxrun.preparation", "mxrun.config")
    script = f"import sys, mxrun.cli.main; print([m for m in {heavy} if m in sys.modules])"
    output = python_output("-c", script)
    assert output.strip() == "[]"


def test_the_program_imports_nothing_before_it_can_be_interrupted() -> None:
    script = (
        "import os, sys, mxrun; before = set(sys.modules); "
        "import mxrun.__main__; print(sorted(set(sys.modules) - before))"
    )
    output = python_output("-c", script)
    assert output.strip() == "['mxrun.__main__']"
