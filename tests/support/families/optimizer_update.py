"""Optimizer updates: cases and formulas, one element at a time in the weight's type."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from operator_row import Reference, Row, Values, rows

Array = npt.NDArray[Any]
# (parameters, weight, rescaled gradient, states, rate, schedule) -> new weight, new states.
Formula = Callable[..., tuple[Any, ...]]


def bounded(value: Any, bound: float) -> Any:
    """Clip to [-bound, bound]; a negative bound means no clipping."""
    return max(min(value, bound), -bound) if bound >= 0 else value


def elementwise(formula: Formula) -> Reference:
    """The reference whose every element follows `formula`."""

    def reference(p: Any, inputs: list[Array]) -> list[Array]:
        kind = inputs[0].dtype.type
        tensors = list(inputs)
        schedule = tensors.pop() if p.scheduled else np.ones(3, "float32")
        scale = tensors.pop() if p.scaled else np.ones(1, "float32")
        weight, grad, *states = tensors
        rate = kind(p.lr) * kind(schedule[0])
        results = [np.empty_like(weight) for _ in range(1 + len(states))]
        for i in range(weight.size):
            gradient = kind(p.rescale_grad) * kind(scale[0]) * grad.flat[i]
            old = [state.flat[i] for state in states]
            new = formula(p, weight.flat[i], gradient, old, rate, list(map(kind, schedule)))
            for result, value in zip(results, new, strict=True):
                result.flat[i] = value
        return results

    return reference


def sgd(p: Any, w: Any, g: Any, states: list[Any], rate: Any, schedule: Any) -> tuple[Any, ...]:
    return (w - rate * (bounded(g, p.clip_gradient) + p.wd * w),)


def sgd_mom(p: Any, w: Any, g: Any, states: list[Any], rate: Any, schedule: Any) -> tuple[Any, ...]:
    mom = p.momentum * states[0] - rate * (bounded(g, p.clip_gradient) + p.wd * w)
    return w + mom, mom


def nag_mom(p: Any, w: Any, g: Any, states: list[Any], rate: Any, schedule: Any) -> tuple[Any, ...]:
    g = bounded(g, p.clip_gradient) + p.wd * w
    velocity = p.momentum * -states[0] + rate * g
    return w - (rate * g + p.momentum * velocity), -velocity


def signsgd(p: Any, w: Any, g: Any, states: list[Any], rate: Any, schedule: Any) -> tuple[Any, ...]:
    g = bounded(g, p.clip_gradient)
    return (w - rate * (p.wd * w + (math.copysign(1, g) if g else 0)),)


def signum(p: Any, w: Any, g: Any, states: list[Any], rate: Any, schedule: Any) -> tuple[Any, ...]:
    g = bounded(g, p.clip_gradient) + p.wd * w
    average = p.momentum * -states[0] + (1 - p.momentum) * g
    direction = math.copysign(1, average) if average else 0
    return w - rate * (p.wd_lh * w + direction), -average


def moments(p: Any, g: Any, states: list[Any]) -> tuple[Any, Any]:
    mean, var = states
    return mean + (1 - p.beta1) * (g - mean), var + (1 - p.beta2) * (g * g - var)


def adam(p: Any, w: Any, g: Any, states: list[Any], rate: Any, schedule: Any) -> tuple[Any, ...]:
    mean, var = moments(p, bounded(g + p.wd * w, p.clip_gradient), states)
    rate *= math.sqrt(schedule[2]) / schedule[1]
    return w - rate * mean / (math.sqrt(var) + p.epsilon), mean, var


def adamw(p: Any, w: Any, g: Any, states: list[Any], rate: Any, schedule: Any) -> tuple[Any, ...]:
    mean, var = moments(p, bounded(g, p.clip_gradient), states)
    decay = p.eta * schedule[0] * p.wd
    rate *= p.eta * math.sqrt(schedule[2]) / schedule[1]
    return w * (1 - decay) - rate * mean / (math.sqrt(var) + p.epsilon), mean, var


def lamb(p: Any, inputs: list[Array]) -> list[Array]:
    """Norms by math.hypot, over all elements."""

    def move(
        p: Any, w: Any, g: Any, states: list[Any], rate: Any, schedule: Any
    ) -> tuple[Any, ...]:
        mean, var = moments(p, bounded(g, p.clip_gradient), states)
        corrected = mean / schedule[1] / (math.sqrt(var / schedule[2]) + p.epsilon)
        return corrected + p.wd * w, mean, var

    weight, (moves, mean, var) = inputs[0], elementwise(move)(p, inputs)
    size, length = math.hypot(*weight.flat), math.hypot(*moves.flat)
    size = max(size, p.lower_bound) if p.lower_bound >= 0 else size
    size = min(size, p.upper_bound) if p.upper_bound >= 0 else size
    rate = p.lr * (float(inputs[-1][0]) if p.scheduled else 1)
    rate *= size / length if size and length else 1
    return [weight - weight.dtype.type(rate) * moves, mean, var]


def adagrad(p: Any, w: Any, g: Any, states: list[Any], rate: Any, schedule: Any) -> tuple[Any, ...]:
    g = bounded(g, p.clip_gradient)
    history = states[0] + g**2
    return w - rate * g / math.sqrt(history + p.epsilon) - rate * p.wd * w, history


def rmsprop(p: Any, w: Any, g: Any, states: list[Any], rate: Any, schedule: Any) -> tuple[Any, ...]:
    g = bounded(g + p.wd * w, p.clip_gradient)
    n = states[0] + (1 - p.gamma1) * (g**2 - states[0])
    return bounded(w - rate * g / math.sqrt(n + p.epsilon), p.clip_weights), n


def rmspropalex(
    p: Any, w: Any, gradient: Any, states: list[Any], rate: Any, schedule: Any
) -> tuple[Any, ...]:
    gradient = bounded(gradient + p.wd * w, p.clip_gradient)
    n, g, delta = states
    n, g = n + (1 - p.gamma1) * (gradient**2 - n), g + (1 - p.gamma1) * (gradient - g)
    delta = p.gamma2 * delta - rate * gradient / math.sqrt(n - g**2 + p.epsilon)
    return bounded(w + delta, p.clip_weights), n, g, delta


def ftrl(p: Any, w: Any, g: Any, states: list[Any], rate: Any, schedule: Any) -> tuple[Any, ...]:
    g = bounded(g, p.clip_gradient)
    z, n = states
    squares = n + g**2
    if rate == 0:
        return w, z, squares
    z += g - (math.sqrt(squares) - math.sqrt(n)) / rate * w
    if abs(z) <= p.lamda1:
        return 0, z, squares
    shrunk = z - math.copysign(p.lamda1, z)
    return -shrunk / ((p.beta + math.sqrt(squares)) / rate + p.wd), z, squares


def global_norm_scale(p: Any, inputs: list[Array]) -> list[Array]:
    """Return the scale, lowered for the norm of all scaled elements as one vector."""
    *grads, scale = inputs
    given = float(scale[0])
    norm = math.hypot(*(given * float(x) for grad in grads for x in grad.flat))
    return [np.array([given * min(1, p.max_norm / (norm + 1e-8))], scale.dtype)]


def moving_average(p: Any, inputs: list[Array]) -> list[Array]:
    """A step of 1 - momentum towards the value."""
    average, value = inputs
    return [average + average.dtype.type(1 - p.momentum) * (value - average)]


def squares(random: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Return valid averages of squares."""
    return random.uniform(0.5, 2, shape).astype(dtype)


def small(random: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Return averages whose squares are below all values of `squares`."""
    return random.uniform(-0.5, 0.5, shape).astype(dtype)


def constant(value: float) -> Values:
    """Return a function of values that are all the same."""
    return lambda random, shape, dtype: np.full(shape, value, dtype)


def update_rows(operator: str, *cases: dict[str, object], **more: Any) -> list[Row]:
    """Return rows for each case in different shapes, and more: scheduled, scaled, and both."""
    shapes = ((4, 3), (2, 3, 2, 2), (5, 3), (7,), (37,))
    common = {"lr": 0.1, "wd": 0.05, "clip_gradient": 0.8, **cases[0]}
    peerless = {**more, "peers": ()}
    ours = (
        ({**common, "scheduled": True}, (4, 3)),
        ({**common, "scaled": True}, (3, 5)),
        ({**common, "scaled": True, "scheduled": True, "rescale_grad": 0.5}, (2, 16999)),
        ({**common, "lr": 0.0}, (6,)),
    )
    return [
        *rows(
            operator,
            *((case, shapes[i % len(shapes)]) for i, case in enumerate(cases)),
            **more,
        ),
        *rows(operator, *ours, **peerless),
    ]


MOMENTS = {"var": squares}
RMS = {"n": squares, "g": small}

ROWS: list[Row] = [
    *update_rows(
        "sgd_update",
        {"lr": 0.1},
        {"lr": 0.1, "wd": 0.01},
        {"lr": 0.5, "rescale_grad": 0.25},
        {"lr": 0.1, "clip_gradient": 0.5, "wd": 0.1},
        {"lr": 0.1, "clip_gradient": 0.0, "lazy_update": False},
    ),
    *update_rows(
        "sgd_mom_update",
        {"lr": 0.1, "momentum": 0.9},
        {"lr": 0.1},
        {"lr": 0.1, "momentum": 0.9, "wd": 0.01, "rescale_grad": 0.125},
        {"lr": 0.1, "momentum": 0.5, "clip_gradient": 0.5, "wd": 0.1},
        {"lr": 1.0, "momentum": 0.9, "lazy_update": False},
    ),
    *update_rows(
        "nag_mom_update",
        {"lr": 0.1, "momentum": 0.9},
        {"lr": 0.1},
        {"lr": 0.1, "momentum": 0.9, "wd": 0.01, "rescale_grad": 0.125},
        {"lr": 0.1, "momentum": 0.5, "clip_gradient": 0.5, "wd": 0.1},
        {"lr": 1.0, "momentum": 0.9, "clip_gradient": 0.0},
    ),
    *update_rows(
        "signsgd_update",
        {"lr": 0.1},
        {"lr": 0.1, "wd": 0.1},
        {"lr": 0.1, "rescale_grad": 0.25},
        {"lr": 0.1, "clip_gradient": 0.5, "wd": 0.1},
        {"lr": 0.01, "wd": 0.01, "clip_gradient": 2.0},
    ),
    *update_rows(
        "signum_update",
        {"lr": 0.1, "momentum": 0.9, "wd_lh": 0.1},
        {"lr": 0.1},
        {"lr": 0.1, "momentum": 0.9, "wd": 0.1, "rescale_grad": 0.125},
        {"lr": 0.1, "momentum": 0.5, "clip_gradient": 0.5, "wd": 0.1, "wd_lh": 0.2},
        {"lr": 0.01, "momentum": 0.9, "clip_gradient": 0.0},
    ),
    *update_rows(
        "adam_update",
        {"lr": 0.1},
        {"lr": 0.1, "beta1": 0.5, "beta2": 0.9, "epsilon": 0.1},
        {"lr": 0.1, "wd": 0.1, "rescale_grad": 0.125},
        {"lr": 0.1, "clip_gradient": 0.5, "wd": 0.5, "epsilon": 0.01},
        {"lr": 0.01, "beta1": 0.0, "lazy_update": False},
        values=MOMENTS,
    ),
    *update_rows(
        "adamw_update",
        {"lr": 0.1, "eta": 0.7},
        {"lr": 0.1, "eta": 1.0, "beta1": 0.5, "beta2": 0.9, "epsilon": 0.1},
        {"lr": 0.1, "eta": 0.5, "wd": 0.1, "rescale_grad": 0.125},
        {"lr": 0.1, "eta": 1.0, "clip_gradient": 0.5, "wd": 0.5, "epsilon": 0.01},
        {"lr": 0.01, "eta": 0.1, "beta1": 0.0},
        values=MOMENTS,
        peers=("PyTorch",),
        no_peer="MXNet's contrib.adamw_update takes rescale_grad as a tensor.",
    ),
    *update_rows(
        "lamb_update",
        {"lr": 0.1},
        {"lr": 0.1, "beta1": 0.5, "beta2": 0.9, "epsilon": 0.1},
        {"lr": 0.1, "wd": 0.1, "rescale_grad": 0.125, "lower_bound": 20.0},
        {"lr": 0.1, "clip_gradient": 0.5, "wd": 0.5, "upper_bound": 0.5},
        {"lr": 0.01, "beta1": 0.0, "lower_bound": 0.0},
        values=MOMENTS,
        peers=("PyTorch",),
        no_peer="MXNet has it in two operators.",
    ),
    *update_rows(
        "adagrad_update",
        {"lr": 0.1},
        {"lr": 0.1, "epsilon": 0.1},
        {"lr": 0.1, "wd": 0.1, "rescale_grad": 0.125},
        {"lr": 0.1, "clip_gradient": 0.5, "wd": 0.5},
        {"lr": 0.01, "clip_gradient": 0.0, "wd": 0.1},
        values={"history": squares},
        peers=("PyTorch",),
        no_peer="MXNet's _sparse_adagrad_update wants a sparse gradient.",
    ),
    *update_rows(
        "rmsprop_update",
        {"lr": 0.1},
        {"lr": 0.1, "gamma1": 0.5, "epsilon": 0.1},
        {"lr": 0.1, "wd": 0.1, "rescale_grad": 0.125},
        {"lr": 0.1, "clip_gradient": 0.5, "wd": 0.5, "clip_weights": 0.3},
        {"lr": 0.01, "clip_weights": 0.0},
        values=RMS,
    ),
    *update_rows(
        "rmspropalex_update",
        {"lr": 0.1},
        {"lr": 0.1, "gamma1": 0.5, "gamma2": 0.1, "epsilon": 0.1},
        {"lr": 0.1, "wd": 0.1, "rescale_grad": 0.125},
        {"lr": 0.1, "clip_gradient": 0.5, "wd": 0.5, "clip_weights": 0.3},
        {"lr": 0.01, "gamma2": 0.0, "clip_weights": 0.0},
        values=RMS,
    ),
    *update_rows(
        "ftrl_update",
        {"lr": 0.1, "lamda1": 0.4},
        {"lr": 0.1, "beta": 0.5},
        {"lr": 0.1, "wd": 0.1, "rescale_grad": 0.125},
        {"lr": 0.1, "clip_gradient": 0.5, "wd": 0.5, "lamda1": 1.0},
        {"lr": 1.0, "lamda1": 0.0},
        values={"n": squares},
    ),
    *(
        Row(
            "_global_norm_scale",
            {"num_args": 1 + len(more), **own},
            shape,
            {**more, "gradient_scale": (1,)},
            values={"gradient_scale": constant(scale)},
            peers=(),
            no_peer="Elsewhere it is a function of the trainer, no operator.",
        )
        for own, scale, shape, more in (
            ({"max_norm": 1.0}, 1.0, (3, 4), {}),
            ({"max_norm": 100.0}, 1.0, (3, 4), {"grad1": (5,)}),
            ({"max_norm": 0.5}, 0.125, (7,), {"grad1": (2, 3), "grad2": (1,)}),
            ({"max_norm": 0.0}, 1.0, (1025,), {"grad1": (1024,)}),
            ({"max_norm": 3.0}, -2.0, (50003,), {"grad1": (3, 11, 2)}),
        )
    ),
    *rows(
        "_moving_average",
        ({"momentum": 0.9}, (4, 3)),
        ({"momentum": 0.0}, (5,)),
        ({"momentum": 1.0}, (5,)),
        ({"momentum": 0.999}, (2, 3, 2, 2)),
        ({"momentum": 0.5}, (40001,)),
        peers=(),
        no_peer="Elsewhere it is a part of batch norm, which is compared.",
    ),
]

REFERENCES: dict[str, Reference] = {
    "sgd_update": elementwise(sgd),
    "sgd_mom_update": elementwise(sgd_mom),
    "nag_mom_update": elementwise(nag_mom),
    "signsgd_update": elementwise(signsgd),
    "signum_update": elementwise(signum),
    "adam_update": elementwise(adam),
    "adamw_update": elementwise(adamw),
    "lamb_update": lamb,
    "adagrad_update": elementwise(adagrad),
    "rmsprop_update": elementwise(rmsprop),
    "rmspropalex_update": elementwise(rmspropalex),
    "ftrl_update": elementwise(ftrl),
    "_global_norm_scale": global_norm_scale,
    "_moving_average": moving_average,
}
