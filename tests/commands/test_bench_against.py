"""`bench --against`: peer processes, equal results, pairs of measurements, refusals."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import layer_configs
import numpy as np
import pytest
from commands import mxrun, refused, result
from onnx_environment import onnx_python
from oracles.peer import MXNet, Peer, PyTorch

from mxrun.base.errors import UserError
from mxrun.config.bundled import find_config
from mxrun.graph.phases import EVALUATE, TRAIN
from mxrun.inspection.benchmark_loop import Steps
from mxrun.inspection.comparison import Pairs
from mxrun.inspection.equivalence import NotEquivalent, ReferenceOutputs
from mxrun.peers.baseline import KINDS as PEERS
from mxrun.peers.baseline import BaselineProcess, find
from mxrun.preparation.planning import load, plan_for

KINDS: dict[str, type[Peer]] = {"torch": PyTorch, "mxnet": MXNet}
FEW = ("--steps", "3", "--warmup", "1", "--threads", "1", "--batch", "8")
WAYS = {"torch": "eager", "mxnet": "executor"}


def python_of(name: str) -> str:
    """The Python that has the peer; the test skips where it is not installed."""
    kind = KINDS[name]
    if reason := kind.unavailable():
        pytest.skip(reason)
    return str(kind.interpreter())


def given(*names: str) -> list[str]:
    """The options that compare with these peers."""
    pythons = [("--peer-python", f"{name}={python_of(name)}") for name in names]
    return ["--against", ",".join(names), *(part for pair in pythons for part in pair)]


def written(folder: Path, layers: Sequence[str], optimizer: str = "{sgd: {lr: 0.1}}") -> Path:
    """A config of these layers over data [2, 6, 6] and a label."""
    return layer_configs.written(
        folder,
        layers,
        inputs="{data: [2, 6, 6], label: []}",
        data="data: {batch_size: 8, train: {dataset: digits, split: train}}\n",
        train=f"train: {{epochs: 1, optimizer: {optimizer}}}\n",
    )


def work_of(path: Path, overrides: Sequence[str] = (), phase: str = TRAIN) -> ReferenceOutputs:
    built = load(path, overrides)
    plan = plan_for(built, training=phase == TRAIN, threads=1)
    return ReferenceOutputs.of(built, Steps(built, plan, phase))


@cache
def started(name: str) -> BaselineProcess:
    """Return the peer's process, shared by all tests."""
    (found,) = find((name,), {name: python_of(name)})
    return BaselineProcess(found, 1)


@pytest.fixture(scope="module", autouse=True)
def _stopped_afterwards() -> Iterator[None]:
    yield
    for name, kind in KINDS.items():
        if kind.unavailable() is None:
            started(name).close()


def difference(work: ReferenceOutputs, name: str, mode: str) -> float:
    """Return the difference between the results of the peer and of mxrun, after a reset."""
    baseline = started(name)
    baseline.open(work.checked, mode, work.variables, work.batches)
    return work.difference(baseline, mode)


@pytest.mark.parametrize("phase", ["train", "infer"])
def test_peers_take_turns_with_the_same_network(phase: str, tmp_path: Path) -> None:
    options = (*given("torch", "mxnet"), "--phase", phase, *FEW)
    report = result("bench", "digits_lenet", *options, cwd=tmp_path)
    peers = report["peers"]
    assert list(tmp_path.iterdir()) == []
    assert set(peers) == {"torch", "mxnet"}
    assert {"eager", "eager channels-last"} <= set(peers["torch"]["modes"])
    assert peers["mxnet"]["version"] == "1.9.1"
    for name, peer in peers.items():
        assert peer["status"] == "measured"
        assert peer["python"] == python_of(name)
        assert "reason" not in peer
        assert all(mode.get("ms", 0) > 0 for mode in peer["modes"].values()), peer["modes"]
        fastest = min(peer["modes"], key=lambda mode: peer["modes"][mode]["ms"])
        assert peer["mode"] == fastest
        assert 0 <= peer["modes"][fastest]["difference"] < 1e-2
        ratio = peer["ratio"]
        assert len(ratio["pairs"]) == 3
        assert min(ratio["pairs"]) <= ratio["low"] <= ratio["median"] <= ratio["high"]
        memory = peer["memory"]
        assert 20 << 20 < memory["peak_rss_bytes"] < 2 << 30
        assert memory["mxrun_peak_rss_bytes"] < report["mxrun"]["rss_peak_bytes"]
        sizes = memory["peak_rss_bytes"], memory["mxrun_peak_rss_bytes"]
        assert memory["ratio"] == pytest.approx(sizes[0] / sizes[1])
        fastest_ms = peer["step_ms"]["min"], peer["mxrun_step_ms"]["min"]
        assert ratio["fastest"] == pytest.approx(fastest_ms[0] / fastest_ms[1])
        for side in ("step_ms", "mxrun_step_ms"):
            assert 0 < peer[side]["min"] <= peer[side]["median"] <= peer[side]["p99"]


def test_runtimes_of_onnx_are_peers_of_inference(tmp_path: Path) -> None:
    names = ("onnxruntime", "openvino")
    pythons = [("--peer-python", f"{name}={onnx_python()}") for name in names]
    options = (*("--against", ",".join(names)), *(part for pair in pythons for part in pair))
    peers = result("bench", "digits_lenet", "--phase", "infer", *options, *FEW, cwd=tmp_path)[
        "peers"
    ]
    for name in names:
        (mode,) = peers[name]["modes"].values()
        assert mode["difference"] < 1e-4
        assert peers[name]["ratio"]["median"] > 0
    text = refused("bench", "digits_lenet", *options, *FEW, cwd=tmp_path)
    for name in names:
        assert f"{name} cannot run this network" in text
    assert "runs inference only: use --phase infer" in text


def test_ratios_are_of_each_pair_of_turns() -> None:
    """The machine is half as fast in the second round, which affects both sides of each pair."""
    ours = np.array([[1.0, 1.0, 9.0], [2.0, 2.0, 2.0]])
    pairs = Pairs(baseline_ms=3 * ours, mxrun_ms=ours)
    assert pairs.ratios.tolist() == [3.0, 3.0]
    content = pairs.to_json()
    assert content["ratio"].pop("pairs") == [3.0, 3.0]
    assert content["ratio"] == dict.fromkeys(("median", "low", "high", "fastest"), 3.0)
    assert content["step_ms"]["min"] == 3.0


@pytest.mark.full
def test_the_compiler_is_a_peer_of_its_own(tmp_path: Path) -> None:
    options = ("--against", "torch-compile", "--peer-python", f"torch={python_of('torch')}")
    peers = result("bench", "mlp_regression", *options, *FEW, cwd=tmp_path)["peers"]
    assert peers["torch-compile"]["modes"].keys() == {"compile"}
    assert peers["torch-compile"]["ratio"]["median"] > 0


def test_people_get_a_table(tmp_path: Path) -> None:
    options = ("--against", "torch,mxnet", "--peer-python", f"torch={python_of('torch')}")
    options = (*options, "--peer-python", f"mxnet={sys.executable}")
    done = mxrun("bench", "mlp_mnist", *options, *FEW, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    table = " ".join(done.stdout.split())
    assert "a ratio above 1 means that mxrun is faster" in table
    assert "eager" in table
    assert "missing: not installed in" in table


def test_a_missing_peer_is_told_and_the_others_are_measured(tmp_path: Path) -> None:
    python = python_of("torch")
    options = ("--against", "mxnet,torch", "--peer-python", f"torch={python}", *FEW)
    peers = result("bench", "mlp_mnist", *options, cwd=tmp_path)["peers"]
    assert peers["torch"]["status"] == "measured"
    assert peers["mxnet"] == {
        "status": "missing",
        "python": sys.executable,
        "reason": f"not installed in {sys.executable}: give --peer-python mxnet=PATH",
    }


def test_without_any_peer_nothing_is_measured(tmp_path: Path) -> None:
    steps = ("--steps", "100000000")
    text = refused("bench", "mlp_mnist", "--against", "mxnet", *steps, cwd=tmp_path)
    assert "mxnet: not installed in" in text
    assert "give --peer-python mxnet=PATH" in text


def test_the_help_names_every_peer(tmp_path: Path) -> None:
    done = mxrun("bench", "--help", cwd=tmp_path)
    assert done.returncode == 0
    said = set(re.split(r"[\s,;:]+", done.stdout.replace("│", " ")))
    assert PEERS.keys() <= said


def test_wrong_options_are_refused(tmp_path: Path) -> None:
    cases = {
        ("--against", ""): "--against has an empty name of a peer",
        ("--against", ","): "expected: peers, such as torch or torch,mxnet",
        ("--against", "torch,"): "got: 'torch,'",
        ("--against", "torch, ,mxnet"): "got: 'torch, ,mxnet'",
        ("--against", "torhc"): "did you mean 'torch'",
        ("--against", "torch", "--peer-python", "torch=no/python"): "there is no such program",
        ("--against", "torch", "--peer-python", "torch"): "cannot be read as a peer and its Python",
        ("--against", "torch", "--peer-python", "numpy=python3"): "unknown baseline 'numpy'",
    }
    for options, words in cases.items():
        assert words in refused("bench", "mlp_mnist", *options, cwd=tmp_path)


PLUGIN = """from mxrun.operator.simple import reads_inputs, simple_operator


def gradient(out_grad, x):
    return out_grad * 2


@simple_operator("twice", gradient=reads_inputs(gradient))
def twice(x):
    \"\"\"output = 2 * data. Backward reads the output's gradient.\"\"\"
    return x * 2
"""


@pytest.mark.full
@pytest.mark.parametrize("name", KINDS)
def test_a_network_that_no_peer_knows_is_refused_by_name(name: str, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(PLUGIN)
    path = written(tmp_path, ["twice: {name: double}", *HEADS["softmax"]])
    text = refused("bench", str(path), "plugins=[own.py]", *given(name), *FEW, cwd=tmp_path)
    assert f"{name} cannot run this network" in text
    assert "twice" in text


def test_an_update_that_the_peer_lacks_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, HEADS["softmax"], "{rmsprop: {lr: 0.1}}")
    peers = result("bench", str(path), *given("torch", "mxnet"), *FEW, cwd=tmp_path)["peers"]
    assert peers["torch"]["status"] == "failed"
    assert "update rmsprop_update is not supported" in peers["torch"]["reason"]
    assert peers["mxnet"]["status"] == "measured"


SOFTMAX = "FullyConnected: {name: fc, num_hidden: 5}"
HEADS: dict[str, list[str]] = {
    "softmax": [SOFTMAX, "SoftmaxOutput: {label: label}"],
    "smoothed": [SOFTMAX, "SoftmaxOutput: {label: label, smooth_alpha: 0.1, grad_scale: 2}"],
    "ignored": [
        SOFTMAX,
        "SoftmaxOutput: {label: label, use_ignore: true, ignore_label: 1, normalization: valid}",
    ],
    "batch": [SOFTMAX, "SoftmaxOutput: {label: label, normalization: batch}"],
    "linear": [
        "FullyConnected: {num_hidden: 1}",
        "LinearRegressionOutput: {label: label, grad_scale: 0.1}",
    ],
    "absolute": ["FullyConnected: {num_hidden: 1}", "MAERegressionOutput: {label: label}"],
    "made": [
        "FullyConnected: {num_hidden: 1}",
        "square: {}",
        "MakeLoss: {grad_scale: 0.1}",
    ],
}
OPTIMIZERS = {
    "sgd": "{sgd: {lr: 0.1, momentum: 0.9, wd: 0.01}}",
    "clipped": "{sgd: {lr: 1.0, clip_gradient: 0.01}}",
    "nag": "{nag: {lr: 0.1, momentum: 0.9}}",
    "adam": "{adam: {lr: 0.01, wd: 0.001}}",
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("head", HEADS)
def test_losses_are_the_same(head: str, name: str, tmp_path: Path) -> None:
    work = work_of(written(tmp_path, HEADS[head]))
    assert len(work.losses) == 3
    assert difference(work, name, WAYS[name]) < 1e-4


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_updates_are_the_same(optimizer: str, name: str, tmp_path: Path) -> None:
    work = work_of(written(tmp_path, HEADS["softmax"], OPTIMIZERS[optimizer]))
    still = replace(work, checked=replace(work.checked, rate=0.0))
    assert difference(work, name, WAYS[name]) < 1e-4
    with pytest.raises(NotEquivalent):
        difference(still, name, WAYS[name])


def test_torchs_decoupled_decay_is_the_same(tmp_path: Path) -> None:
    work = work_of(written(tmp_path, HEADS["softmax"], "{adamw: {lr: 0.01, wd: 0.1}}"))
    assert difference(work, "torch", "eager") < 1e-4


@pytest.mark.parametrize("name", KINDS)
def test_dropout_drops_nothing_while_losses_are_compared(name: str) -> None:
    work = work_of(find_config("digits_regularized"), ("data.batch_size=16",))
    assert work.differ
    assert difference(work, name, WAYS[name]) < 1e-2
    unequal = replace(work, checked=work.timed)
    with pytest.raises(NotEquivalent, match="not equivalent: its first losses are"):
        difference(unequal, name, WAYS[name])


@pytest.mark.parametrize("mode", ["eager channels-last", "frozen", "frozen channels-last"])
def test_inference_gives_the_same_outputs(mode: str) -> None:
    work = work_of(find_config("digits_lenet"), ("data.batch_size=8",), EVALUATE)
    assert not work.losses
    assert difference(work, "torch", mode) < 1e-4
    other = replace(work, outputs=tuple([2 * array for array in step] for step in work.outputs))
    with pytest.raises(NotEquivalent, match="not equivalent: outputs of step 1"):
        difference(other, "torch", mode)


LAYERS = [
    "Convolution: {name: conv, num_filter: 4, kernel: [3, 3], pad: [1, 1], num_group: 2}",
    "BatchNorm: {name: bn}",
    "Activation: {act_type: softrelu}",
    "SliceChannel: {name: split, num_outputs: 2}",
    "broadcast_mul: {name: product, lhs: 'split[0]', rhs: 'split[1]'}",
    "Pooling: {pool_type: avg, kernel: [2, 2], stride: [2, 2], pooling_convention: full}",
    "LeakyReLU: {act_type: leaky, slope: 0.1}",
    "Pooling: {pool_type: max, global_pool: true}",
    "Flatten: {name: flat}",
    SOFTMAX,
    "SoftmaxOutput: {label: label}",
]


@pytest.mark.parametrize("name", KINDS)
def test_operators_with_and_without_a_library_module(name: str, tmp_path: Path) -> None:
    work = work_of(written(tmp_path, LAYERS))
    assert difference(work, name, WAYS[name]) < 1e-3


@pytest.mark.parametrize("name", KINDS)
def test_frozen_statistics_give_the_same_gradients(name: str, tmp_path: Path) -> None:
    """Compared through a frozen batch norm to the layer below; batch statistics would differ."""
    path, rate = written(tmp_path, LAYERS), "train.optimizer.sgd.lr=1"
    frozen = work_of(path, (rate, "network.variables={'bn_*': {frozen: true}}"))
    assert difference(frozen, name, WAYS[name]) < 1e-3
    moving = "network.variables={'bn_*': {frozen: true}, 'bn_moving_*': {frozen: false}}"
    other = work_of(path, (rate, moving))
    with pytest.raises(NotEquivalent):
        difference(replace(frozen, losses=other.losses), name, WAYS[name])


@pytest.mark.parametrize("name", KINDS)
def test_the_norm_of_gradients_is_clipped_alike(name: str, tmp_path: Path) -> None:
    path = written(tmp_path, LAYERS)
    clipped = work_of(path, ("train.optimizer={sgd: {lr: 1, clip_global_norm: 0.01}}",))
    assert difference(clipped, name, WAYS[name]) < 1e-3
    other = work_of(path, ("train.optimizer={sgd: {lr: 1, clip_global_norm: 0.1}}",))
    with pytest.raises(NotEquivalent):
        difference(replace(clipped, losses=other.losses), name, WAYS[name])


def test_training_that_peers_do_not_know_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, HEADS["softmax"])
    with pytest.raises(UserError, match="accumulated gradients cannot be compared"):
        work_of(path, ("train.accumulate=2",))
    random = [SOFTMAX, "LeakyReLU: {name: noisy, act_type: rrelu}", "SoftmaxOutput: {label: label}"]
    with pytest.raises(UserError, match="'noisy' draws random numbers"):
        work_of(written(tmp_path, random))


DOUBLED = """from mxrun.operator.simple import reads_inputs, simple_operator


def gradient(out_grad, x):
    return out_grad * 2


@simple_operator("softmin", gradient=reads_inputs(gradient))
def softmin(x):
    \"\"\"output = 2 * data, which is not what MXNet has of this name.\"\"\"
    return x * 2
"""


def test_a_peer_that_does_other_work_is_told_and_not_measured(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(DOUBLED)
    layers = [SOFTMAX, "softmin: {name: doubled}", "SoftmaxOutput: {label: label}"]
    path = written(tmp_path, layers)
    done = mxrun(
        "bench", str(path), "plugins=[own.py]", *given("mxnet"), *FEW, "--json", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "mxnet is not measured: mxnet (executor) is not equivalent: its first" in done.stderr
    report = json.loads(done.stdout)
    peer = report["peers"]["mxnet"]
    assert peer["status"] == "different"
    assert "is not equivalent: its first losses are" in peer["reason"]
    assert "ratio" not in peer
    assert report["mxrun"]["step_ms"]["median"] > 0


@pytest.mark.parametrize(
    ("phase", "mode"),
    [
        (TRAIN, "eager autocast-bfloat16"),
        (TRAIN, "eager autocast-bfloat16 channels-last"),
        (EVALUATE, "eager autocast-bfloat16"),
        (EVALUATE, "eager bfloat16 channels-last"),
        (EVALUATE, "frozen bfloat16"),
    ],
)
def test_torch_runs_bfloat16(phase: str, mode: str) -> None:
    low = ("data.batch_size=16", "precision=bfloat16")
    work = work_of(find_config("digits_lenet"), low, phase)
    # Both round the same values, apart from sums in another order; float32 differs much more.
    assert difference(work, "torch", mode) < difference(work, "torch", "eager") / 5


def test_peers_run_in_the_networks_precision(tmp_path: Path) -> None:
    options = (*given("torch", "mxnet"), *FEW)
    peers = result("bench", "mlp_mnist", "precision=bfloat16", *options, cwd=tmp_path)["peers"]
    assert peers["mxnet"]["status"] == "failed"
    reason = "does not run bfloat16 on the CPU: use precision=float32"
    assert peers["mxnet"]["reason"] == reason
    (mode,) = peers["torch"]["modes"]
    assert mode == peers["torch"]["mode"] == "eager autocast-bfloat16"
    assert peers["torch"]["modes"][mode]["precision"] == "bfloat16"
    assert peers["torch"]["ratio"]["median"] > 0


def test_which_runtimes_of_onnx_run_bfloat16_is_said() -> None:
    refusals = {
        (name, phase): PEERS[name].refusal(phase, "bfloat16")
        for name in ("onnxruntime", "openvino")
        for phase in ("train", "infer")
    }
    unknown = "does not run bfloat16 on the CPU: use precision=float32"
    assert refusals == {
        ("onnxruntime", "train"): unknown,
        ("onnxruntime", "infer"): unknown,
        ("openvino", "train"): "runs inference only: use --phase infer",
        ("openvino", "infer"): "",
    }


@pytest.mark.parametrize("name", KINDS)
def test_losses_are_compared_at_a_rate_that_does_not_amplify_rounding(
    name: str, tmp_path: Path
) -> None:
    layers = [
        layer
        for index in range(8)
        for layer in (
            f"FullyConnected: {{name: dense{index}, num_hidden: 16}}",
            f"BatchNorm: {{name: bn{index}, fix_gamma: false}}",
            "Activation: {act_type: tanh}",
        )
    ]
    work = work_of(written(tmp_path, [*layers, *HEADS["softmax"]], "{sgd: {lr: 10.0}}"))
    assert work.differ
    assert 0 < work.checked.rate < work.timed.rate == 10.0
    assert work.checked.symbol == work.timed.symbol
    assert difference(work, name, WAYS[name]) < 1e-3
    still = replace(work, checked=replace(work.checked, rate=0.0))
    with pytest.raises(NotEquivalent):
        difference(still, name, WAYS[name])


def test_layers_of_their_own_precision_are_refused(tmp_path: Path) -> None:
    layers = ["FullyConnected: {num_hidden: 5, precision: bfloat16}", *HEADS["softmax"]]
    with pytest.raises(UserError, match="has a precision of its own"):
        work_of(written(tmp_path, layers))


def test_losses_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, HEADS["linear"], "{sgd: {lr: 1e+30}}")
    with pytest.raises(UserError, match="not finite: they cannot be compared"):
        work_of(path)
