"""Wiring of a config's layers: from operators and references by name to a symbol."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from mxrun.base.dtype import BFLOAT16
from mxrun.base.errors import MAX_SHOWN, Diagnostic, Diagnostics, SourceLocation
from mxrun.base.near_names import Suggestions, listed
from mxrun.base.params import check
from mxrun.config import (
    LayerConfig,
    Names,
    Parsed,
    RecurrentConfig,
    SourceNode,
    removal_hint,
)
from mxrun.frontend.axes import Ranks, with_axes
from mxrun.frontend.instantiate import ParameterPlaces
from mxrun.frontend.measured_layers import named_layers
from mxrun.frontend.network_checks import (
    hidden_output,
    labels_as_data,
    missing_gradients,
    repeated_names,
    sharing_hint,
    unread_layers,
)
from mxrun.frontend.recurrent import Outputs, no_such_output, wire_recurrent
from mxrun.graph.node import Node, NodeEntry
from mxrun.graph.symbol import Symbol
from mxrun.io.loading.batch import SAMPLE_WEIGHT
from mxrun.operator.foreign_names import foreign_parameter
from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.property import Precision
from mxrun.operator.register import OPERATORS, AnyProperty, unknown_operator

# Parameter of operators that weight the rows of a batch; padded rows then have weight 0.
_WEIGHTED = "use_sample_weight"
_OURS = (SAMPLE_WEIGHT, _WEIGHTED)
# Parameter with the number of arguments, of operators with arguments arg0, arg1, ...
_COUNT = "num_args"
_NUMBERED = re.compile(r"arg([0-9]{1,4})")
# Number of spatial axes of an image.
_USUAL_AXES = 2


def wire(parsed: Parsed, diagnostics: Diagnostics) -> Symbol | None:
    """Return the network's symbol; add the problems of its layers to `diagnostics`.

    A layer that cannot be built is replaced by a variable, and an unread layer becomes an output,
    so that all other shapes can be checked in the same pass. None if the network section is
    unusable: then only operators and their parameters are checked.
    """
    wiring = _Wiring(parsed, diagnostics)
    for layer in parsed.layers:
        wiring.add(layer)
    return None if parsed.network is None else wiring.symbol(parsed.network.outputs)


class _Wiring:
    def __init__(self, parsed: Parsed, diagnostics: Diagnostics) -> None:
        self.diagnostics = diagnostics
        self.before = len(diagnostics)
        self.suggestions = Suggestions(MAX_SHOWN)
        self.parsed = parsed
        self.nodes: dict[str, Node] = {}
        self.variables: dict[str, Node] = {}
        self.previous: NodeEntry | None = None
        self.names = Names()
        # Outputs of recurrences, and the recurrence of each layer within one.
        self.outputs: dict[str, Outputs] = {}
        self.inside: dict[str, str] = {}
        self.later = {layer.name: layer for layer in parsed.layers}
        # Name of the innermost recurrence whose layers are wired; empty outside of any.
        self.recurrence = ""
        self.defined: dict[str, SourceLocation] = {}
        network = parsed.network
        self.inputs = () if network is None else tuple(network.inputs)
        self.declared = {} if network is None else network.variables
        given = {} if network is None else network.inputs
        self.ranks = Ranks({name: (None, *shape) for name, shape in given.items()})
        for name in self.inputs:
            place = parsed.key_place("network", "inputs", name)
            self._check_reserved(name, place)
            self.nodes[name] = Node(name, place=place)
            self.names.add(name)
        for name in self.declared:
            self._check_reserved(name, parsed.key_place("network", "variables", name))
        if self.inputs:
            self.previous = NodeEntry(self.nodes[self.inputs[0]])

    def add(self, layer: LayerConfig) -> None:
        """Build one layer; if that fails, the following layers are checked nevertheless."""
        self.later.pop(layer.name, None)
        recurrent = layer if isinstance(layer, RecurrentConfig) else None
        prop = None if recurrent is not None else self._property(layer)
        if layer.name in self.nodes:
            text = f"the name {layer.name!r} is taken by {self._owner(layer.name)}"
            self._problem(layer, text, layer.name_place, hint="choose another name")
            self.previous = NodeEntry(Node("", place=layer.place))
            return
        self.defined[layer.name] = layer.name_place
        self._check_reserved(layer.name, layer.name_place, layer.chain)
        if recurrent is not None and self.parsed.network is not None:
            wire_recurrent(self, recurrent)
            return
        for each in () if recurrent is None else recurrent.layers:
            self.add(each)
        if prop is None or self.parsed.network is None:
            node = Node(layer.name, place=layer.place)
        else:
            node = self._node(layer, prop)
        self.nodes[layer.name] = node
        self.names.add(layer.name)
        self.previous = NodeEntry(node)

    def _owner(self, name: str) -> str:
        """Return what has a name already, for messages."""
        if name in self.defined:
            return f"the layer at {self.defined[name]}"
        is_input = name in self.inputs
        return "an input" if is_input else f"a sequence or memory at {self.nodes[name].place}"

    def symbol(self, outputs: Sequence[str]) -> Symbol:
        """Return the symbol of the named outputs, or else of the last layer."""
        heads = []
        for position, reference in enumerate(outputs):
            place = self.parsed.place("network", "outputs", position)
            entry = self.resolve(reference, "", place, ())
            if entry is not None:
                heads.append(entry)
        if not heads and self.previous is not None:
            heads = [self.previous]
        looked_at = [
            self.resolve(name, "", choice.parameters["of"].place, ())
            for choice, name in named_layers(self.parsed)
        ]
        heads = [*dict.fromkeys([*heads, *filter(None, looked_at)])]
        if len(self.diagnostics) == self.before:
            nodes = self.nodes.values()
            everything = (*nodes, *self.variables.values())
            self.diagnostics += repeated_names(everything, self.defined)
            self.diagnostics += labels_as_data(nodes, self.inputs)
            self.diagnostics += missing_gradients(nodes)
        reached = set(Symbol(heads).nodes)
        unread = {
            name: node
            for name, node in self.nodes.items()
            if node not in reached and not node.is_variable
        }
        if len(self.diagnostics) == self.before:
            last = self.parsed.layers[-1].name if self.parsed.layers else ""
            self.diagnostics += unread_layers(unread, outputs, last)
        return Symbol([*heads, *map(NodeEntry, unread.values())])

    def _property(self, layer: LayerConfig) -> AnyProperty | None:
        if layer.operator not in OPERATORS or OPERATORS.get(layer.operator).is_internal:
            unknown = unknown_operator(layer.operator, self.suggestions, self.parsed.blocks)
            self._problem(layer, unknown.problem, layer.place, hint=unknown.hint)
            return None
        property_class = OPERATORS.get(layer.operator)
        self._check_precision(layer, property_class)
        fields = property_class.parameter_type.model_fields
        values = {
            key: part.plain()
            for key, part in layer.parameters.items()
            if key in fields and key not in _OURS
        }
        if _WEIGHTED in fields:
            values[_WEIGHTED] = True
        if _COUNT in fields:
            values[_COUNT] = self._count(layer)
        data = self._data(layer)
        # After another problem the first tensor may be a stand-in of unknown rank.
        axes = _USUAL_AXES if data is None or len(self.diagnostics) else None
        values = with_axes(property_class, values, data, self.ranks, axes)
        places = ParameterPlaces(layer.parameters, layer.place)
        parameters, wrong = check(property_class.parameter_type, values, places)
        # A number that stands for several axes is wrong in each of them, at one place.
        distinct = {(each.place, each.expected, each.got): each for each in reversed(wrong)}
        for problem in reversed(distinct.values()):
            text = f"{layer.operator} {layer.name!r}: {problem.problem}"
            place = problem.place or layer.place
            self._problem(layer, text, place, problem.expected, problem.got, hint=problem.hint)
        if parameters is None:
            known = (*fields, *_arguments_of_any(property_class), *_numbered(layer))
            self._unknown_keys(layer, known, tuple(fields))
            return None
        prop = property_class(parameters)
        arguments = (*prop.list_arguments(), *prop.list_auxiliary_states())
        self._unknown_keys(layer, (*fields, *arguments), (*fields, *arguments))
        return prop

    def _data(self, layer: LayerConfig) -> NodeEntry | None:
        """Return a layer's first tensor; None if its reference is wrong, reported elsewhere."""
        given = layer.inputs[0] if layer.inputs else layer.parameters.get("data")
        if given is None:
            return self.previous
        found = (
            self.names.resolve(given.value, layer.scope) if isinstance(given.value, str) else None
        )
        return None if found is None else self._output(*found)

    def _output(self, name: str, output: int | str) -> NodeEntry | None:
        """Return an output of a layer or input; None if it has no such output."""
        if name in self.outputs:
            return self.outputs[name].find(output)
        node = self.nodes.get(name)
        if node is None or isinstance(output, str) or output >= node.num_outputs:
            return None
        return NodeEntry(node, output)

    def _check_precision(self, layer: LayerConfig, property_class: type[AnyProperty]) -> None:
        """Report a layer that requests bfloat16 but would run in float32."""
        if layer.options.precision != BFLOAT16 or property_class.is_view:
            return
        title, place = f"{layer.operator} {layer.name!r}", layer.precision_place
        if property_class.precision is Precision.FLOAT32:
            text = f"{title} does not run in bfloat16"
            hint = "leave out its `precision`: it runs in float32 beside others in bfloat16"
            self._problem(layer, text, place, "float32", layer.options.precision, hint=hint)
        elif layer.options.implementation == NUMPY.name:
            text = f"{title} does not run in bfloat16 with `implementation: numpy`"
            hint = "leave out its `precision` or its `implementation`"
            self._problem(layer, text, place, "float32", layer.options.precision, hint=hint)

    def _count(self, layer: LayerConfig) -> int:
        """Return the number of arguments wired by position and by name; report errors in them."""
        wired: set[int] = {*range(len(layer.inputs)), *_numbered(layer).values()}
        given = layer.parameters.get(_COUNT)
        title = f"{layer.operator} {layer.name!r}"
        if not wired and given is None:
            hint = "its inputs: [a, b, ...] say which tensors it takes, and how many"
            self._problem(layer, f"{title} needs its inputs", layer.place, hint=hint)
        wired.add(0)  # the previous layer by default
        count = max(wired) + 1
        missing = [f"arg{index}" for index in range(count) if index not in wired]
        if missing:
            text = f"{title} has an argument arg{count - 1}, but no {', '.join(missing)}"
            self._problem(layer, text, layer.place, hint="number the arguments from 0 on")
        if given is not None and given.plain() != count:
            text = f"{title} has {count} input{'s' if count > 1 else ''}, but {_COUNT} differs"
            hint = "leave it out: it follows from the inputs"
            got = repr(given.plain())
            self._problem(layer, text, given.place, f"{_COUNT}: {count}", got, hint=hint)
        return count

    def _unknown_keys(
        self, layer: LayerConfig, known: Sequence[str], offered: Sequence[str]
    ) -> None:
        offered = [key for key in offered if key not in _OURS]
        for key in layer.parameters:
            if key in _OURS and key in known:
                text = f"{layer.operator} {layer.name!r}: {key} is set by mxrun"
                hint = "leave it out: padded rows of a batch have weight 0 in any case"
                self._problem(layer, text, layer.key_place_of(key), hint=hint)
            elif key not in known:
                text = f"{layer.operator} {layer.name!r} has no parameter or argument {key!r}"
                hint = foreign_parameter(key, offered) or self.suggestions.nearest(key, offered)
                expected = f"one of {', '.join(offered)}"
                self._problem(layer, text, layer.key_place_of(key), expected, key, hint=hint)

    def _node(self, layer: LayerConfig, prop: AnyProperty) -> Node:
        fields = prop.parameter_type.model_fields
        given: dict[str, SourceNode] = {
            key: part
            for key, part in layer.parameters.items()
            if key not in fields and key not in _OURS
        }
        arguments = tuple(
            name
            for name in (*prop.list_arguments(), *prop.list_auxiliary_states())
            if name != SAMPLE_WEIGHT
        )
        if len(layer.inputs) > len(arguments):
            expected = f"at most {len(arguments)}: {', '.join(arguments)}"
            text = f"{layer.operator} {layer.name!r} has {len(layer.inputs)} inputs"
            self._problem(layer, text, layer.inputs[-1].place, expected)
        given |= dict(zip(arguments, layer.inputs, strict=False))
        entries = []
        for position, argument in enumerate(arguments):
            entry = self._argument(layer, prop, position, argument, given)
            entries.append(entry or NodeEntry(Node(f"{layer.name}_{argument}")))
        if SAMPLE_WEIGHT in prop.list_arguments():
            weight = self.variables.setdefault(SAMPLE_WEIGHT, Node(SAMPLE_WEIGHT))
            entries.insert(prop.list_arguments().index(SAMPLE_WEIGHT), NodeEntry(weight))
        return Node(
            layer.name,
            prop,
            tuple(entries),
            place=layer.place,
            options=layer.options,
        )

    def _argument(
        self,
        layer: LayerConfig,
        prop: AnyProperty,
        position: int,
        argument: str,
        given: Mapping[str, SourceNode],
    ) -> NodeEntry | None:
        if argument in given:
            learned = position > 0 and argument not in prop.list_data_arguments()
            entry = self._reference(layer, argument, given[argument], learned)
            if entry is not None and argument in prop.label_arguments:
                return self._label(layer, argument, given[argument], entry)
            return entry
        if position == 0:
            if self.previous is None:
                self._problem(layer, f"{layer.name!r} has nothing before it to read", layer.place)
            return self.previous
        if argument in prop.label_arguments:
            self._problem(
                layer,
                f"{layer.operator} {layer.name!r} needs its {argument!r}",
                layer.place,
                expected=f"{argument}: the name of one of the network's inputs",
                hint=f"inputs: {', '.join(self.inputs)}",
            )
            return None
        name = f"{layer.name}_{argument}"
        if self._check_reserved(name, layer.name_place, layer.chain):
            return NodeEntry(Node("", place=layer.place))
        if argument in prop.list_data_arguments() and name not in self.declared:
            # As a parameter it would have the shape of the other tensors, batch included.
            hint = (
                f"name a layer or an input, {argument}: NAME, in a block also "
                f'{argument}: "${{input}}"; for a parameter, declare network.variables.{name}'
            )
            text = f"{layer.operator} {layer.name!r}: no tensor for {argument!r}"
            self._problem(
                layer, text, layer.place, hint=prop.data_argument_hints.get(argument, hint)
            )
            return None
        return NodeEntry(self._variable(name, layer.place))

    def _label(
        self, layer: LayerConfig, argument: str, marked: SourceNode, entry: NodeEntry
    ) -> NodeEntry | None:
        """Return the entry if it is an input of the network; labels come from data sets alone."""
        if entry.node.name in self.inputs:
            return entry
        self._problem(
            layer,
            f"{layer.operator} {layer.name!r} takes its {argument!r} from a network input",
            marked.place,
            expected=f"one of the network's inputs: {', '.join(self.inputs)}",
            got=repr(marked.plain()),
        )
        return None

    def _check_reserved(
        self, name: str, place: SourceLocation | None, chain: tuple[str, ...] = ()
    ) -> bool:
        """Return whether a name is reserved for an input that mxrun fills, and report it."""
        if name == SAMPLE_WEIGHT:
            text = f"the name {name!r} is reserved: mxrun has an input of this name"
            self.diagnostics.add(Diagnostic(text, place, hint="choose another name", chain=chain))
        return name == SAMPLE_WEIGHT

    def _variable(self, name: str, place: SourceLocation | None) -> Node:
        if name in self.declared:
            place = self.parsed.key_place("network", "variables", name)
        return self.variables.setdefault(name, Node(name, place=place))

    def _reference(
        self, layer: LayerConfig, argument: str, marked: SourceNode, learned: bool
    ) -> NodeEntry | None:
        reference = marked.value
        if not isinstance(reference, str):
            text = f"{layer.operator} {layer.name!r}: {argument} takes the name of a layer"
            fields = OPERATORS.get(layer.operator).parameter_type.model_fields
            hint = f"no_{argument}: true leaves it out" if f"no_{argument}" in fields else ""
            self._problem(layer, text, marked.place, "a name", repr(marked.plain()), hint=hint)
            return None
        hint = sharing_hint(argument, reference, self.variables) if learned else ""
        return self.resolve(reference, layer.scope, marked.place, layer.chain, layer, hint)

    def resolve(
        self,
        reference: str,
        scope: str,
        place: SourceLocation | None,
        chain: tuple[str, ...],
        layer: LayerConfig | None = None,
        hint: str = "",
    ) -> NodeEntry | None:
        """Return the entry of a reference: an output of a layer, an input, or a shared variable.

        hint: advice if nothing has this or a similar name.
        """
        found = self.names.resolve(reference, scope)
        if found is None and self._check_reserved(reference, place, chain):
            return None
        if found is None:
            if reference in self.variables or reference in self.declared:
                return NodeEntry(self._variable(reference, place))
            self.diagnostics.add(self._dangling(reference, place, chain, layer, hint))
            return None
        name, output = found
        if name not in self.nodes:
            self.diagnostics.add(self._within(name, place, chain))
            return None
        entry, node = self._output(name, output), self.nodes[name]
        visible = 1 if node.prop is None else node.prop.num_visible_outputs
        if entry is None and name in self.outputs:
            given = self.outputs[name]
            self.diagnostics.add(no_such_output(name, output, given, place, chain))
        elif name not in self.outputs and (isinstance(output, str) or output >= visible):
            self.diagnostics.add(hidden_output(node, output, place, chain))
            return None
        return entry

    def _within(
        self, name: str, place: SourceLocation | None, chain: tuple[str, ...]
    ) -> Diagnostic:
        """Describe a reference to a layer of a recurrence from outside."""
        recurrence = self.inside.get(name, name)
        return Diagnostic(
            f"{name!r} is within the recurrence {recurrence!r}",
            place,
            expected="a layer, an input or a variable outside",
            got=name,
            hint=f"add it to the outputs of {recurrence!r}, and read {recurrence}[0], ...",
            chain=chain,
        )

    def _dangling(
        self,
        reference: str,
        place: SourceLocation | None,
        chain: tuple[str, ...],
        layer: LayerConfig | None,
        advice: str,
    ) -> Diagnostic:
        name = reference.split("[", maxsplit=1)[0].lstrip("/")
        before = ""
        if self.recurrence and layer is not None:
            before = f"read what it was a step before by a memory of {self.recurrence!r}"
        if layer is not None and name in (layer.name, layer.name.rpartition("/")[2]):
            return Diagnostic(
                f"{layer.name!r} reads its own output: a cycle",
                place,
                hint=before or "a layer reads only layers before it",
                chain=chain,
            )
        within = f"{self.recurrence}/{name}"
        if later := self.later.get(within) or self.later.get(name):
            return Diagnostic(
                f"{reference!r} is defined later, at {later.name_place}: a cycle, "
                "or layers out of order",
                place,
                expected="a layer or input defined before",
                got=reference,
                hint=f"move that layer up{before and f', or {before}'}",
                chain=chain,
            )
        variables = [each for each in self.variables if each != SAMPLE_WEIGHT]
        known = [*self.names, *variables, *self.declared]
        hint = removal_hint(reference, layer.scope if layer else "", self.parsed.removed)
        hint = hint or self.suggestions.nearest(name, known) or advice
        hint = hint or f"known here: {listed(known)}"
        return Diagnostic(
            f"nothing is named {reference!r}",
            place,
            expected="a layer, an input or a variable defined before",
            got=reference,
            hint=hint,
            chain=chain,
        )

    def _problem(
        self,
        layer: LayerConfig,
        text: str,
        place: SourceLocation,
        expected: str = "",
        got: str = "",
        hint: str = "",
    ) -> None:
        self.diagnostics.add(Diagnostic(text, place, expected, got, hint=hint, chain=layer.chain))


def _numbered(layer: LayerConfig) -> dict[str, int]:
    """Return the arguments given as arg0, arg1, ..., each with its number."""
    matches = map(_NUMBERED.fullmatch, layer.parameters)
    return {match[0]: int(match[1]) for match in matches if match}


def _arguments_of_any(property_class: type[AnyProperty]) -> tuple[str, ...]:
    """Return arguments to accept while the parameters that decide them are invalid."""
    return ("data", "weight", "bias", "lhs", "rhs", *property_class.label_arguments)
