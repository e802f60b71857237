"""`mxrun ops`: the registry as tables and JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import mxrun, refused, result, succeeded
from layer_configs import config_file

from mxrun import library
from mxrun.commands.check import check
from mxrun.commands.ops import operator
from mxrun.config.file_keys import LayerKeys
from mxrun.operator.register import OPERATORS
from mxrun.preparation.planning import load

library.load()
NAMES = [name for name in OPERATORS if not OPERATORS.get(name).is_internal]
DESCRIPTIONS: dict[str, dict[str, Any]] = {name: operator(name) for name in NAMES}
LAYERS = [name for name in NAMES if DESCRIPTIONS[name]["yaml"].startswith("network:")]
UPDATES = [name for name in NAMES if DESCRIPTIONS[name]["yaml"].startswith("train:")]

# A further trainable layer, so that any operator may be beside it.
LEARNED = {"weight", "bias", "gamma", "beta", "parameters", "attention"}
HEAD: list[dict[str, Any]] = [
    {"FullyConnected": {"name": "head", "inputs": ["other"], "num_hidden": 2}},
    {"SoftmaxOutput": {"name": "end", "label": "target"}},
]
REST: dict[str, Any] = {
    "data": {"batch_size": 4, "train": {"dataset": "synthetic", "split": "train", "records": 8}},
    "train": {"epochs": 1, "metrics": []},
}


def operators_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The schemas of the layers' parameters, by operator."""
    one_layer = schema["$defs"]["Layer"]["anyOf"][1]["properties"]
    return {name: part for name, part in one_layer.items() if name not in ("repeat", "recurrent")}


def test_all_operators_are_listed(tmp_path: Path) -> None:
    done = succeeded(mxrun("ops", "--json", cwd=tmp_path))
    listed = {one["name"]: one for one in json.loads(done.stdout)}
    assert sorted(listed) == NAMES
    assert not {"_reorder", "_moving_average", "_global_norm_scale"} & set(listed)
    found = ["cudnn", "blocks", "cudnn_tf32", "onednn", "numpy"]
    assert listed["Convolution"]["backends"] == found
    assert listed["Convolution"]["differentiable"] is True
    assert listed["sgd_update"]["differentiable"] is False
    assert listed["elemwise_add"]["aliases"] == ["_Plus", "_add", "_plus"]
    table = mxrun("ops", cwd=tmp_path).stdout
    for name, one in listed.items():
        (line,) = [line for line in table.splitlines() if line.split()[:1] == [name]]
        assert one["summary"][:40] in line


def test_P11_an_operator_shows_arguments_outputs_and_states(tmp_path: Path) -> None:
    text = mxrun("ops", "BatchNorm", cwd=tmp_path).stdout
    rows = {line.split()[0]: line for line in text.splitlines() if line.split()}
    for name in ("data", "gamma", "beta"):
        assert f"{name} " in rows[name]
        assert " argument " in rows[name]
    assert "auxiliary state" in rows["moving_mean"]
    assert "auxiliary state" in rows["moving_var"]
    assert "in training 0.9 * moving_var + 0.1 * var" in rows["moving_var"]
    assert " output " in rows["output"]
    assert "hidden output" in rows["mean"]


def test_P11_parameters_decide_the_arguments(tmp_path: Path) -> None:
    def arguments(*settings: str) -> list[str]:
        description = result("ops", "Convolution", *settings, cwd=tmp_path)
        return [argument["name"] for argument in description["arguments"]]

    assert arguments() == ["data", "weight", "bias"]
    assert arguments("no_bias=true", "num_filter=8", "kernel=[3, 3]") == ["data", "weight"]


def test_P11_hidden_outputs_are_said_to_be_hidden(tmp_path: Path) -> None:
    outputs = result("ops", "Dropout", cwd=tmp_path)["outputs"]
    assert outputs == [{"name": "output", "visible": True}, {"name": "mask", "visible": False}]
    config = layer_config("Dropout")
    layers = config["network"]["layers"]
    layers.insert(1, {"Activation": {"act_type": "relu", "inputs": ["example[1]"]}})
    path = config_file(tmp_path, json.dumps(config))
    assert "'mask', is hidden" in refused("check", str(path), cwd=tmp_path)


def test_what_the_planner_knows_is_told() -> None:
    description = operator("Activation")
    assert description["backward_reads"] == ["gradient of output", "output"]
    assert description["inplace"] == {
        "forward": [["data", "output"]],
        "backward": [["gradient of output", "gradient of data"]],
    }
    update = operator("sgd_mom_update")
    assert update["overwrites"] == {"weight": "output", "mom": "mom_output"}
    assert update["backward_reads"] == []
    kinds = [request["kind"] for request in operator("Dropout")["resources"]["forward"]]
    assert kinds == ["random"]
    convolution = operator("Convolution", ["workspace=0"])["resources"]
    # One image's columns: 3 channels, a window of 3 x 3 at 6 x 6 positions, 4 bytes each.
    assert convolution["forward"] == [{"kind": "temp_space", "bytes": 3 * 9 * 36 * 4}]


def test_an_alias_is_the_operator(tmp_path: Path) -> None:
    assert result("ops", "Softmax", cwd=tmp_path)["name"] == "SoftmaxOutput"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("Covolution",), "did you mean 'Convolution'"),
        (("Convolution", "num_filtr=3"), "'num_filter'"),
        (("Convolution", "kernel=[0]"), "integer >= 1"),
        (("Convolution", "kernel"), "KEY=VALUE"),
        (("Convolution", "kernel=[3"), "<command line>:1:"),
        (("Convolution", "no_bias=yes"), "true or false"),
    ],
)
def test_wrong_input_is_refused(arguments: tuple[str, ...], told: str, tmp_path: Path) -> None:
    assert told in refused("ops", *arguments, cwd=tmp_path)


def layer_config(name: str) -> dict[str, Any]:
    """Return a config with the operator's example beside a trainable network."""
    network = yaml.safe_load(DESCRIPTIONS[name]["yaml"])["network"]
    (layer,) = network["layers"]
    body = layer[name] if isinstance(layer, dict) else {}
    first = next(iter(network["inputs"]))
    # The first layer reads the first input; named, since the other network has inputs too.
    body = {"inputs": [first], **body, "name": "example"}
    arguments = {argument["name"] for argument in DESCRIPTIONS[name]["arguments"]}
    # No loss depends on the example, so its parameters would not be trained.
    frozen = {"example_*": {"frozen": True}} if arguments & LEARNED else {}
    declared = network.get("variables", {})
    frozen |= {key: {**value, "frozen": True} for key, value in declared.items()}
    return {
        "network": {
            "inputs": {**network["inputs"], "other": [3], "target": []},
            "variables": frozen,
            "layers": [{name: body}, *HEAD],
            "outputs": ["example", "end"],
        },
        **REST,
        "train": {**REST["train"], "optimizer": "sgd"},
    }


@pytest.mark.parametrize("name", LAYERS)
def test_P15_the_example_of_every_operator_is_a_valid_config(name: str, tmp_path: Path) -> None:
    path = config_file(tmp_path, json.dumps(layer_config(name)))
    rows = {row.name: row for row in check(path).rows}
    assert rows["example"].operator == name
    assert rows["example"].output_shapes


@pytest.mark.parametrize("name", UPDATES)
def test_P15_the_example_of_every_update_is_a_valid_config(name: str, tmp_path: Path) -> None:
    example = yaml.safe_load(DESCRIPTIONS[name]["yaml"])["train"]
    config = layer_config("Activation")
    config["train"].update(example)
    path = config_file(tmp_path, json.dumps(config))
    rules = load(path).training.rules
    assert {rule.operator for rule in rules.values()} == {name}


def test_P15_every_operator_has_an_example() -> None:
    assert sorted([*LAYERS, *UPDATES]) == NAMES


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_P15_no_operator_and_no_parameter_is_undocumented(name: str) -> None:
    kind = OPERATORS.get(name)
    assert len(kind.__dict__.get("__doc__") or "") > 20
    for parameter, field in kind.parameter_type.model_fields.items():
        assert field.description, parameter
        assert field.description.endswith("."), parameter


def test_P15_schema_and_ops_say_the_same(tmp_path: Path) -> None:
    done = mxrun("schema", cwd=tmp_path)
    schemas = operators_schema(json.loads(done.stdout))
    assert sorted(schemas) == NAMES
    own_keys = set(LayerKeys.model_fields)
    for name, schema in schemas.items():
        documented = {one["name"]: one["doc"] for one in DESCRIPTIONS[name]["parameters"]}
        described = {
            key: part["description"]
            for key, part in schema["properties"].items()
            if key not in own_keys
        }
        assert described == documented
        needed = [one["name"] for one in DESCRIPTIONS[name]["parameters"] if one["required"]]
        assert schema.get("required", []) == needed
