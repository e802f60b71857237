"""Optimizers of programs and key-value stores.

python face_updates.py
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from face_facts import note, note_error, numbers, write

import mxrun
from mxrun import nd

NAMES = ("fc1_weight", "fc1_bias", "bn_gamma")
# Parameters of each optimizer, besides the common ones; the first of each is its plain form.
OPTIMIZERS: dict[str, tuple[dict[str, Any], ...]] = {
    "sgd": ({}, {"momentum": 0.9}),
    "nag": ({}, {"momentum": 0.8}),
    "adam": ({}, {"beta1": 0.8, "beta2": 0.99, "epsilon": 1e-6}),
    "adamw": ({}, {"beta1": 0.8, "epsilon": 1e-6}),
    "lamb": ({}, {"beta2": 0.99}),
    "adagrad": ({}, {"eps": 1e-5}),
    "rmsprop": ({}, {"gamma1": 0.8}, {"centered": True, "gamma2": 0.7}),
    "ftrl": ({}, {"lamda1": 0.1, "beta": 0.5}),
    "signum": ({}, {"momentum": 0.5, "wd_lh": 0.01}),
}
STEPS = 6


def schedule(update: int) -> float:
    """Learning rate that falls."""
    return 0.2 / (1 + update)


def settings() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the common settings, one by one and together."""
    yield "plain", {"learning_rate": 0.1}
    yield "decay", {"learning_rate": 0.1, "wd": 0.05}
    yield "clipped", {"learning_rate": 0.1, "rescale_grad": 0.25, "clip_gradient": 0.1}
    yield "scheduled", {"lr_scheduler": schedule, "wd": 0.01, "begin_num_update": 3}
    yield "float64", {"learning_rate": 0.1, "wd": 0.05}


def updates(name: str, form: str, given: dict[str, Any]) -> list[Any]:
    """Weights and states after some steps of three parameters with multipliers."""
    optimizer = mxrun.optimizer.create(name, param_idx2name=dict(enumerate(NAMES)), **given)
    if form != "plain":
        optimizer.set_lr_mult({"fc1_bias": 2.0, 2: 0.5})
        optimizer.set_wd_mult({"fc1_weight": 0.5, "bn_gamma": 0.25})
    update = mxrun.optimizer.get_updater(optimizer)
    dtype = "float64" if form == "float64" else "float32"
    weights = [nd.array(numbers(each, 4, 3), dtype=dtype) for each in NAMES]
    found = []
    for step in range(STEPS):
        for index, weight in enumerate(weights):
            values = numbers(f"{step} {index}", 4, 3, low=-1, high=1)
            update(index, nd.array(values, dtype=dtype), weight)
        found.append([weight.copy() for weight in weights])
    states = update.get_states(dump_optimizer=form == "decay")
    again = mxrun.optimizer.get_updater(mxrun.optimizer.create(name, **given))
    again.set_states(states)
    again(0, nd.array(numbers("more", 4, 3), dtype=dtype), weights[0])
    return [found, str(optimizer.num_update), np.frombuffer(states, np.uint8), weights[0]]


def optimizers() -> None:
    """Every optimizer with every setting."""
    for name, forms in OPTIMIZERS.items():
        for index, parameters in enumerate(forms):
            for form, given in settings():
                note(f"{name} {index}, {form}", updates(name, form, {**given, **parameters}))


def store_steps(kind: str) -> None:
    """A store of each kind: sums of devices, lists of keys, updaters and optimizers."""
    contexts = [mxrun.cpu(0), mxrun.cpu(1)]

    def parts(name: str, *shape: int, count: int = 2) -> list[Any]:
        return [
            nd.array(numbers(f"{name}{k}", *shape, low=-1, high=1), ctx=contexts[k % 2])
            for k in range(count)
        ]

    store = mxrun.kv.create(kind)
    store.init("a", nd.array(numbers("a", 3, 4)))
    store.init(["b", "c"], [nd.ones((2,)), nd.zeros((50, 40))])
    outs = parts("outs", 3, 4)
    store.pull("a", out=outs)
    note(f"{kind}: initial", outs)
    # The order of the additions decides the bits of many parts.
    store.push("a", parts("pushed", 3, 4, count=7))
    store.pull("a", out=outs)
    note(f"{kind}: sum of seven", outs)
    store.push(["b", "c"], [parts("b", 2), parts("c", 50, 40, count=5)], priority=3)
    several = [nd.zeros((2,)), nd.zeros((50, 40))]
    store.pull(["b", "c"], out=several)
    note(f"{kind}: several keys", several)
    mixed = parts("mixed", 3, 4, count=3)
    store.pushpull("a", mixed)
    note(f"{kind}: pushpull in place", mixed)
    store.pushpull("a", parts("mixed", 3, 4), out=outs, priority=-1)
    note(f"{kind}: pushpull", outs)
    store.broadcast("d", nd.array(numbers("d", 2, 2)), out=(d := parts("out d", 2, 2)))
    note(f"{kind}: broadcast", d)

    def updater(key: Any, pushed: Any, stored: Any) -> None:
        stored -= pushed * (2 if key == "a" else 3)

    store.set_updater(updater)
    store.push(["a", "d"], [parts("grad a", 3, 4), parts("grad d", 2, 2)])
    store.pull(["a", "d"], out=[outs, d])
    note(f"{kind}: updater", [outs, d])
    numbered = mxrun.kv.create(kind)
    optimizer = mxrun.optimizer.create(
        "adam", learning_rate=0.1, wd=0.02, rescale_grad=0.5, param_idx2name={0: "w", 1: "w_bias"}
    )
    optimizer.set_lr_mult({"w_bias": 3.0})
    numbered.init([0, 1], [nd.ones((3, 4)), nd.ones((4,))])
    numbered.set_optimizer(optimizer)
    weights = [nd.zeros((3, 4)), nd.zeros((4,))]
    for step in range(4):
        numbered.push([0, 1], [parts(f"w{step}", 3, 4, count=4), parts(f"bias{step}", 4)])
        if step == 1:
            numbered.save_optimizer_states(f"{kind}.states")
    numbered.pull([0, 1], out=weights)
    note(f"{kind}: optimizer", weights)
    numbered.load_optimizer_states(f"{kind}.states")
    numbered.push(1, parts("after", 4))
    numbered.pull(1, out=weights[1])
    note(f"{kind}: optimizer's states read", weights)
    note(f"{kind}: facts", [store.type, store.rank, store.num_workers])
    one = nd.ones((2, 2))
    note_error(f"{kind}: unknown key", lambda: store.push("e", one))
    note_error(f"{kind}: twice", lambda: store.init("a", one))
    note_error(f"{kind}: another shape", lambda: store.push("a", one))
    note_error(f"{kind}: type of key", lambda: store.init(3, one))
    note_error(f"{kind}: lists", lambda: store.push(["a", "d"], [one]))
    note_error(f"{kind}: no out", lambda: store.pull("a"))
    note_error(f"{kind}: rows", lambda: store.row_sparse_pull("a", out=one, row_ids=one))
    note_error(f"{kind}: states", lambda: store.save_optimizer_states("x"))
    note_error(f"{kind}: compression", lambda: store.set_gradient_compression({"type": "2bit"}))
    note_error(f"{kind}: no states", lambda: numbered.load_optimizer_states("nowhere"))


def errors() -> None:
    """What bad uses say."""
    create = mxrun.optimizer.create
    note_error("unknown optimizer", lambda: create("adaam"))
    note_error("lr", lambda: create("sgd", lr=0.1))
    note_error("unknown parameter", lambda: create("sgd", learning_rate=0.1, momentm=0.9))
    note_error("bad value", lambda: create("adam", learning_rate=-1))
    note_error("global norm", lambda: create("sgd", clip_global_norm=1.0))
    note_error("batch size", lambda: create("sgd", rescale_grad="batch_size"))
    note_error("not an optimizer", lambda: mxrun.optimizer.get_updater("sgd"))
    update = mxrun.optimizer.get_updater(create("sgd", learning_rate=0.1))
    note_error("not arrays", lambda: update(0, [1.0], nd.ones((1,))))
    note_error("types", lambda: update(0, nd.ones((1,)), nd.ones((1,), dtype="float64")))
    note_error("bad states", lambda: update.set_states(b"12345678"))
    scheduled = create("sgd", lr_scheduler=schedule)
    note_error("scheduled rate", lambda: scheduled.set_learning_rate(0.1))
    note_error("unknown store", lambda: mxrun.kv.create("dist_sync"))


if __name__ == "__main__":
    optimizers()
    for each in ("local", "device"):
        store_steps(each)
    errors()
    write()
