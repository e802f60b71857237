"""Reshape, expand_dims and squeeze."""

from __future__ import annotations

import math

from mxrun.peers.pytorch.parameters import MXNetParameters, Operators, Tensor


def reshape(parameters: MXNetParameters, data: Tensor) -> Tensor:
    """Reshape by MXNet's codes, matched from the left, or from the right if reversed."""
    codes, axes = list(parameters.shape("shape", ())), list(data.shape)
    if not codes:
        codes = [size or -1 for size in parameters.shape("target_shape", ())]
        if parameters.flag("keep_highest", False):
            codes[0] = axes[0]
        return data.reshape(codes)
    reverse = parameters.flag("reverse", False)
    if reverse:
        codes, axes = codes[::-1], axes[::-1]
    shape: list[int] = []
    while codes:
        code = codes.pop(0)
        if code == -2:
            shape, axes = shape + axes, []
        elif code == -3:
            shape.append(axes.pop(0) * axes.pop(0))
        elif code == -4:
            whole, parts = axes.pop(0), [codes.pop(0), codes.pop(0)]
            known = math.prod(part for part in parts if part != -1)
            shape += [whole // known if part == -1 else part for part in parts]
        else:
            axis = axes.pop(0) if axes else 0
            shape.append(code or axis)
    return data.reshape(shape[::-1] if reverse else shape)


def expand_dims(parameters: MXNetParameters, data: Tensor) -> Tensor:
    """Insert an axis of size 1."""
    return data.unsqueeze(int(parameters.number("axis", math.nan)))


def squeeze(parameters: MXNetParameters, data: Tensor) -> Tensor:
    """Remove axes of size 1; at least one axis remains."""
    text = parameters.text("axis", "None")
    squeezed = data.squeeze() if text == "None" else data.squeeze(parameters.shape("axis", ()))
    return squeezed if squeezed.dim() else squeezed.reshape(1)


OPERATORS: Operators = {
    "Reshape": reshape,
    "expand_dims": expand_dims,
    "squeeze": squeeze,
}
