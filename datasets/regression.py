"""Synthetic records with labels that are a smooth function of the data, to try regression."""

from __future__ import annotations

import numpy as np
from pydantic import Field as Option

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.params import NotNegative, Parameters
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field, Inputs
from mxrun.io.dataset.registry import register
from mxrun.io.draw import draw_normal, draw_uniform
from mxrun.io.files import MAXIMUM_BYTES


class RegressionOptions(Parameters):
    """Number of records, noise and seed."""

    records: int = Option(default=1024, ge=1, description="Number of records of each split.")
    noise: NotNegative = Option(
        default=0.05, description="Standard deviation of the noise added to each label."
    )
    seed: int = Option(default=0, ge=0, description="Seed of function, data and noise.")


@register("regression", RegressionOptions, ("train", "test"), synthetic=True)
def read(options: RegressionOptions, split: str, inputs: Inputs) -> Dataset:
    """Synthetic regression in the network's shapes: label = a·x + (b·x)² + noise, per output.

    data x: float32, uniform in -1..1; label: float32. a and b are normal, divided by the square
    root of the number of features; both splits share them.
    """
    missing = TensorSpec(())
    data, label = inputs.get("data", missing), inputs.get("label", missing)
    _check(options, data, label)
    seed, count, features, outputs = options.seed, options.records, data.elements, label.elements
    x = draw_uniform(seed, f"regression/{split}/data", (count, features))
    a, b = draw_normal(seed, "regression/function", (2, outputs, features)) / features**0.5
    noise = draw_normal(seed, f"regression/{split}/noise", (count, outputs))
    # Sums over features instead of matrix products, whose bits depend on the number of threads.
    y = np.stack(
        [
            (x * linear).sum(1) + (x * square).sum(1) ** 2
            for linear, square in zip(a, b, strict=True)
        ],
        axis=1,
    )
    y += options.noise * noise
    fields = {
        "data": Field(x.astype(np.float32).reshape(count, *data.shape)),
        "label": Field(y.astype(np.float32).reshape(count, *label.shape)),
    }
    return Dataset("regression", fields, (), split)


def _check(options: RegressionOptions, data: TensorSpec, label: TensorSpec) -> None:
    """Raise UserError for inputs that cannot be generated or would not fit into memory."""
    for name, spec in (("data", data), ("label", label)):
        if spec.dtype != "float32":
            problem = f"data set 'regression' cannot generate the network's input {name!r}"
            hint = "use a loss with a float32 label, such as LinearRegressionOutput"
            raise UserError(Diagnostic(problem, None, "float32", spec.dtype, hint=hint))
    total = 8 * (options.records + 2 * label.elements) * (data.elements + label.elements)
    if total > MAXIMUM_BYTES:
        problem = f"{options.records} records of these inputs are too large for memory"
        expected, got = f"at most {MAXIMUM_BYTES} bytes", f"{total} bytes"
        raise UserError(Diagnostic(problem, None, expected, got, hint="request fewer `records`"))
