"""Helpers for tests of simple operators: the checker, single kernels, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from executors import cpu
from operator_harness import BackwardData, backward, forward

from mxrun.base.errors import UserError
from mxrun.base.tensor import TensorSpec
from mxrun.commands.check_op import check_operator
from mxrun.operator.kernel import ForwardRequest, OpReqType
from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.register import create, implementations

Array = np.ndarray[Any, Any]


def keeps_the_contract(name: str) -> None:
    found = check_operator(name)
    assert found["passed"], found["checks"]


def refusal(register: Callable[[], object], function: Callable[..., Any]) -> str:
    """The error of a registration, which names the function's line."""
    with pytest.raises(UserError) as caught:
        register()
    code = function.__code__
    assert f"{code.co_filename}:{code.co_firstlineno}:" in str(caught.value)
    return str(caught.value)


def run_alone(name: str, parameters: dict[str, object], data: Array) -> list[Array]:
    """Output and gradient for an out_grad of ones, by every implementation; they agree."""
    prop = create(name, parameters)
    results = []
    for implementation in (NUMPY, *implementations(name).values()):
        run = forward(implementation, prop, [data], [np.full_like(data, np.nan)])
        assert run is not None
        given = BackwardData([np.ones_like(data)], [data], run.outputs)
        (gradient,) = backward(implementation, prop, given, [np.full_like(data, np.nan)], run)
        results.append((run.outputs[0], gradient))
    for output, gradient in results[1:]:
        np.testing.assert_allclose(output, results[0][0], rtol=1e-6)
        np.testing.assert_allclose(gradient, results[0][1], rtol=1e-6)
    return list(results[0])


def plan_request(
    inputs: tuple[tuple[int, ...], ...],
    outputs: tuple[tuple[int, ...], ...],
    requests: tuple[OpReqType, ...],
) -> Any:
    specs = (tuple(map(TensorSpec, shapes)) for shapes in (inputs, outputs))
    return ForwardRequest(*specs, requests, is_train=True, device=cpu())
