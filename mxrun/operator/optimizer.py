"""Optimizers: a config's choice of an update operator and its parameters.

    @register_optimizer("adagrad")
    class AdaGrad(Optimizer):
        "Steps divided by the root of the sum of squared gradients (Duchi, Hazan, Singer, 2011)."

        update = "adagrad_update"
        epsilon: Positive = Field(1e-7, description="Added to the sum of squares, under the root.")

An optimizer's fields are the keys below `train.optimizer: {adagrad: {...}}`. Those that are no
common ones are the update operator's parameters of the same names. Values that change from step to
step are not among them: the training loop writes them to the tensor `schedule` before each step.
The operator's `lr` is the parameter's multiplier, so rate = lr * schedule[0].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, ClassVar, Literal, TypeVar

from pydantic import ConfigDict, Field

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import nearest
from mxrun.base.params import NotNegative, Parameters, Positive
from mxrun.base.registry import Registry
from mxrun.operator.optimizer_property import OptimizerProperty
from mxrun.operator.register import OPERATORS

# MXNet's value for no bound.
NO_BOUND = -1.0

BATCH_SIZE: Literal["batch_size"] = "batch_size"
"""Value of rescale_grad for MXNet's rule, 1 / batch size."""

# Decay factor of a moving average or of momentum.
Fraction = Annotated[float, Field(ge=0, lt=1)]


class Optimizer(Parameters):
    """Base of optimizers: learning rate, weight decay and treatment of gradients.

    update: name of the update operator.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"lr": 0.1}]})
    update: ClassVar[str]

    lr: NotNegative = Field(0.01, description="The learning rate.", examples=[0.1])
    wd: NotNegative = Field(
        0.0,
        description="Weight decay; not on biases, gammas and betas, unless their wd_mult says so.",
        examples=[0.0001],
    )
    rescale_grad: Positive | Literal["batch_size"] | None = Field(
        None,
        description="Factor of every gradient, or batch_size for 1 / batch size whatever the "
        "number of records, as in MXNet; default: 1 / number of records in the update.",
        examples=[0.01],
    )
    clip_gradient: Positive | None = Field(
        None,
        description="Elements of rescaled gradients are clipped to [-x, x]; default: not at all.",
        examples=[1.0],
    )
    clip_global_norm: Positive | None = Field(
        None,
        description="Upper bound on the norm of all rescaled gradients together; if it is larger, "
        "all are scaled down to it; default: none.",
        examples=[5.0],
    )

    def operator(self) -> tuple[str, Mapping[str, object]]:
        """Return the update operator's name and the parameters specific to this optimizer.

        These are the fields that `Optimizer` does not have; None, for no bound, becomes MXNet's -1.
        """
        return self.update, {name: bound_of(getattr(self, name)) for name in self.own_fields()}

    @property
    def states(self) -> tuple[str, ...]:
        """Names of a parameter's states, in the order of the update operator's arguments."""
        kind = OPERATORS.get(self.operator()[0])
        assert issubclass(kind, OptimizerProperty)
        return kind.states

    @property
    def is_elementwise(self) -> bool:
        """Whether each new element depends on the elements at the same place alone."""
        kind = OPERATORS.get(self.operator()[0])
        return kind.create_operator is OptimizerProperty.create_operator

    @classmethod
    def own_fields(cls) -> list[str]:
        """Return the names of the fields that `Optimizer` does not have."""
        return [name for name in cls.model_fields if name not in Optimizer.model_fields]

    def corrections(self, step: int) -> tuple[float, float]:
        """Return the divisors of the two moments in update `step`, counted from 1; 1 for none."""
        return 1.0, 1.0

    def rates(self, multiplier: float) -> Mapping[str, float]:
        """Return the operator's factors of the scheduled rate for a parameter's multiplier."""
        return {"lr": multiplier}


def bound_of(value: float | None) -> float:
    """Return the value, or MXNet's -1 if it is None."""
    return NO_BOUND if value is None else value


OPTIMIZERS: Registry[type[Optimizer]] = Registry("optimizer")

OptimizerClass = TypeVar("OptimizerClass", bound=type[Optimizer])


def register_optimizer(
    name: str, foreign: Mapping[str, str] | None = None
) -> Callable[[OptimizerClass], OptimizerClass]:
    """Class decorator: register an optimizer under the name that a config uses.

    foreign: by its form in a config, names of other frameworks, separated by spaces.

    Raises UserError if `update` is no registered operator, or if that has no parameter of the name
    of a field; an optimizer with an `operator` of its own may have other fields.
    """

    def add(optimizer: OptimizerClass) -> OptimizerClass:
        _require_operator(optimizer)
        OPTIMIZERS.add(name, optimizer, foreign=foreign)
        return optimizer

    return add


def _require_operator(optimizer: type[Optimizer]) -> None:
    own, update = optimizer.__name__, str(getattr(optimizer, "update", None))
    if update not in OPERATORS or not issubclass(OPERATORS.get(update), OptimizerProperty):
        expected = "update = the name of an operator that register_update registered before"
        raise UserError(Diagnostic(f"{own} has no update operator", None, expected, update))
    known = OPERATORS.get(update).parameter_type.model_fields
    unknown = [field for field in optimizer.own_fields() if field not in known]
    if unknown and optimizer.operator is Optimizer.operator:
        problem = f"{own} has fields that {update} does not take: {', '.join(unknown)}"
        raise UserError(Diagnostic(problem, hint=nearest(unknown[0], known)))
