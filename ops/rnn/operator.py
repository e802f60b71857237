"""RNN: MXNet's recurrent layers, with all layers, directions and time steps in one operator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.tensor import PartialShape, Shape, TensorSpec
from mxrun.operator.composite import CompositeBuilder, Entry
from mxrun.operator.family import OperatorFamily
from mxrun.operator.incremental import IncrementalForm, SequenceArguments
from mxrun.operator.operator import Operator
from mxrun.operator.property import (
    CarriedState,
    OperatorProperty,
    PackedPart,
    PartialInference,
    PartialShapes,
    Precision,
    ResourceKind,
    ResourceRequest,
)
from mxrun.operator.register import register
from mxrun.operator.shape import Dimensions, ShapeContradiction, unify
from mxrun.ops.rnn.composite import expand_rnn
from mxrun.ops.rnn.numpy_body import RNN
from mxrun.ops.rnn.parameters import RNNParameters, features_of, packed_size, packed_weights

T = TypeVar("T")

# Names of states that are carried, and of hidden outputs that hold them for backward.
_CARRIED, _FIRST = "carried_{}", "first_{}"
# Tensors that are no states.
_OTHERS = frozenset({"data", "parameters", "sequence_length", "output", "mask"})


# Names in other frameworks: usual parameters beside the mode, and a note on those of cells.
_USUAL = "state_size: 200, num_layers: 1, layout: NTC, initial_state: zeros"
_STEPS = ", which runs all steps; `recurrent:` runs layers of your own at each step"


@register(
    "RNN",
    foreign={
        f"RNN: {{mode: lstm, {_USUAL}}}": "lstm",
        f"RNN: {{mode: lstm, {_USUAL}}}{_STEPS}": "lstmcell",
        f"RNN: {{mode: lstm, {_USUAL}, bidirectional: true}}": "bidirectional",
        f"RNN: {{mode: gru, {_USUAL}}}": "gru",
        f"RNN: {{mode: gru, {_USUAL}}}{_STEPS}": "grucell",
        f"RNN: {{mode: rnn_tanh, {_USUAL}}}": "simplernn",
        f"RNN: {{mode: rnn_tanh, {_USUAL}}}{_STEPS}": "rnncell",
    },
)
class RNNProperty(OperatorProperty[RNNParameters]):
    """output[t] = h[t] of the last layer, where each layer reads the one below it at step t.

    With x = W data[t] + b and y = R h[t - 1] + d, split into gates of state_size rows each:
    rnn_relu, rnn_tanh: h = act(x + y).
    lstm: i, f, o = sigmoid(x + y), g = tanh(x + y); c = f * c[t - 1] + i * g; h = o * tanh(c), of
    which a projection is the product with a weight.
    gru: r, z = sigmoid(x + y), n = tanh(x + r * y); h = (1 - z) * n + z * h[t - 1].

    data [T, N, C], output [T, N, D * H] for D directions (layout NTC: [N, T, ...]); state and the
    output state [num_layers * D, N, H], where H is projection_size or state_size; state_cell
    [num_layers * D, N, state_size]. parameters: all weights and then all biases, in MXNet's order.
    sequence_length [N]: steps from there on change no state, and their output is 0; the second
    direction begins at the last step of each sequence. In training, dropout with probability p is
    applied between layers; mask, a hidden output, holds its factors. With initial_state: carry, the
    first states are carried_state and carried_state_cell, the last ones of the previous batch.
    Backward reads all inputs, output, carried first states, the mask and the visible outputs'
    gradients.
    """

    type_string = "RNN"
    family = OperatorFamily.DENSE
    parameter_type = RNNParameters
    precision = Precision.BFLOAT16
    is_floating = True
    integer_arguments = ("sequence_length",)
    data_argument_hints = dict.fromkeys(
        ("state", "state_cell"),
        "name a layer or an input, or begin with zeros: initial_state: zeros; layout: NTC reads "
        "data whose first axis is the batch",
    )

    def list_arguments(self) -> tuple[str, ...]:
        """data, parameters, then state, state_cell and sequence_length where they apply."""
        p = self.parameters
        names = ["data", "parameters"]
        if p.initial_state == "input":
            names += p.state_names()
        return (*names, "sequence_length") if p.use_sequence_length else tuple(names)

    def list_data_arguments(self) -> tuple[str, ...]:
        """All but the parameters: trained first states would be those of one batch's records."""
        return tuple(name for name in self.list_arguments() if name != "parameters")

    def list_auxiliary_states(self) -> tuple[str, ...]:
        """The states that are carried, if any."""
        return tuple(self.parameters.state_names(_CARRIED)) if self.parameters.carries else ()

    def list_carried_states(self) -> tuple[CarriedState, ...]:
        """Each becomes the last state."""
        pairs = zip(self.list_auxiliary_states(), self.parameters.state_names(), strict=False)
        return tuple(CarriedState(state, value) for state, value in pairs)

    def list_outputs(self) -> tuple[str, ...]:
        """output, the last states with state_outputs; hidden: what is carried, and the mask."""
        p = self.parameters
        names = ["output"]
        if p.state_outputs or p.carries:
            names += p.state_names()
        if p.carries:
            names += p.state_names(_FIRST)
        return (*names, "mask") if p.has_mask else tuple(names)

    @property
    def num_visible_outputs(self) -> int:
        """1, and the states with state_outputs."""
        return 1 + (len(self.parameters.state_names()) if self.parameters.state_outputs else 0)

    def incremental(
        self, sequences: SequenceArguments
    ) -> IncrementalForm[OperatorProperty[Any]] | None:
        """Return the run's steps, whose last states are the first ones of the next run.

        Raises UserError for states that do not begin as zeros, and for steps that read later ones.
        """
        p, (_, *others) = self.parameters, sequences.axes
        refused = {
            "bidirectional: true": p.bidirectional,
            "use_sequence_length: true": p.use_sequence_length,
            "initial_state: input": p.initial_state == "input",
        }
        if any(refused.values()):
            raise UserError(
                Diagnostic(
                    "the layer cannot compute one position after the other",
                    expected="one direction, initial_state: zeros, no use_sequence_length",
                    got=", ".join(given for given, is_given in refused.items() if is_given),
                )
            )
        axis = 0 if p.layout == "TNC" else 1
        if not sequences.counts_positions(0, axis) or others != [None] * len(others):
            return None
        form = type(self)(p.model_copy(update={"initial_state": "input", "state_outputs": True}))
        carried = {name: 1 + index for index, name in enumerate(p.state_names())}
        return IncrementalForm(form, axis, carried, range(1, self.num_visible_outputs))

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Infer the steps and the batch from any tensor, C from data or the packed vector."""
        p = self.parameters
        given = dict(zip(self.list_arguments(), inputs, strict=True))
        results = dict(zip(self.list_outputs(), outputs, strict=True))
        carried: dict[str, PartialShape] = dict.fromkeys(self.list_auxiliary_states())
        features = self._features(given)
        width = p.directions * p.hidden
        steps = batch = None
        # Twice: what the last tensor tells is then known to the first.
        for _ in range(2):
            for tensors, name, last in ((given, "data", features), (results, "output", width)):
                steps, batch, last = self._steps_first(
                    unify(name, tensors[name], self._ordered(steps, batch, last), "the others")
                )
                tensors[name] = self._ordered(steps, batch, last)
            for tensors in (given, results, carried):
                for name in tensors.keys() - _OTHERS:
                    size = p.state_size if name.endswith("state_cell") else p.hidden
                    own = (p.num_layers * p.directions, batch, size)
                    tensors[name] = found = unify(name, tensors[name], own, "data and sizes")
                    batch = found[1]
            if "sequence_length" in given:
                name = "sequence_length"
                given[name] = found = unify(name, given[name], (batch,), "data's batch")
                batch = found[0]
            if p.has_mask:
                mask = (batch, p.num_layers - 1, steps, width)
                results["mask"] = found = unify("mask", results["mask"], mask, "output")
                batch, steps = found[0], found[2]
        every = (given, results, carried)
        return PartialInference(*(list(tensors.values()) for tensors in every))

    def _features(self, given: dict[str, Dimensions | None]) -> int | None:
        """Return data's features, and complete the packed vector's shape."""
        p, data = self.parameters, given["data"]
        features = None if data is None or len(data) != len("TNC") else data[-1]
        vector = unify("parameters", given["parameters"], (None,), "one packed vector")
        if features is not None:
            vector = unify("parameters", vector, (packed_size(p, features),), "data's features")
        elif vector[0] is not None:
            features = features_of(p, vector[0])
            if features is None:
                raise ShapeContradiction(
                    "parameters",
                    f"[{vector[0]}]",
                    f"[{packed_size(p, 0)} + {p.directions * p.rows} C]",
                    "data's C features",
                )
        given["parameters"] = vector
        return features

    def _ordered(self, steps: int | None, batch: int | None, last: int | None) -> Dimensions:
        return (steps, batch, last) if self.parameters.layout == "TNC" else (batch, steps, last)

    def _steps_first(self, shape: Dimensions) -> tuple[int | None, int | None, int | None]:
        first, second, last = shape
        return (first, second, last) if self.parameters.layout == "TNC" else (second, first, last)

    def list_packed_parts(self, in_shapes: Sequence[Shape]) -> dict[int, tuple[PackedPart, ...]]:
        """The weights and biases of `parameters`, with the names of MXNet's unfused cells."""
        weights = packed_weights(self.parameters, in_shapes[0][-1])
        return {1: tuple(PackedPart(weight.name, weight.shape) for weight in weights)}

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return the visible outputs' gradients, inputs, output, first states and mask."""
        visible, names = self.num_visible_outputs, self.list_outputs()
        read = {*self.parameters.state_names(_FIRST), "output", "mask"}
        results = [each for name, each in zip(names, out_data, strict=True) if name in read]
        return [*out_grad[:visible], *in_data, *results]

    def forward_resource(self, inputs: Sequence[TensorSpec]) -> list[ResourceRequest]:
        """Request random numbers for dropout."""
        return [ResourceRequest(ResourceKind.RANDOM)] if self.parameters.has_mask else []

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Two per multiply-add of the products, at every step."""
        p, data = self.parameters, in_shapes[0]
        weights = packed_size(p, data[-1]) - 2 * p.num_layers * p.directions * p.rows
        return 2 * math.prod(data[:2]) * weights

    def expand(
        self, builder: CompositeBuilder, inputs: Sequence[Entry], in_shapes: Sequence[Shape]
    ) -> list[Entry]:
        """Return a recurrence for each direction of a layer; dropout draws numbers of its own."""
        given = dict(zip(self.list_arguments(), inputs, strict=False))
        return expand_rnn(self.parameters, builder, given, in_shapes[0])

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return RNN(self.parameters)
