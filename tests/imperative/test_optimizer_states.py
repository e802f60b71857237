"""The file of an updater's states."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mxrun
from mxrun.base.context import Context
from mxrun.base.errors import UserError
from mxrun.imperative.optimizer import Updater

nd = mxrun.nd
Weights = dict[int | str, Any]


def updater(name: str, **parameters: Any) -> Updater:
    return mxrun.optimizer.get_updater(mxrun.optimizer.create(name, **parameters))


def update(updater: Updater, weights: Weights, steps: int, first: int = 0) -> None:
    for step in range(first, first + steps):
        for index, weight in weights.items():
            gradient = np.random.default_rng(step).standard_normal(weight.shape)
            updater(index, nd.array(gradient, ctx=weight.context), weight)


def start() -> Weights:
    return {3: nd.ones((4, 3)), "fc1_weight": nd.ones((2,))}


def copied(weights: Weights) -> Weights:
    return {key: each.copy() for key, each in weights.items()}


def values(weights: Weights) -> list[Any]:
    return [weight.asnumpy() for weight in weights.values()]


@pytest.mark.parametrize("name", ["sgd", "adam", "rmsprop"])
def test_updates_go_on_from_saved_states_with_the_same_bits(name: str) -> None:
    reference, weights = updater(name, learning_rate=0.1), start()
    update(reference, weights, 3)
    states, copies = reference.get_states(), copied(weights)
    update(reference, weights, 3, first=3)
    resumed = updater(name, learning_rate=0.1)
    resumed.set_states(states)
    update(resumed, copies, 3, first=3)
    np.testing.assert_equal(values(copies), values(weights))


def test_settings_are_restored_if_they_are_saved() -> None:
    first = updater(
        "adam", learning_rate=0.1, wd=0.5, param_idx2name={0: "fc_weight", 1: "fc_bias"}
    )
    first.optimizer.set_lr_mult({"fc_bias": 2.0})
    first.optimizer.set_learning_rate(0.25)
    first.optimizer.rescale_grad = 0.5
    weights: Weights = {0: nd.ones((2,)), 1: nd.ones((2,))}
    update(first, weights, 2)
    second = updater("sgd")
    second.set_states(first.get_states(dump_optimizer=True))
    assert (second.optimizer.name, second.optimizer.learning_rate) == ("adam", 0.25)
    copies = copied(weights)
    update(first, weights, 2)
    update(second, copies, 2)
    np.testing.assert_equal(values(copies), values(weights))


def test_states_follow_the_weight_to_its_device() -> None:
    first, second = updater("sgd", momentum=0.9), updater("sgd", momentum=0.9)
    update(first, start(), 1)
    second.set_states(first.get_states())
    other = Context("reference")
    update(second, {"fc1_weight": nd.ones((2,), ctx=other)}, 1)
    assert second.states["fc1_weight"][0].context == other


class Trap:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("executed"),))


def test_a_pickle_is_refused_and_not_executed(empty_folder: Path) -> None:
    with pytest.raises(UserError, match=r"old.states: not a safetensors file"):
        updater("sgd").set_states(pickle.dumps({0: Trap()}), "old.states")
    assert not (empty_folder / "executed").exists()


def test_other_and_damaged_states_are_refused() -> None:
    sgd, adam = updater("sgd", momentum=0.9), updater("adam")
    update(sgd, start(), 1)
    states = sgd.get_states()
    with pytest.raises(UserError, match=r"(?s)states of another optimizer.*adam.*sgd"):
        adam.set_states(states)
    named = b'\\"optimizer\\": \\"sgd\\"', b'\\"optimizer\\":\\"adam\\"'
    assert states.count(named[0]) == 1
    with pytest.raises(UserError, match=r"the states of (3|'fc1_weight')"):
        adam.set_states(states.replace(*named))
    for cut in (0, 7, 8, 60, len(states) - 1):
        with pytest.raises(UserError, match=r"not a safetensors file"):
            sgd.set_states(states[:cut])
    with pytest.raises(UserError, match=r"no states of an optimizer"):
        sgd.set_states(states.replace(b'{"optimizer":', b'{"Optimizer":'))
    with pytest.raises(UserError, match=r"do not fit its weight"):
        sgd(3, nd.ones((5,)), nd.ones((5,)))
    update(sgd, start(), 1)


def test_a_store_saves_and_loads_states(tmp_path: Path) -> None:
    path, saved, ends = tmp_path / "sgd.states", nd.ones((2,)), []
    for is_resumed in (False, True):
        store, out = mxrun.kv.create("local"), nd.zeros((2,))
        store.init("w", saved)
        store.set_optimizer(mxrun.optimizer.create("sgd", learning_rate=0.1, momentum=0.9))
        if is_resumed:
            store.load_optimizer_states(path)
        else:
            store.push("w", nd.ones((2,)))
            store.pull("w", out=saved)
            store.save_optimizer_states(path)
        store.push("w", nd.ones((2,)) * 2)
        store.pull("w", out=out)
        ends.append(out.asnumpy())
    np.testing.assert_array_equal(*ends)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    store = mxrun.kv.create("local")
    with pytest.raises(UserError, match=r"no optimizer states to load"):
        store.load_optimizer_states(tmp_path)
    store.set_optimizer(mxrun.optimizer.create("sgd"))
    with pytest.raises(UserError, match=r"cannot read .*missing: no such file"):
        store.load_optimizer_states(tmp_path / "missing")
    with pytest.raises(UserError, match=r"cannot write .*states: no such file"):
        store.save_optimizer_states(tmp_path / "no" / "states")
    (tmp_path / "other").write_text("{}")
    with pytest.raises(UserError, match=r"cannot use .*other: not a safetensors file"):
        store.load_optimizer_states(tmp_path / "other")
    store.set_updater(lambda key, pushed, stored: None)
    with pytest.raises(UserError, match=r"no optimizer states to save"):
        store.save_optimizer_states(tmp_path / "states")
