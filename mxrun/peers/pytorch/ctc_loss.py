"""CTCLoss."""

from __future__ import annotations

import torch
from torch.nn import functional

from mxrun.peers.pytorch.parameters import MXNetParameters, Operators, Tensor


def ctc_loss(
    parameters: MXNetParameters, data: Tensor, label: Tensor, *given: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the losses, and the hidden gradient as zeros, which nothing reads."""
    if parameters.text("layout", "TNC") == "NTC":
        data = data.transpose(0, 1)
    steps, batch, classes = data.shape
    first = parameters.text("blank_label", "first") == "first"
    lengths, labels = list(given), label.long()
    data_lengths = torch.full((batch,), steps)
    if parameters.flag("use_data_lengths", False):
        data_lengths = lengths.pop(0).long()
    if parameters.flag("use_label_lengths", False):
        label_lengths = lengths.pop(0).long()
    else:
        is_padding = labels == (0 if first else -1)
        label_lengths = (is_padding.cumsum(1) == 0).sum(1)
    losses = functional.ctc_loss(
        data.log_softmax(2),
        labels.clamp(0, classes - 1),
        data_lengths,
        label_lengths,
        0 if first else classes - 1,
        reduction="none",
        zero_infinity=True,
    )
    return losses, torch.zeros_like(data) + 0 * losses.sum()


OPERATORS: Operators = {"CTCLoss": ctc_loss}
