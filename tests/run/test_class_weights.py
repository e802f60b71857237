"""`train.class_weights`: the formula, its bits after a kill, and what does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from interrupted_runs import EPOCH, go_on, left
from killed_runs import Moment, chain
from refusals import only_problem
from training import metrics, newest, prepare, run_training, run_with_notes

from mxrun.base.errors import Diagnostic, UserError
from mxrun.preparation.planning import load
from mxrun.train.class_weights import balanced
from mxrun.train.replay import NullCheckpointing, NullObserver

Array = npt.NDArray[Any]

CONFIG = """\
name: net
threads: 1
network:
  inputs: {data: [3], label: []}
  layers:
    - FullyConnected: {name: fc, num_hidden: 3}
    - SoftmaxOutput: {name: softmax, label: label}
data:
  batch_size: 8
  train: {dataset: csv, path: table.csv, header: true, label: kind}
  eval: {dataset: csv, path: table.csv}
train:
  epochs: 2
  optimizer: {sgd: {lr: 0.5}}
  metrics: [accuracy]
"""
KINDS = ("cat", "dog", "owl")
# 21 records, so that the last batch is padded.
COUNTS = (13, 6, 2)
RATE, EPOCHS, BATCH = 0.5, 2, 8


@pytest.fixture(autouse=True)
def _files(empty_folder: Path) -> None:
    data, labels = table()
    rows = [f"{a},{b},{c},{KINDS[k]}" for (a, b, c), k in zip(data.tolist(), labels, strict=True)]
    Path("table.csv").write_text("\n".join(["a,b,c,kind", *rows, ""]))
    Path("net.yaml").write_text(CONFIG)


def table() -> tuple[Array, Array]:
    draw = np.random.default_rng(5)
    labels = np.repeat(np.arange(3), COUNTS)
    draw.shuffle(labels)
    data = draw.normal(size=(len(labels), 3)) + np.eye(3)[labels]
    return data.astype("f4").astype("f8"), labels


def expected(weights: Array, accumulate: int = 1) -> tuple[list[float], Array]:
    """Return each epoch's loss and the final weight, in float64.

    The loss is that of PyTorch's cross_entropy(weight=..., reduction="mean") over an epoch: sum of
    w[y] * -log p[y] / sum of w[y]; an update's gradient is the sum of w[y] * gradient / records.
    """
    data, labels = table()
    weight, bias = first_weights(), np.zeros(3)
    losses = []
    for _ in range(EPOCHS):
        total, mass = 0.0, 0.0
        for start in range(0, len(labels), BATCH * accumulate):
            x, y = (part[start : start + BATCH * accumulate] for part in (data, labels))
            logits = x @ weight.T + bias
            p = np.exp(logits - logits.max(axis=1, keepdims=True))
            p /= p.sum(axis=1, keepdims=True)
            w = weights[y]
            total += float((w * -np.log(p[np.arange(len(y)), y])).sum())
            mass += float(w.sum())
            gradient = (p - np.eye(3)[y]) * w[:, None]
            weight = weight - RATE * gradient.T @ x / len(y)
            bias = bias - RATE * gradient.sum(axis=0) / len(y)
        losses.append(total / mass)
    return losses, weight


def first_weights() -> Array:
    """The initial weight, saved by a run that does not change it."""
    still = ("train.epochs=1", "train.optimizer.sgd.lr=1e-30")
    run_training("name=first", *still, overwrite=True)
    return newest("first").parameters["fc_weight"].astype("f8")


def problem(*overrides: str, train: bool = False) -> Diagnostic:
    if train:
        return only_problem(run_training, *overrides)
    return only_problem(load, "net.yaml", overrides)


@pytest.mark.parametrize(
    ("written", "weights"),
    [
        ("{dog: 2, owl: 5.5}", (1, 2, 5.5)),
        ("[0.5, 1, 3]", (0.5, 1, 3)),
        ("balanced", [21 / (3 * count) for count in COUNTS]),
        ("{cat: 0}", (0, 1, 1)),
    ],
)
def test_loss_and_updates_follow_the_formula(written: str, weights: Any) -> None:
    run_training(f"train.class_weights={written}")
    losses, weight = expected(np.asarray(weights, "f8"))
    lines = metrics("net")
    assert [line["train"]["loss"] for line in lines] == pytest.approx(losses, rel=1e-5)
    np.testing.assert_allclose(newest("net").parameters["fc_weight"], weight, rtol=1e-4, atol=1e-6)


def test_metrics_and_evaluation_are_not_weighted() -> None:
    """At a rate of 0 every phase measures the same network."""
    still = ("train.epochs=1", "train.optimizer.sgd.lr=1e-30")
    run_training("train.class_weights=[9, 1, 0]", *still)
    run_training("name=plain", *still)
    (weighted,), (plain,) = metrics("net"), metrics("plain")
    assert weighted["eval"] == plain["eval"]
    assert weighted["train"]["accuracy"] == plain["train"]["accuracy"]
    assert weighted["train"]["loss"] != pytest.approx(plain["train"]["loss"], rel=1e-3)


def test_equal_weights_of_1_are_no_weights_to_the_bit() -> None:
    run_training("train.class_weights=[1, 1, 1]")
    run_training("name=plain")
    assert metrics("net") == metrics("plain")
    same = (newest(name).parameters["fc_weight"] for name in ("net", "plain"))
    np.testing.assert_array_equal(*same)


def test_accumulated_batches_and_micro_batches_give_the_same_updates() -> None:
    weights = np.array([1, 2, 5.5])
    run_training("train.class_weights=[1, 2, 5.5]", "train.accumulate=2")
    losses, weight = expected(weights, accumulate=2)
    assert [line["train"]["loss"] for line in metrics("net")] == pytest.approx(losses, rel=1e-5)
    np.testing.assert_allclose(newest("net").parameters["fc_weight"], weight, rtol=1e-4, atol=1e-6)
    built = load("net.yaml", ["train.class_weights=[1, 2, 5.5]"]).with_micro_batches(4)
    run = prepare(built)
    loop = run.loop(NullObserver())
    loop.run(NullCheckpointing(), lambda: False)
    assert run.built.micro_batches == 4
    _, weight = expected(weights)
    found = run.executor.tensor("fc_weight").values()
    np.testing.assert_allclose(found, weight, rtol=1e-4, atol=1e-6)


def test_balanced_weights_are_those_of_the_training_part_and_are_shown() -> None:
    _, notes = run_with_notes("train.class_weights=balanced")
    note = "class weights of the training loss: cat 0.5385, dog 1.167, owl 3.5"
    assert note in notes
    found = balanced(np.array([0, 0, 2, 0]), 4)
    np.testing.assert_array_equal(found, [4 / (2 * 3), 1, 4 / 2, 1])


def test_F5_a_killed_run_with_weights_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    weights = "train.class_weights=balanced"
    go_on(tmp_path / "uninterrupted", weights)
    moments = [Moment(9, seconds=0.0), Moment(EPOCH + 5, operation=4)]
    chain(tmp_path / "killed", moments, weights)
    assert left(tmp_path / "killed") == left(tmp_path / "uninterrupted")


def test_weights_are_part_of_a_run_that_is_resumed() -> None:
    run_training("train.class_weights=balanced")
    with pytest.raises(UserError, match="class_weights"):
        run_training("train.class_weights=[1, 2, 3]", "train.epochs=3", resume=True)


@pytest.mark.parametrize(
    ("written", "words", "hint"),
    [
        ('{"0": 2}', "train.class_weights: the training data have no class '0'", ""),
        ("{cta: 2}", "train.class_weights: the training data have no class 'cta'", "'cat'"),
        ("[1, 2]", "train.class_weights has 2 numbers", ""),
        ("[0, 0, 0]", "train.class_weights has no weight above 0", ""),
        # Below the smallest number of float32.
        ("[1e-46, 0, 0]", "train.class_weights has no weight above 0", ""),
    ],
)
def test_weights_that_do_not_fit_the_classes(written: str, words: str, hint: str) -> None:
    found = problem(f"train.class_weights={written}", train=True)
    assert found.problem == words
    assert hint in found.hint
    assert found.place is not None
    assert found.place.file == "<command line>"
    assert not Path("runs").exists()


def test_balanced_weights_of_balanced_classes_are_refused() -> None:
    found = problem("train.class_weights=balanced", "data.train.sampling=balanced")
    assert "both make classes alike" in found.problem
    assert found.place is not None
    load("net.yaml", ("train.class_weights={owl: 2}", "data.train.sampling=balanced"))


@pytest.mark.parametrize(
    "written", ["balance", "3", "{cat: -1}", "{cat: x}", "[a]", "[-1]", "true", "[[1]]"]
)
def test_other_forms_are_refused_with_a_place(written: str) -> None:
    found = problem(f"train.class_weights={written}")
    assert "class_weights" in found.problem
    assert found.place is not None
    assert found.expected


@pytest.mark.parametrize(
    ("loss", "label", "got"),
    [
        ("LinearRegressionOutput", "[3]", "labels that are numbers"),
        ("SoftmaxOutput", "[3]", "labels that are probabilities"),
        ("LogisticRegressionOutput", "[3]", "labels that are numbers"),
    ],
)
def test_losses_without_classes_are_refused(loss: str, label: str, got: str) -> None:
    text = CONFIG.replace("SoftmaxOutput", loss).replace("label: []", f"label: {label}")
    Path("net.yaml").write_text(text.replace("  metrics: [accuracy]\n", ""))
    found = problem("train.class_weights=balanced")
    assert found.problem == "train.class_weights does not fit the loss 'softmax'"
    assert found.got == got
