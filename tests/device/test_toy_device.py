"""The toy device, a plugin as a contributor would write it: it trains and infers as `reference`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import toy_device
from commands import mxrun as run_mxrun
from commands import refused, result, succeeded
from toy_device import ToyDevice, ToyMemory

from mxrun.base.errors import InternalError
from mxrun.base.tensor import TensorSpec
from mxrun.device.interface import ProgramStep
from mxrun.operator.launch import Handle, Launch, ProviderLaunch, PythonLaunch, Repeat, Views

Array = npt.NDArray[Any]
PLUGIN = f"plugins=[{toy_device.__file__}]"
TRAIN = ("train", "digits_lenet", "train.epochs=2")
# Bytes between the tensors of a test's memory.
BLOCK = 64
NUMBER = TensorSpec((1,))


@dataclass(frozen=True)
class Runs:
    """The same training on the toy device and on `reference`."""

    folder: Path
    toy: dict[str, Any]
    reference: dict[str, Any]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Train on both devices."""
    return trained(tmp_path_factory.mktemp("toy"))


def trained(folder: Path, *overrides: str) -> Runs:
    """Train on both devices in the folder."""
    toy = result(*TRAIN, *overrides, "context=toy:1", PLUGIN, "name=toy", cwd=folder)
    reference = result(*TRAIN, *overrides, "context=reference", "name=reference", cwd=folder)
    return Runs(folder, toy, reference)


def assert_same_results(runs: Runs) -> None:
    """Assert that both runs have the same metrics and the same tensors in every checkpoint."""
    names = [
        sorted(
            str(path.relative_to(runs.folder / "runs" / device))
            for path in (runs.folder / "runs" / device).rglob("*")
            if path.suffix == ".safetensors" or path.name == "metrics.jsonl"
        )
        for device in ("toy", "reference")
    ]
    assert names[0] == names[1]
    assert len(names[0]) == 1 + 2 * 3
    for name in names[0]:
        toy, reference = (runs.folder / "runs" / device / name for device in ("toy", "reference"))
        assert toy.read_bytes() == reference.read_bytes(), name


@pytest.mark.full
def test_training_gives_the_bits_of_reference(runs: Runs) -> None:
    assert_same_results(runs)
    for key in ("eval", "steps", "variables"):
        assert runs.toy[key] == runs.reference[key]
    assert runs.toy["memory"]["planned_bytes"] == runs.reference["memory"]["planned_bytes"]


@pytest.mark.full
def test_micro_batches_give_the_bits_of_reference(tmp_path: Path) -> None:
    runs = trained(tmp_path, "memory.budget=60%", "memory.micro_batches=true")
    assert runs.toy["micro_batches"] == 2
    assert_same_results(runs)


def test_inference_gives_the_bits_of_reference(runs: Runs) -> None:
    toy, reference = (
        succeeded(
            run_mxrun(
                "infer", f"runs/{name}", "--split", "eval", "--output", "jsonl", cwd=runs.folder
            )
        ).stdout.splitlines()
        for name in ("toy", "reference")
    )
    assert len(toy) > 100
    assert toy == reference


def test_a_config_names_plugin_and_device(tmp_path: Path) -> None:
    base = Path(__file__).parents[2] / "configs" / "digits_lenet.yaml"
    (tmp_path / "toy.yaml").write_text(
        f"extends: {base}\nplugins: [{toy_device.__file__}]\ncontext: toy\n"
    )
    assert result("check", "toy.yaml", cwd=tmp_path)
    (tmp_path / "toy.yaml").write_text(f"extends: {base}\ncontext: toy\n")
    assert "toy.yaml:2:10: context: there is no kind of device 'toy'" in refused(
        "check", "toy.yaml", cwd=tmp_path
    )


def test_a_third_toy_is_refused(tmp_path: Path) -> None:
    message = refused(*TRAIN, "context=toy:2", PLUGIN, cwd=tmp_path)
    assert "there is no device toy:2" in message
    assert "toy (2 devices)" in message
    assert not (tmp_path / "runs").exists()


def toy() -> tuple[ToyDevice, ToyMemory]:
    """Open a toy device, with memory for a few tensors."""
    device = ToyDevice(ToyDevice.describe(1, 1))
    return device, device.allocate(4 * BLOCK)


def adding(source: Handle, target: Handle) -> PythonLaunch:
    """Return a launch that adds one number to another."""

    def prepare(views: Views) -> Callable[[], None]:
        added, total = views(source, NUMBER), views(target, NUMBER)

        def body() -> None:
            total[:] += added

        return body

    return PythonLaunch(prepare)


def test_repeats_move_handles_by_their_strides() -> None:
    # Rows of three numbers become their running sums, whose last numbers are added to `total`.
    device, memory = toy()
    rows, total = Handle(memory, 0), Handle(memory, BLOCK)
    values = np.array([[1, 2, 3], [40, 50, 60]], np.float32)
    device.write(rows, values)
    left, right = ((rows + nbytes).within(12).within(4) for nbytes in (0, 4))
    row_end = (rows + 8).within(12)
    row = Repeat(2, (adding(left, right),)), adding(row_end, total.within(0))
    program = device.bind([ProgramStep("sums", (Repeat(2, row),))])
    sums = values
    for expected in (6 + 150, 6 + 150 + 10 + 280):
        program.run()
        sums = np.cumsum(sums, 1)
        assert device.read(rows, TensorSpec((2, 3))).tolist() == sums.tolist()
        assert device.read(total, NUMBER).tolist() == [expected]


def test_tensors_that_overlap_in_a_repeat_share_their_bytes() -> None:
    # Each iteration adds the moving number to the first, which is also the first of the moving.
    device, memory = toy()
    device.write(Handle(memory, 0), np.array([1, 2, 4, 8], np.float32))
    first, moving = Handle(memory, 0).within(0), Handle(memory, 4).within(4)
    device.bind([ProgramStep("sum", (Repeat(3, (adding(moving, first),)),))]).run()
    assert device.read(Handle(memory, 0), TensorSpec((4,))).tolist() == [15, 2, 4, 8]


def test_watched_calls_are_numbered() -> None:
    device, memory = toy()
    launch = adding(Handle(memory, 0), Handle(memory, BLOCK))
    program = device.bind([ProgramStep("two", (launch, launch)), ProgramStep("none", ())])
    numbers: list[int] = []
    program.run_watched(numbers.append)
    assert (program.names, numbers) == (("two", "two"), [0, 1])


def test_the_host_cannot_view_the_memory() -> None:
    device, memory = toy()
    with pytest.raises(InternalError, match="cannot be viewed"):
        device.view(Handle(memory, 0), NUMBER)
    tensor = device.tensor(Handle(memory, 0), NUMBER)
    mirror = tensor.mirror()
    mirror.array[:] = 7
    assert tensor.read() == 0
    mirror.store()
    assert tensor.read() == 7


@pytest.mark.parametrize("launch", [ProviderLaunch(), Repeat(2, (ProviderLaunch(),))])
def test_other_launches_are_refused(launch: Launch) -> None:
    device, _ = toy()
    with pytest.raises(InternalError, match="a toy cannot run a ProviderLaunch"):
        device.bind([ProgramStep("library", (launch,))])
