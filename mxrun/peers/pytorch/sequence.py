"""SequenceMask, SequenceLast and SequenceReverse."""

from __future__ import annotations

import torch

from mxrun.peers.pytorch.parameters import MXNetParameters, Operators, Tensor


def _steps_first(parameters: MXNetParameters, data: Tensor) -> Tensor:
    return data.transpose(0, 1) if parameters.number("axis", 0) == 1 else data


def _lengths(steps: Tensor, given: tuple[Tensor, ...]) -> Tensor:
    """Return the length of each sequence of [steps, batch, ...]."""
    if not given:
        return torch.full(steps.shape[1:2], len(steps))
    return given[0].long().clamp(0, len(steps))


def _rows(steps: Tensor, places: Tensor) -> Tensor:
    """Return steps[places[t, n], n]."""
    return steps[places, torch.arange(steps.shape[1])]


def mask(parameters: MXNetParameters, data: Tensor, *given: Tensor) -> Tensor:
    steps = _steps_first(parameters, data)
    valid = torch.arange(len(steps))[:, None] < _lengths(steps, given)
    valid = valid.reshape(*valid.shape, *(1,) * (steps.dim() - 2))
    value = parameters.number("value", 0.0)
    return _steps_first(parameters, torch.where(valid, steps, value))


def hold(parameters: MXNetParameters, data: Tensor, lengths: Tensor) -> Tensor:
    masked = mask(parameters, data, lengths)
    if not data.is_floating_point():
        return masked
    steps = _steps_first(parameters, masked)
    ends, numbers = _lengths(steps, (lengths,)), torch.arange(len(steps))[:, None]
    held = _rows(steps, torch.minimum(numbers, (ends - 1).clamp(min=0)))
    valid = (numbers < ends).reshape(*steps.shape[:2], *(1,) * (steps.dim() - 2))
    return _steps_first(parameters, torch.where(valid, steps, held.detach()))


def tail(parameters: MXNetParameters, data: Tensor, lengths: Tensor) -> Tensor:
    count, before = (int(parameters.number(name, 0)) for name in ("count", "before"))
    ends = before + lengths.long().clamp(0, len(data) - before)
    places = ends - count + torch.arange(count)[:, None]
    there = (places >= 0).reshape(*places.shape, *(1,) * (data.dim() - 2))
    return torch.where(there, _rows(data, places.clamp(min=0)), 0.0)


def last(parameters: MXNetParameters, data: Tensor, *given: Tensor) -> Tensor:
    steps = _steps_first(parameters, data)
    return _rows(steps, (_lengths(steps, given) - 1).clamp(min=0))


def turned(parameters: MXNetParameters, data: Tensor, *given: Tensor) -> Tensor:
    steps = _steps_first(parameters, data)
    lengths, numbers = _lengths(steps, given), torch.arange(len(steps))[:, None]
    order = torch.where(numbers < lengths, lengths - 1 - numbers, numbers)
    return _steps_first(parameters, _rows(steps, order))


OPERATORS: Operators = {
    "SequenceMask": mask,
    "_sequence_hold": hold,
    "_sequence_tail": tail,
    "SequenceLast": last,
    "SequenceReverse": turned,
}
