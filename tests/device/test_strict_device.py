"""A device whose memory no code above it can touch: everything goes through the interface."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from commands import digests, mxrun, result, succeeded
from interrupted_runs import CONFIG, INTERVAL, SAVES, Started
from killed_runs import Moment, assert_little_is_redone, chain
from safetensors.numpy import load_file

from mxrun.train.checkpoint import checkpoint_folder
from mxrun.train.checkpoint_manager import saved_steps

STRICT = Path(__file__).parents[1] / "support" / "strict_device.py"
ON_STRICT = f"context: strict\nplugins: [{STRICT}]\n"
# Loader threads that fill staged batches, and gradients summed over two batches.
FURTHER = ("data.workers=2", "train.accumulate=2")


def run_on(folder: Path, config: str, *arguments: str) -> Path:
    """Train to the end; return the run's folder."""
    code, _, errors = Started(folder, *arguments, config=config).end()
    assert code == 0, errors
    return folder / "runs/killed"


def tensors(run: Path) -> dict[str, bytes]:
    """Return the tensors of the newest checkpoint."""
    newest = checkpoint_folder(run, max(saved_steps(run)))
    return {
        f"{file.name}/{name}": array.tobytes()
        for file in newest.glob("*.safetensors")
        for name, array in load_file(file).items()
    }


@pytest.mark.commands
@pytest.mark.parametrize(
    "further",
    [pytest.param((), id="plain"), pytest.param(FURTHER, id="further", marks=pytest.mark.full)],
)
def test_training_gives_the_bits_of_the_cpu(further: tuple[str, ...], tmp_path: Path) -> None:
    strict = run_on(tmp_path / "strict", ON_STRICT + CONFIG, *further)
    plain = run_on(tmp_path / "plain", CONFIG, *further)
    assert tensors(strict) == tensors(plain) != {}
    assert (strict / "metrics.jsonl").read_bytes() == (plain / "metrics.jsonl").read_bytes()
    memory = json.loads((strict / "summary.json").read_text())["memory"]
    assert memory["touched_bytes"] == memory["planned_bytes"]


@pytest.mark.commands
def test_a_killed_run_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    whole = run_on(tmp_path / "whole", ON_STRICT + CONFIG)
    # Before a file operation, so that the run is killed and not at its end, however late that is.
    moment = Moment(2 * INTERVAL + 3, operation=1)
    found = chain(tmp_path / "killed", [moment], config=ON_STRICT + CONFIG)
    assert_little_is_redone(found)
    assert found[-1].resumed in SAVES
    assert digests(whole) == digests(tmp_path / "killed/runs/killed")


@pytest.mark.full
def test_inference_verify_bench_and_memory_run_on_it(tmp_path: Path) -> None:
    run = run_on(tmp_path, ON_STRICT + CONFIG)
    found = result("infer", str(run), "--split", "eval", cwd=tmp_path)
    (tmp_path / "plain.yaml").write_text(CONFIG)
    assert found["metrics"]["accuracy"] > 0.2
    assert result("verify", "net.yaml", cwd=tmp_path)["passed"]
    assert result("bench", "net.yaml", "--steps", "5", cwd=tmp_path)
    strict = result("inspect-memory", "net.yaml", cwd=tmp_path)
    plain = result("inspect-memory", "plain.yaml", cwd=tmp_path)
    # Batches that are made ahead lie in the host's memory.
    assert strict["planned_bytes"] < plain["planned_bytes"]
    succeeded(mxrun("train", "net.yaml", "--profile", "--overwrite", cwd=tmp_path))


def test_a_touch_past_the_device_is_fatal() -> None:
    script = f"""
import sys
sys.path.insert(0, {str(STRICT.parent)!r})
import strict_device
from mxrun.base.tensor import TensorSpec
from mxrun.operator.launch import Handle
device = strict_device.StrictDevice(strict_device.StrictDevice.describe(0, 1))
memory = device.allocate(4096)
tensor = device.tensor(Handle(memory, 64), TensorSpec((4,)))
tensor.write(3)
print(tensor.read().tolist(), flush=True)
print(memory.array(64, TensorSpec((4,))).tolist())
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.stdout == "[3.0, 3.0, 3.0, 3.0]\n"
    assert done.returncode == -signal.SIGSEGV
