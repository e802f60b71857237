"""Invalid labels, losses, names and numbers in configs; every form of SoftmaxOutput."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import layer_configs
import pytest
from commands import result
from layer_configs import config_file
from training import json_lines

from mxrun.base.errors import Diagnostic, UserError
from mxrun.commands.check import check
from mxrun.frontend import check_labels
from mxrun.io.dataset.request import open_datasets
from mxrun.preparation.planning import load

DATA = """\
data: {batch_size: 4, train: {dataset: synthetic, split: train, records: 10, classes: CLASSES}}
"""
TRAIN = "train: {epochs: 2, optimizer: {sgd: {lr: 0.1}}}\n"
DENSE = "FullyConnected: {name: fc, num_hidden: 5}"
SOFTMAX = "SoftmaxOutput: {name: softmax, label: label}"
INPUTS = "{data: [6], label: []}"


def written(folder: Path, layers: Sequence[str], inputs: str = INPUTS, classes: int = 5) -> Path:
    data = DATA.replace("CLASSES", str(classes))
    return layer_configs.written(folder, layers, inputs=inputs, data=data, train=TRAIN)


def problems(path: Path, overrides: Sequence[str] = ()) -> tuple[Diagnostic, ...]:
    with pytest.raises(UserError) as raised:
        check(path, overrides)
    return raised.value.diagnostics


@pytest.mark.parametrize(
    ("layers", "line", "column", "problem"),
    [
        (
            [DENSE, "SoftmaxOutput: {name: s, label: label, use_sample_weight: false}"],
            *(6, 46, "use_sample_weight is set by mxrun"),
        ),
        (
            [DENSE, "SoftmaxOutput: {name: s, label: label, sample_weight: data}"],
            *(6, 46, "sample_weight is set by mxrun"),
        ),
        (
            [DENSE, "SoftmaxOutput: {name: s, inputs: [fc, label, data]}"],
            *(6, 52, "has 3 inputs"),
        ),
        (
            ["FullyConnected: {name: sample_weight, num_hidden: 5}", SOFTMAX],
            *(5, 30, "the name 'sample_weight' is reserved"),
        ),
        (
            ["FullyConnected: {name: sample, num_hidden: 5}", SOFTMAX],
            *(5, 30, "the name 'sample_weight' is reserved"),
        ),
        (
            ["FullyConnected: {name: fc, num_hidden: 5, weight: sample_weight}", SOFTMAX],
            *(5, 57, "the name 'sample_weight' is reserved"),
        ),
        (
            [DENSE, "SoftmaxOutput: {name: s, label: label, out_grad: true}"],
            *(6, 7, "needs the gradient of its output (out_grad), which no layer provides"),
        ),
        (
            [DENSE, "SoftmaxOutput: {name: s, label: fc}"],
            *(6, 39, "takes its 'label' from a network input"),
        ),
        (
            [DENSE, "SoftmaxOutput: {name: s, label: data}"],
            *(5, 7, "'data' is a label, yet FullyConnected 'fc' reads it as data"),
        ),
        (
            [DENSE, "FullyConnected: {name: fc_weight, num_hidden: 5}", SOFTMAX],
            *(6, 30, "two tensors are named 'fc_weight'"),
        ),
        (
            ["FullyConnected: {name: big, num_hidden: 2147483647}", DENSE, SOFTMAX],
            *(5, 7, "variable 'big_weight' is too large"),
        ),
        (
            [DENSE, "SoftmaxOutput: {name: s, label: label, ignore_label: 1e30}"],
            *(6, 60, "parameter 'ignore_label' cannot be 1e+30"),
        ),
        (
            [DENSE, "SoftmaxOutput: {name: s, label: label, grad_scale: .inf}"],
            *(6, 58, "parameter 'grad_scale' cannot be inf"),
        ),
        (
            ["FullyConnected: {name: fc, num_hidden: 1000000000000}", SOFTMAX],
            *(5, 46, "parameter 'num_hidden' cannot be 1000000000000"),
        ),
        (
            ["Convolution: {name: c, num_filter: 1, kernel: [4000000000]}", SOFTMAX],
            *(5, 54, "cannot be 4000000000"),
        ),
    ],
)
def test_F9_one_mistake_of_wiring_or_size_is_one_diagnostic(
    layers: list[str], line: int, column: int, problem: str, tmp_path: Path
) -> None:
    inputs = "{data: [1048576], label: []}" if "big" in layers[0] else "{data: [5], label: []}"
    if "label: data" in layers[-1]:
        inputs = "{data: [5]}"
    (found,) = problems(written(tmp_path, layers, inputs))
    assert problem in found.problem
    assert found.place is not None
    assert (found.place.line, found.place.column) == (line, column)
    assert found.hint or found.expected


@pytest.mark.parametrize(
    ("override", "problem", "expected"),
    [
        ("train.optimizer={sgd: {wd: 1e39}}", "'wd' cannot be 1e+39", "within float32"),
        ("train.optimizer={sgd: {lr: .nan}}", "'lr' cannot be nan", "within float32"),
        ("train.optimizer={sgd: {rescale_grad: .inf}}", "'rescale_grad'", "within float32"),
        ("train.optimizer={sgd: {clip_gradient: 1e39}}", "'clip_gradient'", "within float32"),
        ("train.initializer={constant: {value: .nan}}", "'value' cannot be nan", "float32"),
        ("train.initializer={normal: {sigma: 1e300}}", "'sigma' cannot be", "<= 1e+37"),
        ("network.variables={fc_weight: {lr_mult: 1e39}}", "lr_mult", "within float32"),
        ("network.inputs.sample_weight=[]", "the name 'sample_weight' is reserved", ""),
        ("network.variables={sample_weight: {frozen: true}}", "is reserved", ""),
    ],
)
def test_F9_numbers_beyond_float32_and_reserved_names(
    override: str, problem: str, expected: str, tmp_path: Path
) -> None:
    found = problems(written(tmp_path, [DENSE, SOFTMAX]), [override])[0]
    assert problem in found.problem
    assert expected in found.expected
    assert found.place is not None
    assert found.place.file == "<command line>"


def test_F9_multipliers_may_not_bring_the_rate_beyond_float32(tmp_path: Path) -> None:
    overrides = [
        "train.optimizer={sgd: {lr: 1e30, wd: 1e30}}",
        "network.variables={fc_weight: {lr_mult: 1e30, wd_mult: 1e30}}",
    ]
    rate, decay = problems(written(tmp_path, [DENSE, SOFTMAX]), overrides)
    assert "lr_mult of 'fc_weight' brings the optimizer's lr beyond float32" in rate.problem
    assert "wd_mult of 'fc_weight' brings the optimizer's wd beyond float32" in decay.problem
    assert rate.place is not None
    assert rate.place.line == 2


def test_F9_an_initializer_that_does_not_fit_a_shape_is_found_by_check(tmp_path: Path) -> None:
    path = written(tmp_path, [DENSE, SOFTMAX])
    (found,) = problems(path, ["network.variables={fc_bias: {init: msra}}"])
    assert found.problem.startswith("'fc_bias': this initializer needs a weight")
    assert (found.expected, found.got) == ("a shape of two or more axes", "[5]")
    assert str(found.place) == "<command line>:1:36"


FORMS = [
    ("{data: [3, 6], label: [3]}", "FullyConnected: {name: fc, num_hidden: 5, flatten: false}",
     "preserve_shape: true"),
    ("{data: [2, 3, 4], label: [12]}",
     "Convolution: {name: fc, num_filter: 5, kernel: [1, 1]}", "multi_output: true"),
    ("{data: [2, 3, 4], label: [3, 4]}",
     "Convolution: {name: fc, num_filter: 5, kernel: [1, 1]}", "multi_output: true"),
    ("{data: [2, 3, 4], label: [1, 3, 4]}",
     "Convolution: {name: fc, num_filter: 5, kernel: [1, 1]}", "multi_output: true"),
]  # fmt: skip


@pytest.mark.parametrize(("inputs", "layer", "form"), FORMS)
@pytest.mark.parametrize("ignoring", ["", ", use_ignore: true, ignore_label: 2"])
def test_the_printed_loss_is_the_mean_over_what_counts(
    inputs: str, layer: str, form: str, ignoring: str, tmp_path: Path
) -> None:
    """For every form of data and labels, the loss equals the metric cross_entropy, with padding or
    not.
    """
    softmax = f"SoftmaxOutput: {{name: softmax, label: label, {form}{ignoring}}}"
    written(tmp_path, [layer, softmax], inputs)
    summary = result("train", "net.yaml", cwd=tmp_path)
    epochs = json_lines(tmp_path / summary["run_dir"] / "metrics.jsonl")
    assert len(epochs) == 2
    for epoch in epochs:
        train = epoch["train"]
        assert train["loss"] == pytest.approx(train["cross_entropy"], rel=1e-5)
        assert 0 <= train["accuracy"] <= 1


def test_labels_to_ignore_need_no_class(tmp_path: Path) -> None:
    softmax = "SoftmaxOutput: {name: softmax, label: label, use_ignore: true, ignore_label: 5}"
    built = load(written(tmp_path, [DENSE, softmax], classes=6))
    check_labels(built, open_datasets(built.data, built.model.records).values())
    built = load(written(tmp_path, [DENSE, SOFTMAX], classes=6))
    with pytest.raises(UserError, match="labels that the network has no class for"):
        check_labels(built, open_datasets(built.data, built.model.records).values())


def test_metrics_of_several_losses_carry_their_names(tmp_path: Path) -> None:
    layers = [
        DENSE,
        "SoftmaxOutput: {name: first, label: label}",
        "FullyConnected: {name: other, num_hidden: 7, data: data}",
        "SoftmaxOutput: {name: second, label: label}",
    ]
    path = written(tmp_path, layers)
    path.write_text(path.read_text().replace("\ndata:", "\n  outputs: [first, second]\ndata:"))
    summary = result("train", "net.yaml", cwd=tmp_path)
    train = json_lines(tmp_path / summary["run_dir"] / "metrics.jsonl")[-1]["train"]
    assert set(train) == {
        "loss",
        *(
            f"{loss}.{name}"
            for loss in ("first", "second")
            for name in ("accuracy", "cross_entropy")
        ),
    }
    total = train["first.cross_entropy"] + train["second.cross_entropy"]
    assert train["loss"] == pytest.approx(total, rel=1e-5)


def test_a_relative_path_is_relative_to_where_it_is_written(empty_folder: Path) -> None:
    folder = empty_folder / "configs"
    folder.mkdir()
    path = written(folder, [DENSE, SOFTMAX])
    text = path.read_text().replace("dataset: synthetic", "dataset: mnist, path: files")
    path.write_text(text.replace(", records: 10, classes: 5", ""))
    assert load(path).data["train"].options.path == str(folder / "files")  # type: ignore[attr-defined]
    given = load("configs/net.yaml", ["data.train.path=files"])
    assert given.data["train"].options.path == str(empty_folder / "files")  # type: ignore[attr-defined]
    saved = config_file(empty_folder, load("configs/net.yaml").options.resolved(), "saved.yaml")
    assert load(saved).options.resolved() == load(path).options.resolved()
