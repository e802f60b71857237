"""Area under the curve of networks whose probabilities are close, against all pairs of records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from layer_configs import config_text, listed
from training import run_training

from mxrun.commands.evaluate import evaluate
from mxrun.commands.infer import infer
from mxrun.options.evaluate import EvaluateOptions
from mxrun.options.infer import InferOptions


@pytest.mark.parametrize(
    ("layers", "contexts"),
    [
        ("FullyConnected: {num_hidden: 2}|SoftmaxOutput: {name: loss, label: label}", "cpu"),
        (
            "FullyConnected: {num_hidden: 1}|LogisticRegressionOutput: {name: loss, label: label}",
            "cpu",
        ),
        (
            "FullyConnected: {num_hidden: 2}|SoftmaxOutput: {name: loss, label: label}",
            "[cpu:0, cpu:1]",
        ),
    ],
)
def test_close_scores_have_their_exact_area(layers: str, contexts: str, empty_folder: Path) -> None:
    """One step of a small rate: all probabilities are close to 0.5, in training and evaluation."""
    random = np.random.default_rng(0)
    label = (np.arange(401) % 2).astype("f4")
    data = (random.normal(size=(401, 1)) + label[:, None]).astype("f4")
    binary = "Logistic" in layers
    np.savez("rows.npz", data=data, label=label[:, None] if binary else label)
    text = config_text(
        listed(*layers.split("|")),
        settings=f"threads: 1\ncontext: {contexts}\n",
        inputs=f"{{data: [1], label: {'[1]' if binary else '[]'}}}",
        data="data: {batch_size: 100, last_batch: pad, train: {dataset: npz, path: rows.npz}, "
        "eval: {dataset: npz}}\n",
        train="train: {max_steps: 1, initializer: {constant: {value: 0}}, metrics: [auc], "
        "optimizer: {sgd: {lr: 1e-5}}}\n",
    )
    Path("net.yaml").write_text(text)
    trained = run_training(config=Path("net.yaml"))
    inference = infer(InferOptions(run=Path("runs/net"), split="eval", outputs=("loss",)))
    output = np.concatenate([batch.arrays["loss"] for batch in inference.batches()])
    scores = output[:, -1].astype("f8")
    order = np.sign(np.subtract.outer(scores[label == 1], scores[label == 0]))
    want = np.mean((order + 1) / 2)
    assert np.ptp(scores) < 1e-4
    assert want > 0.75
    assert trained["eval"]["auc"] == pytest.approx(want, rel=1e-12)
    evaluation = evaluate(EvaluateOptions(run=Path("runs/net"))).run()
    assert evaluation.heads[0].metrics["auc"] == trained["eval"]["auc"]
