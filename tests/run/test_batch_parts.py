"""`batch_parts`: gradients of equal parts of a batch, summed in a fixed tree in one process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from commands import refused, result
from divided_runs import NET, assert_same_bits, learned, trained
from memory_reports import memory_of
from training import metrics, newest, run_training, run_with_notes

from mxrun.base.context import cpu
from mxrun.base.errors import UserError
from mxrun.config.bundled import find_config
from mxrun.runtime.engine.default import engine
from mxrun.runtime.engine.interface import Pool
from mxrun.runtime.profiler import Event

PARTS = "batch_parts=4"
SLICED = ("kvstore=dist_sync", "shard=states")


@pytest.fixture(autouse=True)
def _config(empty_folder: Path) -> None:
    Path("net.yaml").write_text(NET)
    Path("bn.yaml").write_text(
        "extends: net.yaml\nname: bn\n"
        "network: {layers: {insert_after: {conv1: [BatchNorm: {name: bn1, fix_gamma: false}]}}}\n"
    )


SETTINGS = {
    "momentum": (),
    "clipped": ("train.optimizer={sgd: {lr: 0.1, momentum: 0.9, clip_global_norm: 0.3}}",),
    "rolled over": ("data.last_batch=roll_over", "train.average=0.8"),
    "weighted": ("train.class_weights=[1, 2, 3, 4, 5, 1, 1, 1, 1, 1]",),
    "transformed": ("data.train.transforms=[{pad_crop: {pad: 1}}, flip]", "data.workers=2"),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_X10_batch_parts_take_the_steps_of_whole_batches(setting: str) -> None:
    """With the same learning rate; parameters differ by the rounding of sums. The last batch of 300
    records is padded.
    """
    words = SETTINGS[setting]
    one, four = trained("one", *words), trained("four", *words, PARTS)
    assert four.manifest.plan.batch_parts == 4
    assert one.manifest.plan.batch_parts == 1
    for name, expected in learned(one).items():
        np.testing.assert_allclose(learned(four)[name], expected, 2e-3, 2e-5, err_msg=name)
    for whole, parts in zip(metrics("one"), metrics("four"), strict=True):
        assert parts["learning_rate"] == whole["learning_rate"]
        for part in ("train", "eval"):
            assert parts[part]["loss"] == pytest.approx(whole[part]["loss"], rel=1e-4)


def test_F4_threads_and_engines_change_no_bit_of_batch_parts() -> None:
    words = (PARTS, "data.train.transforms=[{pad_crop: {pad: 1}}]")
    trained("one", *words, config="bn.yaml")
    for name, other in (("two", "threads=2"), ("naive", "engine=naive"), ("sum", "kvstore=device")):
        found = trained(name, *words, other, config="bn.yaml")
        assert_same_bits(newest("one"), found)
        assert metrics(name) == metrics("one")


@contextmanager
def late_sums() -> Iterator[None]:
    """Occupy the worker that adds gradients whenever it has added those of the first bucket."""

    def occupy(event: Event) -> None:
        if event.name == "add bucket 1":
            engine().push_sync(
                lambda _: time.sleep(0.1),
                context=cpu(0),
                pool=Pool.COMMUNICATION,
                priority=1000,
                name="occupied",
            )

    engine().record(occupy)
    try:
        yield
    finally:
        engine().record(None)
        engine().wait_for_all()


def test_F4_gradients_that_are_added_late_are_those_of_their_part() -> None:
    """Some steps of this network write to a bucket before others complete."""
    config = str(find_config("resnet20_cifar10"))
    length = ("train.epochs=null", "train.max_steps=4", "data.batch_size=8", "threads=1", PARTS)
    run_training(*length, "name=prompt", config=config)
    with late_sums():
        run_training(*length, "name=late", config=config)
    assert_same_bits(newest("prompt"), newest("late"))


def test_each_part_is_normalised_apart() -> None:
    """Moving statistics are those of the first part."""
    _, notes = run_with_notes(PARTS, config="bn.yaml")
    assert notes == [
        "batch_parts: 'bn1' normalise the 16 samples of each batch part apart; moving statistics "
        "are those of the first batch part"
    ]
    evaluated = result("evaluate", "runs/bn", cwd=Path())
    assert evaluated["loss"] == pytest.approx(metrics("bn")[-1]["eval"]["loss"], rel=1e-5)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_F1_partial_sums_are_planned_and_touched(count: int) -> None:
    words = (f"batch_parts={count}", "data.batch_size=48")
    summary = run_training(*words, "train.epochs=1")
    planned = summary["memory"]["planned_bytes"]
    assert planned == summary["memory"]["touched_bytes"]
    assert planned == memory_of("net.yaml", words, measured=False).to_json()["planned_bytes"]


def test_a_run_goes_on_with_other_batch_parts_only_when_told_so() -> None:
    run_training("train.epochs=1", PARTS)
    text = refused("train", "net.yaml", "--resume", "train.epochs=2", cwd=Path())
    assert "batch parts: 4 then, 1 now" in text


def test_F5_a_run_in_batch_parts_is_resumed_to_the_same_bits() -> None:
    run_training(PARTS, "train.epochs=1", config="bn.yaml")
    run_training(PARTS, config="bn.yaml", resume=True)
    expected = trained("whole", PARTS, config="bn.yaml")
    assert_same_bits(expected, newest("bn"))
    assert metrics("bn") == metrics("whole")


def test_what_is_not_finite_is_named_with_its_step_and_record() -> None:
    diverging = ("train.optimizer={sgd: {lr: 1e30}}", "train.epochs=3")
    with pytest.raises(UserError, match=r"training has diverged in step [0-9]+, epoch 1: "):
        run_training(PARTS, *diverging)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((PARTS, "data.batch_size=63"), "a batch cannot be divided into 4 equal parts"),
        ((PARTS, "context=[cpu:0, cpu:1]"), "cannot be used with a list of contexts"),
        ((PARTS, "train.accumulate=2"), "cannot be used with train.accumulate"),
        ((PARTS, "shard=states"), "shard: states needs several processes"),
        ((*SLICED, "train.average=0.9"), "shard: states cannot be used with train.average"),
        ((*SLICED, "train.optimizer=lamb"), "shard: states cannot be used with lamb_update"),
        ((PARTS, "memory={budget: 50%, micro_batches: true}"), "with memory.micro_batches"),
    ],
)
def test_other_ways_to_divide_batches_are_refused(words: tuple[str, ...], said: str) -> None:
    assert said in refused("train", "net.yaml", *words, cwd=Path())
    assert not Path("runs").exists()


def test_bench_times_steps_of_batch_parts() -> None:
    report = result("bench", "net.yaml", PARTS, "--steps", "3", "--warmup", "1", cwd=Path())
    functions = {row["name"]: row for row in report["functions"]}
    assert functions["load"]["calls"] == 4
    assert functions["update"]["calls"] == 1
    assert functions["add bucket 1"]["calls"] == 4
