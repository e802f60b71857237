"""The check of all parameters and states looks at every element, on every device."""

from __future__ import annotations

import numpy as np
import pytest
from networks import VECTORS, dense, plan_of, softmax

from mxrun.device.registry import device_kind, open_device
from mxrun.executor.executor import Executor
from mxrun.graph.graph import MemoryClass
from mxrun.graph.phases import TRAIN
from mxrun.graph.symbol import fresh_names, variable
from mxrun.train.finite import FiniteCheck


@pytest.mark.parametrize("kind", ["cpu", "reference"])
def test_F10_a_number_that_is_not_finite_is_found_wherever_it_lies(kind: str) -> None:
    description = device_kind(kind).describe(0, 2)
    with fresh_names():
        symbol = softmax(dense(dense(variable("data"), "fc1"), "fc2"))
    plan = plan_of(symbol, device=description, inputs=VECTORS, phases=(TRAIN,))
    executor = Executor(plan, open_device(description, kind))
    names = plan.persistent(MemoryClass.PARAMETERS)
    for name in names:
        executor.tensor(name).write(np.finfo(np.float32).max)
    check = FiniteCheck(executor, names)
    assert len(names) == 4
    assert check()
    for name in names:
        tensor = executor.tensor(name)
        whole = tensor.read()
        for position, number in ((0, np.nan), (whole.size - 1, np.inf), (whole.size // 2, -np.inf)):
            changed = whole.copy()
            changed.reshape(-1)[position] = number
            tensor.write(changed)
            assert not check(), (name, position)
        tensor.write(whole)
        assert check()


def test_F10_nothing_is_finite() -> None:
    with fresh_names():
        plan = plan_of(softmax(dense(variable("data"), "fc1")), inputs=VECTORS, phases=(TRAIN,))
    assert FiniteCheck(Executor(plan, open_device(plan.device, "cpu")), [])()
