"""transpose and SwapAxis."""

from __future__ import annotations

from mxrun.peers.pytorch.parameters import MXNetParameters, Operators, Tensor


def transpose(parameters: MXNetParameters, data: Tensor) -> Tensor:
    """Axes in the order given, else reversed."""
    return data.permute(parameters.shape("axes", tuple(range(data.dim()))[::-1]))


def swap_axis(parameters: MXNetParameters, data: Tensor) -> Tensor:
    """Two axes exchanged."""
    return data.swapaxes(int(parameters.number("dim1", 0)), int(parameters.number("dim2", 0)))


OPERATORS: Operators = {
    "SwapAxis": swap_axis,
    "transpose": transpose,
}
