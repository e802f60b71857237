"""The reference device: NumPy bodies alone, in processes that load no code of operators."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from commands import CONFIGS, HANG_S, digests, result, succeeded
from interrupted_runs import resumed_from
from ml_dtypes import bfloat16

from mxrun import library
from mxrun.base.tensor import TensorSpec
from mxrun.device.interface import ProgramStep
from mxrun.device.reference.device import ReferenceDevice
from mxrun.graph.graph import MemoryClass
from mxrun.graph.phases import TRAIN
from mxrun.inspection.benchmark_loop import Steps
from mxrun.operator.kernel import ForwardRequest, Handles, OpReqType
from mxrun.operator.launch import Handle
from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.register import create
from mxrun.preparation.planning import load, plan_for

Array = npt.NDArray[Any]

PORTABLE = Path(__file__).parents[1] / "support" / "portable_process.py"
STEPS = 3
# Bundled networks at batch 2: a smaller input, and a rate at which rounding does not grow: batch
# normalisation over two records and rectifiers amplify it (at the configs' rates also between the
# CPU's own implementations).
NETWORKS: Mapping[str, tuple[str, ...]] = {
    "digits_lenet": (),
    "digits_regularized": (),
    "autoencoder_digits": (),
    "mlp_mnist": (),
    "mlp_regression": (),
    "lenet_mnist": (),
    "resnet20_cifar10": (),
    "gpt_tiny": (),
    "gpt_shakespeare": (),
    "gpt_shakespeare_medium": ("network.inputs.data=[32]", "network.inputs.label=[32]"),
    "lstm_tiny": (),
    "lstm_shakespeare": (),
    "lstm_words": (),
    "text_classifier": (),
    # At its own rate the losses grow, and with them what roundings differ.
    "vgg16_imagenet": ("network.inputs.data=[3,64,64]", "train.optimizer.sgd.lr=1e-3"),
    "mobilenetv1_imagenet": ("network.inputs.data=[3,64,64]", "train.optimizer.sgd.lr=1e-7"),
    "mobilenetv2_imagenet": ("network.inputs.data=[3,64,64]", "train.optimizer.sgd.lr=1e-7"),
    "resnet50_imagenet": ("network.inputs.data=[3,96,96]", "train.optimizer.sgd.lr=1e-7"),
    "resnet152_imagenet": ("network.inputs.data=[3,64,64]", "train.optimizer.sgd.lr=1e-7"),
    "densenet121_imagenet": ("network.inputs.data=[3,64,64]", "train.optimizer.nag.lr=1e-7"),
    "inceptionv3_imagenet": ("network.inputs.data=[3,107,107]", "train.optimizer.rmsprop.lr=1e-7"),
}
# The two implementations of the CPU differ by 1.1e-4 in ResNet-152's first loss already, whatever
# the rate. Its bits are compared with those of the CPU's NumPy bodies instead.
DEEPEST = "resnet152_imagenet"
LARGE = [name for name in NETWORKS if name.endswith(("_imagenet", "_medium")) and name != DEEPEST]
SMALL = [name for name in NETWORKS if not name.endswith(("_imagenet", "_medium"))]
# Its NumPy bodies take a minute to verify.
RESIDUAL = pytest.param("resnet20_cifar10", marks=pytest.mark.full)
TOLERANCE = 1e-4


def trained(name: str, *overrides: str) -> tuple[list[float], dict[str, Array]]:
    """Return the losses of the first steps and the parameters after them."""
    given = (*NETWORKS[name], "data.batch_size=2", *overrides)
    built = load(CONFIGS / f"{name}.yaml", given)
    plan = plan_for(built, training=True)
    steps = Steps(built, plan, TRAIN)
    losses = steps.losses(STEPS)
    parameters = {
        block.name: steps.executor.tensor(block.name).read()
        for block in plan.pinned
        if block.memory_class is MemoryClass.PARAMETERS
    }
    return losses, parameters


def norm(arrays: Mapping[str, Array]) -> float:
    return float(
        np.sqrt(sum(np.square(array, dtype=np.float64).sum() for array in arrays.values()))
    )


def is_close(name: str, *overrides: str) -> None:
    losses, parameters = trained(name, "context=reference", *overrides)
    expected_losses, expected = trained(name, "context=cpu", *overrides)
    assert np.allclose(losses, expected_losses, rtol=TOLERANCE, atol=0)
    assert parameters.keys() == expected.keys()
    difference = {key: parameters[key] - expected[key] for key in expected}
    assert norm(difference) <= TOLERANCE * norm(expected)


def test_every_bundled_network_is_tried() -> None:
    bundled = {path.stem for path in CONFIGS.glob("*.yaml")}
    # Those that need the trained weights of digits_lenet first.
    assert bundled == {*NETWORKS, "finetune_digits", "style_transfer"}


@pytest.mark.parametrize("name", SMALL)
def test_P12_small_networks_agree_with_the_cpu(name: str) -> None:
    is_close(name)


@pytest.mark.full
@pytest.mark.parametrize("name", LARGE)
def test_P12_large_networks_agree_with_the_cpu(name: str) -> None:
    is_close(name)


@pytest.mark.parametrize(
    "name",
    [
        *("digits_lenet", RESIDUAL, "autoencoder_digits"),
        pytest.param(DEEPEST, marks=pytest.mark.full),
    ],
)
def test_the_bits_are_those_of_the_numpy_bodies_on_the_cpu(name: str) -> None:
    losses, parameters = trained(name, "context=reference")
    expected_losses, expected = trained(name, "context=cpu", "implementation=numpy")
    assert losses == expected_losses
    assert all(np.array_equal(parameters[key], expected[key]) for key in expected)


def portable(
    folder: Path, *arguments: str, kill_after: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run a command on the reference device in a process that refuses the code of operators.

    kill_after: number of training steps after which the process is killed.
    """
    return subprocess.run(
        [sys.executable, PORTABLE, str(kill_after), *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=HANG_S,
        check=False,
    )


RUNS = {
    "digits_lenet": ("train.epochs=1", "train.checkpoint.every=2 steps"),
    "resnet20_cifar10": (
        "network.inputs.data=[3,16,16]",
        "data.batch_size=8",
        "train.epochs=1",
        "train.checkpoint.every=2 steps",
    ),
}


@pytest.mark.full
@pytest.mark.commands
@pytest.mark.parametrize("name", ["digits_lenet", RESIDUAL])
def test_a_killed_run_resumes_to_the_same_bytes(name: str, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    train = ("train", name, "context=reference", *RUNS[name])
    done = succeeded(portable(whole, *train, "--json"))
    memory = json.loads(done.stdout)["memory"]
    assert memory["touched_bytes"] == memory["planned_bytes"]
    assert portable(killed, *train, kill_after=6).returncode == -signal.SIGKILL
    done = succeeded(portable(killed, *train, "--resume"))
    # The checkpoint of step 4 may still have been on its way.
    assert resumed_from(done.stderr) in (2, 4)
    folders = [digests(folder / "runs") for folder in (whole, killed)]
    assert folders[0] == folders[1]
    run = next((whole / "runs").iterdir())
    first = succeeded(portable(whole, "infer", str(run), "--split", "eval", "--json"))
    second = result("infer", str(run), "--split", "eval", cwd=whole)
    assert json.loads(first.stdout)["metrics"] == second["metrics"]


@pytest.mark.full
@pytest.mark.commands
@pytest.mark.parametrize("name", ["digits_lenet", RESIDUAL])
def test_verify_passes(name: str, tmp_path: Path) -> None:
    small = (*RUNS[name][:-2], "data.batch_size=4")
    done = portable(tmp_path, "verify", name, "context=reference", *small, "--json")
    assert json.loads(succeeded(done).stdout)["passed"]


@pytest.mark.parametrize("request_type", [OpReqType.WRITE, OpReqType.ADD])
def test_a_body_computes_bfloat16_in_float32_and_rounds_once(request_type: OpReqType) -> None:
    library.load()
    device = ReferenceDevice(ReferenceDevice.describe(0, 1))
    generator = np.random.default_rng(3)
    rows, before = (generator.normal(0, 3, (2, 64)).astype(bfloat16) for _ in range(2))
    spec = TensorSpec(rows.shape, "bfloat16")
    asked = ForwardRequest((spec,), (spec,), (request_type,), False, device.description)
    kernel = NUMPY.prepare_forward(create("softmax", {}), asked)
    memory = device.allocate(2 * spec.nbytes)
    source, target = Handle(memory, 0), Handle(memory, spec.nbytes)
    device.write(source, rows)
    device.write(target, before)
    launches = kernel.bind(Handles((source,), (target,)))
    program = device.bind([ProgramStep("softmax", launches)])
    program.run()
    powers = np.exp(rows.astype(np.float32) - rows.astype(np.float32).max(1, keepdims=True))
    expected = powers / powers.sum(1, keepdims=True)
    if request_type is OpReqType.ADD:
        expected += before.astype(np.float32)
    assert device.read(target, spec).tobytes() == expected.astype(bfloat16).tobytes()
    # Both float32 copies exist only while the body runs.
    assert program.temporary_bytes() >= 2 * 4 * rows.size


def test_bfloat16_is_rounded_after_each_operator() -> None:
    """Losses lie as near to the CPU's bfloat16 as that is to float32."""
    name, low = "digits_lenet", "precision=bfloat16"
    losses, _ = trained(name, "context=reference", low)
    on_cpu, _ = trained(name, "context=cpu", low)
    wide, _ = trained(name, "context=reference")
    assert losses != wide
    assert np.allclose(losses, on_cpu, rtol=2e-2)


@pytest.mark.full
def test_resuming_on_another_device_is_refused(tmp_path: Path) -> None:
    train = ("train", "digits_lenet", "train.epochs=1", "train.checkpoint.every=2 steps")
    portable(tmp_path, *train, "context=reference", kill_after=6)
    refused = subprocess.run(
        [sys.executable, "-m", "mxrun", *train, "--resume"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert refused.returncode == 2
    assert "reference" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.full
@pytest.mark.commands
def test_temporaries_of_numpy_are_measured_beside_the_plan(tmp_path: Path) -> None:
    done = portable(tmp_path, "inspect-memory", "digits_lenet", "context=reference", "--json")
    report = json.loads(succeeded(done).stdout)
    # At least one copy of the first convolution's output.
    assert report["outside"]["temporary_bytes"] > 4 * 64 * 16 * 8 * 8
    assert result("inspect-memory", "digits_lenet")["outside"]["temporary_bytes"] is None
    text = succeeded(portable(tmp_path, "inspect-memory", "digits_lenet", "context=reference"))
    assert "Temporaries of the operators take up to" in text.stdout
