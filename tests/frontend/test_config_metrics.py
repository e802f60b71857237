"""Metrics in configs: parameters, compatible losses, defaults, tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import mxrun, result
from layer_configs import config_file
from training import json_lines

from mxrun.base.errors import Diagnostic, UserError
from mxrun.commands.check import check
from mxrun.preparation.planning import load

CLASSES = """\
name: net
network:
  inputs: {data: [6], label: []}
  layers:
    - FullyConnected: {name: fc, num_hidden: 5}
    - SoftmaxOutput: {name: softmax, label: label}
data:
  batch_size: 4
  train: {dataset: synthetic, split: train, records: 22, classes: 5}
  eval: {dataset: synthetic, split: test, records: 10, classes: 5}
train: {epochs: 2, optimizer: {sgd: {lr: 0.01}}}
"""
NUMBERS = """\
name: net
network:
  inputs: {data: [6], label: [2]}
  layers:
    - FullyConnected: {name: fc, num_hidden: 2}
    - LinearRegressionOutput: {name: regression, label: label}
data:
  batch_size: 4
  train: {dataset: regression, split: train, records: 22}
  eval: {dataset: regression, split: test, records: 10}
train: {epochs: 2, optimizer: {sgd: {lr: 0.01}}}
"""
CHANCES = """\
name: net
network:
  inputs: {data: [6], label: []}
  layers:
    - FullyConnected: {name: fc, num_hidden: 1}
    - LogisticRegressionOutput: {name: chance, label: label}
data:
  batch_size: 4
  train: {dataset: npz, path: data.npz}
train: {epochs: 2, optimizer: {sgd: {lr: 0.1}}}
"""
BOTH = (
    NUMBERS.replace(
        "    - LinearReg",
        "    - SoftmaxOutput: {name: softmax, label: class}\n    - LinearReg",
    )
    .replace("{name: regression, ", "{name: regression, data: fc, ")
    .replace("label: [2]}", "label: [2], class: []}")
    .replace("\ndata:", "\n  outputs: [softmax, regression]\ndata:")
)
UNLABELLED = CLASSES.replace("data: [6], label: []", "data: [3, 6], label: [3]").replace(
    "num_hidden: 5", "num_hidden: 5, flatten: false"
)
OWN_LOSS = CLASSES.replace("SoftmaxOutput: {name: softmax, label: label}", "MakeLoss: {name: own}")


def problems(path: Path, overrides: Sequence[str]) -> tuple[Diagnostic, ...]:
    with pytest.raises(UserError) as raised:
        check(path, overrides)
    return raised.value.diagnostics


def last_epoch(summary: dict[str, Any], folder: Path) -> dict[str, Any]:
    return json_lines(folder / summary["run_dir"] / "metrics.jsonl")[-1]


@pytest.mark.parametrize(
    ("text", "metrics", "column", "problem", "reason"),
    [
        (CLASSES, "[accuracy, mse]", 26, "the metric 'mse' fits no loss",
         "'softmax' predicts classes, not numbers"),
        (CLASSES, "[f1]", 16, "the metric 'f1' fits no loss",
         "'softmax' has 5 classes, not two"),
        (CLASSES, "[{top_k: {k: 6}}]", 17, "the metric 'top_k' fits no loss",
         "'softmax' has 5 classes, less than k = 6"),
        (NUMBERS, "[perplexity]", 16, "the metric 'perplexity' fits no loss",
         "'regression' predicts numbers, not classes"),
        (UNLABELLED, "[accuracy]", 16, "the metric 'accuracy' fits no loss",
         "'softmax' has labels that do not name one class for each prediction"),
        (CLASSES, "[accuracy, top_k, {top_k: {k: 5}}]", 34, "two metrics are named 'top_5_acc", ""),
        (CLASSES, "[{top_k: {k: 0}}]", 28, "top_k: parameter 'k' cannot be 0", ""),
        (CLASSES, "[{top_k: {n: 2}}]", 25, "top_k: unknown parameter 'n'", ""),
        (CLASSES, "[{f1: {average: weighted}}]", 31, "f1: parameter 'average'", ""),
        (CLASSES, "[acuracy]", 16, "unknown metric 'acuracy'", ""),
    ],
)  # fmt: skip
def test_F9_a_metric_that_cannot_be_is_one_diagnostic(
    text: str, metrics: str, column: int, problem: str, reason: str, tmp_path: Path
) -> None:
    (found,) = problems(config_file(tmp_path, text), [f"train.metrics={metrics}"])
    assert problem in found.problem
    assert found.place is not None
    assert (found.place.line, found.place.column) == (1, column)
    assert found.hint or found.expected
    assert "".join(found.chain).startswith(reason)


def test_F9_the_diagnostic_says_which_metrics_fit(tmp_path: Path) -> None:
    (found,) = problems(config_file(tmp_path, NUMBERS), ["train.metrics=[accuracy]"])
    assert found.hint == "metrics that fit: mae, mse, pearson_correlation, r2, rmse"
    (found,) = problems(config_file(tmp_path, UNLABELLED), ["train.metrics=[accuracy]"])
    assert found.hint == "train.metrics: []"


@pytest.mark.parametrize(
    ("metrics", "form"),
    [
        (
            "[f1]",
            "{f1: {average: macro}}, {fbeta: {average: macro}}, {iou: {average: macro}}, mcc, ",
        ),
        ("[f1_macro]", "expected: one of accuracy, auc, balanced_accuracy, {binary_accuracy:"),
        ("[top_5]", "{recall: {average: macro}}, rmse, {top_k: {k: 3}}"),
        ("[{f1: macro}]", "name the parameter: {f1: {NAME: VALUE}}, as in {f1: {average: macro}}"),
        ("[{accuracy: 1, f1: 2}]", "one kind in each"),
    ],
)
def test_how_parameters_of_a_metric_are_written_is_shown(
    metrics: str, form: str, tmp_path: Path
) -> None:
    (found,) = problems(config_file(tmp_path, CLASSES), [f"train.metrics={metrics}"])
    assert form in str(found)


@pytest.mark.parametrize(
    ("override", "path"),
    [
        ("train.checkpoint.best=confusion_matrix", "train.checkpoint.best"),
        (
            "train.early_stopping={metric: confusion_matrix, patience: 1}",
            "train.early_stopping.metric",
        ),
        ("train.schedule={plateau: {metric: confusion_matrix}}", "train.schedule"),
    ],
)
def test_F9_a_table_decides_nothing(override: str, path: str, tmp_path: Path) -> None:
    overrides = ["train.metrics=[accuracy, confusion_matrix]", override]
    (found,) = problems(config_file(tmp_path, CLASSES), overrides)
    assert found.problem == f"{path}: 'confusion_matrix' is a table, not a number"
    assert (found.expected, found.got) == ("one of loss, accuracy", "confusion_matrix")
    assert found.place is not None


def test_a_figure_decides_by_the_name_it_is_recorded_under(tmp_path: Path) -> None:
    path = config_file(tmp_path, CLASSES)
    overrides = ["train.metrics=[{top_k: {k: 2}}]", "train.checkpoint.best=top_2_accuracy"]
    built = load(path, overrides)
    assert built.training.watch.higher == {"top_2_accuracy"}
    (found,) = problems(path, [overrides[0], "train.checkpoint.best=top_k"])
    assert "nothing measures 'top_k'" in found.problem
    assert found.expected == "one of loss, top_2_accuracy"
    assert found.hint == "did you mean 'top_2_accuracy'?"
    f1 = "train.metrics=[accuracy, {f1: {average: macro}}, {f1: {average: micro}}]"
    stop = "train.early_stopping={metric: f1, patience: 2}"
    (found,) = problems(path, [f1, stop])
    assert found.hint == "did you mean 'f1_macro' or 'f1_micro'?"
    (found,) = problems(path, ["train.metrics=[accuracy]", stop])
    assert found.hint == "add it to train.metrics"


@pytest.mark.parametrize(
    ("text", "figures"),
    [
        (CLASSES, {"accuracy", "cross_entropy"}),
        (NUMBERS, {"mse"}),
        (NUMBERS.replace("LinearReg", "MAEReg"), {"mse"}),
        (UNLABELLED, set()),
        (OWN_LOSS.replace(", label: []", ""), set()),
    ],
)
def test_defaults_follow_from_the_loss(text: str, figures: set[str], tmp_path: Path) -> None:
    built = load(config_file(tmp_path, text))
    assert {kind.figure for kind in built.training.metrics} == figures


def test_regression_metrics_of_a_run(tmp_path: Path) -> None:
    """The loss is half of the mean squared error."""
    config_file(tmp_path, NUMBERS)
    summary = result("train", "net.yaml", "train.metrics=[mse, mae, rmse]", cwd=tmp_path)
    record = last_epoch(summary, tmp_path)
    for part in ("train", "eval"):
        figures = record[part]
        assert set(figures) == {"loss", "mse", "mae", "rmse"}
        assert figures["loss"] == pytest.approx(figures["mse"] / 2, rel=1e-5)
        assert figures["rmse"] == pytest.approx(figures["mse"] ** 0.5)
        assert 0 < figures["mae"] <= figures["rmse"]


def test_one_probability_is_one_of_two_classes(tmp_path: Path) -> None:
    data = np.random.default_rng(0).normal(size=(22, 6)).astype(np.float32)
    np.savez(tmp_path / "data.npz", data=data, label=(data[:, 0] > 0).astype(np.float32))
    config_file(tmp_path, CHANCES)
    metrics = "[accuracy, mse, f1, cross_entropy, confusion_matrix]"
    summary = result("train", "net.yaml", f"train.metrics={metrics}", cwd=tmp_path)
    figures = last_epoch(summary, tmp_path)["train"]
    assert figures["loss"] == pytest.approx(figures["cross_entropy"], rel=1e-5)
    (right, no), (missed, hits) = figures["confusion_matrix"]
    assert right + no + missed + hits == 22
    assert figures["accuracy"] == (right + hits) / 22
    assert figures["f1"] == pytest.approx(2 * hits / (2 * hits + no + missed) if hits else 0)


def test_each_metric_follows_the_losses_that_it_fits(tmp_path: Path) -> None:
    path = config_file(tmp_path, BOTH)
    overrides = ["train.metrics=[accuracy, mse]", "train.checkpoint.best=softmax.accuracy"]
    built = load(path, overrides)
    assert built.training.watch.higher == {"softmax.accuracy"}
    default = load(path)
    assert [kind.figure for kind in default.training.metrics] == [
        "accuracy",
        "cross_entropy",
        "mse",
    ]
    (found,) = problems(path, [overrides[0], "train.checkpoint.best=regression.accuracy"])
    assert found.expected == "one of loss, softmax.accuracy, regression.mse"


def test_a_confusion_matrix_is_recorded_and_printed(tmp_path: Path) -> None:
    config_file(tmp_path, CLASSES)
    metrics = "train.metrics=[accuracy, confusion_matrix]"
    done = mxrun("train", "net.yaml", metrics, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "label \\ predicted" in done.stdout
    assert "confusion_matrix" not in done.stderr
    summary = result("train", "net.yaml", metrics, "name=other", cwd=tmp_path)
    record = last_epoch(summary, tmp_path)
    assert summary["eval"] == record["eval"]
    for part, count in (("train", 22), ("eval", 10)):
        table = record[part]["confusion_matrix"]
        assert [len(row) for row in table] == [5] * 5
        assert all(type(number) is int for row in table for number in row)
        assert sum(map(sum, table)) == count
        hits = sum(table[index][index] for index in range(5))
        assert record[part]["accuracy"] == hits / count
    # The state in a checkpoint leads to the same result.
    again = result("train", "net.yaml", metrics, "name=other", "--resume", cwd=tmp_path)
    assert again["eval"] == summary["eval"]


PROBABILITIES = OWN_LOSS.replace(
    "    - MakeLoss: {name: own}",
    """    - softmax: {name: probs}
    - pick: {name: own, data: probs, index: label, axis: 1}
    - log
    - negative
    - MakeLoss: {name: loss}""",
)
TWO_LABELS = (
    PROBABILITIES.replace("label: []}", "label: [], age: [], dose: []}")
    .replace(
        "    - log\n",
        """    - FullyConnected: {name: years, data: fc, num_hidden: 1}
    - LinearRegressionOutput: {name: age_loss, label: age}
    - FullyConnected: {name: amount, data: fc, num_hidden: 1}
    - LinearRegressionOutput: {name: dose_loss, label: dose}
    - log: {data: own}
""",
    )
    .replace("\ndata:", "\n  outputs: [loss, age_loss, dose_loss]\ndata:")
)


@pytest.mark.parametrize(
    ("text", "metric", "column", "problem", "hint"),
    [
        (PROBABILITIES, "accuracy", 16, "the metric 'accuracy' fits no loss",
         "{accuracy: {of: probs, label: label}}"),
        (PROBABILITIES, "{accuracy: {of: prob}}", 32, "nothing is named 'prob'", "'probs'"),
        (PROBABILITIES, "{accuracy: {of: fc}}", 32, "'fc' cannot be compared", "softmax"),
        (PROBABILITIES, "{accuracy: {of: loss}}", 17, "fits not 'loss'", "of: probs"),
        (PROBABILITIES, "{mse: {of: probs}}", 17, "fits not 'probs'", "accuracy"),
        (PROBABILITIES, "{accuracy: {of: probs, label: y}}", 46, "no input 'y'", ""),
        (TWO_LABELS, "{mae: {of: years}}", 27, "with which input is 'years'", "label: age"),
        (TWO_LABELS, "{mae: {of: age_loss, label: dose}}", 44, "does not read 'dose'", ""),
    ],
)  # fmt: skip
def test_F9_a_metric_names_a_layer_that_it_can_measure(
    text: str, metric: str, column: int, problem: str, hint: str, tmp_path: Path
) -> None:
    (found,) = problems(config_file(tmp_path, text), [f"train.metrics=[{metric}]"])
    assert problem in found.problem
    assert hint in found.hint
    assert found.place is not None
    assert found.place.column == column


def test_F9_metrics_of_a_layer_are_those_of_the_loss_with_the_same_predictions(
    tmp_path: Path,
) -> None:
    """A loss of layers that is SoftmaxOutput's trains alike, and is measured alike."""
    config_file(tmp_path, PROBABILITIES, "own.yaml")
    config_file(tmp_path, CLASSES, "softmax.yaml")
    forms = "accuracy top_k cross_entropy f1"
    parts = {"top_k": "k: 2", "f1": "average: macro"}
    for name, of in (("own", "of: probs"), ("softmax", "")):
        metrics = (f"{{{form}: {{{of}, {parts.get(form, '')}}}}}" for form in forms.split())
        text = ", ".join(metrics).replace("{, ", "{").replace(", }", "}")
        result("train", f"{name}.yaml", f"train.metrics=[{text}]", f"name={name}", cwd=tmp_path)
    measured = {
        name: last_epoch({"run_dir": f"runs/{name}"}, tmp_path) for name in ("own", "softmax")
    }
    for part in ("train", "eval"):
        figures, expected = (measured[name][part] for name in ("own", "softmax"))
        assert figures.keys() == expected.keys()
        for figure, value in figures.items():
            assert value == pytest.approx(expected[figure], rel=1e-5), figure
    # What metrics look at is what inference returns and evaluation details.
    outputs = result("infer", "runs/own", "--split", "eval", cwd=tmp_path)["outputs"]
    assert [each["name"] for each in outputs] == ["probs_output"]
    evaluation = result("evaluate", "runs/own", cwd=tmp_path)
    assert [head["name"] for head in evaluation["heads"]] == ["probs"]
    assert evaluation["metrics"]["accuracy"] == measured["own"]["eval"]["accuracy"]


def test_F9_check_says_which_layer_and_label_each_metric_compares(tmp_path: Path) -> None:
    path = config_file(tmp_path, TWO_LABELS)
    metrics = "train.metrics=[{accuracy: {of: probs}}, mae, {rmse: {of: dose_loss}}]"
    assert check(path, [metrics]).metrics == {
        "age_loss.mae": ("age_loss", "age"),
        "dose_loss.mae": ("dose_loss", "dose"),
        "dose_loss.rmse": ("dose_loss", "dose"),
        "probs.accuracy": ("probs", "label"),
    }
