"""`info --check`: what a device does otherwise than the CPU is found, named and reported."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import stand_in
from commands import mxrun, refused
from gpu_emulator.device import EmulatedDevice

from mxrun.commands.device_check import check_device, operator_check, outcome_of, probe_check
from mxrun.contract.call import Conditions
from mxrun.contract.trial import opened
from mxrun.device.probes import PROBES

# Names of checks: behind the first one is one network, behind the second one nothing.
LAST_BUT_ONE, LAST = "resnet20_cifar10 bfloat16", "gpt_tiny bfloat16"


def outcomes(report: dict[str, Any]) -> dict[str, str]:
    """Return the results of a report by the names of the checks."""
    return {check["name"]: check["result"] for check in report["checks"]}


def failures(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the checks that failed, of which each says where to look next."""
    failed = {check["name"]: check for check in report["checks"] if check["result"] == "failed"}
    assert not report["passed"]
    assert report["failed"] == list(failed)
    assert all(check["problem"] and check["further"] for check in failed.values())
    return failed


def check(context: str, after: str) -> dict[str, Any]:
    """Check a device and return the report, which is JSON."""
    seen: list[int] = []
    report = check_device(context, after, lambda done, total, name: seen.append(done))
    assert seen == list(range(len(report["checks"])))
    assert json.loads(json.dumps(report)) == report
    return report


@pytest.fixture
def fresh_devices() -> Iterator[None]:
    # A stand-in lasts for one test.
    opened.cache_clear()
    yield
    opened.cache_clear()


def test_a_processor_agrees_with_itself() -> None:
    report = check("cpu", LAST_BUT_ONE)
    assert report["passed"]
    assert report["model"]
    assert report["installation"]["libraries"]["numpy"]
    found = outcomes(report)
    assert found["module"] == found["library call"] == found[LAST] == "passed"
    assert "relu" not in found


@pytest.mark.full
@pytest.mark.usefixtures("fresh_devices")
def test_the_stand_in_computes_what_the_cpu_does() -> None:
    with stand_in.installed():
        report = check("gpu:0", "squeeze")
    assert report["passed"], report["failed"]
    assert report["captures"]
    found = outcomes(report)
    assert found["capture"] == found["where"] == found["gpt_tiny bfloat16"] == "passed"


@pytest.mark.usefixtures("fresh_devices")
def test_launches_that_cannot_be_captured_are_one_failure() -> None:
    with stand_in.installed(uncapturable=["add_loop"]):
        report = check("gpu:0", LAST)
    failed = failures(report)
    assert [*failed] == ["capture"]
    assert "2 launches cannot be captured as a graph" in failed["capture"]["problem"]
    assert outcomes(report)["body on the host"] == "passed"


@pytest.mark.usefixtures("fresh_devices")
def test_after_an_error_that_ends_the_device_nothing_else_is_run() -> None:
    with stand_in.installed(fails=["add_loop"]):
        report = check("gpu:0", LAST)
    failed = failures(report)
    assert [*failed] == ["module"]
    assert "failed on gpu:0: cudaErrorIllegalAddress" in failed["module"]["problem"]
    assert "Traceback" in failed["module"]["trace"]
    found = outcomes(report)
    assert found["memory"] == "passed"
    assert found["capture"].startswith("not run: the device answers no more")


def subtracting(module: str) -> str:
    """Return the text of a kernel's module with the wrong instruction."""
    return module.replace("fadd", "fsub")


def test_a_kernel_that_computes_something_else_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EmulatedDevice, "changes", {"add_loop": subtracting})
    device = opened(1, "emulated")
    memory, module = (
        outcome_of(probe_check(device, probe))
        for probe in PROBES
        if probe.name in ("memory", "module")
    )
    assert memory.result == "passed"
    assert module.result == "failed"
    assert "a sum has other bits at 0, and at 100,0" in module.problem
    assert "driver" in module.further
    assert not module.trace


@pytest.mark.parametrize("changes", [{}, {"map": subtracting}], ids=["right", "wrong"])
def test_F8_an_operator_that_computes_something_else_is_found(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EmulatedDevice, "changes", changes)
    conditions = Conditions(kind="emulated")
    found = outcome_of(operator_check("_plus_scalar", opened(1, "emulated"), conditions))
    assert found.result == ("failed" if changes else "passed")
    if changes:
        assert "jit on emulated gives another output than numpy" in found.problem
        assert "mxrun check-op _plus_scalar" in found.further
    else:
        assert found.figures is not None
        assert found.figures["implementations"] == ["jit"]


@pytest.mark.commands
def test_the_command_writes_the_report_and_exits_with_1(tmp_path: Path) -> None:
    arguments = ("info", "--check", "gpu:0", "--check-after", LAST)
    environment = stand_in.environment(fails=["add_loop"])
    done = mxrun(*arguments, "--output", "report.json", cwd=tmp_path, environment=environment)
    assert done.returncode == 1, done.stderr
    assert "gpu:0 fails: please send the report" in done.stdout
    assert "next: the versions of the driver" in done.stdout
    failures(json.loads((tmp_path / "report.json").read_text()))


@pytest.mark.commands
def test_a_device_that_is_not_there_is_refused(tmp_path: Path) -> None:
    said = refused("info", "--check", "gpu:7", cwd=tmp_path)
    assert "context: there is no device gpu:7" in said
    said = refused("info", "--check", "cpu", "--check-after", "nothing", cwd=tmp_path)
    assert "there is no check 'nothing'" in said
    assert "require --check" in refused("info", "--output", "x.json", cwd=tmp_path)
