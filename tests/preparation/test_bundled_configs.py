"""Bundled configs: each has a description, works with every command and reaches its accuracy."""

from __future__ import annotations

import math
import shlex
import time
from pathlib import Path
from typing import Any

import pytest
from commands import CONFIGS, refused, result
from memory_reports import memory_of
from safetensors.numpy import load_file
from training import json_lines

from mxrun.commands.bench import bench
from mxrun.commands.check import check
from mxrun.config.bundled import find_config
from mxrun.graph.graph import MemoryClass
from mxrun.graph.phases import EVALUATE, TRAIN
from mxrun.io.fetch.published import PUBLISHED
from mxrun.options.bench import BenchOptions
from mxrun.planner.liveness import lifetimes_to_live_bytes
from mxrun.preparation.planning import load, plan_for
from mxrun.preparation.synthetic_data import synthetic_sections

NAMES = sorted(path.stem for path in CONFIGS.glob("*.yaml"))
# Parameter counts of papers and other implementations.
PARAMETERS = {
    "densenet121_imagenet": 7_978_856,
    "gpt_shakespeare": 818_241,
    "gpt_shakespeare_medium": 10_795_841,
    "inceptionv3_imagenet": 23_834_568,
    "lstm_words": 4_653_200,
    "mobilenetv1_imagenet": 4_231_976,
    "mobilenetv2_imagenet": 3_504_872,
    "resnet152_imagenet": 60_192_808,
    "resnet50_imagenet": 25_557_032,
    "vgg16_imagenet": 138_357_544,
}
# Activations of inference with a batch of one, in MiB: the largest step's (Pisarchyk and Lee, 2020,
# for the MobileNets).
ACTIVATIONS = {
    "mobilenetv1_imagenet": 4.594,
    "mobilenetv2_imagenet": 5.742,
    "inceptionv3_imagenet": 7.913,
}
# Limits of training at its peak without parameters, states, inputs and the kernels' own workspaces,
# in MiB, by network and batch: the sum of all tensors at the peak of a plain schedule.
CEILINGS = {
    ("resnet50_imagenet", 16): 1284,
    ("resnet50_imagenet", 64): 5134,
    ("resnet152_imagenet", 32): 5360,
    ("vgg16_imagenet", 64): 3724,
    ("inceptionv3_imagenet", 64): 5677,
    ("densenet121_imagenet", 64): 7663,
    ("resnet20_cifar10", 128): 192.1,
}


def header(name: str) -> list[str]:
    """Return the comment at the start of a config, by line."""
    lines = (CONFIGS / f"{name}.yaml").read_text().splitlines()
    count = next(index for index, line in enumerate(lines) if not line.startswith("#"))
    return [line.removeprefix("#").removeprefix(" ") for line in lines[:count]]


def trained(config: str, folder: Path, *overrides: str) -> tuple[dict[str, Any], Path]:
    """Return the summary of a complete run, and its last checkpoint."""
    summary = result("train", config, "threads=2", *overrides, cwd=folder)
    return summary, folder / summary["run_dir"] / f"checkpoint-{summary['steps']}"


@pytest.mark.parametrize("name", NAMES)
def test_a_config_says_what_it_is(name: str) -> None:
    first = header(name)[0]
    assert first.endswith(".")
    assert load(find_config(name)).options.name == name


def test_the_commands_in_comments_are_right() -> None:
    lines = [line.strip() for name in NAMES for line in header(name)]
    commands = [shlex.split(line) for line in lines if line.startswith("mxrun ")]
    assert len(commands) >= 2
    for _, command, config, *overrides in commands:
        if command == "datasets":
            assert config == "fetch"
            assert overrides[0] in PUBLISHED
            continue
        assert command == "train"
        built = load(find_config(config), overrides)
        assert not built.missing or synthetic_sections(built)


@pytest.mark.parametrize("name", NAMES)
def test_every_command_that_needs_no_data_works(name: str) -> None:
    path = find_config(name)
    assert check(path).parameters > 0
    memory = memory_of(path, threads=2).plan
    assert memory.planned_bytes == memory.lower_bound_bytes
    # All layers on a smaller image: steps at full size would take as long as all other tests here.
    side = 75 if name.startswith("inception") else 64
    images = name.endswith("_imagenet")
    smaller = [f"network.inputs.data=[3, {side}, {side}]"] if images else []
    large = images or name.endswith("_medium")
    for phase in ("train", "infer"):
        size = 1 if large else 8
        options = BenchOptions(
            config=str(path),
            overrides=smaller,
            phase=phase,
            batch=size,
            threads=1,
            steps=2,
            warmup=1,
        )
        report = bench(options, lambda _: None, time.monotonic())
        assert len(report.step_ms) == 2
        assert report.operators


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_known_network_has_its_parameters(name: str) -> None:
    parameters = load(find_config(name)).model.parameters.values()
    assert sum(math.prod(spec.shape) for spec in parameters) == PARAMETERS[name]
    assert len((CONFIGS / f"{name}.yaml").read_text().splitlines()) < 120


@pytest.mark.parametrize(("name", "batch"), CEILINGS)
def test_training_needs_no_more_than_its_tensors_do(name: str, batch: int) -> None:
    path = find_config(name)
    plan = memory_of(path, batch=batch, threads=2, measured=False).plan
    phase = plan.phases[TRAIN]
    assert phase.reusable_bytes == phase.lower_bound_bytes
    # No schedule needs over a hundredth less than this one; with concat in place the bound is
    # unknown.
    assert (phase.any_order_bytes is None) == bool(phase.parts)
    if phase.any_order_bytes is not None:
        assert phase.any_order_bytes > 0.99 * phase.reusable_bytes
    peak = phase.peak_step()
    scratch = phase.steps[peak].name + "_scratch"
    own = sum(block.nbytes for block in phase.blocks if block.name == scratch)
    assert phase.reusable_bytes - own <= CEILINGS[name, batch] * 2**20


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_F1_inference_keeps_few_activations(name: str) -> None:
    plan = memory_of(find_config(name), phase="infer", batch=1, threads=2, measured=False).plan
    phase = plan.phases[EVALUATE]
    live_bytes = [0] * len(phase.steps)
    for block in phase.blocks:
        if block.memory_class is MemoryClass.ACTIVATIONS:
            for step in range(block.first, block.last):
                live_bytes[step] += block.nbytes
    assert round(max(live_bytes) / 2**20, 3) == ACTIVATIONS[name]


def test_S5_densenet_keeps_all_features_of_a_block_in_one_buffer() -> None:
    """Memory of training with a batch of 64 without the kernels' scratch, in MiB."""
    plan = memory_of(
        find_config("densenet121_imagenet"), phase="train", batch=64, threads=2, measured=False
    ).plan
    phase = plan.phases[TRAIN]
    lives = (
        (block.first, block.last, block.nbytes)
        for block in phase.blocks
        if block.memory_class is not MemoryClass.WORKSPACE
    )
    assert max(lifetimes_to_live_bytes(lives, len(phase.steps))) / 2**20 <= 5443
    # All concats of a block except its last.
    assert len(phase.parts) == 58 - 4


def test_mlp_regression_stops_near_the_noise(tmp_path: Path) -> None:
    """Noise of standard deviation 0.05 is a mean square error of 0.0025, a lower limit."""
    summary, _ = trained("mlp_regression", tmp_path)
    assert 0.0025 <= summary["eval"]["mse"] <= 0.005
    assert summary["stopped_early"]
    assert summary["epochs"] < 100


@pytest.mark.full
@pytest.mark.parametrize(("name", "loss"), [("gpt_tiny", 2.3), ("lstm_tiny", 2.0)])
def test_small_language_models_learn_their_plays(name: str, loss: float, tmp_path: Path) -> None:
    """In nats a character; the frequencies of the characters alone would be 3.3."""
    summary, _ = trained(name, tmp_path)
    assert summary["eval"]["loss"] <= loss
    memory = summary["memory"]
    assert memory["planned_bytes"] == memory["touched_bytes"]


def test_text_classifier_tells_the_plays_apart(tmp_path: Path) -> None:
    """Speeches of three plays, each a third of all."""
    summary, _ = trained("text_classifier", tmp_path)
    assert summary["best"]["value"] >= 0.65
    memory = summary["memory"]
    assert memory["planned_bytes"] == memory["touched_bytes"] == memory["lower_bound_bytes"]


@pytest.mark.full
def test_autoencoder_digits_gives_the_images_back(tmp_path: Path) -> None:
    """16 numbers instead of 64; the mean image alone would be 0.07 off."""
    summary, _ = trained("autoencoder_digits", tmp_path)
    assert summary["eval"]["mse"] <= 0.015
    memory = summary["memory"]
    assert memory["planned_bytes"] == memory["touched_bytes"]


@pytest.mark.full
def test_digits_regularized_learns_its_digits(tmp_path: Path) -> None:
    summary, checkpoint = trained("digits_regularized", tmp_path)
    assert summary["eval"]["accuracy"] >= 0.975
    assert summary["best"]["value"] >= summary["eval"]["accuracy"]
    assert "conv1/bn_moving_var" in load_file(checkpoint / "auxiliary.safetensors")
    memory = summary["memory"]
    assert memory["planned_bytes"] == memory["touched_bytes"]


def test_finetune_digits_learns_a_new_head_alone(tmp_path: Path) -> None:
    assert "runs/digits_lenet" in refused("train", "finetune_digits", cwd=tmp_path)
    _, source = trained("digits_lenet", tmp_path, "train.epochs=8")
    summary, checkpoint = trained("finetune_digits", tmp_path)
    assert summary["eval"]["accuracy"] >= 0.97
    convolutions = ["conv1_bias", "conv1_weight", "conv2_bias", "conv2_weight"]
    started = summary["started_from"]
    assert sorted(started["loaded"]) == convolutions
    assert started["missing"] == started["misshapen"] == []
    assert sorted(started["unexpected"]) == ["fc1_bias", "fc1_weight", "fc2_bias", "fc2_weight"]
    names = {kind: group["names"] for kind, group in summary["variables"].items()}
    assert names["loaded"] == names["frozen"] == ["conv*_weight", "conv*_bias"]
    assert names["initialised"] == names["trainable"] == ["head_weight", "head_bias"]
    before, after = (load_file(path / "parameters.safetensors") for path in (source, checkpoint))
    for name in convolutions:
        assert after[name].tobytes() == before[name].tobytes()


def test_finetune_digits_plans_nothing_for_what_is_frozen() -> None:
    """The frozen convolutions have no gradients, optimizer states or backward steps."""
    plan = plan_for(load(find_config("finetune_digits")), training=True)
    names = [step.name for step in plan.phases[TRAIN].steps]
    assert "head:backward" in names
    for name in ("conv1", "relu1", "pool1", "conv2", "relu2", "pool2"):
        assert name in names
        assert f"{name}:backward" not in names
    assert not any(spec.startswith("conv") and ":" in spec for spec in plan.specs)


def test_digits_regularized_repeats_itself_bit_for_bit(tmp_path: Path) -> None:
    """Dropout, augmentation and moving statistics, under other numbers of loaders."""
    short = ("train.epochs=2", "train.checkpoint.best=loss")
    _, first = trained("digits_regularized", tmp_path, *short, "name=one", "data.workers=1")
    _, second = trained("digits_regularized", tmp_path, *short, "name=four", "data.workers=4")
    for name in ("parameters", "auxiliary", "optimizer"):
        file = f"{name}.safetensors"
        assert (first / file).read_bytes() == (second / file).read_bytes()
    one, four = (json_lines(folder.parent / "metrics.jsonl") for folder in (first, second))
    assert one == four
