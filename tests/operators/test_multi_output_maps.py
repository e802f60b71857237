"""Maps with several outputs: one loop, any subset of the outputs, and in place."""

from __future__ import annotations

import itertools
from typing import Any

import launches
import numpy as np
import pytest
from executors import cpu
from operator_harness import BackwardData, forward, implementations

from mxrun.contract.call import backward
from mxrun.operator import scalar
from mxrun.operator.kernel import OpReqType
from mxrun.operator.native_kernel import Scratch, Slot, source, target
from mxrun.operator.register import create

NULL, WRITE, ADD = OpReqType.NULL, OpReqType.WRITE, OpReqType.ADD


def momentum_step(weight: Any, grad: Any, mom: Any, rate: Any, momentum: Any) -> Any:
    """Return the new weight and momentum; rate is a tensor of one element."""
    moved = mom * momentum - grad * (rate * 0.5 + scalar.sqrt(rate))
    return weight + moved, moved


KERNEL = scalar.compile(momentum_step, parameters=("momentum",))


def operands(count: int) -> list[Any]:
    random = np.random.default_rng(count)
    tensors = [random.standard_normal(count).astype(np.float32) for _ in range(3)]
    return [*tensors, np.array([0.25], np.float32)]


def run(
    tensors: list[Any], outputs: list[Any], requests: list[OpReqType], threads: int = 1
) -> None:
    part = KERNEL.multi_output_part(
        [target(0), target(1)],
        [source(index) for index in range(4)],
        tensors[0].size,
        [0.9],
        device=cpu(threads),
        requests=requests,
        steps=(1, 1, 1, 0),
    )
    launches.run(part, tensors, outputs, threads=threads)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("count", [1, 31, 32, 33, 1000, 40_001])
def test_every_output_equals_the_python_function(count: int, threads: int) -> None:
    tensors = operands(count)
    found = [np.full(count, np.nan, np.float32) for _ in range(2)]
    run(tensors, found, [WRITE, WRITE], threads)
    expected = scalar.evaluate(momentum_step, tensors, [0.9])
    assert [each.tobytes() for each in found] == [each.tobytes() for each in expected]


@pytest.mark.parametrize("count", [5, 32, 1001])
def test_outputs_may_be_the_operands(count: int) -> None:
    tensors = operands(count)
    expected = scalar.evaluate(momentum_step, tensors, [0.9])
    run(tensors, [tensors[0], tensors[2]], [WRITE, WRITE])
    assert [tensors[0].tobytes(), tensors[2].tobytes()] == [each.tobytes() for each in expected]


@pytest.mark.parametrize("count", [5, 32, 1001])
def test_outputs_may_be_exchanged_operands(count: int) -> None:
    tensors = operands(count)
    expected = scalar.evaluate(momentum_step, tensors, [0.9])
    run(tensors, [tensors[2], tensors[0]], [WRITE, WRITE])
    assert [tensors[2].tobytes(), tensors[0].tobytes()] == [each.tobytes() for each in expected]


@pytest.mark.parametrize(
    "requests", [list(each) for each in itertools.product((NULL, WRITE, ADD), repeat=2)][1:]
)
@pytest.mark.parametrize("count", [7, 64, 1001])
def test_every_output_has_its_own_request(count: int, requests: list[OpReqType]) -> None:
    tensors = operands(count)
    before = [np.full(count, 3, np.float32), np.full(count, 5, np.float32)]
    found = [each.copy() for each in before]
    run(tensors, found, requests)
    values = scalar.evaluate(momentum_step, tensors, [0.9])
    for request, old, value, new in zip(requests, before, values, found, strict=True):
        expected = {NULL: old, WRITE: value, ADD: old + value}[request]
        np.testing.assert_array_equal(new, expected)


def test_tensors_may_begin_inside_a_slot_or_be_in_scratch_space() -> None:
    weight, grad, mom, _ = operands(40)
    table, scratch = np.array([9, 9, 0.25], np.float32), np.full(80, np.nan, np.float32)
    expected = scalar.evaluate(momentum_step, [weight, grad, mom, table[2:]], [0.9])
    part = KERNEL.multi_output_part(
        [target(0), Scratch(160)],
        [source(0), source(1), source(2), Slot("inputs", 3, 8)],
        40,
        [0.9],
        device=cpu(),
        requests=[WRITE, WRITE],
        steps=(1, 1, 1, 0),
        scratch_bytes=320,
    )
    assert part.scratch_bytes == 320
    launches.run(part, [weight, grad, mom, table], [weight], scratch)
    assert weight.tobytes() == expected[0].tobytes()
    assert scratch[40:].tobytes() == expected[1].tobytes()
    assert np.isnan(scratch[:40]).all()


@pytest.mark.parametrize("shared", [{}, {0: 0}, {1: 0}])
def test_one_loop_computes_both_gradients_of_a_binary_operator(shared: dict[int, int]) -> None:
    """Either gradient may overwrite the output's."""
    prop, (lhs, rhs, grad, _) = create("elemwise_div", {}), operands(1001)
    (jit,) = implementations("elemwise_div").values()
    done = forward(jit, prop, [lhs, rhs], [np.empty_like(lhs)])
    assert done is not None
    data, before = BackwardData([grad], [lhs, rhs], done.outputs), [np.empty_like(lhs)] * 2
    run = backward(jit, prop, data, before, done, inplace=shared)
    assert len(run.launches) == 1
    assert run.gradients[0].tobytes() == (grad / rhs).tobytes()
    assert run.gradients[1].tobytes() == (-grad * (lhs / rhs / rhs)).tobytes()
