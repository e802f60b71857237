"""Synthetic records of any network's input shapes, for benchmarks and trials without files."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import Field as Option

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.params import Parameters
from mxrun.base.tensor import Shape, TensorSpec
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field, Inputs
from mxrun.io.dataset.pixels import WHITE, unit_values
from mxrun.io.dataset.registry import register
from mxrun.io.draw import draw_bytes, draw_integers
from mxrun.io.files import MAXIMUM_BYTES
from mxrun.io.images.decode import takes_images
from mxrun.io.loading.batch import is_label


class SyntheticOptions(Parameters):
    """Number of records and classes, and seed."""

    records: int = Option(default=1024, ge=1, description="Number of records of each split.")
    classes: int = Option(
        default=10, ge=1, le=1 << 24, description="Number of classes; labels are 0 to classes - 1."
    )
    seed: int = Option(default=0, ge=0, description="Seed of the records.")


@register("synthetic", SyntheticOptions, ("train", "test"), synthetic=True)
def read(options: SyntheticOptions, split: str, inputs: Inputs) -> Dataset:
    """Synthetic records of the network's own input shapes, a function of seed and split.

    Each record has a class. A float32 input is the average of its class's random pattern and noise,
    in 0..1. A float32 label [n] with n > 1 is made alike and divided by its sum, as probabilities
    are. An int32 label of shape [] is the class; any other int32 input is drawn from the class
    numbers. Both splits share the patterns, so that there is something to learn.
    """
    _check(options, inputs)
    seed, count, classes = options.seed, options.records, options.classes
    class_numbers = draw_integers(seed, f"synthetic/{split}/class", (count,), classes)
    fields = {}
    for name, spec in inputs.items():
        stream = f"synthetic/{split}/field/{name}"
        if spec.dtype == "float32":
            patterns = _patterns(options, stream, name, spec.shape, class_numbers)
            are_shares = is_label(name) and len(spec.shape) == 1 and spec.elements > 1
            if _is_image(name, spec):
                fields[name] = Field.images(patterns)
            else:
                fields[name] = Field(
                    _shares(patterns) if are_shares else unit_values(patterns, WHITE)
                )
        elif is_label(name) and spec.shape == ():
            fields[name] = Field(class_numbers)
        else:
            fields[name] = Field(draw_integers(seed, stream, (count, *spec.shape), classes))
    return Dataset("synthetic", fields, (), split)


def _check(options: SyntheticOptions, inputs: Inputs) -> None:
    """Raise UserError for inputs that cannot be generated or would not fit into memory."""
    total = 4 * options.records
    for name, spec in inputs.items():
        if spec.dtype not in ("float32", "int32"):
            problem = f"data set 'synthetic' cannot generate the network's input {name!r}"
            raise UserError(Diagnostic(problem, None, "float32 or int32", spec.dtype))
        if spec.dtype == "float32":
            # Numbers are bytes at first and then float32, twice.
            size = 1 if _is_image(name, spec) else 9
            total += (options.records + 1) * size * spec.elements
        else:
            total += options.records * spec.nbytes
    if total > MAXIMUM_BYTES:
        problem = f"{options.records} records of these inputs are too large for memory"
        expected, got = f"at most {MAXIMUM_BYTES} bytes", f"{total} bytes"
        raise UserError(Diagnostic(problem, None, expected, got, hint="request fewer `records`"))


def _is_image(name: str, spec: TensorSpec) -> bool:
    return takes_images(spec) and not is_label(name)


def _shares(patterns: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return float32 [records, n]; each row has sum 1 and no zeros."""
    counts = patterns.astype(np.float32) + 1
    shares: NDArray[np.float32] = counts / counts.sum(axis=1, keepdims=True)
    return shares


def _patterns(
    options: SyntheticOptions,
    stream: str,
    name: str,
    shape: Shape,
    class_numbers: NDArray[np.int32],
) -> NDArray[np.uint8]:
    """Return uint8 [records, *shape]: pattern[class] / 2 + noise / 2, each rounded down."""
    records = draw_bytes(options.seed, stream, (options.records, *shape))
    records >>= 1
    # One pattern at a time: there may be more classes than records, and images may be large.
    order = np.argsort(class_numbers, kind="stable")
    kinds, starts = np.unique(class_numbers[order], return_index=True)
    for kind, members in zip(kinds.tolist(), np.split(order, starts[1:]), strict=True):
        pattern = draw_bytes(options.seed, f"synthetic/pattern/{name}/{kind}", shape) >> 1
        for member in members.tolist():
            records[member] += pattern
    return records
