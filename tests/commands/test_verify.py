"""`mxrun verify`: variants of the plan of one network."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import mxrun, refused, result, succeeded
from layer_configs import SYNTHETIC, config_text
from memory_reports import verified
from planted import plant

from mxrun.commands import verify as verification
from mxrun.compiler.compile import compile_plan
from mxrun.config.bundled import find_config
from mxrun.executor.executor import Executor
from mxrun.graph.phases import TRAIN
from mxrun.inspection.fault_injection import freed_early
from mxrun.preparation.planning import load, request_for

NET = config_text(
    """\
    - Convolution: {name: conv, num_filter: 4, kernel: [3, 3], pad: [1, 1]}
    - BatchNorm: {name: bn, fix_gamma: false}
    - elemwise_add: {name: add, lhs: bn, rhs: conv}
    - Activation: {name: relu, act_type: relu}
    - Dropout: {name: drop, p: 0.3}
    - FullyConnected: {name: fc, num_hidden: 3}
    - SoftmaxOutput: {name: softmax, label: label}
""",
    inputs="{data: [2, 6, 6], label: []}",
    data=SYNTHETIC,
    train="train: {epochs: 1, optimizer: {adamw: {lr: 0.01, wd: 0.1}}}\n",
)


# Fusions in training and in inference of each network.
FUSED = {
    "digits_lenet": ({"maximum before rectifier"}, {"convolution and rectifier"}),
    "resnet20_cifar10": (
        {"batch norm and rectifier", "batch norm, sum and rectifier"},
        {
            "batch norm folded into a product",
            "convolution and rectifier",
            "convolution, sum and rectifier",
        },
    ),
    "digits_regularized": (
        {"batch norm and rectifier"},
        {"batch norm folded into a product", "convolution and rectifier"},
    ),
}


# The fusions do not depend on the size of images.
SMALLER = {"resnet20_cifar10": ("network.inputs.data=[3,16,16]",)}


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("config", FUSED)
def test_F4_networks_give_the_same_in_every_way(config: str, precision: str) -> None:
    words = [f"precision={precision}", *SMALLER.get(config, ())]
    report = verified(find_config(config), words, steps=4, batch=8, threads=2)
    assert report["passed"], [each for each in report["variants"] if not each["passed"]]
    training, inference = FUSED[config]
    names = {f"without {name}" for name in training}
    names |= {f"inference: without {name}" for name in inference}
    promised = {each["variant"]: each["promised"] for each in report["variants"]}
    assert set(promised) == names | {each.name for each in verification.VARIANTS}
    within = [promise for promise in promised.values() if promise.startswith("within")]
    assert len(within) == 2 + len(inference)
    assert all(each["tensors"] >= 4 for each in report["variants"])
    (seen,) = [
        each["variant"]
        for each in report["variants"]
        if each["tensor"] and each["phase"] == "train"
    ]
    assert promised[seen] == "a difference"


@pytest.mark.parametrize(
    ("layer", "promise"), [("", "within 1e-05"), (", precision: bfloat16", "within 0.05")]
)
def test_F4_one_layer_in_bfloat16_is_promised_no_more_than_all(
    tmp_path: Path, layer: str, promise: str
) -> None:
    text = NET.replace("pad: [1, 1]", f"pad: [1, 1]{layer}")
    (tmp_path / "net.yaml").write_text(text)
    report = verified(tmp_path / "net.yaml", steps=3, threads=2)
    assert report["passed"], [each for each in report["variants"] if not each["passed"]]
    promises = {each["promised"] for each in report["variants"]}
    assert promises == {"the same bits", "a difference", promise}


MIXED = {
    "a chain in bfloat16 behind a product in float32": """
    - Convolution: {name: conv, num_filter: 16, kernel: [3, 3]}
    - BatchNorm: {name: bn, precision: bfloat16}
    - Activation: {name: relu, act_type: relu, precision: bfloat16}
""",
    "a normalization in float32 behind a product in bfloat16": """
    - Convolution: {name: conv, num_filter: 16, kernel: [3, 3], precision: bfloat16}
    - BatchNorm: {name: bn, precision: float32}
""",
    "a sum in bfloat16 that is read in float32": """
    - Convolution: {name: conv, num_filter: 8, kernel: [3, 3], precision: bfloat16}
    - Convolution: {name: next, num_filter: 8, kernel: [1, 1], no_bias: true, precision: bfloat16}
    - elemwise_add: {name: add, inputs: [conv, next], precision: bfloat16}
    - Pooling: {name: pool, kernel: [2, 2], stride: [2, 2], precision: float32}
""",
}


@pytest.mark.parametrize("layers", MIXED.values(), ids=MIXED)
def test_F4_types_may_change_between_layers(tmp_path: Path, layers: str) -> None:
    head, rest = NET.split("    - Convolution", 1)
    tail = rest.partition("    - FullyConnected")[2]
    text = head.rstrip() + layers + "    - FullyConnected" + tail
    (tmp_path / "net.yaml").write_text(text)
    report = verified(tmp_path / "net.yaml", steps=3, threads=2)
    assert report["passed"], [each for each in report["variants"] if not each["passed"]]


def test_F4_inference_begins_with_what_was_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With initial statistics, the outputs of deep networks would not depend on anything."""
    (tmp_path / "net.yaml").write_text(NET)
    results, found = verification.results, {}

    def noted(built: object, plan: object, each: verification.PlanVariant, *rest: object) -> object:
        arrays = results(built, plan, each, *rest)  # type: ignore[arg-type]
        found.setdefault(each.phase, (built, plan, arrays))
        return arrays

    monkeypatch.setattr(verification, "results", noted)
    assert verified(tmp_path / "net.yaml", steps=2)["passed"]
    built, plan, outputs = found["evaluate"]
    fresh = results(built, plan, verification.PlanVariant("", "evaluate"), 2, {})
    trained = found["train"][2]
    again = results(built, plan, verification.PlanVariant("", "evaluate"), 2, trained)
    assert outputs.keys() == fresh.keys()
    for name, array in outputs.items():
        assert array.tobytes() == again[name].tobytes()
        assert array.tobytes() != fresh[name].tobytes()


def test_F4_the_command_says_what_was_promised_and_found(tmp_path: Path) -> None:
    (tmp_path / "net.yaml").write_text(NET)
    report = result("verify", "net.yaml", "--steps", "3", cwd=tmp_path)
    assert report["passed"]
    assert report["steps"] == 3
    done = succeeded(mxrun("verify", "net.yaml", "--steps", "2", cwd=tmp_path))
    assert "no fusion" in done.stdout
    promised = "gives the same bits wherever they are promised, and within 1e-05 elsewhere"
    assert promised in done.stdout
    assert "--steps" in refused("verify", "net.yaml", "--steps", "0", cwd=tmp_path)


@pytest.mark.parametrize("change", [1e-4, float("nan")])
def test_F4_one_number_of_one_tensor_breaks_a_promise(change: float) -> None:
    random = np.random.default_rng(0)
    expected = {name: random.standard_normal(5).astype(np.float32) for name in ("weight", "bias")}
    got = {name: array.copy() for name, array in expected.items()}
    for each in verification.VARIANTS:
        assert verification.compared(each, expected, got, False)["passed"] is not each.is_wrong
    got["bias"][1] += np.float32(change)
    for each in verification.VARIANTS:
        entry = verification.compared(each, expected, got, False)
        assert entry["tensor"] == "bias"
        assert entry["passed"] is each.is_wrong


@pytest.mark.parametrize("config", FUSED)
def test_F4_a_block_that_is_freed_early_shows(config: str) -> None:
    """The faulty plan gives different numbers with poisoned memory."""
    built = load(find_config(config), batch=4)
    request = replace(request_for(built, True, 2), budget=None)
    plan = compile_plan(built.model.symbol, request)
    early = next(freed_early(plan, TRAIN))
    wrong = early.plan
    (block,) = set(wrong.phases[TRAIN].blocks) - set(plan.phases[TRAIN].blocks)
    (before,) = set(plan.phases[TRAIN].blocks) - set(wrong.phases[TRAIN].blocks)
    assert early.block == block == replace(before, last=before.last - 1)
    poisoned = verification.PlanVariant("poisoned", TRAIN, poisoned=True)
    expected = verification.results(built, plan, verification.PlanVariant("plain", TRAIN), 2, {})
    for each, passed in ((plan, True), (wrong, False)):
        got = verification.results(built, each, poisoned, 2, {})
        assert verification.compared(poisoned, expected, got, False)["passed"] is passed


# A tensor that backward reads although the operator does not say so.
UNDECLARED = (
    ("return [out_grad[0], in_data[0], in_data[1]]", "return [out_grad[0], in_data[0]]"),
    (
        "lhs, rhs = call.inputs\n",
        "lhs, rhs = call.inputs\n        Planted.kept = rhs\n",
    ),
    (
        "lhs, rhs = call.inputs.lhs, call.inputs.rhs\n",
        "lhs, rhs = call.inputs.lhs, Planted.kept\n",
    ),
)


@pytest.mark.parametrize("changes", [(), UNDECLARED], ids=["declared", "undeclared"])
def test_F4_a_tensor_that_is_freed_too_early_ends_with_code_1(
    tmp_path: Path, changes: tuple[tuple[str, str], ...]
) -> None:
    plant(tmp_path, "product", *changes)
    head, tail = NET.split("    - FullyConnected", 1)
    product = """\
    - FullyConnected: {name: value, num_hidden: 8}
    - FullyConnected: {name: gate, num_hidden: 8}
    - product: {name: gated, lhs: value, rhs: gate}
"""
    text = f"{head}{product}    - FullyConnected{tail}"
    (tmp_path / "net.yaml").write_text(f"plugins: [product.py]\n{text}")
    done = mxrun("verify", "net.yaml", "--steps", "2", "--json", cwd=tmp_path)
    assert done.returncode == (1 if changes else 0), done.stderr
    report = json.loads(done.stdout)
    assert report["passed"] is not bool(changes)
    passed = {each["variant"]: each["passed"] for each in report["variants"]}
    assert passed["freed memory filled with NaN"] is not bool(changes)
    assert passed["fault: a block freed one operator early"]


# The first tensors that backward reads have no effect: because of a fixed gamma, or of gradients
# that are all zero.
HARDLY_READ = {
    "a gradient that is subtracted from itself": """
    - expm1: {}
    - BatchNorm: {}
    - mean: {axis: 1}
    - LinearRegressionOutput: {label: label}
""",
    "one class": """
    - softmax: {}
    - BatchNorm: {}
    - BatchNorm: {fix_gamma: false}
    - SoftmaxOutput: {label: label}
""",
}


@pytest.mark.parametrize("network", HARDLY_READ)
def test_networks_in_which_early_freeing_hardly_matters_are_sound(
    tmp_path: Path, network: str
) -> None:
    head, rest = NET.split("    - Convolution", 1)
    tail = rest[rest.index("data:") :]
    inputs = head.replace("data: [2, 6, 6]", "data: [1]").rstrip()
    (tmp_path / "net.yaml").write_text(inputs + HARDLY_READ[network] + tail)
    report = verified(tmp_path / "net.yaml", steps=3, threads=2)
    assert report["passed"], [each for each in report["variants"] if not each["passed"]]
    (early,) = [
        each for each in report["variants"] if each["variant"].startswith("fault: a block freed")
    ]
    assert (early["promised"], bool(early["tensor"])) == ("a difference", True)


def test_where_there_is_nothing_to_free_early_that_is_said() -> None:
    built = load(find_config("digits_lenet"), batch=4)
    plan = compile_plan(built.model.symbol, replace(request_for(built, True, 2), budget=None))
    unread = replace(plan.phases[TRAIN], blocks=())
    plan = replace(plan, phases={**plan.phases, TRAIN: unread})
    (each,) = [each for each in verification.VARIANTS if each.is_wrong]
    entry = verification.freed_early_entry(built, plan, each, 2, {})
    assert (entry["promised"], entry["passed"]) == (verification.NO_EARLY_BLOCK, True)


def test_a_block_that_is_missed_and_not_seen_breaks_the_promise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test for blocks whose contents matter does not depend on the plan's lifetimes."""
    (tmp_path / "net.yaml").write_text(NET)
    monkeypatch.setattr(Executor, "run_poisoned", Executor.run)
    report = verified(tmp_path / "net.yaml", steps=2, threads=2)
    (broken,) = [each for each in report["variants"] if not each["passed"]]
    assert broken["variant"] == "fault: a block freed one operator early"
