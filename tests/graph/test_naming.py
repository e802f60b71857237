"""Generated names in messages."""

from __future__ import annotations

import re

import pytest
from memory_reports import memory_of

from mxrun.config.bundled import find_config
from mxrun.graph.naming import in_words


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("conv1", "conv1"),
        ("stage1/unit2/branch/wide/bn+add+relu", "stage1/unit2/branch/wide/bn+add+relu"),
        ("conv1:backward", "backward of conv1"),
        ("conv1:backward:weight+bias", "backward of conv1 (weight+bias)"),
        ("data:reorder7:anew", "copy of data recomputed"),
        ("conv1:again", "conv1 again"),
        ("conv1:again2", "conv1 again"),
        ("data:reorder3399:again", "copy of data again"),
        ("pool_output:grad_sum848", "sum of the gradients of pool_output"),
        ("fc1_weight:average:update", "update of average of fc1_weight"),
        ("fc1_weight@onednn:bfloat16:1518", "fc1_weight (packed) (bfloat16)"),
        ("data@channels_last:again", "data (channels last) again"),
        ("conv+bn_bias:1280", "conv+bn_bias"),
        ("random:state", "state of the random generator"),
        ("data:elsewhere", "data (elsewhere)"),
        ("data@blocked", "data (blocked)"),
    ],
)
def test_marks_become_words(name: str, words: str) -> None:
    assert in_words(name) == words


@pytest.mark.parametrize(
    ("config", "phase", "overrides"),
    [
        ("digits_regularized", "train", ["train.accumulate=2", "train.average=0.9"]),
        ("resnet20_cifar10", "train", ["memory.budget=50%"]),
        ("resnet20_cifar10", "train", ["precision=bfloat16", "train.optimizer=rmsprop"]),
        ("resnet20_cifar10", "infer", []),
    ],
)
def test_F7_no_mark_of_a_plan_is_without_words(
    config: str, phase: str, overrides: list[str]
) -> None:
    """Code that generates names with a new mark must define its wording."""
    path = find_config(config)
    plan = memory_of(path, overrides, phase=phase, batch=8, threads=1, measured=False).plan
    names = {block.name for block in plan.pinned}
    for planned in plan.phases.values():
        names |= {step.name for step in planned.steps}
        names |= {planned.graph.values[v].name for block in planned.blocks for v in block.values}
    for name in names:
        words = in_words(name)
        assert not {":", "@"} & set(words)
        for told in re.findall(r"\(([^)]*)\)", words):
            known = ("packed", "channels last", "row-major", "bfloat16", "float32")
            assert told in known or f":backward:{told}" in name, name
