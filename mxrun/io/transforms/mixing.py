"""Transforms of complete batches, which mix their rows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from mxrun.base.errors import Diagnostic, UserError
from mxrun.io.loading.batch import is_label
from mxrun.io.transforms.base import BatchTransform, RecordShape, Uniform, register
from mxrun.io.transforms.draws import Draws
from mxrun.io.transforms.pipeline import Pipeline

# Points of the table of a distribution, and elements that are mixed at a time.
_POINTS, _BLOCK = 4097, 1 << 17


@register("mixup")
class Mixup(BatchTransform):
    """Mix each row of a batch with another one, data and labels alike; in evaluation nothing.

    With one lambda a batch, drawn from Beta(alpha, alpha), row i becomes lambda row i + (1 -
    lambda) row n - 1 - i, where n is the number of records of the batch; of a micro-batch, if the
    batch is computed in those. Labels must be probabilities: write `one_hot` before it. Source: H.
    Zhang et al., "mixup: Beyond Empirical Risk Minimization", 2018.
    """

    draws: ClassVar[int] = 1

    alpha: Annotated[float, Field(ge=0.01, le=100)] = Field(
        default=0.2, description="Parameter of the distribution of lambda.", examples=[0.2]
    )

    def check(self, field: str, shape: RecordShape, dtype: str) -> None:
        """Raise UserError unless the rows of a field are float32, and labels are vectors."""
        labels = is_label(field)
        if dtype != "float32" or (labels and not shape):
            hint = "write `one_hot: {classes: ...}` before it, and a network of soft labels"
            problem = f"the rows of {field!r} cannot be mixed"
            expected = "probabilities, one for each class" if labels else "float32"
            got = f"{dtype}{[*shape]}"
            raise UserError(
                Diagnostic(problem, expected=expected, got=got, hint=hint if labels else "")
            )

    def mix(self, rows: Mapping[str, NDArray[Any]], valid: int, uniform: Uniform) -> None:
        """Mix the first `valid` rows."""
        part = np.float32(_beta_quantile(float(uniform[0]), self.alpha))
        other = np.float32(1) - part
        for values in rows.values():
            flat = values.reshape(len(values), -1)
            step = max(1, _BLOCK // max(flat.shape[1], 1))
            for first in range(0, valid // 2, step):
                end = min(first + step, valid // 2)
                upper, lower = flat[first:end], flat[valid - end : valid - first][::-1]
                mixed = upper * part + lower * other
                lower[...] = lower * part + upper * other
                upper[...] = mixed


def mix_batch(
    pipeline: Pipeline,
    seed: int,
    epoch: int,
    batch: int,
    rows: Mapping[str, NDArray[Any]],
    valid: int,
) -> None:
    """Apply the transforms of batches to the first `valid` rows of one, in place.

    Its random numbers are a function of the seed, the numbers of the epoch and the batch, and the
    position of the transform.
    """
    for step, transform in pipeline.batch_steps:
        draw = Draws(seed, epoch, batch).at(step.position)
        transform.mix(rows, valid, draw((transform.draws,)))


def _beta_quantile(probability: float, alpha: float) -> float:
    """Return the quantile of Beta(alpha, alpha), to about 1e-6."""
    lower = min(probability, 1 - probability)
    places, distribution = _beta_table(alpha)
    found = float(np.interp(lower, distribution, places) ** (1 / alpha))
    return found if probability < 0.5 else 1 - found


@lru_cache(maxsize=8)
def _beta_table(alpha: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return x^alpha and the probability of at most x, for x in 0 .. 1/2.

    The density over x^alpha, (1 - x)^(alpha - 1), has no pole at 0.
    """
    places = np.linspace(0, 0.5**alpha, _POINTS)
    density = (1 - places ** (1 / alpha)) ** (alpha - 1)
    total = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return places, total * (0.5 / total[-1])
