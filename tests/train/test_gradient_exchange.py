"""Sums of gradients over contexts: in the order of the contexts, in every arena."""

from __future__ import annotations

import numpy as np
import pytest
from executors import cpu
from networks import VECTORS, dense, plan_of, softmax

from mxrun.base.context import Context
from mxrun.base.tensor import TensorSpec
from mxrun.device.cpu.device import CpuDevice
from mxrun.executor.executor import Executor
from mxrun.executor.gradient_buckets import GradientBucket, gradient_buckets
from mxrun.graph.phases import TRAIN, UPDATE
from mxrun.graph.symbol import fresh_names, variable
from mxrun.kvstore import EXCHANGES, borrowed_array
from mxrun.runtime.engine.default import new_engine


def executors(count: int) -> tuple[list[Executor], tuple[GradientBucket, ...]]:
    with fresh_names():
        symbol = softmax(dense(dense(variable("data"), "fc1"), "fc2"))
    plan = plan_of(symbol, threads=1, inputs=VECTORS, phases=(TRAIN, UPDATE))
    made = [Executor(plan, CpuDevice(cpu())) for _ in range(count)]
    return made, gradient_buckets(plan, TRAIN, nbytes=1)


@pytest.mark.parametrize(("kind", "home"), [("local", 0), ("device", 0), ("device", 2)])
def test_K3_gradients_are_added_from_left_to_right(kind: str, home: int) -> None:
    """The values are such that any other order gives other sums."""
    contexts, buckets = executors(4)
    assert len(buckets) > 1
    draw = np.random.default_rng(0)
    name = buckets[0].names[0]
    shape = contexts[0].tensor(name).spec.shape
    values = [
        (draw.standard_normal(shape) * 10.0 ** draw.integers(-6, 6, shape)).astype(np.float32)
        for _ in contexts
    ]
    others = {each: contexts[0].tensor(each).read() for each in buckets[1].names}
    for executor, value in zip(contexts, values, strict=True):
        executor.tensor(name).write(value)
    engine, exchange = new_engine("naive"), EXCHANGES.get(kind)()
    begin, spec = buckets[0].begin, TensorSpec((buckets[0].elements,))
    arrays = [
        borrowed_array(engine, Context("cpu", number), executor.tensor_at(begin, spec), "")
        for number, executor in enumerate(contexts)
    ]
    # The operations before it, which are not pushed, decide on which context a sum is computed.
    *_, operation = [exchange.pushpull(f"bucket {each}", arrays, 0) for each in range(home + 1)]
    assert operation.context == Context("cpu", home)
    engine.push(operation)
    expected = ((values[0] + values[1]) + values[2]) + values[3]
    assert not np.array_equal(expected, (values[0] + values[1]) + (values[2] + values[3]))
    for executor in contexts:
        np.testing.assert_array_equal(executor.tensor(name).read(), expected)
        for each, array in others.items():
            np.testing.assert_array_equal(executor.tensor(each).read(), array)
