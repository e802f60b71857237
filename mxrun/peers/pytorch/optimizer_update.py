"""Optimizer updates."""

from __future__ import annotations

import math

import torch

from mxrun.peers.pytorch.parameters import MXNetParameters, Operators, Tensor


def _bounded(value: Tensor, bound: float) -> Tensor:
    """Clip to [-bound, bound]; a negative bound does not clip.

    MXNet's documentation says that 0 does not clip either.
    """
    return value.clamp(-bound, bound) if bound >= 0 else value


def _rescaled(parameters: MXNetParameters, gradient: Tensor) -> Tensor:
    return gradient * parameters.number("rescale_grad", 1.0)


def _clipped(parameters: MXNetParameters, gradient: Tensor) -> Tensor:
    return _bounded(gradient, parameters.number("clip_gradient", -1.0))


def _rate(parameters: MXNetParameters) -> float:
    return parameters.number("lr", math.nan)


def _decay(parameters: MXNetParameters, weight: Tensor) -> Tensor:
    return parameters.number("wd", 0.0) * weight


def _decayed(parameters: MXNetParameters, weight: Tensor, gradient: Tensor) -> Tensor:
    """Return clip(rescale_grad · gradient) + wd · weight: the decay is not clipped."""
    return _clipped(parameters, _rescaled(parameters, gradient)) + _decay(parameters, weight)


def _clipped_whole(parameters: MXNetParameters, weight: Tensor, gradient: Tensor) -> Tensor:
    """Return clip(rescale_grad · gradient + wd · weight): the decay is clipped as well."""
    return _clipped(parameters, _rescaled(parameters, gradient) + _decay(parameters, weight))


def sgd_update(parameters: MXNetParameters, weight: Tensor, gradient: Tensor) -> Tensor:
    """Return the new weight."""
    return weight - _rate(parameters) * _decayed(parameters, weight, gradient)


def sgd_mom_update(
    parameters: MXNetParameters, weight: Tensor, gradient: Tensor, momentum: Tensor
) -> Tensor:
    """Return the new weight; the momentum is updated in place, as are all states here."""
    step = _rate(parameters) * _decayed(parameters, weight, gradient)
    momentum.mul_(parameters.number("momentum", 0.0)).sub_(step)
    return weight + momentum


def nag_mom_update(
    parameters: MXNetParameters, weight: Tensor, gradient: Tensor, momentum: Tensor
) -> Tensor:
    """Return the new weight after a step with Nesterov momentum."""
    step = _rate(parameters) * _decayed(parameters, weight, gradient)
    factor = parameters.number("momentum", 0.0)
    momentum.mul_(factor).sub_(step)
    return weight + factor * momentum - step


def signsgd_update(parameters: MXNetParameters, weight: Tensor, gradient: Tensor) -> Tensor:
    """Return the new weight after a step along the gradient's sign, which excludes the decay."""
    sign = torch.sign(_clipped(parameters, _rescaled(parameters, gradient)))
    return weight - _rate(parameters) * (sign + _decay(parameters, weight))


def signum_update(
    parameters: MXNetParameters, weight: Tensor, gradient: Tensor, momentum: Tensor
) -> Tensor:
    """Return the new weight after a step along the momentum's sign; momentum points downhill."""
    factor = parameters.number("momentum", 0.0)
    momentum.mul_(factor).sub_((1 - factor) * _decayed(parameters, weight, gradient))
    decay = parameters.number("wd_lh", 0.0) * weight
    return weight + _rate(parameters) * (torch.sign(momentum) - decay)


def _adams_move(
    parameters: MXNetParameters, gradient: Tensor, mean: Tensor, var: Tensor, epsilon: float
) -> Tensor:
    """Update both moments and return mean / (sqrt(var) + epsilon)."""
    mean.lerp_(gradient, 1 - parameters.number("beta1", 0.9))
    var.lerp_(gradient.square(), 1 - parameters.number("beta2", 0.999))
    return mean / (var.sqrt() + parameters.number("epsilon", epsilon))


def adam_update(
    parameters: MXNetParameters, weight: Tensor, gradient: Tensor, mean: Tensor, var: Tensor
) -> Tensor:
    """Return the new weight by Adam without bias correction."""
    whole = _clipped_whole(parameters, weight, gradient)
    return weight - _rate(parameters) * _adams_move(parameters, whole, mean, var, 1e-8)


def adamw_update(
    parameters: MXNetParameters, weight: Tensor, gradient: Tensor, mean: Tensor, var: Tensor
) -> Tensor:
    """Return the new weight by AdamW (decoupled decay) without bias correction."""
    clipped = _clipped(parameters, _rescaled(parameters, gradient))
    move = _rate(parameters) * _adams_move(parameters, clipped, mean, var, 1e-8)
    return weight - parameters.number("eta", math.nan) * (move + _decay(parameters, weight))


def lamb_update(
    parameters: MXNetParameters, weight: Tensor, gradient: Tensor, mean: Tensor, var: Tensor
) -> Tensor:
    """Return the new weight by both phases of MXNet's LAMB, without bias correction."""
    clipped = _clipped(parameters, _rescaled(parameters, gradient))
    move = _adams_move(parameters, clipped, mean, var, 1e-6) + _decay(parameters, weight)
    norm, length = weight.norm(), move.norm()
    lower, upper = parameters.number("lower_bound", -1.0), parameters.number("upper_bound", -1.0)
    if lower >= 0:
        norm = norm.clamp(min=lower)
    if upper >= 0:
        norm = norm.clamp(max=upper)
    ratio = norm / length if norm and length else 1.0
    return weight - _rate(parameters) * ratio * move


def adagrad_update(
    parameters: MXNetParameters, weight: Tensor, gradient: Tensor, history: Tensor
) -> Tensor:
    """Return the new weight by MXNet's AdaGrad; the history excludes the decay."""
    clipped = _clipped(parameters, _rescaled(parameters, gradient))
    history.add_(clipped.square())
    move = clipped / (history + parameters.number("epsilon", 1e-7)).sqrt()
    return weight - _rate(parameters) * (move + _decay(parameters, weight))


def rmsprop_update(
    parameters: MXNetParameters, weight: Tensor, gradient: Tensor, n: Tensor
) -> Tensor:
    """Return the new weight by Tieleman's and Hinton's RMSProp."""
    whole = _clipped_whole(parameters, weight, gradient)
    n.lerp_(whole.square(), 1 - parameters.number("gamma1", 0.95))
    move = whole / (n + parameters.number("epsilon", 1e-8)).sqrt()
    bound = parameters.number("clip_weights", -1.0)
    return _bounded(weight - _rate(parameters) * move, bound)


def rmspropalex_update(
    parameters: MXNetParameters,
    weight: Tensor,
    gradient: Tensor,
    n: Tensor,
    g: Tensor,
    delta: Tensor,
) -> Tensor:
    """Return the new weight by Graves's RMSProp."""
    whole = _clipped_whole(parameters, weight, gradient)
    rest = 1 - parameters.number("gamma1", 0.95)
    n.lerp_(whole.square(), rest)
    g.lerp_(whole, rest)
    move = whole / (n - g.square() + parameters.number("epsilon", 1e-8)).sqrt()
    delta.mul_(parameters.number("gamma2", 0.9)).sub_(_rate(parameters) * move)
    return _bounded(weight + delta, parameters.number("clip_weights", -1.0))


def ftrl_update(
    parameters: MXNetParameters, weight: Tensor, gradient: Tensor, z: Tensor, n: Tensor
) -> Tensor:
    """Return the new weight by McMahan's FTRL."""
    clipped = _clipped(parameters, _rescaled(parameters, gradient))
    before = n.sqrt()
    n.add_(clipped.square())
    z.add_(clipped - (n.sqrt() - before) * weight / _rate(parameters))
    shrunk = torch.nn.functional.softshrink(z, parameters.number("lamda1", 0.01))
    strength = (parameters.number("beta", 1.0) + n.sqrt()) / _rate(parameters)
    return -shrunk / (strength + parameters.number("wd", 0.0))


OPERATORS: Operators = {
    "adagrad_update": adagrad_update,
    "adam_update": adam_update,
    "adamw_update": adamw_update,
    "ftrl_update": ftrl_update,
    "lamb_update": lamb_update,
    "nag_mom_update": nag_mom_update,
    "rmsprop_update": rmsprop_update,
    "rmspropalex_update": rmspropalex_update,
    "sgd_mom_update": sgd_mom_update,
    "sgd_update": sgd_update,
    "signsgd_update": signsgd_update,
    "signum_update": signum_update,
}
# Inputs that an operator writes.
AUXILIARY_INPUTS: dict[str, tuple[int, ...]] = {
    "adagrad_update": (2,),
    "adam_update": (2, 3),
    "adamw_update": (2, 3),
    "ftrl_update": (2, 3),
    "lamb_update": (2, 3),
    "nag_mom_update": (2,),
    "rmsprop_update": (2,),
    "rmspropalex_update": (2, 3, 4),
    "sgd_mom_update": (2,),
    "signum_update": (2,),
}
