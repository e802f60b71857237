"""BatchNorm with gamma fixed at 1: inference plans do not need the variable."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from commands import result
from layer_configs import SYNTHETIC, config_file, config_text
from memory_reports import verified

from mxrun.device.cpu.onednn import library
from mxrun.graph.phases import EVALUATE
from mxrun.inspection.benchmark_loop import Steps
from mxrun.inspection.equivalence import ReferenceOutputs
from mxrun.preparation.planning import load, plan_for

NET = config_text(
    """\
    - Convolution: {name: conv, num_filter: 4, kernel: [3, 3], pad: [1, 1]}
    - BatchNorm: {name: bn, fix_gamma: true}
    - Activation: {name: relu, act_type: relu}
    - FullyConnected: {name: fc, num_hidden: 3}
    - SoftmaxOutput: {name: softmax, label: label}
""",
    inputs="{data: [2, 6, 6], label: []}",
    data=SYNTHETIC,
    train="train: {epochs: 1, optimizer: {sgd: {lr: 0.01}}}\n",
)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return config_file(tmp_path, NET)


@pytest.mark.parametrize("fuse", ["true", "false"])
def test_F4_it_gives_the_same_in_every_way(config: Path, fuse: str) -> None:
    report = verified(config, (f"fuse={fuse}",), steps=2)
    assert report["passed"], [variant for variant in report["variants"] if not variant["passed"]]
    assert {variant["phase"] for variant in report["variants"]} == {"train", "evaluate"}


def test_its_inference_is_measured(config: Path) -> None:
    options = ("--phase", "infer", "--steps", "2", "--warmup", "0")
    report = result("bench", "net.yaml", "fuse=false", *options, cwd=config.parent)
    assert report["mxrun"]["step_ms"]["min"] > 0
    assert "bn" in {row["name"] for row in report["operators"]}


@pytest.mark.parametrize("fuse", [True, False])
def test_peers_of_its_inference_get_every_variable(config: Path, fuse: bool) -> None:
    built = load(config, (f"fuse={str(fuse).lower()}",))
    plan = plan_for(built, training=False)
    # Folded into the weights it is read; oneDNN's kernels read none, NumPy's formula does.
    assert ("bn_gamma" in plan.specs) is (fuse or library.load() is None)
    work = ReferenceOutputs.of(built, Steps(built, plan, EVALUATE))
    assert work.variables.keys() == built.model.learned.keys()
    assert np.array_equal(work.variables["bn_gamma"], np.ones(4, np.float32))
    assert all(np.isfinite(output).all() for step in work.outputs for output in step)
