"""softmax and log_softmax."""

from __future__ import annotations

from collections.abc import Callable

from torch.nn import functional

from mxrun.peers.pytorch.parameters import MXNetParameters, Operators, Tensor


def _tempered(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Apply the function to data / temperature along the axis."""

    def apply(parameters: MXNetParameters, data: Tensor) -> Tensor:
        given = parameters.text("temperature", "None")
        temperature = 1.0 if given == "None" else float(given)
        return function(data / temperature, dim=int(parameters.number("axis", -1)))

    return apply


OPERATORS: Operators = {
    "log_softmax": _tempered(functional.log_softmax),
    "softmax": _tempered(functional.softmax),
}
