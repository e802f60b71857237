"""Packaging."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import metadata
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from commands import mxrun

import mxrun as package
from mxrun.config.bundled import bundled_configs, find_config
from mxrun.packaging.operator_stubs import STUBS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PROJECT["tool"]["setuptools"]
FOLDERS: dict[str, str] = SETUPTOOLS["package-dir"]


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
    for name in ("digits.csv.gz", "shakespeare.txt"):
        assert files("mxrun.datasets").joinpath(name).is_file()
    for module, folder in FOLDERS.items():
        sources = {path.name for path in (ROOT / folder).glob("*.py")}
        assert sources <= {entry.name for entry in files(module).iterdir()}
    for name in STUBS:
        stub = files("mxrun").joinpath(name.removeprefix("mxrun/"))
        assert stub.is_file(), f"the build makes {name}: run `pip install -e .`"


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


def test_the_optional_dependencies_are_those_of_the_documentation() -> None:
    named = {"test", "arrow", "gpu", "gpu-cuda12", "dist", "keras", "tokenizers", "peers"}
    assert named == set(PROJECT["project"]["optional-dependencies"])


def test_continuous_integration_is_a_program() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0


@pytest.mark.full
def test_a_checkout_has_its_own_parts_however_mxrun_is_installed() -> None:
    """Python in a checkout imports the package from there, also after `pip install .`."""
    script = (
        "import sys\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "# Without the finder of an editable installation.\n"
        "sys.meta_path[:] = [each for each in sys.meta_path if 'editable' not in repr(each)]\n"
        "from importlib.resources import files\n"
        "import mxrun.datasets.digits, mxrun.ops.flatten as operator\n"
        "print(files('mxrun.configs') / 'digits_lenet.yaml', operator.__file__, sep='\\n')\n"
        "import mxrun.library\n"
        "mxrun.library.load()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        str(ROOT / "configs/digits_lenet.yaml"),
        str(ROOT / "ops/flatten.py"),
    ]
