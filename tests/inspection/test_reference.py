"""Every key of a config is documented, and its example is valid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from layer_configs import config_file

from mxrun.base.errors import Diagnostics, SourceLocation, UserError
from mxrun.base.params import check
from mxrun.config import parse
from mxrun.config.load import load_text
from mxrun.frontend import build
from mxrun.inspection.reference import CHOICES, LAYERS, ReferenceEntry, config_reference, find
from mxrun.operator.register import OPERATORS
from mxrun.train.metric_kind import METRICS

ROOT = config_reference()
ENTRIES = [entry for entry in ROOT.walk() if entry.path and entry.path == entry.shared]
OPERATOR_KEYS = [key for entry in ENTRIES if entry.kind == "operator" for key in entry.entries]


BASE = """\
network:
  inputs: {data: [1, 8, 8], label: []}
  layers:
    - Convolution: {name: conv1, num_filter: 4, kernel: [3, 3]}
    - FullyConnected: {name: fc, num_hidden: 10}
    - SoftmaxOutput: {name: softmax, label: label}
data: {batch_size: 4, train: {dataset: digits}}
train: {epochs: 1, optimizer: sgd, metrics: [accuracy]}
"""


def name_of(entry: ReferenceEntry) -> str:
    return ".".join(entry.path)


def values_of(entry: ReferenceEntry) -> Any:
    """Return the values of an entry's example."""
    return load_text(entry.example, SourceLocation("example", 1, 1), Diagnostics()).plain()


def test_every_key_has_a_text_an_example_and_a_default_or_is_required() -> None:
    assert len(ENTRIES) > 400
    for entry in ENTRIES:
        assert entry.description.endswith((".", ".)")), name_of(entry)
        assert entry.example or entry.kind == "operator", name_of(entry)
        if entry.kind in ("key", "choice"):
            assert entry.accepts, name_of(entry)
            assert bool(entry.default) != entry.is_required, name_of(entry)
        if entry.kind == "choice":
            assert entry.entries, name_of(entry)


def test_every_registered_kind_is_an_entry() -> None:
    for path, registry in CHOICES.items():
        (choice,) = (entry for entry in ENTRIES if entry.path == path)
        assert [kind.name for kind in choice.entries] == list(registry)


def test_examples_are_valid(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(BASE)
    wrong = []
    for entry in ENTRIES:
        if entry in OPERATOR_KEYS or entry.kind == "operator":
            continue
        start = "" if entry.example.startswith("extends:") else "extends: base.yaml\n"
        path = config_file(tmp_path, start + entry.example, "example.yaml")
        # The rest of a share; shards of several processes.
        beside = {"rest": ["data.train.split={share: 0.8}"], "shard": ["kvstore=dist_sync"]}
        overrides = beside.get(entry.name, [])
        parsed = parse(path, overrides)
        problems = list(parsed.diagnostics)
        # Parts of other networks, metrics of other losses, and initialisers of packed vectors
        # do not fit the base.
        other = entry.path[0] == "network" or entry.path[:2] == ("train", "metrics")
        other = other or "lstm_bias" in entry.path
        if not problems and not other:
            try:
                build(parsed)
            except UserError as error:
                problems += error.diagnostics
        wrong += [f"{name_of(entry)}: {problem}\n{entry.example}" for problem in problems]
    assert wrong == []


def test_examples_of_metrics_and_operators_are_valid() -> None:
    metrics = [each for each in ENTRIES if each.path[:2] == ("train", "metrics")]
    for entry in metrics[1:]:
        (choice,) = values_of(entry)["train"]["metrics"]
        kind, values = next(iter(choice.items())) if isinstance(choice, dict) else (choice, {})
        assert check(METRICS.get(kind), values)[1] == (), name_of(entry)
    for entry in OPERATOR_KEYS:
        ((operator, values),) = values_of(entry)["network"]["layers"][0].items()
        assert entry.name in values
        assert check(OPERATORS.get(operator).parameter_type, values)[1] == (), name_of(entry)


@pytest.mark.parametrize(
    ("key", "paths"),
    [
        ("train.optimizer.sgd.momentum", ["train.optimizer.sgd.momentum"]),
        ("optimizers.sgd.momentum", ["train.optimizer.sgd.momentum"]),
        ("sgd.momentum", ["train.optimizer.sgd.momentum"]),
        ("schedule", ["train.schedule"]),
        ("transforms", ["data.train.transforms"]),
        ("data.eval.transforms.Normalize", ["data.eval.transforms.normalize"]),
        ("datasets.image_folder.path", ["data.train.dataset.image_folder.path"]),
        ("network.variables.conv1_weight.frozen", ["network.variables.NAME.frozen"]),
        ("network.layers[3].Convolution.kernel", ["network.layers.Convolution.kernel"]),
        ("momentum", [
            "network.layers.BatchNorm.momentum",
            "train.optimizer.nag.momentum",
            "train.optimizer.sgd.momentum",
            "train.optimizer.signum.momentum",
        ]),
        ("batchsize", ["data.batch_size"]),
        ("memory.budgets", ["memory.budget"]),
        ("no_such_key", []),
        ("", []),
        (".", []),
    ],
)  # fmt: skip
def test_the_last_part_of_a_key_finds_it(key: str, paths: list[str]) -> None:
    assert [name_of(entry) for entry in find(ROOT, key)] == paths


def test_layers_of_a_network_are_operators_and_their_own_keys() -> None:
    (layers,) = find(ROOT, ".".join(LAYERS))
    kinds = {entry.name: entry.kind for entry in layers.entries}
    assert kinds["Convolution"] == "operator"
    assert kinds["precision"] == "key"
    # Updates of optimizers are not layers.
    assert "sgd_update" not in kinds
