"""Runs that diverge: the origin is named, and nothing that is not finite is saved."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from commands import mxrun
from interrupted_runs import CONFIG
from training import checked_message, metrics, run_training

from mxrun.base.errors import Stopped, UserError
from mxrun.base.tensor import PLAIN
from mxrun.preparation.planning import load, plan_for
from mxrun.train.checkpoint import load_checkpoint
from mxrun.train.checkpoint_manager import saved_steps
from mxrun.train.replay import NullObserver

# Weights double with every step, as lr * wd is 3, until something is beyond float32.
GROWING = ("train.optimizer={sgd: {lr: 1, wd: 3}}", "train.epochs=6")
EVERY = "train.checkpoint={every: 1 steps, keep: 100}"


@pytest.fixture(autouse=True)
def _config(empty_folder: Path) -> None:
    Path("net.yaml").write_text(CONFIG)


def diverged(overrides: Sequence[str], **options: bool) -> str:
    """Return the message of a run that diverges."""
    with pytest.raises(UserError) as caught:
        run_training(*overrides, **options)
    assert caught.value.exit_code == 2
    (diagnostic,) = caught.value.diagnostics
    return str(diagnostic)


def assert_all_finite(run: Path, least: int) -> None:
    """Assert that there are at least `least` checkpoints, all of finite numbers."""
    steps = saved_steps(run)
    assert len(steps) >= least
    for step in steps:
        checkpoint = load_checkpoint(run / f"checkpoint-{step}")
        for arrays in (checkpoint.parameters, checkpoint.optimizer, checkpoint.auxiliary):
            for name, array in arrays.items():
                assert np.isfinite(array).all(), (step, name)


def test_F10_the_first_number_that_is_none_is_named() -> None:
    text = diverged(["train.optimizer={sgd: {lr: 1e38}}"])
    first = text.splitlines()[0]
    pattern = (
        r"training has diverged in step [0-9]+, epoch 1: '\S+' \(\w+\) wrote -?(inf|nan) into "
        r"'\S+'\[[0-9, ]+\]"
    )
    assert re.fullmatch(pattern, first), text
    assert re.search(r"got: a batch of the training records [0-9]+(, [0-9]+){15} and 48 more", text)
    assert "no value that is not finite was saved" in text


def test_F10_the_place_is_that_in_the_logical_shape() -> None:
    """Independent of the kernel's layout; the weights of the third channel are too large."""
    plan = plan_for(load("net.yaml"), training=True)
    layouts = {value.name: value.spec.layout for value in plan.phases["train"].graph.values}
    assert layouts["conv1_output"] != PLAIN
    overrides = ["network.layers[0].Convolution.no_bias=false", "data.train.transforms=[]"]
    message = checked_message(overrides, ("conv1_bias", 3, np.inf))
    assert "'conv1' (Convolution) wrote inf into 'conv1_output'[0, 3, 0, 0]" in message


@pytest.mark.parametrize(
    "settings",
    [
        ("train.checkpoint={every: 100 steps}",),
        ("train.checkpoint={every: 7 steps}",),
        ("train.checkpoint={every: 7 steps}", "train.accumulate=2"),
        ("train.checkpoint={every: 5 steps}", "data.workers=4"),
    ],
    ids=["from-the-start", "from-mid-epoch", "accumulated", "loaders"],
)
def test_F10_the_replay_takes_the_same_steps(settings: tuple[str, ...]) -> None:
    """From any start it finds the same fault as the checked mode from the beginning."""
    overrides = [*GROWING, *settings]
    said = diverged(overrides)
    assert said == checked_message(overrides)
    assert int(re.search(r"in step ([0-9]+)", said)[1]) >= 22  # type: ignore[index]


def test_F10_the_replay_of_a_resumed_run() -> None:
    overrides = [*GROWING, "train.checkpoint={every: 1000 steps}"]

    class Stopper(NullObserver):
        """Interrupts the run as soon as it reports a step."""

        def step_done(self, event: object) -> None:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Stopped):
        run_training(*overrides, observer=Stopper())
    (stopped,) = saved_steps(Path("runs/killed"))
    assert stopped > 0
    assert diverged(overrides, resume=True) == checked_message(overrides)


@pytest.mark.parametrize(
    ("wd", "problem"), [("2.5", "training has diverged"), ("3", "the evaluation after epoch 4")]
)
def test_F10_the_replay_of_evaluations_and_a_plateau(wd: str, problem: str) -> None:
    """The rate depends on the results of evaluations; lowered by them, it is still too high."""
    overrides = [
        f"train.optimizer={{sgd: {{lr: 1, wd: {wd}}}}}",
        "data.batch_size=512",
        "train.schedule={plateau: {patience: 0, factor: 0.98}}",
        "train.epochs=40",
        "train.checkpoint={every: 1000 steps}",
    ]
    said = diverged(overrides)
    # The run adds what to do after an evaluation, which depends on the interface.
    assert said.partition("\n  hint: the trained")[0] == checked_message(overrides)
    assert said.startswith(problem)
    rates = [line["learning_rate"] for line in metrics("killed")]
    assert rates[0] == 1.0
    assert rates[-1] < 0.99


@pytest.mark.parametrize("settings", [(), ("train.accumulate=3",), ("train.average=0.5",)])
def test_F10_no_checkpoint_is_not_finite(settings: tuple[str, ...]) -> None:
    """Saves after every step; the last one has diverged."""
    diverged([*GROWING, EVERY, *settings])
    assert_all_finite(Path("runs/killed"), least=20)


SIMPLE = """\
name: plain
threads: 1
network:
  inputs: {data: [4], label: LABEL}
  layers:
    - FullyConnected: {name: fc, num_hidden: 2}
    - LOSS
data: {batch_size: 8, train: {dataset: npz, path: records.npz}}
train: {epochs: 3, optimizer: {sgd: {lr: 0.01}}}
"""


def plain(label: str, loss: str) -> None:
    Path("net.yaml").write_text(SIMPLE.replace("LABEL", label).replace("LOSS", loss))


def records(data: np.ndarray, **labels: np.ndarray) -> None:
    np.savez("records.npz", data=data.astype("f4"), **labels)


SOFTMAX = "SoftmaxOutput: {name: softmax, label: label}"


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_F10_a_record_that_is_not_finite_is_named(value: float) -> None:
    """Reported before training if the data are in memory."""
    data = np.ones((40, 4))
    data[29, 2] = value
    records(data, label=np.zeros(40, "i4"))
    plain("[]", SOFTMAX)
    assert "records.npz: data.npy: record 29 cannot be converted to float32" in diverged([])


def test_F10_a_loss_beyond_float32_is_named() -> None:
    records(np.ones((40, 4)), label=np.full((40, 2), 3e30, "f4"))
    plain("[2]", "LinearRegressionOutput: {name: out, label: label}")
    text = diverged(["train.metrics=[]"])
    assert "in step 1, epoch 1: 'out' (LinearRegressionOutput) wrote inf" in text
    assert "records 0, 1, 2, 3, 4, 5, 6, 7" in text


@pytest.mark.parametrize("clip", ["clip_gradient: 1", "clip_global_norm: 1"])
def test_F10_an_infinite_gradient_is_found_although_it_is_clipped(clip: str) -> None:
    """The loss and its output are finite; the gradient of the weights is not."""
    records(np.full((40, 4), 1e3))
    Path("net.yaml").write_text(
        SIMPLE.replace(", label: LABEL", "").replace(
            "LOSS", "MakeLoss: {name: out, grad_scale: 3e38}"
        )
    )
    text = diverged(["train.metrics=[]", f"train.optimizer={{sgd: {{lr: 0.01, {clip}}}}}", EVERY])
    assert "step 1, epoch 1: 'fc:backward' (FullyConnected) wrote inf into 'fc_weight_grad'" in text
    assert not list(Path("runs/plain").glob("checkpoint-*"))


UNREAD = """\
name: net
network:
  inputs: {data: [3, 12], lengths: [], label: [12]}
  layers:
    - scaled_dot_product_attention:
        {name: read, inputs: [data, lengths], packed: true, num_heads: 2, use_lengths: true}
    - log: {name: logarithm}
    - Flatten
    - FullyConnected: {num_hidden: 12}
    - LinearRegressionOutput: {name: loss, label: label}
data:
  batch_size: 4
  train: {dataset: synthetic, split: train, records: 8, classes: 1}
train: {epochs: 1, optimizer: {sgd: {lr: 0.1}}}
"""


def test_F10_attention_that_reads_nothing_is_not_what_diverged() -> None:
    """All lengths are 0: the logarithm of the sum of no exponentials is infinite, as it should."""
    Path("net.yaml").write_text(UNREAD)
    assert "'logarithm' (log) wrote -inf" in diverged([])


def test_F10_the_command_ends_with_2_and_one_message() -> None:
    done = mxrun("train", "net.yaml", *GROWING, "--json", cwd=Path())
    assert (done.returncode, json.loads(done.stdout)["exit_code"]) == (2, 2)
    assert "Traceback" not in done.stderr
    assert done.stderr.count("training has diverged in step") == 1
    assert "numbers are no longer finite: looking for the first that was not" in done.stderr
    assert_all_finite(Path("runs/killed"), least=2)


EVALUATED = "data.eval={dataset: npz, path: evaluated.npz}"


def evaluated(value: float) -> None:
    """Return evaluation data whose record 21 has one large number."""
    data = np.ones((40, 4), "f4")
    data[21, 2] = value
    np.savez("evaluated.npz", data=data, label=np.zeros(40, "i4"))


def test_an_evaluation_that_is_not_finite_ends_the_run_with_what_was_trained() -> None:
    """The message names the place; with corrected data the run resumes without a difference."""
    records(np.eye(40, 4), label=np.zeros(40, "i4"))
    text = SIMPLE.replace("    - LOSS", f"    - square: {{}}\n    - {SOFTMAX}")
    Path("net.yaml").write_text(text.replace("LABEL", "[]"))
    settings = [EVALUATED, "train.checkpoint={every: 9 epochs, best: loss}"]
    evaluated(3e38)
    first = diverged(settings)
    assert first.splitlines() == [
        "the evaluation after epoch 1 (step 5) is not finite: 'square0' (square) wrote inf into "
        "'square0_output'[5, 0]",
        "  expected: finite numbers",
        "  got: a batch of the evaluation records 16, 17, 18, 19, 20, 21, 22, 23",
        "  hint: the trained parameters are finite and saved; lower the learning rate "
        "(train.optimizer), or repair the records or transforms of data.eval and run again with "
        "--resume --allow-changes",
    ]
    run = Path("runs/plain")
    assert saved_steps(run) == [5]
    assert_all_finite(run, least=1)
    assert load_checkpoint(run / "checkpoint-5").manifest.progress.best is None
    assert not (run / "summary.json").exists()
    # Unchanged settings give the same message again.
    assert diverged(settings, resume=True) == first
    evaluated(1.0)
    resumed = run_training(*settings, resume=True, allow_changes=True)
    uninterrupted = run_training(*settings, "name=whole")
    assert resumed["resumed_from"] == 5
    assert resumed["eval"] == uninterrupted["eval"]
    assert resumed["best"]["checkpoint"] == "runs/plain/checkpoint-15"
    for best in (resumed["best"], uninterrupted["best"]):
        best.pop("checkpoint")
    assert resumed["best"] == uninterrupted["best"]


def test_an_evaluation_that_is_not_finite_ends_the_command_with_2() -> None:
    records(np.ones((40, 4)), label=np.zeros((40, 2), "f4"))
    np.savez("evaluated.npz", data=np.ones((8, 4), "f4"), label=np.full((8, 2), 3e30, "f4"))
    plain("[2]", "LinearRegressionOutput: {name: out, label: label}")
    done = mxrun("train", "net.yaml", EVALUATED, "--json", cwd=Path())
    assert (done.returncode, json.loads(done.stdout)["exit_code"]) == (2, 2)
    assert "Traceback" not in done.stderr
    assert done.stderr.count("the evaluation after epoch 1 (step 5) is not finite: 'out'") == 1
