"""Model: a symbol with inferred shapes for a batch size, and the settings of each variable."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import MAX_SHOWN, Diagnostic, Diagnostics, UserError
from mxrun.base.near_names import Suggestions, listed
from mxrun.base.once import cached_property
from mxrun.base.params import LARGEST_INT32
from mxrun.base.patterns import PatternTable
from mxrun.base.tensor import Shape, TensorSpec
from mxrun.config import NetworkSection, Parsed, VariableSection
from mxrun.frontend.frozen import with_frozen_states
from mxrun.frontend.measured_layers import MeasuredLayer, measured_layers
from mxrun.frontend.recurrent_checks import undetermined
from mxrun.graph.infer import InferredSpecs, infer
from mxrun.graph.node import Node, NodeEntry
from mxrun.graph.recurrence.gradient_kinds import differentiated_variables
from mxrun.graph.symbol import Symbol
from mxrun.io.loading.batch import SAMPLE_WEIGHT
from mxrun.operator.property import PackedPart
from mxrun.train.measure import LossTensors

# Far beyond the memory of any machine, while the bytes are far below 2^63.
_MAX_ELEMENTS = 1 << 48


@dataclass(frozen=True)
class Model:
    """Network with all shapes known, and the config's settings of its variables.

    inputs: the io slots, batch axis included (labels and sample weights too). variables: the
    settings of every parameter and auxiliary state, by name. layers: those besides the losses that
    metrics measure.
    """

    symbol: Symbol
    inference: InferredSpecs
    batch_size: int
    inputs: Mapping[str, TensorSpec]
    variables: Mapping[str, VariableSection]
    losses: tuple[LossTensors, ...]
    layers: tuple[MeasuredLayer, ...] = ()

    @cached_property
    def measured(self) -> tuple[LossTensors, ...]:
        """The losses, and the other layers that metrics compare with labels."""
        return (*self.losses, *(layer.tensors(self.inference) for layer in self.layers))

    @property
    def records(self) -> dict[str, TensorSpec]:
        """Specs of one record of a data set: each input without the batch axis."""
        return {
            name: replace(spec, shape=spec.shape[1:])
            for name, spec in self.inputs.items()
            if name != SAMPLE_WEIGHT
        }

    def resized(self, batch_size: int) -> Model:
        """Return the same network for another batch size.

        Raises UserError if declared shapes contradict that size.
        """
        shapes = {name: (batch_size, *spec.shape[1:]) for name, spec in self.inputs.items()}
        return self._with_inputs(shapes, batch_size, f"a batch of {batch_size}")

    def shortened(self, length: int, names: Sequence[str]) -> Model:
        """Return the same network for sequences of another length in the inputs `names`.

        Raises UserError if shapes, such as those of parameters, contradict that length.
        """
        shapes = {
            name: (spec.shape[0], length, *spec.shape[2:]) if name in names else spec.shape
            for name, spec in self.inputs.items()
        }
        return self._with_inputs(shapes, self.batch_size, f"the length {length}")

    def _with_inputs(self, shapes: Mapping[str, Shape], batch_size: int, what: str) -> Model:
        """Return the same network for inputs of other shapes."""
        known = {name: spec.shape for name, spec in self.learned.items()}
        inference = infer(self.symbol.heads, {**known, **shapes})
        if not inference.complete:
            raise UserError(
                inference.diagnostics or f"{what} leaves unknown: {', '.join(inference.unknown)}"
            )
        inputs = {name: replace(self.inputs[name], shape=shape) for name, shape in shapes.items()}
        losses = tuple(_loss(node, inference) for node in self.symbol.nodes if is_loss(node))
        return replace(
            self, inference=inference, batch_size=batch_size, inputs=inputs, losses=losses
        )

    @cached_property
    def parameters(self) -> dict[str, TensorSpec]:
        """Specs of the variables that have gradients, in the network's order."""
        states = set(self.symbol.list_auxiliary_states())
        return {name: spec for name, spec in self.learned.items() if name not in states}

    @cached_property
    def learned(self) -> dict[str, TensorSpec]:
        """Specs of parameters and of auxiliary states, except carried ones."""
        return {
            name: spec for name, spec in self._variable_specs.items() if name not in self.carried
        }

    @cached_property
    def carried(self) -> dict[str, TensorSpec]:
        """Specs of the states that carry values from each run to the next, batch axis included."""
        return {name: self._variable_specs[name] for name in self.symbol.list_carried_states()}

    @cached_property
    def _variable_specs(self) -> dict[str, TensorSpec]:
        """Specs of all variables except inputs."""
        return {
            node.name: self.inference.spec(NodeEntry(node))
            for node in self.symbol.nodes
            if node.is_variable and node.name not in self.inputs
        }

    @cached_property
    def trainable(self) -> frozenset[str]:
        """Parameters for which some operator has a gradient.

        A BatchNorm with fix_gamma reads its gamma as 1: such a parameter does not change.
        """
        return differentiated_variables(self.symbol.nodes) & self.parameters.keys()

    @cached_property
    def moving_states(self) -> frozenset[str]:
        """Auxiliary states that training updates."""
        found = set()
        for node in self.symbol.nodes:
            if node.prop is not None:
                updated = {update.state for update in node.prop.list_state_updates()}
                states = node.inputs[len(node.argument_entries()) :]
                named = zip(node.prop.list_auxiliary_states(), states, strict=True)
                found |= {entry.name for state, entry in named if state in updated}
        return frozenset(found)

    @cached_property
    def packed(self) -> dict[str, tuple[PackedPart, ...]]:
        """The parts of each parameter that holds several in one vector."""
        found = {}
        for node in self.symbol.nodes:
            if node.prop is not None:
                entries = node.argument_entries()
                shapes = [self.inference.spec(entry).shape for entry in entries]
                for index, parts in node.prop.list_packed_parts(shapes).items():
                    found[entries[index].name] = parts
        return {name: parts for name, parts in found.items() if name in self.parameters}

    @property
    def shapes(self) -> dict[str, Shape]:
        """Shapes that the config declares for parameters."""
        return {
            name: variable.shape
            for name, variable in self.variables.items()
            if variable.shape is not None
        }


def build_model(
    parsed: Parsed,
    network: NetworkSection,
    symbol: Symbol,
    batch_size: int,
    diagnostics: Diagnostics,
) -> Model | None:
    """Infer every shape for `batch_size` and return the model.

    On errors the result is None, and problems are added to `diagnostics`.
    """
    before = len(diagnostics)
    settings = _variables(parsed, network, symbol, diagnostics)
    symbol = with_frozen_states(symbol, settings, diagnostics)
    shapes = _given(network, batch_size)
    shapes |= {name: v.shape for name, v in settings.items() if v.shape is not None}
    inference = infer(symbol.heads, shapes)
    diagnostics += inference.diagnostics
    nodes = {node.name: node for node in symbol.nodes}
    diagnostics += (
        Diagnostic(
            f"not enough is known: need shape of {name!r}",
            place=nodes[name].place,
            hint=f"declare it under network: variables: {{{name}: {{shape: [...]}}}}",
        )
        for name in inference.unknown
    )
    if len(diagnostics) == before:
        diagnostics += undetermined(symbol.nodes, inference)
    if len(diagnostics) > before:
        return None
    inputs = {
        name: inference.spec(NodeEntry(node))
        for name, node in nodes.items()
        if node.is_variable and (name in network.inputs or name == SAMPLE_WEIGHT)
    }
    diagnostics += _too_large(symbol, inference)
    if len(diagnostics) > before:
        return None
    losses = tuple(_loss(node, inference) for node in symbol.nodes if is_loss(node))
    layers = measured_layers(parsed, symbol, inference, diagnostics)
    if len(diagnostics) > before:
        return None
    return Model(symbol, inference, batch_size, inputs, settings, losses, layers)


def contradictions(
    network: NetworkSection, symbol: Symbol, batch_size: int
) -> tuple[Diagnostic, ...]:
    """Return the contradictions of shapes in a network with incorrect layers."""
    return infer(symbol.heads, _given(network, batch_size)).contradictions


def _given(network: NetworkSection, batch_size: int) -> dict[str, Shape]:
    """Return the shapes of the io slots."""
    shapes: dict[str, Shape] = {
        name: (batch_size, *shape) for name, shape in network.inputs.items()
    }
    shapes[SAMPLE_WEIGHT] = (batch_size,)
    return shapes


def _variables(
    parsed: Parsed, network: NetworkSection, symbol: Symbol, diagnostics: Diagnostics
) -> dict[str, VariableSection]:
    """Return the settings of each variable, by exact name or else by the last matching pattern."""
    names = [
        node.name
        for node in symbol.nodes
        if node.is_variable and node.name not in network.inputs and node.name != SAMPLE_WEIGHT
    ]
    table = PatternTable(network.variables)
    settings, used = {}, set[str]()
    for name in names:
        matching = table.matching(name)
        used.update(matching)
        own = name if name in network.variables else matching[-1] if matching else None
        settings[name] = VariableSection() if own is None else network.variables[own]
    suggestions = Suggestions(MAX_SHOWN)
    diagnostics += (
        Diagnostic(
            f"no variable is named or matches {pattern!r}",
            place=parsed.key_place("network", "variables", pattern),
            hint=suggestions.nearest(pattern, names) or f"variables: {listed(names)}",
        )
        for pattern in network.variables
        if pattern not in used
    )
    return settings


def is_loss(node: Node) -> bool:
    """Return whether the node has a loss that training minimises."""
    return node.prop is not None and node.prop.loss_output is not None


def _loss(node: Node, inference: InferredSpecs) -> LossTensors:
    assert node.prop is not None
    assert node.prop.loss_output is not None
    tensors = (node.name, node.entry_name(0), node.entry_name(node.prop.loss_output))
    averages = node.prop.averages_gradient(
        [inference.spec(entry).shape for entry in node.argument_entries()]
    )
    if not node.prop.label_arguments:
        return LossTensors(*tensors, label="", classification=None, averages_gradient=averages)
    data, label = (
        node.inputs[node.prop.list_arguments().index(argument)]
        for argument in ("data", node.prop.label_arguments[0])
    )
    shapes = inference.spec(data).shape, inference.spec(label).shape
    prop = node.prop
    return LossTensors(
        *tensors,
        label.name,
        prop.classification(*shapes),
        prop.regression(*shapes),
        prop.label_classes(*shapes),
        prop.loss_metric(*shapes),
        averages,
    )


def _too_large(symbol: Symbol, inference: InferredSpecs) -> list[Diagnostic]:
    """Return a diagnostic for the first tensor of each node that exceeds the limits of kernels."""
    found = []
    for node in symbol.nodes:
        for index in range(node.num_outputs):
            shape = inference.spec(NodeEntry(node, index)).shape
            if max(shape, default=0) <= LARGEST_INT32 and math.prod(shape) <= _MAX_ELEMENTS:
                continue
            what = "variable" if node.is_variable else node.operator
            found.append(
                Diagnostic(
                    f"{what} {node.name!r} is too large",
                    place=node.place,
                    expected=f"axes up to {LARGEST_INT32}, at most {_MAX_ELEMENTS} elements",
                    got=str(list(shape)),
                )
            )
            break
    return found
