"""Plans of executors are made once for equal requests, and never shared by different ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import symbol_networks

from mxrun import sym
from mxrun.base.context import cpu
from mxrun.compiler.bound import BoundRequest, compile_bound
from mxrun.compiler.plan_cache import bound_plan
from mxrun.graph.symbol import Symbol
from mxrun.imperative.symbolic.specs import bound_request, inferred_specs
from mxrun.operator.kernel import ForwardRequest, OpReqType
from mxrun.operator.register import Implementation, implement
from mxrun.planner.plan import Plan

SHAPES = {"data": (4, 1, 8, 8), "softmax_label": (4,)}


def request(symbol: Symbol, **shapes: tuple[int, ...]) -> BoundRequest:
    specs = inferred_specs(symbol, shapes or SHAPES, {})
    wanted = dict.fromkeys(symbol.list_arguments(), OpReqType.WRITE)
    return bound_request(symbol, specs, shapes or SHAPES, wanted, cpu())


def described(plan: Plan) -> list[Any]:
    return [
        (name, [step.name for step in phase.steps], dict(phase.offsets), phase.implementations())
        for name, phase in plan.phases.items()
    ]


def test_a_network_that_is_written_again_has_the_same_plan() -> None:
    first = bound_plan(request(symbol_networks.lenet(sym)))
    assert bound_plan(request(symbol_networks.lenet(sym))) is first
    # Planning it again gives an equal one.
    again = compile_bound(request(symbol_networks.lenet(sym)))
    assert described(again.plan) == described(first.plan)


CHANGES: dict[str, Callable[[BoundRequest], BoundRequest]] = {
    "shape": lambda _: request(symbol_networks.lenet(sym), data=(2, 1, 8, 8), softmax_label=(2,)),
    "requests": lambda given: replace(
        given, gradients=dict.fromkeys(given.gradients, OpReqType.ADD)
    ),
    "inputs": lambda given: replace(given, inputs=["data"]),
    "threads": lambda given: replace(given, device=replace(given.device, threads=7)),
    "heads": lambda given: replace(given, symbol=given.symbol.get_internals()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_other_requests_have_other_plans(change: str) -> None:
    given = request(symbol_networks.lenet(sym))
    assert bound_plan(CHANGES[change](given)) is not bound_plan(given)


def test_parameters_names_and_attributes_tell_networks_apart() -> None:
    def net(name: str = "fc", bias: bool = False, **attributes: str) -> Symbol:
        data = sym.Variable("x", attr=attributes)
        return sym.FullyConnected(data, num_hidden=3, no_bias=bias, name=name)

    networks = [net(), net("other"), net(bias=True), net(group="one")]
    plans = {id(bound_plan(request(network, x=(2, 5)))) for network in networks}
    assert len(plans) == len(networks)


def test_an_operator_with_state_of_its_own_is_planned_by_itself() -> None:
    def net() -> Symbol:
        symbol = sym.Activation(sym.Variable("x"), act_type="relu", name="relu")
        vars(symbol.nodes[-1].prop)["state"] = 1
        return symbol

    one = net()
    plan = bound_plan(request(one, x=(2, 5)))
    assert bound_plan(request(one, x=(2, 5))) is plan
    assert bound_plan(request(net(), x=(2, 5))) is not plan


@pytest.mark.usefixtures("separate_registry")
def test_an_implementation_that_is_added_may_be_selected() -> None:
    def net() -> Symbol:
        return sym.Activation(sym.Variable("x"), act_type="relu", name="relu")

    plan = bound_plan(request(net(), x=(2, 5)))

    @implement("Activation", backend="added")
    class Added(Implementation):
        def prepare_forward(self, prop: Any, request: ForwardRequest) -> None:
            return None

    del Added
    assert bound_plan(request(net(), x=(2, 5))) is not plan


def test_executors_of_one_plan_have_memory_of_their_own() -> None:
    first, second = (symbol_networks.lenet(sym).simple_bind(**SHAPES) for _ in range(2))
    for executor, data in ((first, 1.0), (second, 2.0)):
        for name, array in executor.arg_dict.items():
            array[:] = symbol_networks.value(name, array.shape)
        executor.forward(is_train=True, data=np.full(SHAPES["data"], data, np.float32))
    for executor in (first, second):
        executor.backward()
    one, two = (executor.grad_dict["fc1_weight"].asnumpy() for executor in (first, second))
    assert not np.array_equal(one, two)
    first.forward(is_train=True, data=np.full(SHAPES["data"], 2.0, np.float32))
    first.backward()
    assert first.grad_dict["fc1_weight"].asnumpy().tobytes() == two.tobytes()
