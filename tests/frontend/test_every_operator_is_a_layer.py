"""L17: every registered operator works as a line of YAML: it is checked, planned and trained.

Each is in a network of its own, with the parameters that `mxrun ops NAME` shows:

    elemwise_add shift -> the operator -> its cube -> sum -> once for each row -> MakeLoss

`shift_rhs`, a variable added to the first input, learns through an operator that has a gradient; an
operator without one is followed by a layer that learns. (The cube is used because the sum of the
outputs of a softmax or a batch norm, or of their squares, is constant.)
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import yaml
from layer_configs import config_file
from training import prepare, take_steps

from mxrun import library
from mxrun.commands.check import check
from mxrun.commands.ops import operator
from mxrun.graph.phases import TRAIN
from mxrun.operator.register import OPERATORS, create
from mxrun.preparation.planning import load
from mxrun.run.run import Run

library.load()
NAMES = [name for name in OPERATORS if not OPERATORS.get(name).is_internal]
DESCRIPTIONS: dict[str, dict[str, Any]] = {name: operator(name) for name in NAMES}
UPDATES = [name for name in NAMES if DESCRIPTIONS[name]["overwrites"]]
# Products with another sequence: no other shape gives its length.
UNSIZED = [
    "_contrib_interleaved_matmul_encdec_qk",
    "_contrib_interleaved_matmul_encdec_valatt",
]
LAYERS = [name for name in NAMES if name not in (*UPDATES, *UNSIZED)]

STEPS = 2
# The product of all elements would underflow to 0 in float32.
PRODUCTS = ("prod", "nanprod")
# Shifts that move data, which are between 0 and 1, into the domain of a function, far enough that
# updates do not move them out: near zero, the first update of a logarithm's shift would.
SHIFTS = {
    **dict.fromkeys(("log", "log10", "log2"), 1.0),
    "arccosh": 1.5,
    "arccos": -0.5,
    "arcsin": -0.5,
    "arctanh": -0.5,
    "erfinv": -0.5,
}
# From any shape to a row for each record, as MakeLoss weighs them.
LOSS: list[Any] = [
    {"elemwise_mul": {"name": "square", "inputs": ["example", "example"]}},
    {"elemwise_mul": {"name": "cube", "inputs": ["square", "example"]}},
    "sum",
    {"Reshape": {"name": "one", "shape": [1, 1]}},
    {"broadcast_mul": {"inputs": ["one", "rows"]}},
    "MakeLoss",
]
SETTINGS: dict[str, Any] = {
    "threads": 2,
    "data": {
        "batch_size": 4,
        "train": {"dataset": "synthetic", "split": "train", "records": 8, "classes": 4},
    },
}
TRAINING: dict[str, Any] = {"epochs": 1, "metrics": [], "optimizer": {"sgd": {"lr": 0.01}}}

Arrays = dict[str, npt.NDArray[Any]]


def is_loss(name: str) -> bool:
    return create(name, DESCRIPTIONS[name]["example"]).loss_output is not None


def config_of(name: str) -> dict[str, Any]:
    """The operator's example in a network that can be trained."""
    network = yaml.safe_load(DESCRIPTIONS[name]["yaml"])["network"]
    (layer,) = network["layers"]
    body = {**(layer[name] if isinstance(layer, dict) else {}), "name": "example"}
    if name in PRODUCTS:
        body["axis"] = 0
    gradients = {one["name"]: one["gradient"] for one in DESCRIPTIONS[name]["arguments"]}
    wired = body.get("inputs", [*gradients][:1])
    layers: list[Any] = [{name: body}]
    shifted = next((one for one in wired if gradients.get(one) == "computes"), None)
    if shifted is not None:
        layers.insert(0, {"elemwise_add": {"name": "shift", "lhs": shifted}})
        network["variables"] = {
            "shift_rhs": {"init": {"constant": {"value": SHIFTS.get(name, 0.1)}}}
        }
        wired = ["shift" if one == shifted else one for one in wired]
    body["inputs"] = wired
    if not DESCRIPTIONS[name]["differentiable"]:
        body["name"] = "before"
        # Off zero, which is all that some give.
        layers.append({"_plus_scalar": {"name": "beyond", "scalar": 0.5}})
        layers.append({"FullyConnected": {"name": "example", "num_hidden": 2}})
    if not is_loss(name):
        layers += LOSS
        network["inputs"]["rows"] = [1]
    return {"network": {**network, "layers": layers}, "train": TRAINING, **SETTINGS}


def written(config: dict[str, Any], folder: Path) -> Path:
    return config_file(folder, json.dumps(config))


def trained(path: Path) -> tuple[Run, Arrays]:
    """A run after two steps, and the variables before them."""
    run = prepare(load(path))
    before = {name: run.executor.tensor(name).read() for name in run.built.model.learned}
    take_steps(run, STEPS)
    for loss in run.built.model.losses:
        assert np.isfinite(run.executor.result(TRAIN, loss.loss).values()).all()
    return run, before


def changed(run: Run, before: Arrays) -> set[str]:
    """Return the variables that differ from their initial values; all are finite."""
    after = {name: run.executor.tensor(name).values() for name in before}
    for array in after.values():
        assert np.isfinite(array).all()
    return {name for name, array in after.items() if array.tobytes() != before[name].tobytes()}


@pytest.mark.parametrize("name", LAYERS)
def test_L17_an_operator_is_a_layer_that_trains(name: str, tmp_path: Path) -> None:
    path = written(config_of(name), tmp_path)
    rows = {row.operator: row for row in check(path).rows}
    assert rows[name].output_shapes
    run, before = trained(path)
    gradients = {one["name"]: one["gradient"] for one in DESCRIPTIONS[name]["arguments"]}
    learns = {f"example_{argument}" for argument, kind in gradients.items() if kind == "computes"}
    states = {f"example_{state}" for state in DESCRIPTIONS[name]["auxiliary_states"]}
    expected = ({"shift_rhs"} | learns | states) & before.keys()
    if not DESCRIPTIONS[name]["differentiable"]:
        expected = set(before)
    assert expected
    assert changed(run, before) == expected


@pytest.mark.parametrize("name", UPDATES)
def test_L17_an_update_is_an_optimizer_that_trains(name: str, tmp_path: Path) -> None:
    config = config_of("FullyConnected")
    config["train"] = {**TRAINING, **yaml.safe_load(DESCRIPTIONS[name]["yaml"])["train"]}
    run, before = trained(written(config, tmp_path))
    updates = {
        step.prop.type_string
        for step in run.plan.phases[TRAIN].steps
        if step.prop is not None and step.prop.list_mutated_inputs()
    }
    assert updates == {name}
    assert changed(run, before) == set(before)


def test_L17_nothing_is_left_out() -> None:
    assert {"Convolution", "BatchNorm", "Deconvolution", "Embedding", "BlockGrad"} <= {*LAYERS}
    assert {"sgd_mom_update", "adam_update", "lamb_update"} <= {*UPDATES}
    assert len(NAMES) == len(LAYERS) + len(UPDATES) + len(UNSIZED)
