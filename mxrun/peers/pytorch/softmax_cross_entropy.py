"""softmax_cross_entropy."""

from __future__ import annotations

from torch import nn
from torch.nn import functional

from mxrun.peers.pytorch.loss import Loss
from mxrun.peers.pytorch.parameters import Losses, MXNetParameters, Operators, Tensor

# Never a class, so that no label is ignored.
_NO_LABEL = -(2**31)


def _ignored(parameters: MXNetParameters) -> int:
    ignores = parameters.flag("use_ignore", False)
    return int(parameters.number("ignore_label", -1)) if ignores else _NO_LABEL


def _sum(data: Tensor, label: Tensor, ignored: int) -> Tensor:
    """Return the cross-entropy summed over rows."""
    rows, labels = data.reshape(-1, data.shape[-1]), label.reshape(-1).long()
    return functional.cross_entropy(rows, labels, reduction="sum", ignore_index=ignored)


def softmax_cross_entropy(parameters: MXNetParameters, data: Tensor, label: Tensor) -> Tensor:
    """Return the sum as a tensor of one element, whose gradient is multiplied by grad_scale."""
    total = _sum(data, label, _ignored(parameters))[None]
    scaled = total * parameters.number("grad_scale", 1.0)
    # The values of the sum with the gradient of the scaled one.
    return scaled + (total - scaled).detach()


class SummedCrossEntropy(Loss):
    """Cross-entropy of the last axis."""

    def __init__(self, parameters: MXNetParameters) -> None:
        super().__init__(parameters)
        self.ignored = _ignored(parameters)

    def forward(self, data: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        """Return (sum times scale, mean over labels that are not ignored)."""
        # float32, as within cross_entropy: autocast alone would leave bfloat16.
        total = _sum(data.float(), label, self.ignored)
        count = label.numel() if self.ignored == _NO_LABEL else (label != self.ignored).sum()
        return total * self.scale, total.detach() / count


class SoftmaxOfRows(nn.Module):
    """softmax_cross_entropy without a label: the probabilities."""

    def __init__(self, parameters: MXNetParameters) -> None:
        super().__init__()
        del parameters

    def forward(self, data: Tensor) -> Tensor:
        """Return the probabilities, in the shape of `data`."""
        return data.softmax(-1)


OPERATORS: Operators = {"softmax_cross_entropy": softmax_cross_entropy}
LOSSES: Losses = {"softmax_cross_entropy": SummedCrossEntropy}
RESULTS: Losses = {"softmax_cross_entropy": SoftmaxOfRows}
