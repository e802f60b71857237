"""Updaters: an optimizer with the states of every parameter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mxrun.base.errors import Diagnostic, UserError
from mxrun.imperative.arrays.creation import array
from mxrun.imperative.arrays.ndarray import NDArray
from mxrun.imperative.optimizer.optimizer import ImperativeOptimizer, Index, States
from mxrun.imperative.optimizer.states import read_states, written_states


class Updater:
    """Function `updater(index, grad, weight)`, which updates the weight in place (MXNet's Updater).

    states: of each parameter, made in its first update, on the weight's device.
    """

    def __init__(self, optimizer: ImperativeOptimizer) -> None:
        self.optimizer = optimizer
        self.states: dict[Index, States] = {}

    def __call__(
        self,
        index: Index | Sequence[Index],
        grad: Any,
        weight: Any,
    ) -> None:
        """Update one weight, or lists of weights one after the other.

        Raises UserError for other things than arrays of floats of one data type, and for read
        states that do not fit.
        """
        if isinstance(index, (int, str)):
            self._update(index, grad, weight)
            return
        for each in zip(index, grad, weight, strict=True):
            self._update(*each)

    def _update(self, index: Index, grad: Any, weight: Any) -> None:
        if not isinstance(grad, NDArray) or not isinstance(weight, NDArray):
            got = f"{type(grad).__name__} and {type(weight).__name__}"
            problem, expected = "gradient and weight of an update", "two NDArrays"
            raise UserError(Diagnostic(problem, None, expected, got))
        if "int" in weight.dtype or grad.dtype != weight.dtype:
            problem, expected = f"the update of {index!r}", "floats of one data type"
            got = f"gradient {grad.dtype}, weight {weight.dtype}"
            raise UserError(Diagnostic(problem, None, expected, got))
        states = self.states.get(index)
        if states is None:
            states = self.optimizer.create_state(index, weight)
        elif any(state.shape != weight.shape for state in states):
            problem = f"the states of {index!r} do not fit its weight"
            expected, got = f"shape {weight.shape}", f"shape {states[0].shape}"
            raise UserError(Diagnostic(problem, None, expected, got))
        else:
            # States that were read from a file are on the host.
            context = weight.context
            states = tuple(
                state if state.context == context else array(state, context) for state in states
            )
        self.states[index] = states
        self.optimizer.update(index, weight, grad, states)

    def get_states(self, dump_optimizer: bool = False) -> bytes:
        """Return the states and the counts of updates in the safetensors format.

        dump_optimizer: whether the optimizer's settings are included. Waits for the states.
        """
        return written_states(self.optimizer, self.states, dump_optimizer)

    def set_states(self, states: bytes, source: str = "the states") -> None:
        """Replace the states and counts, and the optimizer if its settings are included.

        source: named in errors. Raises UserError for anything that `get_states` has not returned,
        and for the states of another kind of optimizer.
        """
        self.optimizer, self.states = read_states(states, self.optimizer, source)


def get_updater(optimizer: ImperativeOptimizer) -> Updater:
    """Return a new updater of an optimizer; UserError for anything else."""
    if not isinstance(optimizer, ImperativeOptimizer):
        expected, got = "what mxrun.optimizer.create returns", type(optimizer).__name__
        raise UserError(Diagnostic("not an optimizer", None, expected, got))
    return Updater(optimizer)
