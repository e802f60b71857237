"""`workspace`: kernels that need more scratch memory are not selected if there is another one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from executors import cpu, executor_for
from networks import chain, softmax

from mxrun.base.tensor import TensorSpec
from mxrun.compiler.compile import compile_plan
from mxrun.compiler.request import CompileRequest
from mxrun.device.cpu.onednn import library
from mxrun.graph.phases import TRAIN
from mxrun.graph.symbol import fresh_names, variable
from mxrun.operator.kernel import Kernel
from mxrun.planner.plan import Plan

MEBIBYTE = 1 << 20
# By operator, the shape of the data and parameters that turn many channels into few, or the
# reverse: oneDNN gathers the elements selected by a stride of 2 in scratch memory.
OPERATORS = {
    "Convolution": ((2, 256, 56, 56), {"num_filter": 16}),
    "Deconvolution": ((2, 16, 28, 28), {"num_filter": 256, "adj": (1, 1)}),
}


def plan_of(operator: str, workspace: int, implementation: str = "preferred") -> Plan:
    """Return the plan of training with one product with a 1x1 kernel."""
    shape, own = OPERATORS[operator]
    common = {"kernel": (1, 1), "stride": (2, 2), "no_bias": True, "workspace": workspace}
    parameters = {**own, **common}
    with fresh_names():
        dense = ("FullyConnected", {"num_hidden": 3}, "fc")
        symbol = softmax(chain(variable("data"), (operator, parameters, "product"), dense))
    inputs = {"data": TensorSpec(shape), "label": TensorSpec(shape[:1], "int32")}
    request = CompileRequest(
        inputs,
        gradients=("product_weight", "fc_weight", "data"),
        phases=(TRAIN,),
        device=cpu(2),
        implementation=implementation,
    )
    return compile_plan(symbol, request)


def kernel(plan: Plan, name: str = "product:backward:weight") -> Kernel:
    (found,) = [step.kernel for step in plan.phases[TRAIN].steps if step.name == name]
    assert found is not None
    return found


def gradients(plan: Plan) -> list[npt.NDArray[np.float32]]:
    executor, generator = executor_for(plan), np.random.default_rng(0)
    for block in plan.pinned:
        tensor = executor.tensor(block.name)
        drawn = generator.normal(size=tensor.spec.shape)
        tensor.write(0 if tensor.spec.dtype == "int32" else 0.01 * drawn)
    executor.run(TRAIN)
    return [executor.result(TRAIN, f"{name}_grad").read() for name in ("product_weight", "data")]


@pytest.mark.skipif(library.load() is None, reason="needs oneDNN")
@pytest.mark.parametrize("operator", OPERATORS)
def test_P18_a_lower_workspace_takes_less_scratch(operator: str) -> None:
    preferred, limited = plan_of(operator, 512), plan_of(operator, 1)
    scratch = kernel(preferred).workspace_bytes
    if scratch <= MEBIBYTE:
        pytest.skip("the preferred code needs no scratch on this processor")
    assert kernel(limited).workspace_bytes <= MEBIBYTE
    planned = [plan.classes()["workspace"].total_bytes for plan in (preferred, limited)]
    assert planned[1] < planned[0]


@pytest.mark.parametrize("implementation", ["preferred", "numpy"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_P18_no_workspace_at_all_works(operator: str, implementation: str) -> None:
    preferred = plan_of(operator, 512, implementation)
    least = plan_of(operator, 0, implementation)
    for name in ("product", "product:backward:data", "product:backward:weight"):
        assert kernel(least, name).workspace_bytes <= kernel(preferred, name).workspace_bytes
    for got, expected in zip(gradients(least), gradients(preferred), strict=True):
        scale = np.abs(expected).max()
        np.testing.assert_allclose(got / scale, expected / scale, atol=1e-5)


@pytest.mark.skipif(library.load() is None, reason="needs oneDNN")
@pytest.mark.parametrize("operator", OPERATORS)
def test_P18_oneDNN_serves_without_scratch(operator: str) -> None:
    least = plan_of(operator, 0)
    assert kernel(least, "product").implementation.startswith("onednn")
    assert kernel(least, "product").workspace_bytes == 0
    assert kernel(least).workspace_bytes == 0
