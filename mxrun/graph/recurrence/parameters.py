"""Parameters of a recurrence: which variables of its body are read how, and what it returns."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mxrun.base.params import Parameters

Count = Annotated[int, Field(ge=1)]


class RecurrenceParameters(Parameters):
    """Parameters of `recurrent`: the body's variables by role, and the outputs.

    All other variables of the body have one value for all steps.
    """

    sequences: tuple[str, ...] = Field(
        (), description="Variables that read a sequence at the step's time."
    )
    memories: tuple[str, ...] = Field(
        (), description="Variables that read a head of the body at an earlier step."
    )
    offsets: tuple[Count, ...] = Field(
        (), description="Number of steps between each memory and the head that it reads."
    )
    initial: tuple[str, ...] = Field(
        (), description="Memories whose values before the first step are arguments; others are 0."
    )
    num_outputs: int = Field(
        1, ge=0, description="Number of heads that are stacked; those of the memories come after."
    )
    final: tuple[str, ...] = Field(
        (), description="Memories whose values after the last step are further outputs."
    )
    reverse: bool = Field(False, description="Whether the first step is at the last time.")
    use_sequence_length: bool = Field(
        False, description="Whether an argument gives the number of steps of each record."
    )
    valid: tuple[str, ...] = Field(
        (),
        max_length=1,
        description="Variable [N] float32 that is 1 for records with a step at this time, else 0.",
    )
    steps: Count | None = Field(
        None, description="Number of steps of a recurrence without sequences, which give it."
    )
    unroll: bool = Field(
        False, description="Whether every step has operators of its own instead of one loop."
    )
