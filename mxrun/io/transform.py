"""A list of transforms as what turns the records of a data set into the rows of a batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.errors import Diagnostic, SourceLocation, UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.files import prefixed
from mxrun.io.record import Draw, Record, RecordShape, Transform
from mxrun.runtime import random


@dataclass(frozen=True)
class TransformStep:
    """A transform of a list: where it stands there and in the config."""

    position: int
    transform: Transform
    place: SourceLocation | None = None

    def locate(self, error: UserError) -> UserError:
        """The same error, saying which transform it is and where that is written."""
        return prefixed(error, self.transform.name, self.place)


@dataclass(frozen=True)
class Pipeline:
    """Transforms in order; nothing of it depends on what was transformed before."""

    steps: tuple[TransformStep, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.steps)

    def evaluation(self) -> Pipeline:
        """The same without anything random."""
        return Pipeline(
            tuple(
                replace(step, transform=transform)
                for step in self.steps
                for transform in step.transform.evaluation()
            )
        )

    def of(self, field: str) -> Iterator[TransformStep]:
        """The steps that take the records of `field`."""
        return (step for step in self.steps if step.transform.field == field)

    def output(self, field: str, shape: RecordShape, dtype: str) -> tuple[RecordShape, str]:
        """Shape and type of a row for such a record; raises UserError with the transform's place.

        All transforms end in float32: bytes are scaled at the end if not before.
        """
        for step in self.of(field):
            try:
                shape = step.transform.output(shape)
            except UserError as error:
                raise step.locate(error) from error
            dtype = "float32"
        return shape, dtype

    def source(self, inputs: Mapping[str, TensorSpec]) -> dict[str, TensorSpec]:
        """The records that give the rows `inputs`."""
        found = dict(inputs)
        for step in reversed(self.steps):
            field = step.transform.field
            if field in found:
                found[field] = step.transform.source(found[field])
        return found

    def apply(self, field: str, record: Record, scale: float | None, draws: Draws) -> Record:
        """The transformed record: float32, or bytes still to be scaled.

        Raises UserError with the transform's place, also for a record of a shape that a transform
        cannot take: files may hold others than the data set's.
        """
        for step in self.of(field):
            if step.transform.works_on_values:
                record = values(record, scale)
            try:
                step.transform.output(record.shape)
                record = step.transform.apply(record, draws.at(step.position))
            except UserError as error:
                raise step.locate(error) from error
        return record


NO_TRANSFORMS = Pipeline()


@dataclass(frozen=True)
class Draws:
    """The random numbers of one record in one epoch: a stream for each transform."""

    seed: int
    epoch: int
    record: int

    def at(self, position: int) -> Draw:
        """The numbers of the transform at `position`."""
        name = f"transform/{self.epoch}/{self.record}/{position}"
        return partial(random.few_uniform, self.seed, name)


def values(record: NDArray[Any], scale: float | None) -> NDArray[Any]:
    """A record's float32 values: bytes are scaled, all else is what it says."""
    if record.dtype == np.float32:
        return record
    scaled: NDArray[Any] = record * np.float32(1 if scale is None else scale)
    return scaled


def pipeline(transforms: Sequence[tuple[Transform, SourceLocation | None]]) -> Pipeline:
    """The list as a config writes it; raises UserError for transforms that change nothing, and for
    an order that makes no sense.
    """
    steps = tuple(
        TransformStep(at, transform, place) for at, (transform, place) in enumerate(transforms)
    )
    problems: list[Diagnostic] = []
    moved = False
    for step in steps:
        name, missing = step.transform.name, step.transform.missing
        if missing:
            problem = f"{name} changes nothing with these parameters"
            hint = "give it, or leave the transform out"
            problems.append(Diagnostic(problem, step.place, missing, hint=hint))
        if moved and step.transform.wants_unit_values:
            problem = f"{name} wants values in 0..1, not normalized ones"
            problems.append(Diagnostic(problem, step.place, hint="put normalize behind it"))
        moved |= step.transform.moves_values
    if problems:
        raise UserError(problems)
    return Pipeline(steps)
