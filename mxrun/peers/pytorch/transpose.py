"""transpose and SwapAxis."""

from __future__ import annotations

from mxrun.peers.pytorch.parameters import MXNetParameters, Operators, Tensor


def transpose(parameters: MXNetParameters, data: Tensor) -> Tensor:
    """Permute the axes in the given order, else reverse them."""
    return data.permute(parameters.shape("axes", tuple(range(data.dim()))[::-1]))


def swap_axis(parameters: MXNetParameters, data: Tensor) -> Tensor:
    """Exchange two axes."""
    return data.swapaxes(int(parameters.number("dim1", 0)), int(parameters.number("dim2", 0)))


OPERATORS: Operators = {
    "SwapAxis": swap_axis,
    "transpose": transpose,
}
