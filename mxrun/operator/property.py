"""What an operator means, apart from how it is computed (MXNet's OperatorProperty)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Generic, TypeVar

from mxrun.base.classification import Classification
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.params import Parameters
from mxrun.base.regression import Regression
from mxrun.base.tensor import PartialShape, Shape, TensorSpec
from mxrun.operator.operator import Operator
from mxrun.operator.shape import unify

P = TypeVar("P", bound=Parameters)
T = TypeVar("T")

PartialShapes = list[PartialShape]
PartialType = str | None


class GradientKind(Enum):
    """Whether an input has a gradient: computed by backward, zero everywhere, or none at all."""

    COMPUTES = "computes"
    ZERO = "zero"
    NONE = "none"


class Precision(Enum):
    """What an operator makes where a network runs in bfloat16.

    FULL: float32, whatever it reads. FOLLOWS: what its activations are, float32 where they differ.
    LOW: bfloat16, whatever it reads: products, whose sums are float32 all the same.
    """

    FLOAT32 = "full"
    INHERIT = "follows"
    BFLOAT16 = "low"


class ResourceKind(Enum):
    """What an operator may request beside its tensors."""

    TEMP_SPACE = "temp_space"
    RANDOM = "random"


@dataclass(frozen=True)
class ResourceRequest:
    """One resource; `requested[i]` of the context answers the i-th request.

    nbytes: size of the temporary space in bytes; its content is garbage at every call.
    """

    kind: ResourceKind
    nbytes: int = 0


@dataclass(frozen=True)
class PartialInference:
    """The outcome of one inference step: partial shapes, at least as complete as those given."""

    inputs: PartialShapes
    outputs: PartialShapes
    auxiliary: PartialShapes


@dataclass(frozen=True)
class StateUpdate:
    """What becomes of an auxiliary state after a forward call in training.

    state = momentum * state + (1 - momentum) * output, where `output` names one of the operator's
    outputs. The plan runs it as a step of its own, once per training step.
    """

    state: str
    output: str
    momentum: float


class OperatorProperty(ABC, Generic[P]):
    """The semantics of one operator under given parameters: shapes, needs, hints, costs.

    A property is stateless and cheap; every method is a pure function of the parameters and its
    arguments.
    """

    type_string: ClassVar[str]
    parameter_type: ClassVar[type[Parameters]]
    # Arguments that hold targets: no gradient reaches them and their element type stands alone.
    label_arguments: ClassVar[tuple[str, ...]] = ()
    # What it makes has no place among whole numbers: `infer_type` refuses them.
    is_floating: ClassVar[bool] = False
    # Which outputs may be bfloat16: none, or the first, where `precision: bfloat16` is asked for.
    # Everything but activations stays float32: parameters, states, further outputs, losses.
    precision: ClassVar[Precision] = Precision.FLOAT32
    # Output 0 is input 0's memory under another shape, and its gradient likewise: nothing runs.
    is_view: ClassVar[bool] = False
    # Only passes make it: no network names it, and no list of operators shows it.
    is_internal: ClassVar[bool] = False
    # The operator that makes predictions of `data`, for a loss that gives nothing but itself.
    prediction: ClassVar[str] = ""
    # Why the contract's checker can make up no cases for it: a sentence.
    unchecked: ClassVar[str] = ""

    def __init__(self, parameters: P) -> None:
        self.parameters = parameters

    # -- interface ---------------------------------------------------------------------------

    def list_arguments(self) -> tuple[str, ...]:
        """Names of the inputs, data and parameters alike, in order."""
        return ("data",)

    def list_outputs(self) -> tuple[str, ...]:
        """Names of all outputs, the hidden ones last."""
        return ("output",)

    def list_auxiliary_states(self) -> tuple[str, ...]:
        """Names of the states that training changes and no gradient reaches."""
        return ()

    @property
    def num_visible_outputs(self) -> int:
        """How many of the outputs a network may wire."""
        return len(self.list_outputs())

    @property
    def loss_output(self) -> int | None:
        """Index of the output that holds the summed loss, for an operator that ends a network."""
        return None

    @property
    def nonstandard_gradient(self) -> str:
        """What the gradient deliberately is instead of the outputs' derivative; empty where not."""
        return ""

    def classification(self, data: Shape, label: Shape) -> Classification | None:
        """How a loss tells classes apart under these shapes; None for what tells none apart."""
        return None

    def label_classes(self, data: Shape, label: Shape) -> Classification | None:
        """How a loss reads labels as numbers of classes, whatever its output is; None where not."""
        seen = self.classification(data, label)
        return seen if seen is not None and seen.labelled else None

    def regression(self, data: Shape, label: Shape) -> Regression | None:
        """How a loss predicts numbers under these shapes; None for what predicts none."""
        return None

    @property
    def is_max_selection(self) -> bool:
        """Whether every output is the greatest of some elements of the one input."""
        return False

    @property
    def is_monotone(self) -> bool:
        """Whether the operator maps every element of its one input by a function that never falls,
        and has no gradient where that does not rise.
        """
        return False

    def list_mutated_inputs(self) -> dict[int, int]:
        """Inputs that this operator overwrites, as {input index: output index}; updates only."""
        return {}

    def list_state_updates(self) -> tuple[StateUpdate, ...]:
        """How the auxiliary states change in training; no operator writes them itself."""
        return ()

    def with_frozen_states(self) -> OperatorProperty[P] | None:
        """The same operator reading its auxiliary states in training as in inference, and updating
        none; None where it has no such form.
        """
        return None if self.list_state_updates() else self

    @property
    def mixes_samples(self) -> bool:
        """Whether in training one sample's results or gradients depend on the batch's others, in
        ways that shapes do not show: what follows the batch's statistics does.
        """
        return bool(self.list_state_updates())

    # -- inference ---------------------------------------------------------------------------

    @abstractmethod
    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Complete the shapes in both directions as far as they can be.

        Not knowing enough is no error; raises ShapeContradiction where two sides disagree.
        """

    def types_of_shapes(self, inputs: PartialShapes) -> list[PartialType]:
        """For each input the element type that shapes decide where nothing else does; None, for all
        of them by default, where they do not.
        """
        return [None] * len(inputs)

    def infer_type(
        self, inputs: list[PartialType], outputs: list[PartialType]
    ) -> tuple[list[PartialType], list[PartialType]]:
        """Complete the element types; by default all inputs and outputs share one, labels apart.

        Raises UserError for whole numbers where the operator is one of others alone.
        """
        names = self.list_arguments()
        shared = [i for i, name in enumerate(names) if name not in self.label_arguments]
        candidates = [inputs[i] for i in shared] + outputs
        common = next((dtype for dtype in candidates if dtype is not None), None)
        if self.is_floating and common is not None and not common.startswith("float"):
            hint = "a Cast in front of it makes other numbers of them"
            problem = f"{self.type_string} of whole numbers"
            raise UserError(Diagnostic(problem, None, "float32 or float64", common, hint))
        completed = [
            (inputs[i] or common) if i in shared else inputs[i] for i in range(len(inputs))
        ]
        return completed, [dtype or common for dtype in outputs]

    # -- needs and hints -----------------------------------------------------------------------

    def list_gradients(self) -> tuple[GradientKind, ...]:
        """For each input, what backward gives; labels have a zero gradient."""
        return tuple(
            GradientKind.ZERO if name in self.label_arguments else GradientKind.COMPUTES
            for name in self.list_arguments()
        )

    def list_passed_gradients(self) -> dict[int, int]:
        """Inputs whose gradient is an output's as it is, as {input index: output index}.

        Nothing computes it where input and output have one shape and may share the gradient's
        tensor; backward can all the same.
        """
        return {}

    def independent_gradients(self) -> list[list[int]]:
        """The inputs in groups whose gradients share no work; one group unless an operator says so.

        A plan may compute each group in a step of its own, the first group first.
        """
        return [list(range(len(self.list_arguments())))]

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Which tensors backward reads; everything unless an operator says less."""
        return [*out_grad, *in_data, *out_data]

    def forward_inplace_option(
        self, in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[tuple[T, T]]:
        """Pairs (input, output) that may share memory: a hint, which the planner may refuse."""
        return []

    def backward_inplace_option(
        self,
        out_grad: Sequence[T],
        in_data: Sequence[T],
        out_data: Sequence[T],
        in_grad: Sequence[T],
    ) -> list[tuple[T, T]]:
        """Pairs (anything backward reads, input gradient) that may share memory."""
        return []

    def forward_resource(self, inputs: Sequence[TensorSpec]) -> list[ResourceRequest]:
        """Resources of forward; `inputs` are the arguments.

        Temporary space is the readable body's alone; random numbers are every implementation's.
        """
        return []

    def backward_resource(self, inputs: Sequence[TensorSpec]) -> list[ResourceRequest]:
        """Resources of the readable backward body; `inputs` are those of forward."""
        return []

    # -- cost ----------------------------------------------------------------------------------

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Floating-point operations of forward; one per output element unless overridden."""
        return sum(math.prod(shape) for shape in out_shapes)

    # -- body ----------------------------------------------------------------------------------

    @abstractmethod
    def create_operator(self) -> Operator:
        """The readable NumPy body."""


class InPlaceProperty(OperatorProperty[P]):
    """An operator that may write over what it reads, in both directions; where sizes are equal."""

    def forward_inplace_option(
        self, in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[tuple[T, T]]:
        """The first output over the first input."""
        return [(in_data[0], out_data[0])]

    def backward_inplace_option(
        self,
        out_grad: Sequence[T],
        in_data: Sequence[T],
        out_data: Sequence[T],
        in_grad: Sequence[T],
    ) -> list[tuple[T, T]]:
        """The first input's gradient over the first output's."""
        return [(out_grad[0], in_grad[0])]


def same_shape(names: Sequence[str], shapes: PartialShapes, rule: str) -> PartialShapes:
    """All of `shapes` unified into one shape; for elementwise operators."""
    common: PartialShape = None
    for name, shape in zip(names, shapes, strict=True):
        common = unify(name, shape, common, rule)
    return [common] * len(shapes)
