"""Pipeline of transforms that turns the records of a data set into the rows of a batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, SourceLocation, UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.files import with_prefix
from mxrun.io.transforms.base import BatchTransform, RecordShape, Transform


@dataclass(frozen=True)
class TransformStep:
    """Transform with its position in the list and its place in the config."""

    position: int
    transform: Transform
    place: SourceLocation | None = None

    def locate(self, error: UserError) -> UserError:
        """Return the error with the transform's name and place added."""
        return with_prefix(error, self.transform.name, self.place)


@dataclass(frozen=True)
class Pipeline:
    """Sequence of transforms; stateless."""

    steps: tuple[TransformStep, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.steps)

    def evaluation(self) -> Pipeline:
        """Return the pipeline with random transforms replaced for evaluation."""
        return Pipeline(
            tuple(
                replace(step, transform=transform)
                for step in self.steps
                for transform in step.transform.evaluation()
            )
        )

    def of(self, field: str) -> Iterator[TransformStep]:
        """Return the steps that transform `field`."""
        return (step for step in self.steps if step.transform.field == field)

    @property
    def batch_steps(self) -> list[tuple[TransformStep, BatchTransform]]:
        """Steps that transform complete batches."""
        return [
            (step, step.transform)
            for step in self.steps
            if isinstance(step.transform, BatchTransform)
        ]

    def output(self, field: str, shape: RecordShape, dtype: str) -> tuple[RecordShape, str]:
        """Return shape and dtype of the row for a record; raises UserError with the transform's
        place.

        All transforms end in float32: bytes that remain are scaled at the end.
        """
        for step in self.of(field):
            try:
                shape = step.transform.output(shape)
            except UserError as error:
                raise step.locate(error) from error
            dtype = "float32"
        for step, transform in self.batch_steps:
            try:
                transform.check(field, shape, dtype)
            except UserError as error:
                raise step.locate(error) from error
        return shape, dtype

    def check_boxes(self, field: str) -> tuple[Diagnostic, ...]:
        """Return the transforms that cannot be applied to images whose boxes are in `field`."""
        return tuple(
            Diagnostic(
                f"{step.transform.name} cannot move the boxes of {field!r}",
                step.place,
                hint="crops, resizes, flips and borders can",
            )
            for step in self.steps
            if not step.transform.takes_boxes
        )

    def check_numbers(self, field: str) -> tuple[Diagnostic, ...]:
        """Return the transforms that cannot be applied to numbers that are no images."""
        return tuple(
            Diagnostic(
                f"{step.transform.name} requires images with values in 0..1, but the records of "
                f"{field!r} are numbers",
                step.place,
                hint=f"if they are images, say so in the data section: images: {{{field}: 255}}",
            )
            for step in self.of(field)
            if step.transform.requires_unit_values
        )

    def source(self, inputs: Mapping[str, TensorSpec]) -> dict[str, TensorSpec]:
        """Return the specs of the records that yield the rows `inputs`."""
        found = dict(inputs)
        for step in reversed(self.steps):
            field = step.transform.field
            if field in found:
                found[field] = step.transform.source(found[field])
        return found


NO_TRANSFORMS = Pipeline()


def values(record: NDArray[Any], scale: float | None) -> NDArray[Any]:
    """Return a record as values: whole numbers, such as bytes, are multiplied by any `scale`."""
    if record.dtype.kind not in "iu":
        return record.astype(np.float32, copy=False)
    scaled: NDArray[Any] = record * np.float32(1 if scale is None else scale)
    return scaled


def pipeline(transforms: Sequence[tuple[Transform, SourceLocation | None]]) -> Pipeline:
    """Return the pipeline of the transforms listed in a config.

    Raises UserError for transforms that change nothing and for an invalid order.
    """
    steps = tuple(
        TransformStep(at, transform, place) for at, (transform, place) in enumerate(transforms)
    )
    problems: list[Diagnostic] = []
    moved = mixed = False
    for step in steps:
        name, missing = step.transform.name, step.transform.required_change
        if missing:
            problem = f"{name} changes nothing with these parameters"
            hint = "set it, or remove the transform"
            problems.append(Diagnostic(problem, step.place, missing, hint=hint))
        if moved and step.transform.requires_unit_values:
            problem = f"{name} requires values in 0..1, not normalized ones"
            problems.append(Diagnostic(problem, step.place, hint="put normalize after it"))
        moved |= step.transform.leaves_unit_range
        is_mixing = isinstance(step.transform, BatchTransform)
        if mixed and not is_mixing:
            hint = "put the transforms of batches last"
            problem = f"{name} transforms records, but comes after a transform of batches"
            problems.append(Diagnostic(problem, step.place, hint=hint))
        mixed |= is_mixing
    if problems:
        raise UserError(problems)
    return Pipeline(steps)
