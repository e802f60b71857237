"""Every case of the operator table on a card, against the NumPy body, twice with the same bits."""

from __future__ import annotations

import pytest
from contract_cases import OPERATORS, runners

from mxrun.base.device import GPU
from mxrun.contract.agreement import compared
from mxrun.contract.call import Conditions
from mxrun.device.interface import Device
from mxrun.operator.register import implementations

ON_CARD = Conditions(kind=GPU)


def next_step(operator: str, implementation: str) -> str:
    """Return where to look if an implementation is wrong on a card."""
    if implementation.startswith("cudnn"):
        return (
            f"{operator} without cuDNN: `implementation: jit`; if that passes, compare the plan's "
            "graph with tests/operators/test_cudnn_results.py, which is right on the processor"
        )
    return (
        f"the same kernel on emulated threads: pytest tests/operators/test_gpu_operators.py -k "
        f"{operator}; if that passes, ptxas and the driver compile something else, or a barrier is "
        "missing that the emulator's order hides"
    )


@pytest.mark.parametrize("operator", OPERATORS)
def test_operator(operator: str, card: Device) -> None:
    taken = implementations(operator, card.description).values()
    if not taken:
        pytest.skip("no kernel for cards: it runs in NumPy on the host, or is a view")
    for runner in runners(operator):
        for each in taken:
            if each.is_by_name:
                continue
            problems = list(compared(runner, each, ON_CARD, "on a card", repeated=True))
            assert not problems, f"{runner.case.name}: {problems[0]}; next: " + next_step(
                operator, each.name
            )
