"""Packaging, and agreement of the README with the program."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from importlib.metadata import metadata
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from commands import mxrun, refused, succeeded

import mxrun as package
from mxrun import library
from mxrun.config.bundled import bundled_configs, find_config
from mxrun.io.dataset import DATASETS
from mxrun.operator.register import OPERATORS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PROJECT["tool"]["setuptools"]
FOLDERS: dict[str, str] = SETUPTOOLS["package-dir"]


def blocks(language: str) -> list[str]:
    """Return the README's fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.M | re.S)


def shown(command: str) -> str:
    """Return the output that the README shows for a command."""
    (found,) = [
        text
        for block in blocks("console")
        for prompt, _, text in [block.partition("\n")]
        if prompt == f"$ {command}"
    ]
    return found


def stripped(text: str) -> str:
    """Return the text without trailing spaces and without empty lines at the end."""
    return "\n".join(line.rstrip() for line in text.splitlines()).rstrip() + "\n"


def folder_of(module: str) -> Path:
    """Return the folder of a package's sources in the checkout."""
    mapped = max((name for name in FOLDERS if f"{module}.".startswith(f"{name}.")), key=len)
    return ROOT.joinpath(FOLDERS[mapped], *module[len(mapped) :].split("."))


def test_every_file_of_a_package_ships() -> None:
    for module in SETUPTOOLS["packages"]:
        patterns = ["*.py", *SETUPTOOLS["package-data"].get(module, ())]
        for path in folder_of(module).iterdir():
            if path.is_file():
                assert any(path.match(pattern) for pattern in patterns), f"{path} would not ship"


def test_installed_packages_hold_their_files() -> None:
    assert files("mxrun").joinpath("py.typed").is_file()
    assert files("mxrun").joinpath("docs/architecture.md").is_file()
    assert files("mxrun.datasets").joinpath("digits.csv.gz").is_file()
    for module, folder in FOLDERS.items():
        sources = {path.name for path in (ROOT / folder).glob("*.py")}
        assert sources <= {entry.name for entry in files(module).iterdir()}


def test_bundled_configs_are_those_of_the_folder() -> None:
    names = {path.stem for path in (ROOT / "configs").glob("*.yaml")}
    assert names == set(bundled_configs())
    for name in names:
        assert find_config(name).read_bytes() == (ROOT / "configs" / f"{name}.yaml").read_bytes()


def test_the_version_is_said_once() -> None:
    about = metadata("mxrun")
    assert about["Version"] == package.__version__
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert about["License-Expression"] == "Apache-2.0"
    assert (
        "Apache License\n                           Version 2.0" in (ROOT / "LICENSE").read_text()
    )


def test_the_module_is_the_program(tmp_path: Path) -> None:
    done = mxrun("--version", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"mxrun {package.__version__}\n")


def test_the_readme_has_two_commands() -> None:
    train, test = blocks("sh")
    for command in train, test:
        assert command.count("\n") == 1
        assert command.startswith("python3 -m venv .venv && .venv/bin/pip install ")
    assert train.endswith(" . && .venv/bin/mxrun train digits_lenet\n")
    assert test.endswith(" -e '.[test]' && .venv/bin/pytest\n")
    assert {"test", "peers"} == set(PROJECT["project"]["optional-dependencies"])


def test_continuous_integration_is_a_program() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0


def test_the_readme_shows_what_is_printed(tmp_path: Path) -> None:
    done = mxrun("check", "digits_lenet", cwd=tmp_path)
    assert stripped(done.stdout) == shown("mxrun check digits_lenet")


def test_the_readme_shows_real_errors(tmp_path: Path) -> None:
    text = find_config("digits_lenet").read_text()
    wrong = text.replace("num_filter: 32", "num_filters: 32").replace(
        "relu2, act_type: relu", "relu2, act_type: rely"
    )
    (tmp_path / "lenet.yaml").write_text(wrong)
    assert refused("check", "lenet.yaml", cwd=tmp_path) == shown("mxrun check lenet.yaml")


def test_the_readme_shows_a_config_that_works(tmp_path: Path) -> None:
    # The second one needs the README's own operator, and has a separate test.
    config, _ = blocks("yaml")
    (tmp_path / "readme.yaml").write_text(config)
    succeeded(mxrun("check", "readme.yaml", cwd=tmp_path))


def test_the_readme_lists_what_is_there() -> None:
    library.load()
    there = README[README.index("## What is there") : README.index("Not there yet")]
    operators = {name for name in OPERATORS if not name.startswith("_")}
    assert operators <= set(re.findall(r"`(\w+)`", there))
    assert set(DATASETS) <= set(re.findall(r"`(\w+)`", there))


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:\.?\w+/)+[\w.]*)`", README))))
def test_paths_in_the_readme_exist(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("line", sorted(set(re.findall(r"^\$ mxrun (.+)$", README, re.M))))
def test_every_command_of_the_readme_exists_with_its_options(line: str, tmp_path: Path) -> None:
    command, *words = shlex.split(re.split(r" [|>] ", line)[0])
    done = succeeded(mxrun(command, "--help", cwd=tmp_path))
    for word in words:
        if word.startswith("-"):
            assert re.search(rf"(^|[ ,]){word}\b", done.stdout, re.M), word
