"""What keeps cards from being used: each failure has its own text."""

from __future__ import annotations

import importlib
import re
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import stand_in
from commands import mxrun, result

TOO_OLD, NO_CARD = {"status": 35}, {"status": 100, "driver": 13000}
CUPY_13 = ("cupy-cuda13x", "14.2.0")
CUPY_12 = ("cupy-cuda12x", "14.2.0")


Packages = tuple[tuple[str, str], ...]


class Case:
    """Machine with settings of the stand-in, packages of CuPy, and files of its system."""

    def __init__(
        self,
        text: str,
        settings: dict[str, Any] | None = None,
        packages: Packages = (CUPY_13,),
        files: dict[str, str] | None = None,
        visible: str | None = None,
    ) -> None:
        self.text, self.settings, self.packages = text, settings or {}, packages
        self.files, self.visible = files or {}, visible


CASES = {
    "one card": Case(""),
    "two CuPys": Case(
        "cupy-cuda12x 14.2.0 and cupy-cuda13x 14.2.0 overwrite each other's files; uninstall both,"
        " then pip install 'mxrun[gpu]'",
        packages=(CUPY_12, CUPY_13),
    ),
    "no driver": Case("no driver of NVIDIA is installed", {**TOO_OLD, "driver": 0}),
    "no driver in a container": Case(
        "the container has no driver; start it with `--gpus all`",
        {**TOO_OLD, "driver": 0},
        files={".dockerenv": ""},
    ),
    "no driver in WSL": Case(
        "no driver in WSL; install NVIDIA's driver in Windows",
        {**TOO_OLD, "driver": 0},
        files={"proc/version": "Linux version 5.15.90.1-microsoft-standard-WSL2"},
    ),
    "a driver that is too old": Case(
        "the driver is for CUDA 11.4, and at least 12.0 is needed; install a newer driver",
        {**TOO_OLD, "driver": 11040},
    ),
    "CuPy of the other CUDA": Case(
        "CuPy is for CUDA 13, the driver for CUDA 12.4; install a newer driver, or uninstall CuPy,"
        " then pip install 'mxrun[gpu-cuda12]'",
        {**TOO_OLD, "driver": 12040},
    ),
    "a driver older than CuPy's CUDA": Case(
        "CuPy needs a driver for CUDA 13.2, this one is for 13.0",
        {**TOO_OLD, "driver": 13000, "runtime": 13020},
    ),
    "no card": Case("the driver finds no card", NO_CARD),
    "no card in a container": Case(
        "the container has no card; start it with `--gpus all`",
        NO_CARD,
        files={"run/.containerenv": ""},
    ),
    "hidden cards": Case("CUDA_VISIBLE_DEVICES='' hides every card", NO_CARD, visible=""),
    "MIG without an instance": Case(
        "a card is here, but none can be used; in MIG mode it needs an instance",
        NO_CARD,
        files={"dev/nvidia0": ""},
    ),
    "another error": Case("cudaErrorIllegalAddress", {"status": 700}),
}


@pytest.mark.parametrize("name", CASES)
def test_reasons(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    for file, content in case.files.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(content)
    assert problem(case, tmp_path, monkeypatch).startswith(case.text)
    if name == "one card":
        assert problem(case, tmp_path, monkeypatch) == ""


def problem(case: Case, root: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the reason on a machine."""
    with stand_in.installed(**case.settings):
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if case.visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", case.visible)
        return reason(case.packages, root, monkeypatch)


def reason(packages: Packages, root: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the reason with these packages and the files in `root`."""
    library = importlib.import_module("mxrun.device.cuda.library")
    distributions = [
        SimpleNamespace(metadata={"Name": name}, version=version) for name, version in packages
    ]
    monkeypatch.setattr(metadata, "distributions", lambda: distributions)
    monkeypatch.setattr(library, "_ROOT", root)
    found = library.problem()
    assert isinstance(found, str)
    return found


@pytest.mark.parametrize(
    ("packages", "text"),
    [
        ((), "CuPy is not installed: pip install 'mxrun[gpu]' for CUDA 13, or 'mxrun[gpu-cuda12]'"),
        ((CUPY_13,), "cupy-cuda13x is installed but cannot be imported: libnothing"),
    ],
)
def test_a_cupy_that_cannot_be_imported(
    packages: Packages, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cupy").mkdir()
    (tmp_path / "cupy/__init__.py").write_text('raise ImportError("libnothing")')
    with stand_in.found_at(tmp_path):
        assert reason(packages, tmp_path, monkeypatch) == text


def refused(folder: Path, *arguments: str, **settings: Any) -> str:
    done = mxrun(*arguments, cwd=folder, environment=stand_in.environment(**settings))
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.commands
def test_E6_a_card_that_is_not_there_is_refused_at_its_place(tmp_path: Path) -> None:
    (tmp_path / "net.yaml").write_text("extends: digits_lenet\ncontext: [gpu:0, gpu:7]\n")
    said = refused(tmp_path, "train", "net.yaml")
    assert "net.yaml:2:18: context: there is no device gpu:7" in said
    assert "gpu (1 device)" in said
    assert not (tmp_path / "runs").exists()


@pytest.mark.commands
def test_E6_no_card_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "net.yaml").write_text("extends: digits_lenet\ncontext: gpu\n")
    said = refused(tmp_path, "train", "net.yaml", status=35, driver=11040)
    assert "net.yaml:2:10: context: there is no device gpu:0" in said
    assert "gpu (no devices)" in said
    assert "the driver is for CUDA 11.4" in said


@pytest.mark.commands
def test_an_old_card_is_refused_by_name_and_capability(tmp_path: Path) -> None:
    properties = {"name": "NVIDIA GeForce GTX 1080", "major": 6, "minor": 1}
    said = refused(tmp_path, "train", "digits_lenet", "context=gpu", properties=properties)
    assert "context: gpu:0 cannot be used" in said
    assert "NVIDIA GeForce GTX 1080 is of sm_61; kernels are for sm_75 and newer" in said


@pytest.mark.commands
def test_an_illegal_address_in_training_names_the_launch(tmp_path: Path) -> None:
    arguments = ("train", "digits_lenet", "context=gpu", "train.epochs=1")
    environment = stand_in.environment(fails=["softmax"])
    done = mxrun(*arguments, cwd=tmp_path, environment=environment)
    assert done.returncode != 0
    assert "failed on gpu:0: cudaErrorIllegalAddress" in done.stderr


@pytest.mark.commands
def test_another_model_of_card_does_not_resume(tmp_path: Path) -> None:
    train = ("train", "mlp_regression", "context=gpu", "train.max_steps=3")
    result(*train, cwd=tmp_path, environment=stand_in.environment())
    other = {"properties": {"name": "NVIDIA A100 MIG 1g.5gb", "multiProcessorCount": 14}}
    more = (*train[:-1], "train.max_steps=6", "--resume")
    said = refused(tmp_path, *more, **other)
    assert (
        "kernel library: NVIDIA H100 80GB HBM3, cuDNN none then, NVIDIA A100 MIG 1g.5gb, cuDNN"
        in said
    )
    result(*more, cwd=tmp_path, environment=stand_in.environment())


@pytest.mark.commands
def test_S3_a_plan_that_is_larger_than_the_card_is_refused_before_the_first_step(
    tmp_path: Path,
) -> None:
    train = ("train", "digits_lenet", "context=gpu", "train.epochs=1")
    free = 900_000
    said = refused(tmp_path, *train, memory=free)
    assert "the run does not fit into the memory of gpu:0" in said
    assert "expected: at most 900,000 bytes, which are free of 900,000" in said
    figures = re.search(r"got: ([\d,]+) bytes planned; ([\d,]+) is the least for this batch", said)
    assert figures is not None
    planned, least = (int(each.replace(",", "")) for each in figures.groups())
    assert free < least <= planned
    assert not (tmp_path / "runs").exists()


@pytest.mark.commands
def test_F3_the_largest_batch_is_that_of_the_cards_memory(tmp_path: Path) -> None:
    inspect = ("inspect-memory", "digits_lenet", "context=gpu")
    small, large = (
        result(
            *inspect, "--batch", "max", cwd=tmp_path, environment=stand_in.environment(memory=size)
        )
        for size in (8 << 20, 16 << 20)
    )
    for report, size in ((small, 8 << 20), (large, 16 << 20)):
        assert 0.7 * size < report["planned_bytes"] <= 7 / 8 * size
    assert large["batch_size"] > 1.8 * small["batch_size"]
