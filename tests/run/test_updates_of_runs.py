"""Gradient accumulation, averaged weights, early stopping, plateaus, and saved checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from training import metrics, newest, prepare, run_training, run_with_notes

from mxrun.base.errors import UserError
from mxrun.commands.runs import list_runs
from mxrun.graph.phases import EVALUATE
from mxrun.io.dataset.request import open_datasets, request_dataset
from mxrun.options.runs import RunsOptions
from mxrun.preparation.planning import load
from mxrun.report.runs import RUN_COLUMNS
from mxrun.run.trained_model import select_checkpoint
from mxrun.train.checkpoint import load_checkpoint
from mxrun.train.checkpoint_manager import CheckpointManager, Interval, Policy, saved_steps
from mxrun.train.host_arrays import slots
from mxrun.train.replay import NullObserver

CONFIG = """\
name: one
threads: 1
network:
  inputs: {data: [1, 8, 8], label: []}
  layers:
    - FullyConnected: {name: fc1, num_hidden: 16}
    - Activation: {act_type: tanh}
    - FullyConnected: {name: fc2, num_hidden: 10}
    - SoftmaxOutput: {name: softmax, label: label}
data:
  batch_size: 60
  train: {dataset: digits, split: {of: train, range: [0, RECORDS]}}
  eval: {dataset: digits, split: test}
train:
  epochs: 4
  optimizer: {sgd: {lr: 0.1, momentum: 0.9, wd: 1e-3}}
"""


@pytest.fixture(autouse=True)
def _config(empty_folder: Path) -> None:
    written(480)


def written(records: int) -> None:
    Path("net.yaml").write_text(CONFIG.replace("RECORDS", str(records)))


OPTIMIZERS = {
    "sgd": (),
    "adam": ("train.optimizer={adam: {lr: 0.01, wd: 1e-3}}",),
    "clipped": ("train.optimizer={sgd: {lr: 0.1, momentum: 0.9, clip_global_norm: 0.3}}",),
    "scheduled": ("train.schedule={cosine: {warmup_steps: 3}}", "train.average=0.8"),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("records", [480, 400], ids=["whole-groups", "a-short-group"])
def test_X4_X10_accumulated_batches_are_one_large_batch(optimizer: str, records: int) -> None:
    """Three batches of 40 equal one of 120: the same steps at the same rate.

    400 records leave a last group of one batch, and 40 records with 80 padded rows.
    """
    written(records)
    settings = OPTIMIZERS[optimizer]
    large = run_training("name=large", "data.batch_size=120", *settings)
    small = run_training("name=small", "data.batch_size=40", "train.accumulate=3", *settings)
    assert large["steps"] == small["steps"] == 16
    whole, summed = newest("large"), newest("small")
    for name, array in {**whole.parameters, **whole.optimizer}.items():
        other = {**summed.parameters, **summed.optimizer}[name]
        np.testing.assert_allclose(other, array, rtol=1e-4, atol=2e-6, err_msg=name)
    for first, second in zip(metrics("large"), metrics("small"), strict=True):
        assert first["learning_rate"] == second["learning_rate"]
        assert first["train"]["loss"] == pytest.approx(second["train"]["loss"], rel=1e-5)


def test_averaged_weights_are_those_that_evaluation_uses() -> None:
    """The average of every step's weights, from the first values on."""
    run_training(
        "name=averaged",
        "train.average=0.9",
        "train.epochs=1",
        "train.checkpoint.every=1 steps",
        "train.checkpoint.keep=100",
    )
    run_training("name=plain", "train.epochs=1")
    checkpoint = newest("averaged")
    plain = newest("plain")
    for name, array in plain.parameters.items():
        assert checkpoint.parameters[name].tobytes() == array.tobytes()
    built = load("net.yaml", ["train.average=0.9"])
    prepared = prepare(built)
    try:
        expected = prepared.executor.tensor("fc1_weight").values().astype(np.float64)
        for step in saved_steps(Path("runs/averaged")):
            held = load_checkpoint(Path(f"runs/averaged/checkpoint-{step}"))
            expected = 0.9 * expected + 0.1 * held.parameters["fc1_weight"]
        average = checkpoint.optimizer["fc1_weight:average"]
        np.testing.assert_allclose(average, expected, rtol=1e-5, atol=1e-7)
        # The weights themselves have no part in evaluations.
        loop = prepared.loop(NullObserver())
        prepared.restore(checkpoint, loop)
        prepared.executor.tensor("fc1_weight").write(0)
        iterator = prepared.iterators["eval"]
        iterator.reset(1)
        right = seen = 0
        while (batch := iterator.next_into(slots(prepared.executor, iterator).arrays)) is not None:
            prepared.executor.run(EVALUATE)
            output = prepared.executor.result(EVALUATE, "softmax_output").values()[: batch.valid]
            label = prepared.executor.tensor("label").values()[: batch.valid]
            right += int((output.argmax(1) == label).sum())
            seen += batch.valid
    finally:
        prepared.close()
    assert metrics("averaged")[0]["eval"]["accuracy"] == pytest.approx(right / seen)
    assert metrics("averaged")[0]["eval"] != metrics("plain")[0]["eval"]


def test_a_run_ends_early_once_nothing_gets_better() -> None:
    """At a rate of 0 no evaluation is better than the first."""
    stopping = "train.early_stopping={patience: 3}"
    settings = ("train.optimizer.sgd.lr=0", "train.epochs=50", stopping)
    summary = run_training(*settings)
    assert (summary["stopped_early"], summary["epochs"], summary["steps"]) == (True, 4, 32)
    assert len(metrics("one")) == 4
    assert newest("one").manifest.progress.finished
    again = run_training(*settings, resume=True)
    assert again["stopped_early"]
    assert len(metrics("one")) == 4


def test_early_stopping_retains_the_best_checkpoint_and_inference_uses_it() -> None:
    """No evaluation after the first improves, as the decay makes weights grow, and only the newest
    checkpoint is retained beside.
    """
    stopping = "train.early_stopping={patience: 3, min_delta: 0}"
    growing = "train.optimizer={sgd: {lr: 1, wd: 2.2}}"
    settings = (growing, "train.epochs=50", "train.checkpoint.keep=1", stopping)
    summary = run_training(*settings, overwrite=True)
    first, last = 8, 32
    assert saved_steps(Path("runs/one")) == [first, last]
    assert summary["best"]["checkpoint"] == str(Path("runs/one", f"checkpoint-{first}"))
    best = select_checkpoint(Path("runs/one"), None).checkpoint
    assert best is not None
    assert best.manifest.progress.step == first


def written_rows(**arrays: npt.NDArray[Any]) -> None:
    """Write a config of two classes for these arrays: train, train_label, eval, eval_label."""
    np.savez("train.npz", data=arrays["train"], label=arrays["train_label"])
    np.savez("eval.npz", data=arrays["eval"], label=arrays["eval_label"])
    text = CONFIG.replace("[1, 8, 8]", "[4]").replace("num_hidden: 10", "num_hidden: 2")
    first, rest = text.split("  train: {dataset")
    rest = rest[rest.index("train:\n") :]
    data = "  train: {dataset: npz, path: train.npz}\n  eval: {dataset: npz, path: eval.npz}\n"
    Path("net.yaml").write_text(f"{first}{data}{rest}")


def best_rows(metric: str, higher: bool) -> list[dict[str, Any]]:
    """Return the evaluations from the best to the worst, sorted by an independent rule."""
    sign = -1 if higher else 1
    rows = [{"epoch": line["epoch"], **line["eval"]} for line in metrics("one")]
    return sorted(rows, key=lambda row: (sign * row[metric], row["loss"], -row["epoch"]))


@pytest.mark.parametrize(
    ("rate", "decay", "expected"), [(0.02, 0, 5), (0.001, 20, 1), (0.0, 0, 5)], ids=str
)
@pytest.mark.parametrize("source", ["checkpoint={best: accuracy}", "early_stopping"])
def test_of_equal_evaluations_the_lower_loss_is_the_best_then_the_later(
    source: str, rate: float, decay: float, expected: int
) -> None:
    """All accuracies are 1 from the first epoch on. The loss falls, or rises where the weights
    decay; without a rate all losses are equal too.
    """
    random = np.random.default_rng(0)
    label = np.arange(480) % 2
    rows = (random.normal(size=(480, 4)) * 0.02 + 0.4 * label[:, None] - 0.2).astype("f4")
    written_rows(train=rows, train_label=label, eval=rows[:40], eval_label=label[:40])
    run_training("train.epochs=1", "train.optimizer.sgd.lr=0.5", "name=start")
    if source == "early_stopping":
        source = "early_stopping={metric: accuracy, patience: 9}"
    summary = run_training(
        *(
            "train.epochs=5",
            f"train.optimizer={{sgd: {{lr: {rate}, wd: {decay}}}}}",
            f"train.{source}",
        ),
        *("train.start_from={run: runs/start}", "train.checkpoint.keep=1"),
    )
    assert {line["eval"]["accuracy"] for line in metrics("one")} == {1.0}
    losses = [line["eval"]["loss"] for line in metrics("one")]
    assert len(set(losses)) == (5 if rate else 1)
    (best, *_) = best_rows("accuracy", higher=True)
    assert best["epoch"] == expected
    assert (summary["best"]["epoch"], summary["best"]["loss"]) == (expected, best["loss"])
    assert saved_steps(Path("runs/one")) == sorted({8 * expected, 40})
    listed = {run["name"]: run for run in list_runs(RunsOptions())["runs"]}["one"]
    assert listed["best"]["metric"] == "accuracy"
    assert (listed["best"]["epoch"], listed["best"]["loss"]) == (expected, best["loss"])


def test_equal_values_end_a_run_early_though_their_losses_differ() -> None:
    random = np.random.default_rng(0)
    label = np.arange(480) % 2
    rows = (random.normal(size=(480, 4)) * 0.1 + 4 * label[:, None] - 2).astype("f4")
    written_rows(train=rows, train_label=label, eval=rows[:40], eval_label=label[:40])
    summary = run_training("train.epochs=9", "train.early_stopping={metric: accuracy, patience: 2}")
    values = [line["eval"]["accuracy"] for line in metrics("one")]
    assert values[-3:] == [1.0] * 3
    assert values.index(1.0) == len(values) - 3
    assert summary["best"]["epoch"] == best_rows("accuracy", higher=True)[0]["epoch"] == len(values)


def test_a_metric_that_no_evaluation_defines_is_no_best_and_is_said() -> None:
    """AUC of records of one class: neither the training's takes its place, nor an earlier one."""
    random = np.random.default_rng(0)
    label = np.arange(480) % 2
    rows = (random.normal(size=(480, 4)) + label[:, None]).astype("f4")
    negative = rows[label == 0][:40]
    written_rows(train=rows, train_label=label, eval=negative, eval_label=np.zeros(40, np.int64))
    summary, notes = run_with_notes(
        *("train.epochs=9", "train.metrics=[auc, accuracy]"),
        "train.early_stopping={metric: auc, patience: 2}",
    )
    reason = "it is undefined if all labels are of one class"
    assert notes == [f"epoch 1: auc of the evaluation is nan: {reason}"]
    assert summary["ended"] == f"early stopping: auc has not improved for 2 evaluations: {reason}"
    assert summary["best"] is None
    lines = metrics("one")
    assert [line["eval"]["auc"] for line in lines] == [None, None]
    assert all(line["train"]["auc"] > 0.5 for line in lines)
    (run,) = list_runs(RunsOptions())["runs"]
    last = lines[-1]["eval"]
    assert run["last"] == {"accuracy": last["accuracy"], "loss": last["loss"]}
    assert run["best"]["metric"] == "accuracy"
    assert run["best"]["value"] == max(line["eval"]["accuracy"] for line in lines)
    with pytest.raises(UserError, match="no run has recorded 'auc'"):
        list_runs(RunsOptions(sort="auc"))


def test_a_run_that_gets_better_does_not_end_early() -> None:
    summary = run_training("train.early_stopping={patience: 1, metric: accuracy}", "train.epochs=3")
    assert (summary["stopped_early"], summary["epochs"]) == (False, 3)


def test_a_plateau_lowers_the_rate() -> None:
    run_training(
        "train.optimizer.sgd.lr=1e-6",
        "train.epochs=6",
        "train.schedule={plateau: {patience: 1, factor: 0.5, threshold: 0.5}}",
    )
    rates = [line["learning_rate"] for line in metrics("one")]
    assert rates == [float(np.float32(1e-6 * part)) for part in (1, 1, 1, 0.5, 0.5, 0.25)]


def test_a_plateau_knows_of_which_metrics_more_is_better() -> None:
    run_training(
        "train.optimizer.sgd.lr=0.01",
        "train.epochs=4",
        "train.schedule={plateau: {metric: accuracy, patience: 0, threshold: 0}}",
    )
    lines = metrics("one")
    accuracies = [line["eval"]["accuracy"] for line in lines]
    assert accuracies == sorted(set(accuracies))
    assert {line["learning_rate"] for line in lines} == {float(np.float32(0.01))}


def test_a_run_without_an_end_begins_at_once() -> None:
    """2,000 million epochs, with early stopping after two of them."""
    assert (
        run_training(
            "train.epochs=2000000000",
            "train.optimizer.sgd.lr=0",
            "train.schedule=cosine",
            "train.early_stopping={patience: 1}",
            "data.last_batch=roll_over",
            "data.batch_size=50",
        )["steps"]
        == 9 + 10
    )


@pytest.mark.parametrize("batch_size", [7, 60, 64, 480])
@pytest.mark.parametrize("last_batch", ["pad", "discard", "roll_over"])
def test_steps_are_counted_before_they_are_taken(last_batch: str, batch_size: int) -> None:
    overrides = (f"data.last_batch={last_batch}", f"data.batch_size={batch_size}")
    built = load("net.yaml", (*overrides, "train.epochs=17", "train.accumulate=2"))
    prepared = prepare(built)
    try:
        loop = prepared.loop(NullObserver())
        assert loop.total_steps() == sum(loop.steps_of(epoch) for epoch in range(1, 18))
    finally:
        prepared.close()


def test_the_loss_of_nothing_is_no_best() -> None:
    """The only record that is evaluated has the label that is ignored."""
    text = Path("net.yaml").read_text()
    label = int(
        open_datasets({"eval": request_dataset("digits", {}, "test")}, {})["eval"]
        .fields["label"]
        .records[0]
    )
    text = text.replace("label: label", f"label: label, use_ignore: true, ignore_label: {label}")
    Path("net.yaml").write_text(text.replace("split: test", "split: {of: test, range: [0, 1]}"))
    summary = run_training("train.epochs=2", "train.checkpoint.best=loss")
    assert summary["best"] is None
    assert summary["eval"]["loss"] is None


@pytest.mark.parametrize(
    ("steps", "said"), [(8, ""), (9, "takes 9 of"), (16, "of 16 steps covers all")]
)
def test_a_warm_up_of_more_than_half_of_the_run_is_said(steps: int, said: str) -> None:
    schedule = f"train.schedule={{cosine: {{warmup_steps: {steps}}}}}"
    _, notes = run_with_notes("train.epochs=2", schedule)
    note = f"train.schedule: the warm-up {said} the run's 16 steps: shorten warmup_steps"
    assert notes == ([note] if said else [])


def test_the_documented_default_may_be_written() -> None:
    assert load("net.yaml", ("train.metrics=null",)).training.metrics
    with pytest.raises(UserError, match=r"train\.optimizer cannot be") as caught:
        load("net.yaml", ("train.optimizer=null",))
    assert "Choice" not in str(caught.value)


def test_the_best_checkpoint_is_kept_beside_the_newest() -> None:
    """The first evaluation is the best where the decay makes weights grow, as lr * wd is 2.2."""
    summary = run_training(
        "train.epochs=5",
        "train.optimizer={sgd: {lr: 1, wd: 2.2}}",
        "train.checkpoint={keep: 2, best: loss}",
    )
    best = summary["best"]
    assert best["metric"] == "loss"
    evaluations = [line["eval"]["loss"] for line in metrics("one")]
    assert best["value"] == min(evaluations) < evaluations[-1]
    assert best["epoch"] == evaluations.index(min(evaluations)) + 1
    steps = saved_steps(Path("runs/one"))
    assert best["step"] in steps
    assert steps == [best["step"], 32, 40]


@pytest.mark.parametrize(
    ("policy", "steps"),
    [
        ("{every: 1 epoch, keep: 2}", [24, 32]),
        ("{every: 3 epochs, keep: 9}", [24, 32]),
        ("{every: 5 steps, keep: 3}", [25, 30, 32]),
        ("{every: 100 steps}", [32]),
        ("{every: 10 minutes}", [32]),
    ],
)
def test_every_and_keep(policy: str, steps: list[int]) -> None:
    run_training(f"train.checkpoint={policy}")
    assert saved_steps(Path("runs/one")) == steps


def test_minutes_count_from_the_last_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("mxrun.train.checkpoint_manager.time.monotonic", lambda: now)
    keeper = CheckpointManager(tmp_path, Policy(Interval(2, "minutes"), keep=1))
    assert not keeper.due_after_step(1)
    now += 119
    assert not keeper.due_after_step(2)
    now += 1
    assert keeper.due_after_step(3)
    assert not keeper.due_after_epoch(1)


def test_a_run_that_early_stopping_ended_says_what_continues_it() -> None:
    stopping = "train.early_stopping={patience: 1, min_delta: 9}"
    run_training(stopping, "train.epochs=6")
    _, notes = run_with_notes(stopping, "train.epochs=6", resume=True)
    (note,) = (note for note in notes if "is already finished" in note)
    assert "train.early_stopping.patience with --resume --allow-changes continues it" in note


def test_the_best_epoch_of_a_sort_names_its_checkpoint_only_if_it_is_there() -> None:
    run_training("train.epochs=3", "train.checkpoint={every: 1 epoch, keep: 1}")
    (step,) = saved_steps(Path("runs/one"))
    for metric in ("accuracy", "loss"):
        (run,) = list_runs(RunsOptions(sort=metric))["runs"]
        is_last = run["best"]["epoch"] == 3
        assert run["best"]["checkpoint"] == (step if is_last else None)
        assert ("not saved" in str(RUN_COLUMNS["best @ epoch"](run))) is not is_last
