"""Runs in bfloat16: the place of a divergence is named, and resumed runs give the same bytes."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from interrupted_runs import CONFIG, EPOCH, INTERVAL, STEPS, Started, go_on, left
from killed_runs import Moment, kill
from training import checked_message, run_training

from mxrun.base.errors import UserError
from mxrun.graph.phases import TRAIN
from mxrun.preparation.planning import load, plan_for
from mxrun.train.checkpoint_manager import saved_steps

LOW = "precision=bfloat16"


@pytest.fixture
def _config(empty_folder: Path) -> None:
    Path("net.yaml").write_text(CONFIG)


@pytest.mark.usefixtures("_config")
@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize(
    ("fuse", "step", "tensor"),
    [
        ("true", "'bn1+activation0' (_batch_norm_limited)", "activation0_output"),
        ("false", "'bn1' (BatchNorm)", "bn1_output"),
    ],
)
def test_F10_an_operator_that_writes_bfloat16_is_blamed(
    value: float, fuse: str, step: str, tensor: str
) -> None:
    said = checked_message([LOW, f"fuse={fuse}"], ("bn1_beta", 3, value))
    assert f"{step} wrote {value} into '{tensor}'[0, 3, 0, 0]" in said


@pytest.mark.usefixtures("_config")
def test_F10_a_number_that_only_float32_has_is_lost_where_it_is_rounded() -> None:
    """The largest float32 is beyond bfloat16: the layer that rounds it wrote the infinity."""
    no_batch_norm = "network.layers[0].Convolution.no_bias=false"
    greatest = float(np.finfo(np.float32).max)
    said = checked_message([LOW, no_batch_norm], ("conv1_bias", 3, greatest))
    assert "'conv1' (Convolution) wrote inf into 'conv1_output'[0, 3, 0, 0]" in said
    in_float32 = checked_message([no_batch_norm], ("conv1_bias", 3, greatest))
    assert "'conv1'" not in in_float32.splitlines()[0]


@pytest.mark.usefixtures("_config")
def test_F10_a_diverging_run_says_where_it_began() -> None:
    with pytest.raises(UserError) as caught:
        run_training(LOW, "train.optimizer={sgd: {lr: 1e38}}")
    pattern = r"in step [0-9]+, epoch 1: '\S+' \(\w+\) wrote -?(inf|nan) into '\S+'\[[0-9, ]+\]"
    assert re.search(pattern, str(caught.value.diagnostics[0]))


def test_F5_a_run_goes_on_from_its_checkpoints_to_the_same_bytes(tmp_path: Path) -> None:
    """Stopped in an evaluation and killed later, with the bytes of an uninterrupted run."""
    whole = Started(tmp_path / "whole", LOW)
    assert whole.end()[0] == 0
    low, expected = tmp_path / "low", left(tmp_path / "whole")
    assert Started(low, LOW, moment=f"{EPOCH}:evaluate").end()[0] == 75
    killed = kill(low, Moment(40, operation=1), LOW, "--resume")
    newest = saved_steps(low / "runs/killed")[-1]
    # The newest checkpoint may still have been on its way.
    assert 0 <= killed.taken - newest <= 2 * INTERVAL
    assert killed.taken < STEPS
    assert go_on(low, LOW).summary["resumed_from"] == newest
    assert left(low) == expected
    full = Started(tmp_path / "full")
    assert full.end()[0] == 0
    assert left(tmp_path / "full") != expected


@pytest.mark.usefixtures("_config")
def test_these_runs_are_in_bfloat16() -> None:
    phase = plan_for(load("net.yaml", [LOW]), training=True).phases[TRAIN]
    types = {value.name: value.spec.dtype for value in phase.graph.values}
    assert types["conv1_output"] == types["fc1_output"] == "bfloat16"
