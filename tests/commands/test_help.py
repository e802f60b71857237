"""`help` explains keys of configs, operators and commands from one source."""

from __future__ import annotations

import pytest
from refusals import only_problem

from mxrun.base.foreign_names import KEYS
from mxrun.commands import help as command
from mxrun.commands import ops
from mxrun.inspection.reference import config_reference, find

COMMANDS = {"train": "Train a network.", "runs": "List the runs.", "inspect-memory": "Memory."}


def test_a_key_is_explained() -> None:
    entry = command.explain("sgd.momentum", COMMANDS)["entry"]
    assert entry["key"] == "train.optimizer.sgd.momentum"
    assert entry["accepts"] == "number >= 0 and < 1"
    assert (entry["default"], entry["required"]) == ("0", False)
    assert entry["about"] == entry["description"] == "Momentum: the factor of the last step."
    assert entry["example"] == "train:\n  optimizer: {sgd: {lr: 0.1, momentum: 0.9}}\n"


def test_keys_that_belong_together_have_one_example() -> None:
    for key in ("split.seed", "split.stratify", "data.train.split.share"):
        example = command.explain(key, COMMANDS)["entry"]["example"]
        assert "split: {share: 0.8, seed: 1, stratify: true}" in example
    normalize = command.explain("normalize", COMMANDS)["entry"]
    assert "normalize: {mean: [0.485, 0.456, 0.406], std: " in normalize["example"]


def test_a_choice_lists_its_kinds_and_a_section_its_keys() -> None:
    metrics = command.explain("metrics", COMMANDS)["entry"]
    assert metrics["kind"] == "choice"
    assert {"f1", "top_k"} <= {kind["name"] for kind in metrics["entries"]}
    assert all(kind["about"] for kind in metrics["entries"])
    memory = command.explain("memory", COMMANDS)["entry"]
    assert [key["name"] for key in memory["entries"]] == ["budget", "micro_batches"]


def test_an_operator_is_described_as_by_ops() -> None:
    for key in ("Convolution", "network.layers.Convolution"):
        report = command.explain(key, COMMANDS)
        assert report == {"operator": ops.operator("Convolution"), "others": [], "commands": {}}
    others = command.explain("log", COMMANDS)["others"]
    assert [row["key"] for row in others] == ["train.log_every"]
    assert command.explain("sgd_update", {})["operator"]["name"] == "sgd_update"
    assert command.explain("operators", {})["operators"] == ops.operators()
    pad = command.explain("Convolution.pad", COMMANDS)["entry"]
    assert pad["default"] == "0"


def test_a_name_of_both_a_section_and_a_command_says_so() -> None:
    train = command.explain("train", COMMANDS)
    assert train["entry"]["key"] == "train"
    assert train["commands"] == {"train": "Train a network."}
    assert "data.train" in [other["key"] for other in train["others"]]
    # Not the key `run`, which only resembles it.
    runs = command.explain("runs", COMMANDS)
    assert runs == {"candidates": [], "commands": {"runs": "List the runs."}}
    assert list(command.explain("inspect_memory", COMMANDS)["commands"]) == ["inspect-memory"]


@pytest.mark.parametrize(
    ("word", "first"),
    [
        ("crop", "data.train.transforms.center_crop"),
        ("macro", "train.metrics"),
        ("save", "train.checkpoint"),
        ("half", "precision"),
        ("learning_rate", "train.optimizer.adagrad.lr"),
        ("augmentation", "data.train.transforms"),
        ("stop", "train.early_stopping"),
        ("MaxPool2d", "network.layers.Pooling"),
        ("cell", "network.layers.recurrent"),
        ("hidden_size", "network.layers.RNN.state_size"),
    ],
)
def test_a_word_without_a_key_finds_those_that_have_to_do_with_it(word: str, first: str) -> None:
    related = [row["key"] for row in command.explain(word, COMMANDS)["related"]]
    assert related[0] == first
    assert len(set(related)) == len(related)
    if word == "crop":
        assert "data.train.transforms.random_crop" in related
    if word == "macro":
        assert "train.metrics.f1.average" in related


def test_every_foreign_word_leads_to_a_key() -> None:
    root = config_reference()
    for word, keys in KEYS.items():
        assert all(find(root, key) for key in keys), word


def test_examples_of_transforms_are_of_photos() -> None:
    """The pictures of `digits` have 8 x 8 pixels in grey."""
    for key in ("transforms", "random_crop", "normalize", "normalize.mean"):
        example = command.explain(key, COMMANDS)["entry"]["example"]
        assert "dataset: image_folder" in example
        assert "path: photos" in example


@pytest.mark.parametrize(
    ("words", "key"),
    [
        ("macro f1", "train.metrics.f1.average"),
        ("save every", "train.checkpoint.every"),
        ("half the memory", "memory"),
    ],
)
def test_several_words_find_what_most_of_them_have_to_do_with(words: str, key: str) -> None:
    assert key in [row["key"] for row in command.explain(words, COMMANDS)["related"]]


@pytest.mark.parametrize(
    ("key", "problem", "hint"),
    [
        ("momentun", "there is no key 'momentun'", "did you mean 'momentum'"),
        ("train.optimzer", "train has no key 'optimzer'", "did you mean 'optimizer'?"),
        ("sgd.lrr", "train.optimizer.sgd has no key 'lrr'", "did you mean 'lr'?"),
        ("Convolutoin", "there is no key 'Convolutoin'", "did you mean 'Convolution'"),
        ("prompt", "there is no key 'prompt'", "`mxrun docs PAGE` has it on: generation, "),
        ("TransformerEncoder", "there is no key 'TransformerEncoder'", "config gpt_tiny"),
        ("qqqqq", "there is no key 'qqqqq'", "`mxrun help` lists what there is"),
        ("", "there is no key ''", ""),
    ],
)
def test_unknown_keys_get_the_nearest(key: str, problem: str, hint: str) -> None:
    diagnostic = only_problem(command.explain, key, COMMANDS)
    assert diagnostic.problem == problem
    assert hint in diagnostic.hint


def test_the_overview_names_all_sections_and_topics() -> None:
    overview = command.overview()
    sections = [row["key"] for row in overview["sections"]]
    assert sections == ["network", "data", "train", "memory", "blocks"]
    assert {"name", "seed", "extends"} <= {row["key"] for row in overview["settings"]}
    for topic in overview["topics"]:
        assert topic["kinds"]
        report = command.explain(topic["name"], {})
        assert "operators" in report or report["entry"]["kind"] in ("choice", "key")
