"""Values set in a parsed config: the same as overrides, without reading a file again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from layer_configs import config_file

from mxrun.config import parse
from mxrun.config.bundled import find_config

TEXT = """\
name: net
network:
  inputs: {data: [4], label: []}
  layers:
    - FullyConnected: {name: fc, num_hidden: 3}
    - SoftmaxOutput: {name: softmax, label: label}
data:
  batch_size: ???
  train: {dataset: npz, path: data.npz}
train: {epochs: 1, optimizer: {sgd: {lr: 0.1}}}
"""
DATA = {"dataset": "synthetic", "split": "train", "shuffle": True, "records": 64, "classes": 10}


@pytest.mark.parametrize(
    ("values", "overrides"),
    [
        ({("precision",): "bfloat16"}, ["precision=bfloat16"]),
        ({("data", "batch_size"): 8, ("seed",): 5}, ["data.batch_size=8", "seed=5"]),
        (
            {("data", "train"): DATA},
            [
                "data.train={dataset: synthetic, split: train, shuffle: true, records: 64, "
                "classes: 10}"
            ],
        ),
        ({("memory", "micro_batches"): True}, ["memory.micro_batches=true"]),
    ],
)
def test_values_are_those_of_overrides(values: dict[Any, Any], overrides: list[str]) -> None:
    path = find_config("lenet_mnist")
    changed, overridden = parse(path).with_values(values).config, parse(path, overrides).config
    assert changed is not None
    assert overridden is not None
    assert changed == overridden
    assert changed.resolved() == overridden.resolved()


def test_data_sections_of_options_are_those_of_overrides() -> None:
    path = find_config("lenet_mnist")
    section = "{dataset: synthetic, split: train, shuffle: true, records: 64, classes: 10}"
    overridden = parse(path, [f"data.{role}={section}" for role in ("train", "eval")]).config
    config = parse(path).config
    assert config is not None
    assert overridden is not None
    changed = config.options.with_data({"train": DATA, "eval": DATA})
    assert changed == overridden.options
    assert changed != config.options
    assert changed.resolved() == overridden.resolved()
    assert changed.inference_sha256() == overridden.inference_sha256()
    assert "network" not in type(changed).model_fields


def test_a_value_takes_the_place_of_a_placeholder(tmp_path: Path) -> None:
    path = config_file(tmp_path, TEXT)
    parsed = parse(path)
    path.unlink()
    changed = parsed.with_values({("data", "batch_size"): 16})
    assert changed.config is not None
    assert changed.config.data.batch_size == 16
    assert changed.config.place("data", "batch_size") == parsed.place("data", "batch_size")


def test_problems_of_the_file_and_of_the_value_are_reported(tmp_path: Path) -> None:
    path = config_file(tmp_path, TEXT.replace("num_hidden: 3", 'num_hidden: "${nothing}"'))
    parsed = parse(path).with_values({("data", "batch_size"): "many", ("train", "epochs"): 2})
    assert parsed.config is None
    problems = [(found.place and found.place.line, found.problem) for found in parsed.diagnostics]
    assert [line for line, _ in problems] == [5, 8]
    assert problems[1][1] == "data.batch_size cannot be 'many'"


def test_what_cannot_be_read_stays_as_it_is(tmp_path: Path) -> None:
    path = config_file(tmp_path, "- 1\n")
    parsed = parse(path)
    assert parsed.with_values({("data", "batch_size"): 1}) is parsed
