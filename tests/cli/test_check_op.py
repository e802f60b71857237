"""`mxrun check-op`: its output and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

from commands import mxrun, refused, result
from planted import plant


def test_F8_a_sound_operator_passes_every_check(tmp_path: Path) -> None:
    found = result("check-op", "Activation", cwd=tmp_path)
    assert found["operator"] == "Activation"
    assert found["passed"]
    assert len(found["checks"]) >= 20
    assert all(check["passed"] and not check["problems"] for check in found["checks"])
    assert any("act_type=tanh" in case for case in found["cases"])


def test_F8_a_broken_operator_is_the_users_error(tmp_path: Path) -> None:
    plant(tmp_path, "bent", ("lhs * np.cos(rhs)", "lhs * np.sin(rhs)"))
    done = mxrun("check-op", "bent.py:bent", "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "")
    found = json.loads(done.stdout)
    assert not found["passed"]
    (broken,) = [check for check in found["checks"] if not check["passed"]]
    assert broken["name"] == "gradients"
    problem = broken["problems"][0]
    assert problem["sentence"].startswith("scale=0.5, lhs 6: backward's gradient of rhs is not")
    assert len(problem["index"]) == 1
    assert float(problem["expected"]) != float(problem["got"])

    shown = mxrun("check-op", "bent.py:bent", cwd=tmp_path)
    assert (shown.returncode, shown.stderr) == (2, "")
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert ["gradients", str(len(broken["problems"])), "broken"] in [line[:3] for line in lines]
    assert ["calls", "passed"] in [line[:2] for line in lines]
    assert shown.stdout.splitlines()[-1] == "bent breaks the contract: gradients"
    assert "hint: derive the gradient anew" in shown.stdout


def test_parameters_given_hold_in_every_case(tmp_path: Path) -> None:
    found = result("check-op", "FullyConnected", "no_bias=true", "num_hidden=3", cwd=tmp_path)
    assert found["passed"]
    assert all("no_bias=True" in case for case in found["cases"])
    assert all("num_hidden=3" in case for case in found["cases"])


def test_debug_mode_prints_each_case_before_it_runs(tmp_path: Path) -> None:
    done = mxrun("check-op", "smooth_l1", "--json", cwd=tmp_path, environment={"MXRUN_DEBUG": "1"})
    cases = json.loads(done.stdout)["cases"]
    printed = [line for line in done.stderr.splitlines() if line.startswith("calls: ")]
    assert printed == [f"calls: {case}" for case in cases] != []


def test_what_cannot_be_checked_is_refused(tmp_path: Path) -> None:
    assert "'Activation'" in refused("check-op", "Activatoin", cwd=tmp_path)
    assert "unknown parameter" in refused("check-op", "Activation", "act=relu", cwd=tmp_path)
    assert "KEY=VALUE" in refused("check-op", "Activation", "relu", cwd=tmp_path)
    assert "cannot read the plugin" in refused("check-op", "none.py:mine", cwd=tmp_path)


def test_help_shows_examples(tmp_path: Path) -> None:
    text = mxrun("check-op", "--help", cwd=tmp_path).stdout
    for words in ("my_ops.py:my_operator", "kernel=[5,5]", "Exit code 2"):
        assert words in text
