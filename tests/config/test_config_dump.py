"""Saved configs read back as the same values."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
from layer_configs import config_file

from mxrun.base.errors import Diagnostics, SourceLocation, UserError
from mxrun.config import load_config
from mxrun.config.dump import dump
from mxrun.config.interpolate import Interpolator
from mxrun.config.load import load_text
from mxrun.config.marked import Scalar, SourceNode

HERE = SourceLocation("config.yaml", 1, 1)
CONFIG = """\
network:
  inputs: {data: [3], label: []}
  layers:
    - FullyConnected: {name: fc, num_hidden: 2}
    - SoftmaxOutput: {label: label}
data: {batch_size: 8, train: {dataset: digits, split: train}}
train: {epochs: 1, optimizer: {sgd: {lr: 0.1}}}
"""
TEXTS = [
    *("", " ", "null", "~", "true", "Yes", "no", "0x1F", "0o17", "1e-3", "12", "-0", "+1", "1_0"),
    *(
        ".inf",
        "-.INF",
        ".nan",
        "nan",
        "inf",
        "1:30",
        "2024-01-01",
        "<<",
        "=",
        "---",
        "...",
        "--- a",
    ),
    *("a: b", "a:", ":a", "a #b", "#a", "- a", "-", "? a", "{", "}", "[", "]", ",", "a, b", "&a"),
    *(
        "*a",
        "!a",
        "|",
        ">",
        "%a",
        "@a",
        "`a",
        "'a'",
        '"a"',
        "\\",
        "\\n",
        "a\nb",
        "\t",
        "\r\n",
        "\x00",
    ),
    *("\x1b[31m", "\x7f", "\x85", "\xa0", "\u2028", "\ufeff", "\ufffe", "é", "日本", "\U0001f600"),
    *("${x}", "$${x}", "$${", "$", "$$", "${", "a${", "???x"[1:], "x" * 1500, "é" * 300, '"' * 999),
]
NUMBERS: list[Scalar] = [
    *(0, -1, 10**99, 10**100 - 1, -(10**98), 2**63, True, False, None),
    *(0.0, -0.0, 0.1, 1e16, 1e22, 1e-300, 5e-324, 1.7976931348623157e308, math.inf, -math.inf),
    math.nan,
]


def marked(value: object) -> SourceNode:
    if isinstance(value, dict):
        return SourceNode({key: marked(part) for key, part in value.items()}, HERE)
    if isinstance(value, list):
        return SourceNode(tuple(map(marked, value)), HERE)
    assert value is None or isinstance(value, (bool, int, float, str))
    return SourceNode(value, HERE)


def read_again(tree: SourceNode) -> SourceNode:
    problems = Diagnostics()
    found = Interpolator(problems).interpolate(load_text(dump(tree), HERE, problems), {})
    assert not list(problems)
    return found


def spelled(tree: SourceNode) -> str:
    """Return every value with its type; NaN equals itself, and -0.0 differs from 0.0."""
    return repr(tree.plain())


def drawn(generator: random.Random, depth: int) -> object:
    kind = generator.randrange(4 if depth else 2)
    if kind == 0:
        return generator.choice(NUMBERS)
    if kind == 1:
        return "".join(generator.choice(TEXTS)[:40] for _ in range(generator.randrange(3)))
    parts = [drawn(generator, depth - 1) for _ in range(generator.randrange(4))]
    return parts if kind == 2 else {key_of(generator): part for part in parts}


def key_of(generator: random.Random) -> str:
    keys = [text for text in TEXTS if "${" not in text and text != "<<"]
    return generator.choice(keys)


@pytest.mark.parametrize("wrapped", ["value", "key", "item", "flow"])
def test_every_scalar_reads_back(wrapped: str) -> None:
    for scalar in (*TEXTS, *NUMBERS):
        if wrapped == "key" and (not isinstance(scalar, str) or "${" in scalar or scalar == "<<"):
            continue
        tree = {
            "value": lambda scalar=scalar: {"a": scalar, "b": {"long" * 30: scalar}},
            "key": lambda scalar=scalar: {scalar: {scalar: [{scalar: 1}, {scalar: 2, "b": 3}]}},
            "item": lambda scalar=scalar: {"a": [scalar, {"b": scalar}], "c": {"d": [[scalar]]}},
            "flow": lambda scalar=scalar: {"a": {"b": [{"c": scalar}, [scalar, scalar]]}},
        }[wrapped]()
        assert spelled(read_again(marked(tree))) == spelled(marked(tree)), repr(scalar)[:60]


def test_drawn_trees_read_back() -> None:
    generator = random.Random(5)
    for _ in range(400):
        tree = marked({"a": drawn(generator, 4), "b": drawn(generator, 4)})
        assert spelled(read_again(tree)) == spelled(tree), dump(tree)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return config_file(tmp_path, CONFIG)


def test_integers_that_would_be_saved_in_more_than_100_digits_are_refused(config: Path) -> None:
    most, more = (f"network.layers[0].FullyConnected.x=0x{'f' * digits}" for digits in (83, 84))
    text = load_config(config, [most]).resolved()
    assert str(16**83 - 1) in text
    load_text(text, HERE, problems := Diagnostics())
    assert not list(problems)
    with pytest.raises(UserError, match="too long: a number of 102 digits"):
        load_config(config, [more])


def test_a_config_that_could_not_be_read_again_is_not_saved(config: Path) -> None:
    deep = "1"
    for _ in range(60):
        deep = f"[{deep}]"
    nested = f"network.layers[0].FullyConnected.x.y.z={deep}"
    with pytest.raises(UserError, match="too many levels to be saved") as caught:
        load_config(config, [nested]).resolved()
    assert "at most 64" in str(caught.value)


def test_a_long_key_reads_back(config: Path, tmp_path: Path) -> None:
    key = "é" * 400
    layer = f"network.layers[0].FullyConnected.x={{? {json.dumps(key)} : 1}}"
    found = load_config(config, [layer])
    again = config_file(tmp_path, found.resolved(), "again.yaml")
    assert load_config(again) == found
    assert load_config(again).sha256() == found.sha256()
