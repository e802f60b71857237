"""Operator semantics, independent of implementations (MXNet's OperatorProperty)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar, Generic, TypeVar

from mxrun.base.classification import Classification
from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.params import Parameters
from mxrun.base.regression import Regression
from mxrun.base.tensor import PartialShape, Shape, TensorSpec
from mxrun.operator.composite import CompositeBuilder, Entry
from mxrun.operator.family import OperatorFamily
from mxrun.operator.incremental import IncrementalForm, SequenceArguments
from mxrun.operator.operator import Operator
from mxrun.operator.shape import unify

P = TypeVar("P", bound=Parameters)
T = TypeVar("T")

PartialShapes = list[PartialShape]
PartialType = str | None


class GradientKind(Enum):
    """Kind of an input's gradient: computed by backward, zero everywhere, or none."""

    COMPUTES = "computes"
    ZERO = "zero"
    NONE = "none"


class Precision(Enum):
    """Output dtype of an operator in a network that runs in bfloat16.

    FLOAT32: float32, whatever the inputs are.
    INHERIT: the dtype of the activations that it reads; float32 if these differ.
    BFLOAT16: bfloat16, whatever the inputs are: matrix products, which accumulate in float32.
    """

    FLOAT32 = "full"
    INHERIT = "follows"
    BFLOAT16 = "low"


class ResourceKind(Enum):
    """Kind of resource that an operator may request."""

    TEMP_SPACE = "temp_space"
    RANDOM = "random"


@dataclass(frozen=True)
class ResourceRequest:
    """Request for one resource; `requested[i]` of the context is the i-th one.

    nbytes: size of the temporary space in bytes; its content is undefined at every call.
    """

    kind: ResourceKind
    nbytes: int = 0


@dataclass(frozen=True)
class PartialInference:
    """Result of one inference step: partial shapes, at least as complete as the given ones."""

    inputs: PartialShapes
    outputs: PartialShapes
    auxiliary: PartialShapes


@dataclass(frozen=True)
class StateUpdate:
    """Update of an auxiliary state after a forward call in training.

    state = momentum * state + (1 - momentum) * output, where `output` names one of the operator's
    outputs. The plan runs the update as a separate step, once per training step.
    """

    state: str
    output: str
    momentum: float


@dataclass(frozen=True)
class PackedPart:
    """One of the parameters that an argument holds one after the other.

    name: ends in `_weight` or `_bias`, as the name of a separate parameter would.
    """

    name: str
    shape: Shape


@dataclass(frozen=True)
class CarriedState:
    """Auxiliary state that carries a value from one run of a network to the next.

    After every run, in training and in evaluation, `state` holds `value`: one of the operator's
    outputs, hidden or not, or one of its arguments, of the same shape and float32. The plan writes
    it in a separate step, after everything that reads the state, unless the operator overwrites the
    state itself (`list_mutated_inputs`). Training and evaluation have
    states of their own, which are zero where an epoch, an evaluation or a stream of records begins.
    One axis of the state is that of the batch: each row belongs to a stream of its own.
    """

    state: str
    value: str


class OperatorProperty(ABC, Generic[P]):
    """Semantics of one operator with given parameters: shapes, requirements, hints, costs.

    A property is stateless and cheap. Every method is a pure function of the parameters and its
    arguments.
    """

    type_string: ClassVar[str]
    parameter_type: ClassVar[type[Parameters]]
    # Arguments that hold targets: they receive no gradient and do not share the common dtype.
    label_arguments: ClassVar[tuple[str, ...]] = ()
    # Arguments that hold integers, int32 by default: likewise, and a network names each one.
    integer_arguments: ClassVar[tuple[str, ...]] = ()
    # True if every argument is data: a network names each one but the first. Otherwise an argument
    # that is not given becomes a parameter, such as a weight.
    reads_only_data: ClassVar[bool] = False
    # By such an argument: what a user can do instead of naming it.
    data_argument_hints: ClassVar[Mapping[str, str]] = {}
    # True if the outputs cannot be integers: `infer_type` then rejects integer types.
    is_floating: ClassVar[bool] = False
    # Dtype of output 0 under `precision: bfloat16`. Everything but activations stays float32:
    # parameters, states, further outputs, losses.
    precision: ClassVar[Precision] = Precision.FLOAT32
    # True if output 0 is input 0's memory under another shape, and likewise its gradient: no call
    # runs.
    is_view: ClassVar[bool] = False
    # True if only passes create it: networks cannot name it, and lists of operators omit it.
    is_internal: ClassVar[bool] = False
    # For a loss whose only output is the loss: the operator that computes predictions from `data`.
    prediction: ClassVar[str] = ""
    # Family, which gives the colour of the operator in drawings.
    family: ClassVar[OperatorFamily] = OperatorFamily.OTHER
    # Reason, as a sentence, why the contract checker cannot generate cases for this operator.
    unchecked: ClassVar[str] = ""

    def __init__(self, parameters: P) -> None:
        self.parameters = parameters

    # -- interface ---------------------------------------------------------------------------

    def list_arguments(self) -> tuple[str, ...]:
        """Names of the inputs, data and parameters alike, in order."""
        return ("data",)

    def list_data_arguments(self) -> tuple[str, ...]:
        """Names of the arguments that a network must name, but for the first argument."""
        names = self.list_arguments()
        return tuple(n for n in names if self.reads_only_data or n in self.integer_arguments)

    def list_outputs(self) -> tuple[str, ...]:
        """Names of all outputs, the hidden ones last."""
        return ("output",)

    def list_auxiliary_states(self) -> tuple[str, ...]:
        """Names of the auxiliary states: training updates them, and they receive no gradient."""
        return ()

    @property
    def num_visible_outputs(self) -> int:
        """Number of outputs that a network may use."""
        return len(self.list_outputs())

    @property
    def loss_output(self) -> int | None:
        """Index of the output that holds the summed loss; None for an operator that is no loss."""
        return None

    @property
    def nonstandard_gradient(self) -> str:
        """Sentence that gives the gradient if it deliberately differs from the derivative, else
        empty.
        """
        return ""

    def classification(self, data: Shape, label: Shape) -> Classification | None:
        """Class axis and label form of a classification loss with these shapes; None for other
        losses.
        """
        return None

    def label_classes(self, data: Shape, label: Shape) -> Classification | None:
        """Interpretation of labels as class indices, whatever the loss outputs; None if there is
        none.
        """
        seen = self.classification(data, label)
        return seen if seen is not None and seen.labelled else None

    def regression(self, data: Shape, label: Shape) -> Regression | None:
        """Form of the predictions of a regression loss with these shapes; None for other losses."""
        return None

    def loss_metric(self, data: Shape, label: Shape) -> str:
        """Name of the metric that is the mean of the loss by definition; empty if there is none."""
        return ""

    def averages_gradient(self, in_shapes: Sequence[Shape]) -> bool:
        """Whether a loss divides its gradient by a count over the batch; otherwise it is a sum."""
        return False

    @property
    def is_max_selection(self) -> bool:
        """True if every output element is the maximum of some elements of the only input."""
        return False

    @property
    def is_monotone(self) -> bool:
        """True if the operator applies a non-decreasing function to each element of its only input.

        The gradient must also be zero wherever the function is constant.
        """
        return False

    def list_mutated_inputs(self) -> dict[int, int]:
        """Inputs that this operator overwrites, as {input index: output index}; auxiliary states
        come after the arguments.

        Operators of updates, and those that store a part of a carried state, such as a cache.
        """
        return {}

    def list_state_updates(self) -> tuple[StateUpdate, ...]:
        """Updates of the auxiliary states in training; operators do not write these states
        themselves.
        """
        return ()

    def list_carried_states(self) -> tuple[CarriedState, ...]:
        """Auxiliary states that carry values from each run to the next."""
        return ()

    def with_frozen_states(self) -> OperatorProperty[P] | None:
        """Return the same operator with auxiliary states read as in inference and not updated.

        Returns None if the operator has no such form.
        """
        return None if self.list_state_updates() else self

    @property
    def mixes_samples(self) -> bool:
        """True if one sample's results or gradients depend on the batch's other samples in
        training.

        This concerns dependencies that shapes do not show, such as batch statistics.
        """
        return bool(self.list_state_updates())

    # -- sequences ---------------------------------------------------------------------------

    def position_axis(self, sequences: SequenceArguments) -> int | None:
        """Axis of the outputs' positions, if what they hold at a position depends on the inputs at
        that position alone; None if it may depend on others.

        None unless overridden. In a network that generates a sequence the operator then runs
        unchanged on one position after the other.
        """
        return None

    def incremental(
        self, sequences: SequenceArguments
    ) -> IncrementalForm[OperatorProperty[Any]] | None:
        """Return the operator that computes one position a run; None if there is none.

        The operator itself unless overridden, if it has a `position_axis`. Raises UserError, saying
        why, for parameters with which a position depends on later ones.
        """
        axis = self.position_axis(sequences)
        return None if axis is None else IncrementalForm(self, axis)

    # -- inference ---------------------------------------------------------------------------

    @abstractmethod
    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Complete the shapes in both directions as far as possible.

        Insufficient information is no error. Raises ShapeContradiction if two shapes disagree.
        """

    def types_of_shapes(self, inputs: PartialShapes) -> list[PartialType]:
        """Return for each input the default dtype that follows from the shapes, or None.

        A default applies only if nothing else decides the dtype. All entries are None unless
        overridden.
        """
        return [None] * len(inputs)

    def infer_type(
        self, inputs: list[PartialType], outputs: list[PartialType]
    ) -> tuple[list[PartialType], list[PartialType]]:
        """Complete the dtypes; by default all but labels and integer arguments share one.

        Raises UserError for integer types if the operator supports only floating-point numbers.
        """
        names = self.list_arguments()
        known = [*zip(names, inputs, strict=True)]
        candidates = [dtype for name, dtype in known if self.shares_dtype(name)] + outputs
        common = next((dtype for dtype in candidates if dtype is not None), None)
        if self.is_floating and common is not None and not common.startswith("float"):
            hint = "insert a Cast to float32 before it"
            problem = f"{self.type_string} of integers"
            raise UserError(Diagnostic(problem, None, "float32 or float64", common, hint=hint))
        others: dict[str, PartialType] = dict.fromkeys(self.label_arguments)
        others |= dict.fromkeys(self.integer_arguments, "int32")
        completed = [dtype or others.get(name, common) for name, dtype in known]
        return completed, [dtype or common for dtype in outputs]

    def shares_dtype(self, argument: str) -> bool:
        """Return whether an argument has the dtype of the others and of the outputs."""
        return argument not in (*self.label_arguments, *self.integer_arguments)

    def list_packed_parts(self, in_shapes: Sequence[Shape]) -> dict[int, tuple[PackedPart, ...]]:
        """Return the parts, in order, of the inputs that hold several parameters in one vector.

        Each part has an initial value of its own.
        """
        return {}

    def example_shapes(self, sample: Shape) -> PartialShapes:
        """Return the arguments' shapes of an example with the sizes of `sample`, or an empty list.

        Only for operators whose other shapes do not follow from that of the first argument, or from
        equal ones; None for shapes that follow.
        """
        return []

    # -- needs and hints -----------------------------------------------------------------------

    def list_gradients(self) -> tuple[GradientKind, ...]:
        """Kind of gradient of each input; labels and integers have a zero gradient."""
        return tuple(
            GradientKind.COMPUTES if self.shares_dtype(name) else GradientKind.ZERO
            for name in self.list_arguments()
        )

    def list_differentiated(self) -> frozenset[str]:
        """Arguments for which the operator, or one within it, has a gradient."""
        named = zip(self.list_arguments(), self.list_gradients(), strict=True)
        return frozenset(name for name, kind in named if kind is not GradientKind.ZERO)

    def list_passed_gradients(self) -> dict[int, int]:
        """Inputs whose gradient equals an output's gradient, as {input index: output index}.

        No kernel computes such a gradient if input and output have the same shape and may share the
        gradient's tensor. Backward can still compute it.
        """
        return {}

    def list_equal_gradients(self) -> dict[int, int]:
        """Inputs whose gradient equals that of an earlier input, as {input index: earlier index}.

        The gradient graph uses the earlier input's tensor for both if shape and dtype are the same.
        Backward can still compute it.
        """
        return {}

    def independent_gradients(self) -> list[list[int]]:
        """Groups of inputs whose gradients share no computation; one group unless overridden.

        A plan may compute each group in a separate step, in the order of the groups.
        """
        return [list(range(len(self.list_arguments())))]

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return the tensors that backward reads; all of them unless overridden."""
        return [*out_grad, *in_data, *out_data]

    def forward_inplace_option(
        self, in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[tuple[T, T]]:
        """Return pairs (input, output) that may share memory: hints that the planner may refuse."""
        return []

    def backward_inplace_option(
        self,
        out_grad: Sequence[T],
        in_data: Sequence[T],
        out_data: Sequence[T],
        in_grad: Sequence[T],
    ) -> list[tuple[T, T]]:
        """Return pairs (tensor read by backward, input gradient) that may share memory."""
        return []

    def forward_resource(self, inputs: Sequence[TensorSpec]) -> list[ResourceRequest]:
        """Return the resource requests of forward; `inputs` are the arguments.

        Temporary space is for the NumPy body only. Random numbers are for every implementation.
        """
        return []

    def backward_resource(self, inputs: Sequence[TensorSpec]) -> list[ResourceRequest]:
        """Return the resource requests of the NumPy backward body; `inputs` are forward's."""
        return []

    # -- cost ----------------------------------------------------------------------------------

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Return the floating-point operations of forward; one per output element unless
        overridden.
        """
        return sum(math.prod(shape) for shape in out_shapes)

    # -- composite -----------------------------------------------------------------------------

    def expand(
        self, builder: CompositeBuilder, inputs: Sequence[Entry], in_shapes: Sequence[Shape]
    ) -> Sequence[Entry] | None:
        """Return the visible outputs of a network of other operators with the same values.

        None if the operator is no composite. Raises UserError for parameters with which it is none.
        """
        return None

    # -- body ----------------------------------------------------------------------------------

    @abstractmethod
    def create_operator(self) -> Operator:
        """Create the NumPy body."""


class InPlaceProperty(OperatorProperty[P]):
    """Operator whose first output may overwrite its first input, and likewise their gradients.

    The planner uses the hint only if the sizes are equal.
    """

    def forward_inplace_option(
        self, in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[tuple[T, T]]:
        """Pair the first input with the first output."""
        return [(in_data[0], out_data[0])]

    def backward_inplace_option(
        self,
        out_grad: Sequence[T],
        in_data: Sequence[T],
        out_data: Sequence[T],
        in_grad: Sequence[T],
    ) -> list[tuple[T, T]]:
        """Pair the first output's gradient with the first input's."""
        return [(out_grad[0], in_grad[0])]


class SelectionProperty(OperatorProperty[P]):
    """Selection of data's elements by its other inputs, such as indices or lengths.

    These have a zero gradient and default to int32. Nothing is computed.
    """

    family = OperatorFamily.SHAPE
    reads_only_data = True
    integer_arguments = ("index", "indices", "sequence_length")
    precision = Precision.INHERIT

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return out_grad and the inputs other than data."""
        return [out_grad[0], *in_data[1:]]

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Return 0: nothing is computed."""
        return 0


def same_shape(names: Sequence[str], shapes: PartialShapes, rule: str) -> PartialShapes:
    """Unify all of `shapes` into one shape, for elementwise operators."""
    common: PartialShape = None
    for name, shape in zip(names, shapes, strict=True):
        common = unify(name, shape, common, rule)
    return [common] * len(shapes)
