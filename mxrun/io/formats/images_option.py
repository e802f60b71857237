"""Option that declares arrays as images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field as Option

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import nearest
from mxrun.io.dataset.fields import Inputs

IMAGES: Any = Option(
    default={},
    description="Inputs whose arrays are images, each with the pixel value of white, such as 255. "
    "Their pixels are divided by it, so that the network reads 0..1. All other arrays keep their "
    "values.",
    examples=[{"data": 255}],
)


def check_images(images: Mapping[str, float], inputs: Inputs) -> None:
    """Raise UserError unless the declared inputs exist and take floating-point numbers."""
    for name in images:
        if name not in inputs or inputs[name].dtype != "float32":
            problem = f"images: the network has no float32 input {name!r}"
            floats = [each for each, spec in inputs.items() if spec.dtype == "float32"]
            expected = f"one of {', '.join(floats)}" if floats else "no images"
            raise UserError(Diagnostic(problem, None, expected, name, hint=nearest(name, floats)))
