"""One step of each kind of recurrent layer as maps over the elements of a row.

Forward maps compute the gates, the states after the step and, unless a projection follows, the
output; backward maps the gradients of all that a step reads. Their formulas are those of `cells`,
and they run on any device that has maps.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from mxrun.base.dataclass import dataclass
from mxrun.operator import scalar
from mxrun.operator.scalar import MapKernel
from mxrun.ops.rnn.cells import BACKWARD, FORWARD
from mxrun.ops.rnn.parameters import RNNParameters

# Scalar functions run on symbolic values.
Scalar = Any


@dataclass(frozen=True)
class StepForm:
    """Properties of a layer that decide its maps.

    has_mask: whether the output is multiplied by a mask. is_projected: whether the output before a
    projection is all that the step's map returns, and its gradient all that it reads. has_gradient:
    whether the output has a gradient. is_recorded: whether the map returns what backward reads.
    has_states: whether it returns the state once more, for backward.
    """

    mode: str
    is_clipped: bool = False
    clips_nan: bool = False
    has_mask: bool = False
    is_projected: bool = False
    has_gradient: bool = True
    is_recorded: bool = False
    has_states: bool = False

    @property
    def clip(self) -> tuple[str, ...]:
        """Names of the parameters."""
        return ("low", "high") if self.is_clipped else ()


def form_of(p: RNNParameters, has_mask: bool) -> StepForm:
    """Return the form of a layer of an operator with these parameters."""
    is_projected = p.projection_size is not None
    return StepForm(
        p.mode,
        is_clipped=p.is_clipped,
        clips_nan=p.lstm_state_clip_nan,
        has_mask=has_mask,
        is_projected=is_projected,
    )


@cache
def forward_map(form: StepForm) -> MapKernel:
    """Return the map of a step: states and output from products and states.

    rnn_relu, rnn_tanh: x → nothing; gru: x_r, x_z, x_n, y_n, h → r, z, n, y_n; lstm: x_i, x_f, x_g,
    x_o, c → i, f, g, o, c; these results only if they are recorded. Then the next c of an lstm, h,
    h once more for backward, and h times the mask. If h is projected, what is projected and, for
    backward, the same once more stand in the places of all h.
    """
    operands = {
        "lstm": ("i", "f", "g", "o", "c"),
        "gru": ("r", "z", "n", "y", "h"),
    }.get(form.mode, ("x",))
    mask = ("mask",) if form.has_mask and not form.is_projected else ()

    def step(*values: Scalar) -> tuple[Scalar, ...]:
        given = values[: len(operands)]
        rest = values[len(operands) :]
        recorded, (*cells, output) = FORWARD[form.mode](given, rest[len(mask) :], form.clips_nan)
        results = (*(recorded if form.is_recorded else ()), *cells, output)
        if form.is_projected:
            return (*results, output) if form.is_recorded else results
        if form.has_states:
            results = (*results, output)
        return (*results, output * rest[0] if mask else output)

    return scalar.compile(step, operands=(*operands, *mask), parameters=form.clip)


@cache
def backward_map(form: StepForm) -> MapKernel:
    """Return the map of a step's gradients.

    It reads the gradients of h and, unless h is projected, of the output and its mask, then that of
    c of an lstm, then what forward recorded. It returns the gradients of x, of a gru's y_n, of the
    previous c of an lstm, and unless h is projected the previous h's but for its product.
    """
    first = ["h_grad"]
    if not form.is_projected and form.has_gradient:
        first += ["output_grad", "mask"] if form.has_mask else ["output_grad"]
    recorded = {
        "lstm": ("c_grad", "i", "f", "g", "o", "c"),
        "gru": ("r", "z", "n", "y", "h"),
    }.get(form.mode, ("output",))

    def step(*values: Scalar) -> tuple[Scalar, ...]:
        heads, rest = values[: len(first)], values[len(first) :]
        own, clip = rest[: len(recorded)], rest[len(recorded) :]
        *found, h_grad = BACKWARD[form.mode](_total(heads), own, clip, form.clips_nan)
        return tuple(found) if form.is_projected else (*found, h_grad)

    return scalar.compile(step, operands=(*first, *recorded), parameters=form.clip)


@cache
def total_map(has_mask: bool, has_gradient: bool) -> MapKernel:
    """Return the map of a projected output: its gradient, and 0 for the previous h's."""
    names = ["h_grad"]
    if has_gradient:
        names += ["output_grad", "mask"] if has_mask else ["output_grad"]
    return scalar.compile(lambda *heads: (_total(heads), 0.0), operands=names)


@cache
def copy_map(outputs: int, has_mask: bool = False) -> MapKernel:
    """Return the map that copies its operand to all outputs, the last one times the mask."""
    names = ["data", "mask"] if has_mask else ["data"]

    def copies(data: Scalar, mask: Scalar = 1.0) -> tuple[Scalar, ...]:
        last = data * mask if has_mask else data
        return (*(data,) * (outputs - 1), last)

    return scalar.compile(copies, operands=names)


@cache
def zero_map() -> MapKernel:
    """Return the map that ignores its operand and writes 0."""
    return scalar.compile(lambda unread: (0.0,), operands=("unread",))


def _total(heads: Sequence[Scalar]) -> Scalar:
    """Return h's gradient plus the output's times the mask."""
    if len(heads) == 1:
        return heads[0]
    return heads[0] + (heads[1] * heads[2] if len(heads) > 2 else heads[1])
