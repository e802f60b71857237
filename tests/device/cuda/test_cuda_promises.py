"""Promises of operators, arrays, plans and runs that hold on a card as on the processor."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import stand_in
from commands import mxrun, refused, result
from device.cuda.test_cuda_runs import WITHOUT_ONEDNN, tensors
from frontend.test_device_gradients import CONFIG as WITHOUT_GRADIENT
from frontend.test_device_gradients import PLUGIN

import mxrun as package
from mxrun import nd

pytestmark = pytest.mark.commands

ON_CARD = "context=gpu:0"
DROPOUT = """\
name: masks
seed: 7
network:
  inputs: {data: [12], label: []}
  layers:
    - FullyConnected: {num_hidden: 32}
    - Dropout: {p: 0.4}
    - Activation: {act_type: relu}
    - FullyConnected: {num_hidden: 4}
    - SoftmaxOutput: {label: label}
data:
  batch_size: 16
  train: {dataset: synthetic, split: train, records: 64, classes: 4}
train: {epochs: 2, optimizer: {sgd: {lr: 0.05, momentum: 0.9}}}
"""


@pytest.fixture
def on_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands find the stand-in."""
    for name, value in stand_in.environment().items():
        monkeypatch.setenv(name, value)


@pytest.mark.full
@pytest.mark.usefixtures("on_stand_in")
def test_Q9_an_operator_without_a_gradient_on_cards_infers_there(tmp_path: Path) -> None:
    (tmp_path / "square.py").write_text(PLUGIN)
    (tmp_path / "net.yaml").write_text(WITHOUT_GRADIENT)
    infer = ("--phase", "infer", "--steps", "2")
    assert result("bench", "net.yaml", ON_CARD, *infer, cwd=tmp_path)["steps"] == 2
    said = refused("train", "net.yaml", ON_CARD, cwd=tmp_path)
    assert "my_square 'square1' has no gradient on the device cuda" in said
    assert "net.yaml:7:" in said


@pytest.mark.full
@pytest.mark.usefixtures("on_stand_in")
def test_R1_a_card_draws_the_masks_of_the_processor(tmp_path: Path) -> None:
    (tmp_path / "net.yaml").write_text(DROPOUT)
    for name in ("card", "again"):
        result("train", "net.yaml", ON_CARD, f"name={name}", cwd=tmp_path)
    result("train", "net.yaml", "name=cpu", cwd=tmp_path, environment=WITHOUT_ONEDNN)
    card, again, cpu = (tensors(tmp_path / "runs" / name) for name in ("card", "again", "cpu"))
    assert card == again
    assert len(card) > 2
    assert card.keys() == cpu.keys()
    losses, there = (
        [json.loads(line)["train"]["loss"] for line in run["metrics.jsonl"].decode().splitlines()]
        for run in (card, cpu)
    )
    assert losses == pytest.approx(there, rel=1e-5)


def test_F2_a_budget_is_kept_on_a_card_by_recomputation(tmp_path: Path) -> None:
    inspect = ("inspect-memory", "gpt_tiny", "context=gpu", "data.batch_size=2")
    card = ("--device-properties", "h100")
    plain = result(*inspect, *card, cwd=tmp_path)["planned_bytes"]
    within = result(*inspect, "memory.budget=92%", *card, cwd=tmp_path)
    assert within["planned_bytes"] <= within["budget_bytes"] < plain
    assert within["recompute"]["train"]["steps"]


@pytest.mark.usefixtures("on_stand_in")
def test_F10_the_first_number_that_is_not_finite_is_named_on_a_card(tmp_path: Path) -> None:
    (tmp_path / "net.yaml").write_text(DROPOUT.replace("lr: 0.05", "lr: 1e30"))
    done = mxrun("train", "net.yaml", ON_CARD, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "training has diverged in step" in done.stderr
    assert "wrote" in done.stderr


@pytest.mark.full
@pytest.mark.usefixtures("on_stand_in")
def test_P17_a_run_on_a_card_keeps_the_kernels_that_it_chose(tmp_path: Path) -> None:
    train = ("train", "mlp_regression", ON_CARD, "implementation=auto")
    result(*train, "train.max_steps=3", cwd=tmp_path)
    first, *_ = sorted((tmp_path / "runs/mlp_regression").glob("checkpoint-*/manifest.json"))
    chosen = json.loads(first.read_text())["plan"]["implementations"]
    assert chosen
    result(*train, "train.max_steps=6", "--resume", cwd=tmp_path)
    newest = max((tmp_path / "runs/mlp_regression").glob("checkpoint-*/manifest.json"))
    assert json.loads(newest.read_text())["plan"]["implementations"] == chosen


def test_S1_a_second_equal_array_on_a_card_makes_no_allocation() -> None:
    with stand_in.installed() as card:
        context = package.Context("gpu", 0)

        def blocks_of_a_product(size: int) -> set[int]:
            array = nd.array(np.ones((size, 3), np.float32)).copyto(context)
            array.wait_to_read()
            return {*card.blocks}

        first = blocks_of_a_product(40_000)
        assert blocks_of_a_product(40_000) == first
        assert not blocks_of_a_product(900_000) <= first


@pytest.mark.parametrize("dtype", ["float32", "int32", "float64"])
def test_N3_arrays_are_copied_to_a_card_and_back(dtype: str, tmp_path: Path) -> None:
    values = np.array([[1.5, -0.0, 3e8], [7, 1e-38, -2]]).astype(dtype)
    with stand_in.installed():
        card = package.Context("gpu", 0)
        there = nd.array(values, dtype=dtype).copyto(card)
        assert there.context == card
        nd.save(tmp_path / "x.safetensors", {"x": there})
        (back,) = nd.load(tmp_path / "x.safetensors").values()
        for array in (there.copyto(package.cpu()), there, back, there.copy()):
            assert array.asnumpy().tobytes() == values.tobytes()
        del there


@pytest.mark.parametrize("where", [("gpu", "gpu"), ("cpu", "gpu")])
def test_a_store_sums_arrays_in_memories_apart(where: tuple[str, str]) -> None:
    with stand_in.installed(cards=2):
        contexts = [package.Context(kind, number) for number, kind in enumerate(where)]
        arrays = [nd.array(np.full(3, 10.0**n), ctx=each) for n, each in enumerate(contexts)]
        store = package.kv.create("local")
        store.init("key", nd.zeros(3))
        store.pushpull("key", arrays, out=arrays)
        for array, context in zip(arrays, contexts, strict=True):
            assert array.context == context
            assert array.asnumpy().tolist() == [11] * 3
        del arrays, array, store
