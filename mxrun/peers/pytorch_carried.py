"""States that a network carries from step to step: where PyTorch's translation keeps them."""

from __future__ import annotations

from typing import Any

from mxrun.peers.pytorch.parameters import MXNetParameters, Tensor
from mxrun.peers.pytorch_symbol import SymbolNode

# Operators that pass one of their inputs on: its position.
PASSED = {"carry": 1, "_carried": 0}


def carried_values(node: SymbolNode, parameters: MXNetParameters) -> dict[int, int]:
    """Return {position of a state among a node's inputs: where its next value is}.

    That is the number of an input or, if negative, -1 - the number of an output.
    """
    if node.operator == "carry":
        return {1: 0}
    if node.operator == "_carried":
        count = int(parameters.number("num_states", 1))
        return {1 + count + index: 1 + index for index in range(count)}
    if node.operator == "RNN" and parameters.text("initial_state", "input") == "carry":
        count = 2 if parameters.text("mode", "") == "lstm" else 1
        first = len(node.inputs) - count
        return {first + index: -2 - index for index in range(count)}
    return {}


def read_state(state: Tensor) -> Any:
    """Return a state as a step begins with it, which autograd may keep."""
    return state.clone()


def write_state(state: Tensor, value: Tensor) -> None:
    """Store a value for the next step, without a gradient to this one."""
    state.copy_(value.detach())
