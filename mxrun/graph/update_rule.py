"""Update rules of parameters, and the names of optimizer tensors."""

from __future__ import annotations

from collections.abc import Mapping

from mxrun.base.dataclass import dataclass
from mxrun.operator.optimizer import Optimizer, bound_of
from mxrun.operator.register import AnyProperty, create

# Parameters with these suffixes are not decayed. MXNet 1.9.1 (Optimizer.set_wd_mult) decays only
# names that end in _weight or _gamma; here every other name is decayed, and a gamma is not.
_NOT_DECAYED = ("_bias", "_gamma", "_beta")


@dataclass(frozen=True)
class Multipliers:
    """A parameter's own factors of the learning rate and of the weight decay.

    A decay of None means the default for the parameter's name.
    """

    learning_rate: float = 1.0
    weight_decay: float | None = None


@dataclass(frozen=True)
class UpdateRule:
    """Update operator of one parameter, with the operator's parameters (rates, decay, ...).

    Its arguments are the weight, its gradient, states named after the weight (`fc1_weight:mom`),
    `gradient_scale`, the step's factor of the gradient, and `schedule`, the step's rates.
    """

    operator: str
    parameters: Mapping[str, object]

    def create(self) -> AnyProperty:
        """Return the update operator with its parameters."""
        return create(self.operator, self.parameters)


def default_decay(parameter_name: str) -> float:
    """Return the default factor of the weight decay: 0 for biases, gammas and betas, else 1."""
    return 0.0 if parameter_name.endswith(_NOT_DECAYED) else 1.0


def update_rule(
    optimizer: Optimizer,
    parameter_name: str,
    multipliers: Multipliers,
    gradient_factor: float | None = None,
) -> UpdateRule:
    """Return the update of one parameter.

    gradient_factor: factor of every gradient; None if the step gives it, as `gradient_scale`.
    """
    operator, parameters = optimizer.operator()
    decay = multipliers.weight_decay
    if decay is None:
        decay = default_decay(parameter_name)
    common = {
        **optimizer.rates(multipliers.learning_rate),
        "wd": optimizer.wd * decay,
        "clip_gradient": bound_of(optimizer.clip_gradient),
        "scheduled": True,
    }
    scale = {"scaled": True} if gradient_factor is None else {"rescale_grad": gradient_factor}
    return UpdateRule(operator, {**common, **scale, **parameters})


def update_rules(optimizer: Optimizer, trained: Mapping[str, Multipliers]) -> dict[str, UpdateRule]:
    """Return the update of each trained parameter, in the given order."""
    return {
        name: update_rule(optimizer, name, multipliers) for name, multipliers in trained.items()
    }


@dataclass(frozen=True)
class Clipping:
    """Clipping of all gradients together: their global norm, rescaled, is at most `max_norm`."""

    max_norm: float


# Tensor with the step's learning rate and the two bias corrections of Adam-like optimizers.
SCHEDULE = "optimizer:schedule"
# Tensor with the step's factor of every gradient.
GRADIENT_SCALE = "optimizer:gradient_scale"
# Step that clips by the global norm, and the tensor of the factor that it makes.
CLIPPED_SCALE = "optimizer:clipped_scale"


def accumulated(parameter: str) -> str:
    """Return the name of the tensor that sums a parameter's gradients over several batches."""
    return f"{parameter}:grad"


def parameter_of(tensor: str) -> str:
    """Return the parameter to which a sum of gradients or a state belongs, by its name."""
    return tensor.rpartition(":")[0]


def partial_sum(level: int) -> str:
    """Return the name of the memory in which a sum of 2^level batch parts' gradients waits."""
    return f"partial_sum:{level}"


def averaged(parameter: str) -> str:
    """Return the name of the moving average of a parameter."""
    return f"{parameter}:average"
