"""SoftmaxOutput."""

from __future__ import annotations

import torch

from mxrun.peers.pytorch.parameters import MXNetParameters, Operators, Tensor

_FLATTENED_RANK = 2


def softmax_output(parameters: MXNetParameters, data: Tensor, label: Tensor) -> Tensor:
    """Return softmax; its gradient is that of the cross-entropy, independent of out_grad.

    The class axis is the last one, or axis 1 with multi_output.
    """
    multiple = parameters.flag("multi_output", False)
    if data.dim() > _FLATTENED_RANK and not (multiple or parameters.flag("preserve_shape", False)):
        raise ValueError("SoftmaxOutput of rank 3 requires multi_output or preserve_shape")
    probabilities = torch.softmax(data.detach(), 1 if multiple else -1)
    source = data.clone()
    if source.requires_grad:
        source.register_hook(
            lambda head: softmax_gradient(parameters, probabilities, label.detach(), head)
        )
    # source - source is zero; it connects the output to the hook that sets the gradient.
    return probabilities + (source - source.detach())


def softmax_gradient(
    parameters: MXNetParameters, probabilities: Tensor, label: Tensor, head: Tensor
) -> Tensor:
    """Return (probabilities - target) · grad_scale / normaliser, 0 for ignored labels."""
    scale = parameters.number("grad_scale", 1.0)
    if label.shape == probabilities.shape:
        gradient = (probabilities - label) * scale
        return gradient * head if parameters.flag("out_grad", False) else gradient
    multiple = parameters.flag("multi_output", False)
    batch = probabilities.shape[0]
    moved = probabilities.reshape(batch, probabilities.shape[1], -1).movedim(1, -1)
    rows = moved if multiple else probabilities
    classes = rows.shape[-1]
    labels = label.reshape(rows.shape[:-1])
    hit = labels.long()[..., None] == torch.arange(classes)
    # MXNet 1.9.1 applies no label smoothing under multi_output.
    smooth = 0.0 if multiple else parameters.number("smooth_alpha", 0.0)
    others = smooth / (classes - 1) if smooth else 0.0
    gradient = rows - torch.where(hit, 1.0 - smooth, others).to(rows.dtype)
    ignored = labels.long() == int(parameters.number("ignore_label", -1))
    if parameters.flag("use_ignore", False):
        gradient = gradient.masked_fill(ignored[..., None], 0.0)
    normalization = parameters.text("normalization", "null")
    if normalization == "valid":
        # Counts labels other than ignore_label even if use_ignore is off.
        scale /= max(int((~ignored).sum()), 1)
    else:
        per_sample = labels[0].numel() if multiple else 1
        samples = batch if multiple else labels.numel()
        scale /= per_sample * (samples if normalization == "batch" else 1)
    gradient = gradient * scale
    gradient = gradient.movedim(-1, 1) if multiple else gradient
    gradient = gradient.reshape(probabilities.shape)
    return gradient * head if parameters.flag("out_grad", False) else gradient


OPERATORS: Operators = {
    "SoftmaxOutput": softmax_output,
}
