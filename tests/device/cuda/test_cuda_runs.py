"""Commands on a card, for which a stand-in for CuPy runs emulated kernels by CUDA's rules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import stand_in
from commands import digests, mxrun, result, succeeded
from interrupted_runs import CONFIG, INTERVAL, SAVES, Started
from killed_runs import Moment, assert_little_is_redone, chain

pytestmark = pytest.mark.commands

ON_CARD = f"context: gpu:0\n{CONFIG}"
# Without it, the CPU has the same kernels and NumPy bodies as a card.
WITHOUT_ONEDNN = {"MXRUN_ONEDNN_LIBRARY": "/nonexistent"}


def tensors(run: Path) -> dict[str, bytes]:
    """Return the files of tensors and metrics of a run."""
    files = [*run.rglob("*.safetensors"), run / "metrics.jsonl"]
    return {str(file.relative_to(run)): file.read_bytes() for file in files}


def test_training_gives_the_bits_of_the_cpu(tmp_path: Path) -> None:
    train = ("train", "mlp_regression", "train.max_steps=10")
    card = result(
        *train, "context=gpu:0", "name=card", cwd=tmp_path, environment=stand_in.environment()
    )
    result(*train, "name=cpu", cwd=tmp_path, environment=WITHOUT_ONEDNN)
    found = tensors(tmp_path / "runs/card")
    assert len(found) > 3
    assert found == tensors(tmp_path / "runs/cpu")
    assert card["threads"] == 1


def test_two_cards_take_the_steps_of_two_contexts_of_the_cpu(tmp_path: Path) -> None:
    train = ("train", "mlp_regression", "train.max_steps=10", "threads=1")
    cards = stand_in.environment(cards=2)
    result(*train, "context=[gpu:0, gpu:1]", "name=card", cwd=tmp_path, environment=cards)
    cpu = ("context=[cpu:0, cpu:1]", "name=cpu")
    result(*train, *cpu, cwd=tmp_path, environment=WITHOUT_ONEDNN)
    assert tensors(tmp_path / "runs/card") == tensors(tmp_path / "runs/cpu")


def test_F1_without_a_library_every_step_has_a_kernel(tmp_path: Path) -> None:
    arguments = ("digits_lenet", "context=gpu", "train.epochs=2")
    done = succeeded(mxrun("train", *arguments, cwd=tmp_path, environment=stand_in.environment()))
    assert "no kernel for cards" not in done.stderr
    summary = json.loads((tmp_path / "runs/digits_lenet/summary.json").read_text())
    assert summary["eval"]["accuracy"] > 0.3
    # The end of the highest block that a run writes, measured.
    assert summary["memory"]["touched_bytes"] == summary["memory"]["planned_bytes"]


def test_F5_a_killed_run_resumes_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in stand_in.environment().items():
        monkeypatch.setenv(name, value)
    code, _, errors = Started(tmp_path / "whole", config=ON_CARD).end()
    assert code == 0, errors
    moment = Moment(2 * INTERVAL + 3, operation=1)
    found = chain(tmp_path / "killed", [moment], config=ON_CARD)
    assert_little_is_redone(found)
    assert found[-1].resumed in SAVES
    assert digests(tmp_path / "whole/runs/killed") == digests(tmp_path / "killed/runs/killed")


@pytest.mark.full
def test_a_trained_network_runs_on_card_and_cpu(tmp_path: Path) -> None:
    (tmp_path / "net.yaml").write_text(ON_CARD)
    environment = stand_in.environment()
    result("train", "net.yaml", "train.epochs=2", cwd=tmp_path, environment=environment)
    run = "runs/killed"
    infer = ("infer", run, "--split", "eval")
    on_card = result(*infer, cwd=tmp_path, environment=environment)
    assert on_card["metrics"]["accuracy"] > 0.2
    assert result("evaluate", run, cwd=tmp_path, environment=environment)
    # Without a card the same checkpoint goes on on the CPU, where the user permits it.
    further = ("train", "net.yaml", "train.epochs=2", "context=cpu", "--resume")
    refused = mxrun(*further, cwd=tmp_path)
    assert refused.returncode == 2
    assert "device: cuda then, cpu now" in refused.stderr
    result(*further[:2], "train.epochs=3", *further[3:], "--allow-changes", cwd=tmp_path)
    on_cpu = result(*infer, cwd=tmp_path)
    assert on_cpu["metrics"]["accuracy"] > 0.2
    # And back.
    back = ("train", "net.yaml", "train.epochs=4", "--resume", "--allow-changes")
    result(*back, cwd=tmp_path, environment=environment)


@pytest.mark.full
@pytest.mark.parametrize(
    "command",
    [
        ("verify", "digits_lenet", "--steps", "2", "--batch", "4"),
        ("bench", "digits_lenet", "--steps", "5"),
        ("bench", "digits_lenet", "--phase", "infer", "--steps", "2"),
        ("check", "digits_lenet"),
        ("inspect-memory", "digits_lenet", "--what-if"),
        ("train", "gpt_tiny", "train.max_steps=3", "data.batch_size=1", "data.eval=null"),
        ("train", "lstm_tiny", "train.max_steps=3", "data.batch_size=2", "data.eval=null"),
        ("train", "resnet20_cifar10", "train.max_steps=2", "data.batch_size=2", "data.eval=null"),
        ("train", "digits_lenet", "train.max_steps=4", "--profile"),
    ],
    ids=" ".join,
)
def test_commands_run_on_a_card(command: tuple[str, ...], tmp_path: Path) -> None:
    found = result(*command, "context=gpu:0", cwd=tmp_path, environment=stand_in.environment())
    if command[0] == "verify":
        assert found["passed"]


def test_memory_outside_the_plan_is_measured_on_the_card(tmp_path: Path) -> None:
    inspect = ("inspect-memory", "mlp_regression", "context=gpu")
    environment = stand_in.environment(context=300 << 20)
    found = result(*inspect, cwd=tmp_path, environment=environment)["outside"]["device"]
    assert found["occupied_bytes"] == 300 << 20
    # Tables and constants, each in a block of its own.
    assert 0 < found["programs_bytes"] < 1 << 20
    shown = succeeded(mxrun(*inspect, cwd=tmp_path, environment=environment)).stdout
    assert "On the card 300.00 MiB are occupied by its driver" in shown
    assert result("inspect-memory", "mlp_regression", cwd=tmp_path)["outside"]["device"] is None
