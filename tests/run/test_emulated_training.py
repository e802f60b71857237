"""Whole training steps with a card's kernels on emulated threads, against the CPU's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from gpu_emulator.device import EmulatedDevice
from gpu_emulator.emulated import ORDERS
from safetensors.numpy import load_file
from training import run_training

from mxrun.config.bundled import find_config
from mxrun.train.checkpoint import checkpoint_folder
from mxrun.train.checkpoint_manager import saved_steps

SYNTHETIC = "data.train={dataset: synthetic, split: train, records: 8}"
# Batches and images are small: an emulated step takes a thousand times a card's.
NETWORKS = {
    "digits_lenet": ("data.batch_size=4",),
    "lstm_tiny": ("data.batch_size=2",),
    "gpt_tiny": ("data.batch_size=1",),
    "resnet20_cifar10": ("data.batch_size=2", SYNTHETIC, "network.inputs.data=[3,8,8]"),
}
# Rounding errors of two orders of summation, relative to a tensor's largest number. AdamW divides
# gradients by their own size, also those that are rounding errors, such as of a key's bias.
AGREEMENT, AGREEMENT_OF_ADAMW = 2e-5, 1e-3


def checkpoint(context: str, name: str, steps: int) -> dict[str, npt.NDArray[np.float32]]:
    """Train a bundled network for a few steps; return the tensors of its checkpoint."""
    settings = (f"context={context}", "threads=1", "data.eval=null", f"train.max_steps={steps}")
    config = find_config(name)
    summary = run_training(*settings, *NETWORKS[name], config=config, runs=Path(context))
    run = Path(summary["run_dir"])
    newest = checkpoint_folder(run, max(saved_steps(run)))
    return {
        f"{file.name}/{tensor}": array
        for file in newest.glob("*.safetensors")
        for tensor, array in load_file(file).items()
    }


def assert_training_agrees(name: str, steps: int) -> None:
    """Train on both devices and compare parameters, states of the optimizer and carried states."""
    EmulatedDevice.executed.clear()
    EmulatedDevice.kernels.clear()
    emulated, expected = checkpoint("emulated", name, steps), checkpoint("cpu", name, steps)
    assert emulated.keys() == expected.keys()
    agreement = AGREEMENT_OF_ADAMW if name == "gpt_tiny" else AGREEMENT
    for tensor, want in expected.items():
        error = np.abs(emulated[tensor].astype(np.float64) - want.astype(np.float64)).max()
        assert error <= agreement * np.abs(want).max() + 1e-12, (tensor, error)
    assert sum(EmulatedDevice.executed.values()) > 40


@pytest.fixture(autouse=True)
def checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(EmulatedDevice, "is_checked", True)


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "order"),
    [
        *(("digits_lenet", order) for order in ORDERS),
        ("lstm_tiny", "random"),
        ("gpt_tiny", "reverse"),
        ("resnet20_cifar10", "random"),
    ],
)
def test_a_step_has_no_race_and_the_results_of_processors(
    name: str, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EmulatedDevice, "order", order)
    assert_training_agrees(name, steps=1)


@pytest.mark.soak
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", NETWORKS)
def test_steps_have_no_race_and_the_results_of_processors(
    name: str,
    order: str,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    monkeypatch.setattr(EmulatedDevice, "order", order)
    assert_training_agrees(name, steps=2)
    record_property("launches", EmulatedDevice.executed.total())
    record_property("kernels", len(EmulatedDevice.kernels))
