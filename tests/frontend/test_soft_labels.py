"""Labels with a probability for each class, from the file to the reported loss."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from layer_configs import classifier, config_file, config_text
from refusals import only_problem
from training import run_training

from mxrun.base.errors import UserError
from mxrun.base.flags import runs_folder
from mxrun.commands.infer import infer
from mxrun.commands.plot import plot
from mxrun.io.dataset.request import open_datasets
from mxrun.options.infer import InferOptions
from mxrun.preparation.planning import load

CONFIG = config_text(
    classifier(3),
    name="soft",
    settings="threads: 1\n",
    inputs="{data: [4], label: [3]}",
    data="data: {batch_size: 8, train: {dataset: npz, path: soft.npz}}\n",
    train="train: {epochs: 30, optimizer: {sgd: {lr: 0.5}}}\n",
)
ONE_HOT = "data.train.transforms=[{one_hot: {classes: 3}}]"


@pytest.fixture
def config(empty_folder: Path) -> Path:
    """Write a config, soft.npz with probabilities, hard.npz with classes, hot.npz with one-hot
    rows.
    """
    random = np.random.default_rng(8)
    data = random.standard_normal((32, 4)).astype("f4")
    likely = np.exp(data @ random.standard_normal((4, 3)))
    soft = (likely / likely.sum(axis=1, keepdims=True)).astype("f4")
    classes = soft.argmax(axis=1)
    for name, label in (("soft", soft), ("hard", classes), ("hot", np.eye(3, dtype="f4")[classes])):
        np.savez(empty_folder / name, data=data, label=label)
    return config_file(empty_folder, CONFIG)


def losses(config: Path, *overrides: str) -> list[float]:
    """The mean loss of each epoch."""
    run_training(*overrides, config=config, overwrite=True)
    (loss,) = (
        each
        for each in plot(["runs/soft"], (), runs_folder())["runs"][0]["metrics"]
        if each["name"] == "loss"
    )
    return list(loss["train"])


def test_probabilities_of_a_file_are_what_is_learned(config):
    found = losses(config)
    with np.load("soft.npz") as held:
        label = held["label"].astype("f8")
        entropy = -(label * np.log(label)).sum(axis=1).mean()
        # The first loss is of the initial weights; the least that there can be is the entropy.
        assert entropy < found[-1] < found[0]
        assert found[-1] < 1.1 * entropy
        result = infer(InferOptions(run=Path("runs/soft"), split="train"))
        (output,) = (
            np.concatenate(parts)
            for parts in zip(*([*each.arrays.values()] for each in result.batches()), strict=True)
        )
        measured = -(label * np.log(output)).sum(axis=1).mean()
    assert result.summary()["metrics"]["loss"] == pytest.approx(measured, rel=1e-5)


def test_one_hot_makes_probabilities_of_classes(config):
    assert losses(config, "data.train.path=hard.npz", ONE_HOT) == losses(
        config, "data.train.path=hot.npz"
    )


def test_metrics_of_classes_are_refused_for_probabilities(config):
    with pytest.raises(UserError, match="do not name one class"):
        load(config, ("train.metrics=[accuracy]",))


def test_synthetic_probabilities_have_the_sum_1(config):
    built = load(config, ("data.train={dataset: synthetic, split: train}",))
    label = open_datasets(built.data, built.model.records)["train"].fields["label"]
    assert label.scale is None
    assert label.records.shape == (1024, 3)
    assert label.records.min() > 0
    assert np.abs(label.records.sum(axis=1) - 1).max() < 1e-6


@pytest.mark.parametrize(
    ("row", "got"),
    [([2.0, 3.0, 2.0], "2"), ([1.5, -0.5, 0.0], "1.5"), ([0.5, 0.25, 0.125], "0.875")],
)
def test_labels_that_are_no_probabilities_are_refused_with_their_record(config, row, got):
    label = np.full((8, 3), 1 / 3, np.float32)
    label[5] = row
    np.savez("soft.npz", data=np.zeros((8, 4), np.float32), label=label)
    found = only_problem(losses, config)
    assert "'npz' has labels that are not probabilities, as 'softmax' reads them" in found.problem
    assert f"{got} in record 5 (" in found.got
    assert not Path("runs").exists()


def test_labels_of_a_logistic_loss_are_probabilities(config):
    text = CONFIG.replace("num_hidden: 3", "num_hidden: 1").replace("label: [3]", "label: [1]")
    config.write_text(text.replace("SoftmaxOutput", "LogisticRegressionOutput"))
    label = np.array([[0], [1], [0.5], [5]], np.float32)
    np.savez("soft.npz", data=np.zeros((4, 4), np.float32), label=label)
    found = only_problem(losses, config)
    assert (found.expected, found.got[:13]) == ("numbers from 0 to 1", "5 in record 3")
    np.savez("soft.npz", data=np.zeros((4, 4), np.float32), label=np.minimum(label, 1))
    assert np.isfinite(losses(config)).all()
