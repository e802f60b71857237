"""Random programs on stores give the bits of a serial model, whatever runs at what time."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import mxrun
from mxrun.base.context import cpu
from mxrun.runtime.engine.default import new_engine, using_engine
from mxrun.runtime.engine.threaded import ThreadedEngine

nd = mxrun.nd
Array = npt.NDArray[Any]
# The first runs on the calling thread if it can.
SHAPES: dict[str, tuple[int, ...]] = {"bias": (7,), "weight": (50, 300), "table": (200, 200)}
DEVICES, STEPS = 3, 60
ENGINES = {
    "naive": lambda: new_engine("naive"),
    "threaded": ThreadedEngine,
    "many workers": lambda: ThreadedEngine(4),
}


class Model:
    """Arrays of every device and the stored ones, in NumPy."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.arrays = {
            (key, k): self.draw(shape) for key, shape in SHAPES.items() for k in range(DEVICES)
        }
        self.stored = {key: self.arrays[key, 0].copy() for key in SHAPES}

    def draw(self, shape: tuple[int, ...]) -> Array:
        # Of different sizes, so that the order of additions shows in the last bits.
        sizes = 10.0 ** self.random.integers(-3, 4, shape)
        return (self.random.standard_normal(shape) * sizes).astype(np.float32)


def run(seed: int, kind: str) -> tuple[Model, dict[tuple[str, int], Array]]:
    """Run a program drawn from the seed; return the model after it, and mxrun's arrays."""
    model, store = Model(seed), mxrun.kv.create(kind)
    random = np.random.default_rng(seed + 1000)
    arrays = {place: nd.array(value, ctx=cpu(place[1])) for place, value in model.arrays.items()}
    for key in SHAPES:
        store.init(key, arrays[key, 0])
    for _ in range(STEPS):
        key = str(random.choice(list(SHAPES)))
        devices = [int(k) for k in random.permutation(DEVICES)[: random.integers(1, DEVICES + 1)]]
        priority = int(random.integers(-5, 6))
        chosen = [arrays[key, k] for k in devices]
        terms = [model.arrays[key, k] for k in devices]
        action = random.integers(4)
        if action == 0:
            store.push(key, chosen, priority)
            model.stored[key] = reduce(np.add, terms).copy()
        elif action == 1:
            store.pull(key, chosen, priority)
        elif action == 2:
            store.pushpull(key, chosen, priority=priority)
            model.stored[key] = reduce(np.add, terms).copy()
        else:
            # Halves, so that the numbers stay finite.
            for array, k in zip(chosen, devices, strict=True):
                array *= 0.5
                model.arrays[key, k] = model.arrays[key, k] * np.float32(0.5)
        if action in (1, 2):
            model.arrays.update({(key, k): model.stored[key].copy() for k in devices})
    found = {place: array.asnumpy() for place, array in arrays.items()}
    for key, shape in SHAPES.items():
        out = nd.zeros(shape)
        store.pull(key, out=out)
        found[key, DEVICES] = out.asnumpy()
        model.arrays[key, DEVICES] = model.stored[key]
    return model, found


@pytest.mark.parametrize("kind", ["local", "device"])
@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("seed", range(5))
def test_K3_a_random_program_has_the_bits_of_a_serial_one(seed: int, name: str, kind: str) -> None:
    with using_engine(ENGINES[name]()) as engine:
        model, found = run(seed, kind)
        engine.close()
    assert found.keys() == model.arrays.keys()
    for place, value in found.items():
        np.testing.assert_array_equal(value, model.arrays[place], err_msg=str(place))
