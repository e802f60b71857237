"""Implementation of `ops`: descriptions of registered operators.

The inputs and outputs of an operator depend on its parameters, so each is described with example
parameters: the first of the `examples` of every field that has some, over the defaults.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from mxrun.base.description import describe_field
from mxrun.base.docstrings import docstring
from mxrun.base.errors import Diagnostic, Diagnostics, SourceLocation, UserError
from mxrun.base.tensor import PartialShape, Shape, TensorSpec
from mxrun.config.dump import dump
from mxrun.config.load import load_text
from mxrun.config.marked import SourceNode
from mxrun.config.sources import COMMAND_LINE
from mxrun.io.loading.batch import SAMPLE_WEIGHT
from mxrun.operator.optimizer import OPTIMIZERS
from mxrun.operator.property import GradientKind, PartialShapes, ResourceRequest
from mxrun.operator.register import (
    OPERATORS,
    AnyProperty,
    create,
    implementations,
    list_operators,
)
from mxrun.operator.shape import ShapeContradiction, is_known, require_complete
from mxrun.preparation.plugins import named_operator

_BATCH = 4
# Sample shapes of an input, tried in order until all shapes are known; square ones fit products.
_SAMPLES: tuple[Shape, ...] = ((4,), (4, 4), (3, 8, 8), (3, 8, 8, 8), ())
# MXNet's names of learned arguments; a layer creates variables for them.
_LEARNED = frozenset({"weight", "bias", "gamma", "beta", "parameters"})
# Parameters by which an optimizer selects its update operator.
_SELECTING: tuple[Mapping[str, Any], ...] = (
    {},
    {"momentum": 0.9},
    {"momentum": 0.0},
    {"centered": True},
)
_EXAMPLE_PLACE = SourceLocation("<example>", 1, 1)

Description = dict[str, Any]


def operators() -> list[Description]:
    """Return name and summary of every operator that a network may use, in alphabetical order."""
    return [_summary(example(name)) for name in list_operators()]


def operator(name: str, settings: Sequence[str] = ()) -> Description:
    """Describe one operator, by name, alias or FILE:NAME, with `KEY=VALUE` parameters.

    Raises UserError for an unknown operator, with the nearest names, for a file that cannot be
    loaded and for invalid parameters.
    """
    prop = example(named_operator(name), settings)
    arguments, outputs = prop.list_arguments(), prop.list_outputs()
    shapes = _example_shapes(prop)
    return {
        **_summary(prop),
        "doc": docstring(type(prop)),
        "example": {key: _plain(getattr(prop.parameters, key)) for key in _set_parameters(prop)},
        "arguments": [
            {"name": argument, "gradient": kind.value}
            for argument, kind in zip(arguments, prop.list_gradients(), strict=True)
        ],
        "outputs": [
            {"name": output, "visible": index < prop.num_visible_outputs}
            for index, output in enumerate(outputs)
        ],
        "auxiliary_states": list(prop.list_auxiliary_states()),
        "state_updates": [
            {"state": update.state, "output": update.output, "momentum": update.momentum}
            for update in prop.list_state_updates()
        ],
        "carried_states": [
            {"state": carried.state, "value": carried.value}
            for carried in prop.list_carried_states()
        ],
        "overwrites": {
            arguments[source]: outputs[target]
            for source, target in prop.list_mutated_inputs().items()
        },
        "parameters": _parameters(prop),
        "inplace": _inplace(prop),
        "backward_reads": _backward_reads(prop),
        "nonstandard_gradient": prop.nonstandard_gradient,
        "resources": {} if shapes is None else _resources(prop, shapes),
        "yaml": _yaml(prop, shapes),
    }


def _read_settings(settings: Sequence[str]) -> dict[str, Any]:
    """Parse the parameters of `KEY=VALUE` arguments; values are YAML."""
    values: dict[str, Any] = {}
    diagnostics = Diagnostics()
    for number, text in enumerate(settings, 1):
        key, equals, value = text.partition("=")
        if not key or not equals:
            place = SourceLocation(COMMAND_LINE, number, 1)
            diagnostics.add(Diagnostic("not a parameter", place, "KEY=VALUE", repr(text)))
            continue
        start = SourceLocation(COMMAND_LINE, number, len(key) + 2)
        values[key] = load_text(value, start, diagnostics).plain()
    if diagnostics:
        raise UserError(diagnostics)
    return values


def example(name: str, settings: Sequence[str] = ()) -> AnyProperty:
    """Return the operator with its example parameters, replaced by `KEY=VALUE` settings.

    Raises UserError for an unknown operator and for invalid parameters.
    """
    fields = OPERATORS.get(name).parameter_type.model_fields
    examples = {key: field.examples[0] for key, field in fields.items() if field.examples}
    return create(name, {**examples, **_read_settings(settings)})


def _summary(prop: AnyProperty) -> Description:
    name = prop.type_string
    return {
        "name": name,
        "aliases": list(OPERATORS.aliases(name)),
        "summary": _first_sentence(docstring(type(prop))),
        "backends": [*implementations(name), "numpy"],
        "differentiable": GradientKind.COMPUTES in prop.list_gradients(),
    }


def _first_sentence(doc: str) -> str:
    """Return the text up to the first full stop before a capital letter, on one line."""
    text = " ".join(doc.partition("\n\n")[0].split())
    return re.split(r"\.\s+(?=[A-Z])", text)[0].rstrip(".")


def _set_parameters(prop: AnyProperty) -> list[str]:
    """Return the names of the set parameters, in order of declaration."""
    given = prop.parameters.model_fields_set
    return [key for key in prop.parameter_type.model_fields if key in given]


def _parameters(prop: AnyProperty) -> list[Description]:
    return [
        {
            "name": name,
            "accepts": describe_field(field),
            "required": field.is_required(),
            "default": None if field.is_required() else _plain(field.get_default()),
            "doc": field.description or "",
        }
        for name, field in prop.parameter_type.model_fields.items()
    ]


def _tensor_names(prop: AnyProperty) -> tuple[list[str], list[str], list[str], list[str]]:
    """Return the names that hints and dependencies use: out_grad, in_data, out_data, in_grad."""
    arguments, outputs = prop.list_arguments(), prop.list_outputs()
    return (
        [f"gradient of {name}" for name in outputs],
        list(arguments),
        list(outputs),
        [f"gradient of {name}" for name in arguments],
    )


def _is_differentiable(prop: AnyProperty) -> bool:
    return GradientKind.COMPUTES in prop.list_gradients()


def _backward_reads(prop: AnyProperty) -> list[str]:
    if not _is_differentiable(prop):
        return []
    return prop.declare_backward_dependency(*_tensor_names(prop)[:3])


def _inplace(prop: AnyProperty) -> dict[str, list[list[str]]]:
    """Return the pairs [from, to] that may share memory."""
    out_grad, in_data, out_data, in_grad = _tensor_names(prop)
    forward = prop.forward_inplace_option(in_data, out_data)
    backward = []
    if _is_differentiable(prop):
        backward = prop.backward_inplace_option(out_grad, in_data, out_data, in_grad)
    return {"forward": [list(pair) for pair in forward], "backward": [list(p) for p in backward]}


Shapes = dict[str, Shape]


def _example_shapes(prop: AnyProperty) -> Shapes | None:
    """Return shapes of all arguments inferred from one of the samples, or None.

    Only wired arguments get a shape: those of the property's example, or the first of them the
    sample's, the others none, the sample's too, or that of one number for each record, as an index.
    """
    names = prop.list_arguments()
    wired = [name for name in names if name not in _LEARNED and name not in prop.label_arguments]
    for sample in _SAMPLES:
        shape = (_BATCH, *sample)
        first = dict.fromkeys(wired[:1], shape)
        own = dict(zip(names, prop.example_shapes(shape), strict=False))
        same, indices = dict.fromkeys(wired, shape), dict.fromkeys(wired, (_BATCH,)) | first
        for given in (own, first, same, indices):
            shapes = _infer(prop, [given.get(name) for name in names])
            if all(is_known(shape) for shape in shapes):
                return {
                    name: require_complete(shape) for name, shape in zip(names, shapes, strict=True)
                }
    return None


def _infer(prop: AnyProperty, inputs: PartialShapes) -> list[PartialShape]:
    """Return the arguments' shapes; [None] if they contradict or an output is unknown."""
    try:
        inputs, outputs = _inferred(prop, inputs)
    except ShapeContradiction:
        return [None]
    return inputs if all(is_known(shape) for shape in outputs) else [None]


def _inferred(prop: AnyProperty, inputs: PartialShapes) -> tuple[PartialShapes, PartialShapes]:
    """Return what is known of the shapes of arguments and outputs."""
    outputs: PartialShapes = [None] * len(prop.list_outputs())
    for _ in prop.list_arguments():
        inferred = prop.infer_shape(inputs, outputs)
        inputs, outputs = inferred.inputs, inferred.outputs
    return inputs, outputs


def _resources(prop: AnyProperty, shapes: Shapes) -> Description:
    """Return the resources that forward and backward request for example shapes."""
    unknown_outputs: list[str | None] = [None] * len(prop.list_outputs())
    types, _ = prop.infer_type([None] * len(shapes), unknown_outputs)
    specs = [
        TensorSpec(shape, dtype or "float32")
        for shape, dtype in zip(shapes.values(), types, strict=True)
    ]
    backward = prop.backward_resource(specs) if _is_differentiable(prop) else []
    return {
        "shapes": {name: list(shape) for name, shape in shapes.items()},
        "forward": [_request(request) for request in prop.forward_resource(specs)],
        "backward": [_request(request) for request in backward],
    }


def _request(request: ResourceRequest) -> Description:
    return {"kind": request.kind.value, "bytes": request.nbytes}


def _yaml(prop: AnyProperty, shapes: Shapes | None) -> str:
    """Return the lines of a config that use the operator; empty if a config cannot."""
    if prop.list_mutated_inputs():
        return _optimizer_yaml(prop.type_string)
    return "" if shapes is None else _network_yaml(prop, shapes)


def _network_yaml(prop: AnyProperty, shapes: Shapes) -> str:
    """Return inputs and the layer; arguments without a batch axis are variables of the layer.

    Those whose shape does not follow from the inputs are declared.
    """
    body: Description = {
        key: _plain(getattr(prop.parameters, key))
        for key in _set_parameters(prop)
        if key != f"use_{SAMPLE_WEIGHT}"
    }
    wired = [
        name
        for name, shape in shapes.items()
        if name not in _LEARNED and name != SAMPLE_WEIGHT and shape[:1] == (_BATCH,)
    ]
    inputs = {name: list(shapes[name][1:]) for name in wired}
    arguments = list(shapes)
    if len(wired) > 1 and wired == arguments[: len(wired)] and not prop.label_arguments:
        body["inputs"] = wired
    else:
        body.update((name, name) for name in wired[1:])
    network: Description = {"inputs": inputs}
    found, _ = _inferred(prop, [shapes[name] if name in wired else None for name in arguments])
    if unsized := [
        name for name, shape in zip(arguments, found, strict=True) if not is_known(shape)
    ]:
        body = {"name": "example", **body}
        network["variables"] = {
            f"example_{name}": {"shape": list(shapes[name])} for name in unsized
        }
    layers = [{prop.type_string: body} if body else prop.type_string]
    return (
        dump(_marked({"network": network}))
        + "  layers:\n"
        + textwrap.indent(dump(_marked(layers)), " " * 4)
    )


def _optimizer_yaml(update: str) -> str:
    """Return the optimizer that uses the update; of several, the one with its name."""
    for name in sorted(OPTIMIZERS, key=lambda name: (not update.startswith(name), name)):
        kind = OPTIMIZERS.get(name)
        for selecting in _SELECTING:
            parameters = {"lr": 0.1, **selecting}
            if parameters.keys() <= kind.model_fields.keys() and (
                kind(**parameters).operator()[0] == update
            ):
                return dump(_marked({"train": {"optimizer": {name: parameters}}}))
    return ""


def _plain(value: Any) -> Any:
    """Return the value with tuples converted to lists, as in YAML and JSON."""
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _marked(value: Any) -> SourceNode:
    if isinstance(value, Mapping):
        return SourceNode({key: _marked(part) for key, part in value.items()}, _EXAMPLE_PLACE)
    if isinstance(value, list):
        return SourceNode(tuple(map(_marked, value)), _EXAMPLE_PLACE)
    return SourceNode(value, _EXAMPLE_PLACE)
