"""The operator of the page `operators`, copied verbatim and run."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tiers
from commands import refused, result

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "mxrun" / "docs" / "operators.md").read_text()
SECTION = re.search(r"^## Write an operator\n(.*?)^## ", PAGE, re.M | re.S)
# Tests that run every operator through the table of cases; a new operator must pass them.
TABLE = ("test_contract.py", "test_operator_bodies.py", "test_operator_peers.py")
OPTIONS = f"""[tool.pytest.ini_options]
addopts = "--import-mode=importlib --strict-markers --strict-config"
pythonpath = ["support", "."]
filterwarnings = ["error"]
markers = {list(tiers.MARKERS)}
"""
# Makes the file part of the library: adds its folder to the path of `mxrun.ops`.
IN_THE_LIBRARY = """import mxrun.ops
mxrun.ops.__path__.append({folder!r})
"""


def blocks(language: str) -> list[str]:
    """The section's fenced blocks of a language."""
    assert SECTION is not None
    return re.findall(rf"^```{language}\n(.*?)^```$", SECTION[1], re.M | re.S)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the page's operator and its config."""
    operator, _ = blocks("python")
    (config,) = blocks("yaml")
    (tmp_path / "my_ops.py").write_text(operator)
    (tmp_path / "swish.yaml").write_text(config)
    return tmp_path


def test_it_is_no_longer_than_a_page() -> None:
    assert SECTION is not None
    assert len(SECTION[1].splitlines()) <= 90


def test_P14_it_trains_and_its_hash_is_kept(project: Path) -> None:
    summary = result("train", "swish.yaml", cwd=project)
    assert summary["eval"]["accuracy"] > 0.95
    run = project / "runs" / "swish"
    digest = hashlib.sha256((project / "my_ops.py").read_bytes()).hexdigest()
    manifests = [json.loads(path.read_text()) for path in run.glob("checkpoint-*/manifest.json")]
    assert manifests
    assert all(manifest["plugins"] == {"my_ops.py": digest} for manifest in manifests)
    # Another file is another operator.
    with (project / "my_ops.py").open("a") as file:
        file.write("\n# Changed.\n")
    said = refused("train", "swish.yaml", "train.epochs=12", "--resume", cwd=project)
    assert "the code of my_ops.py has changed" in said


@pytest.mark.full
def test_one_function_and_its_cases_are_a_whole_operator_of_mxrun(project: Path) -> None:
    """The project's own tests accept the page's two files without a change."""
    _, cases = blocks("python")
    operator = project / "library" / "swish.py"
    operator.parent.mkdir()
    (project / "my_ops.py").rename(operator)
    for folder in ("support", "oracles"):
        shutil.copytree(TESTS / folder, project / folder)
    (project / "support" / "families" / "swish.py").write_text(cases)
    for name in TABLE:
        shutil.copy(TESTS / "operators" / name, project)
    (project / "pyproject.toml").write_text(OPTIONS)
    (project / "conftest.py").write_text(IN_THE_LIBRARY.format(folder=str(operator.parent)))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "swish", *TABLE],
        capture_output=True,
        text=True,
        cwd=project,
        env={**os.environ, "MXRUN_DEBUG": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stdout
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    # Each promise once, and the formula for each case in both types.
    assert int(passed[1]) >= 12 + 2 * 6
    assert "skipped" not in done.stdout
