"""File format of an updater's states.

A file is in the safetensors format. A tensor is named by a parameter's index in JSON and its
state, such as `"fc1_weight":mom` or `3:mom`. The metadata holds the optimizer's name, the counts of
updates and, if asked for, the settings, in JSON. Reading a file executes nothing in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

import numpy.typing as npt
from pydantic import Field

from mxrun.base.array_file import UnreadableArrays, file_parts, parse_arrays, parse_metadata
from mxrun.base.context import Context
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.params import Parameters, check
from mxrun.imperative.arrays.creation import array
from mxrun.imperative.arrays.ndarray import NDArray
from mxrun.imperative.optimizer.optimizer import ImperativeOptimizer, Index, States, create

_FORMAT: Literal["mxrun optimizer states 1"] = "mxrun optimizer states 1"
_CONTENT = "optimizer"

Count = Annotated[int, Field(ge=0)]
Factors: TypeAlias = tuple[tuple[Index, float], ...]


class OptimizerSettings(Parameters):
    """Settings of an optimizer, except for its scheduler."""

    parameters: dict[str, Any] = Field(description="The parameters that were given.")
    lr: float = Field(description="The learning rate.")
    rescale_grad: float = Field(description="The factor of every gradient.")
    begin_num_update: Count = Field(description="The number of updates at the beginning.")
    names: tuple[tuple[int, str], ...] = Field(description="The parameters' names by index.")
    lr_mult: Factors = Field(description="Factors of the learning rate.")
    wd_mult: Factors = Field(description="Factors of the weight decay.")


class Description(Parameters):
    """Metadata of a file."""

    format: Literal["mxrun optimizer states 1"] = Field(description="Name of this format.")
    optimizer: str = Field(description="The optimizer's name.")
    num_update: Count = Field(description="The most updates of one parameter.")
    update_counts: tuple[tuple[str, Count, tuple[tuple[Index, Count], ...]], ...] = Field(
        description="Updates of each parameter, by kind and index of the device."
    )
    settings: OptimizerSettings | None = Field(
        default=None, description="The optimizer's settings."
    )


def written_states(
    optimizer: ImperativeOptimizer, states: Mapping[Index, States], with_settings: bool
) -> bytes:
    """Return a file's content, after waiting for the states."""
    arrays = {
        f"{json.dumps(index)}:{name}": state.asnumpy()
        for index, each in states.items()
        for name, state in zip(optimizer.rule.states, each, strict=True)
    }
    description = Description(
        format=_FORMAT,
        optimizer=optimizer.name,
        num_update=optimizer.num_update,
        update_counts=tuple(
            (context.kind, context.index, tuple(counts.items()))
            for context, counts in optimizer.update_counts.items()
        ),
        settings=_settings(optimizer) if with_settings else None,
    )
    return b"".join(file_parts(arrays, {_CONTENT: json.dumps(description.model_dump())}))


def _settings(optimizer: ImperativeOptimizer) -> OptimizerSettings:
    return OptimizerSettings(
        parameters=optimizer.rule.model_dump(exclude_unset=True),
        lr=optimizer.lr,
        rescale_grad=optimizer.rescale_grad,
        begin_num_update=optimizer.begin_num_update,
        names=tuple(optimizer.idx2name.items()),
        lr_mult=tuple(optimizer.lr_mult.items()),
        wd_mult=tuple(optimizer.wd_mult.items()),
    )


def read_states(
    content: bytes, present: ImperativeOptimizer, source: str
) -> tuple[ImperativeOptimizer, dict[Index, States]]:
    """Return the optimizer with its counts, and the states, on the host.

    present: the optimizer in use, whose scheduler remains. Raises UserError naming `source` if the
    content is something else or belongs to another kind of optimizer.
    """
    arrays, description = _parsed(content, source)
    if description.optimizer != present.name and description.settings is None:
        expected, got = present.name, description.optimizer
        raise _unusable(source, "it has the states of another optimizer", expected, got=got)
    optimizer = _restored(description, present)
    optimizer.num_update = description.num_update
    for kind, number, counts in description.update_counts:
        optimizer.update_counts[Context(kind, number)] = dict(counts)
    found: dict[Index, dict[str, NDArray]] = {}
    for name, value in arrays.items():
        index, state = _named(name, source)
        found.setdefault(index, {})[state] = array(value)
    expected_names = set(optimizer.rule.states)
    for index, each in found.items():
        if set(each) != expected_names:
            expected, got = ", ".join(optimizer.rule.states), ", ".join(each)
            raise _unusable(source, f"the states of {index!r}", expected, got=got)
    names = optimizer.rule.states
    return optimizer, {key: tuple(each[name] for name in names) for key, each in found.items()}


def _restored(description: Description, present: ImperativeOptimizer) -> ImperativeOptimizer:
    settings = description.settings
    if settings is None:
        present.update_counts.clear()
        return present
    optimizer = create(
        description.optimizer,
        lr_scheduler=present.lr_scheduler,
        param_idx2name=dict(settings.names),
        begin_num_update=settings.begin_num_update,
        **{("learning_rate" if key == "lr" else key): v for key, v in settings.parameters.items()},
    )
    optimizer.lr, optimizer.rescale_grad = settings.lr, settings.rescale_grad
    optimizer.lr_mult, optimizer.wd_mult = dict(settings.lr_mult), dict(settings.wd_mult)
    return optimizer


def _parsed(content: bytes, source: str) -> tuple[dict[str, npt.NDArray[Any]], Description]:
    try:
        arrays = parse_arrays(content)
    except UnreadableArrays as error:
        raise _unusable(source, error.problem, error.expected, got=error.got) from error
    try:
        values = json.loads(parse_metadata(content).get(_CONTENT, "null"))
    except (ValueError, RecursionError) as error:
        raise _unusable(source, "its metadata is not JSON") from error
    if not isinstance(values, dict):
        raise _unusable(source, "it has no states of an optimizer")
    description, problems = check(Description, values)
    if description is None:
        raise _unusable(source, problems[0].problem, problems[0].expected, got=problems[0].got)
    return arrays, description


def _named(name: str, source: str) -> tuple[Index, str]:
    """Return the parameter's index and the state's name of a tensor."""
    text, _, state = name.rpartition(":")
    try:
        index = json.loads(text)
    except (ValueError, RecursionError):
        index = None
    if isinstance(index, bool) or not isinstance(index, (int, str)):
        raise _unusable(
            source, f"a tensor named {name[:80]!r}", 'such as "fc1_weight":mom or 3:mom'
        )
    return index, state


def _unusable(source: str, problem: str, expected: str = "", got: str = "") -> UserError:
    hint = "use a file that save_optimizer_states has written"
    return UserError(Diagnostic(f"cannot use {source}: {problem}", None, expected, got, hint=hint))
