"""Configs as dictionaries: the same runs as from YAML, and errors at dotted keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import CONFIGS
from layer_configs import config_file

import mxrun

BASE = CONFIGS / "digits_lenet.yaml"


def changed(*path: Any, value: Any) -> dict[str, Any]:
    """Return the bundled config with another value at `path`."""
    config = mxrun.load(BASE).config
    section: Any = config
    for step in path[:-1]:
        section = section[step]
    section[path[-1]] = value
    return config


def test_a_dictionary_is_the_config_of_the_file() -> None:
    config = mxrun.load(BASE, {"train.optimizer.sgd.wd": 1e-3}).config
    assert json.loads(json.dumps(config)) == config
    assert mxrun.load(config).config == config


def test_numpy_values_and_paths_are_values(tmp_path: Path) -> None:
    values = {"train.epochs": np.int64(3), "data.train.path": tmp_path / "a.npz"}
    values |= {"data.train.dataset": "npz", "data.train.split": "all", "data.eval": None}
    config = mxrun.load(BASE, values).config
    assert config["train"]["epochs"] == 3
    assert config["data"]["train"]["path"] == str(tmp_path / "a.npz")


def test_texts_are_not_interpolated_again() -> None:
    values = {"data.train": {"dataset": "npz", "path": "/a$${x}"}, "data.eval": None}
    config = mxrun.load(BASE, values).config
    assert config["data"]["train"]["path"] == "/a$${x}"
    assert mxrun.load(config).config == config


def test_extends_is_relative_to_the_working_folder(empty_folder: Path) -> None:
    (empty_folder / "base.yaml").write_text(BASE.read_text())
    model = mxrun.load({"extends": "base.yaml", "name": "mine", "train": {"epochs": 2}})
    assert (model.name, model.config["train"]["epochs"]) == ("mine", 2)
    assert model.config["network"] == mxrun.load(BASE).config["network"]


@pytest.mark.parametrize(
    ("config", "overrides", "shown"),
    [
        (
            changed("data", "batch_size", value=0),
            {},
            "data.batch_size: data.batch_size cannot be 0\n"
            "  expected: integer >= 1 and within int32\n  got: 0 (an integer)",
        ),
        (BASE, {"train.epohcs": 3}, "train.epohcs: unknown key 'epohcs' in train\n"),
        (BASE, {"network.layers[90].x": 3}, "network.layers[90]: network.layers has no item 90\n"),
        (BASE, {"train..epochs": 3}, '"train..epochs": not a dotted key\n'),
        (BASE, {"train.epochs": object}, "train.epochs: a config holds no values of the type type"),
        (BASE, {"train.epochs": 10**5000}, "train.epochs: the number is too long\n"),
        ({1: 2}, {}, "the config: a key must be text\n  expected: text\n  got: 1"),
    ],
)
def test_errors_name_dotted_keys(config: Any, overrides: dict[str, Any], shown: str) -> None:
    with pytest.raises(mxrun.UserError) as raised:
        mxrun.load(config, overrides)
    assert shown in str(raised.value)


@pytest.mark.parametrize(
    ("source", "problem"),
    [("nope", "there is no config 'nope'"), (3, "mxrun.load cannot read this")],
)
def test_what_can_be_loaded_is_listed(source: Any, problem: str) -> None:
    listed = "a run's folder or name, a dictionary, a YAML file, or a bundled config"
    with pytest.raises(mxrun.UserError, match=f"^{problem}\n  expected: {listed}"):
        mxrun.load(source)


def test_errors_of_a_file_and_of_overrides_come_together(tmp_path: Path) -> None:
    path = config_file(tmp_path, BASE.read_text().replace("num_hidden: 64", "num_hidden: -64"))
    with pytest.raises(mxrun.UserError) as raised:
        mxrun.load(path, {"network.layers[0].Convolution.num_filter": 0, "train.epochs": 0})
    places = [str(problem.place) for problem in raised.value.diagnostics]
    assert {"network.layers[0].Convolution.num_filter", "train.epochs"} < {*places}
    assert any(place.startswith(f"{path}:") for place in places)


def test_errors_in_files_name_file_line_and_column(tmp_path: Path) -> None:
    path = config_file(tmp_path, "name: net\ntrain:\n  epohcs: 3\n")
    with pytest.raises(mxrun.UserError) as raised:
        mxrun.load(path)
    assert f"{path}:3:3: unknown key 'epohcs' in train" in str(raised.value)


def test_a_dictionary_that_holds_itself_is_refused() -> None:
    config: dict[str, Any] = {}
    config["name"] = config
    with pytest.raises(mxrun.UserError, match="nested too deeply"):
        mxrun.load(config)
