"""Errors of commands with --json: JSON on standard output, the text on standard error."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from commands import MXRUN, mxrun

CONFIG = """
network:
  inputs: {data: [4], label: []}
  layers:
    - FullyConected: {num_hidden: 3}
    - SoftmaxOutput: {label: label}
data: {batch_size: -1, train: {dataset: digits}}
train: {epochs: 1, optimizer: sgd}
"""


def error_of(*arguments: str, cwd: Path, exit_code: int = 2) -> dict[str, Any]:
    """Return the error in the only line of standard output; standard error has it as text."""
    done = mxrun(*arguments, cwd=cwd)
    assert done.returncode == exit_code, done.stderr
    assert done.stdout.count("\n") == 1
    content = json.loads(done.stdout)
    assert content.keys() == {"error", "exit_code"}
    assert content["exit_code"] == exit_code
    error: dict[str, Any] = content["error"]
    assert error.keys() == {"kind", "message", "diagnostics"}
    for problem in error["diagnostics"]:
        assert problem["message"] in " ".join(done.stderr.split())
    return error


def test_problems_of_a_config_have_places_and_hints(tmp_path: Path) -> None:
    (tmp_path / "net.yaml").write_text(CONFIG)
    error = error_of("check", "net.yaml", "--json", cwd=tmp_path)
    assert error["kind"] == "input"
    unknown, size = error["diagnostics"]
    assert unknown == {
        "message": "unknown operator 'FullyConected'",
        "file": "net.yaml",
        "line": 5,
        "column": 7,
        "expected": None,
        "got": None,
        "hint": "did you mean 'FullyConnected'?",
        "chain": [],
    }
    assert (size["line"], size["got"]) == (7, "-1 (an integer)")
    assert error["message"].startswith("net.yaml:5:7: unknown operator")


@pytest.mark.parametrize(
    ("arguments", "message", "command"),
    [
        ("check digits_lenet --json --jsno", "No such option: --jsno", "mxrun check"),
        ("trian digits_lenet --json", "No such command 'trian'", "mxrun"),
        ("train a.yaml --json --resume --overwrite", "--resume continues the run", "mxrun train"),
    ],
)
def test_usage_errors_name_the_help(
    arguments: str, message: str, command: str, tmp_path: Path
) -> None:
    error = error_of(*arguments.split(), cwd=tmp_path)
    assert error["kind"] == "usage"
    assert message in error["message"]
    (problem,) = error["diagnostics"]
    assert problem["hint"].endswith(f"{command} --help")


def test_without_the_option_or_after_two_dashes_errors_are_text_alone(tmp_path: Path) -> None:
    for arguments in (("check", "nothing"), ("check", "nothing", "--", "--json"), ("trian",)):
        done = mxrun(*arguments, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")


def test_an_error_that_cannot_be_written_leaves_the_exit_code(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*MXRUN, "check", "nothing", "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            check=False,
        )
    assert done.returncode == 2
    assert "there is no config 'nothing'" in done.stderr
    assert "Traceback" not in done.stderr
