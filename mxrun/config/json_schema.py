"""JSON Schema of a config file, for editors, generated from the models that validate it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core.core_schema import ModelSchema

from mxrun.base.docstrings import docstring
from mxrun.base.params import NULL
from mxrun.config.data import DatasetSection
from mxrun.config.file_keys import (
    BlockKeys,
    FileKeys,
    LayerEditKeys,
    LayerKeys,
    MemoryKeys,
    RecurrentKeys,
    RepeatKeys,
)
from mxrun.config.layer_edits import CHANGE, INSERT_AFTER, INSERT_BEFORE, REMOVE, REPLACE
from mxrun.config.names import NAME
from mxrun.config.run_config import RunConfig
from mxrun.config.section import Section, sections_in

Schema = dict[str, Any]
Kinds = Mapping[str, Mapping[str, Any]]

_EXPRESSION: Schema = {
    "type": "string",
    "pattern": r"\$\{",
    "description": "Arithmetic, evaluated when the config is read.",
}
_PARTS_BUILT_ELSEWHERE = (
    ("NetworkSection", "layers", "EditableLayers"),
    ("VariableSection", "init", "Initializer"),
    ("Train", "optimizer", "Optimizer"),
    ("Train", "schedule", "Schedule"),
    ("Train", "initializer", "Initializer"),
)


class _SchemaGenerator(GenerateJsonSchema):
    """Generator of schemas with the models' docstrings, also if the interpreter strips them."""

    def model_schema(self, schema: ModelSchema) -> Schema:
        docstring(schema["cls"])
        return super().model_schema(schema)


def model_schema(model: type[BaseModel]) -> Schema:
    """Return the JSON Schema of a model, with its docstring as the description."""
    return model.model_json_schema(schema_generator=_SchemaGenerator)


def json_schema(
    operators: Kinds,
    datasets: Kinds,
    optimizers: Kinds,
    schedules: Kinds,
    initializers: Kinds,
    metrics: Kinds,
    transforms: Kinds,
) -> Schema:
    """Return the JSON Schema of a config file.

    Every argument gives, by name, the schema of the parameters of one kind, without references: a
    `description`, the `properties`, each with a description, and the `required` ones.
    """
    schema = model_schema(RunConfig)
    definitions = schema["$defs"]
    definitions["Train"]["properties"]["metrics"]["anyOf"][0]["items"] = {"$ref": "#/$defs/Metric"}
    for model in set(sections_in(RunConfig)):
        definitions[model.__name__] = _section(definitions[model.__name__])
    definitions["DatasetSection"]["properties"]["transforms"] = {
        "type": "array",
        "description": DatasetSection.model_fields["transforms"].description,
        "items": {"$ref": "#/$defs/Transform"},
    }
    for section, key, kind in _PARTS_BUILT_ELSEWHERE:
        description = definitions[section]["properties"][key]["description"]
        part = {"$ref": f"#/$defs/{kind}", "description": description}
        definitions[section]["properties"][key] = part
    definitions["Optimizer"] = _choice(
        "The optimiser: how gradients change parameters.", optimizers
    )
    definitions["Schedule"] = _choice("The learning-rate schedule over the steps.", schedules)
    definitions["Initializer"] = _choice("The initial values of parameters.", initializers)
    definitions["Metric"] = _choice("A metric, measured besides the loss.", metrics)
    definitions["Transform"] = _choice("A transform of a record.", transforms)
    definitions["DatasetSection"] = _dataset(definitions["DatasetSection"], datasets)
    definitions |= _layer_definitions(operators)
    properties = {**_file_keys(), **schema["properties"]}
    complete = ["network", "data", "train"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "mxrun config",
        "description": schema.get("description", ""),
        "type": "object",
        "properties": {key: _with_expressions(part) for key, part in properties.items()},
        "additionalProperties": False,
        "anyOf": [{"required": ["extends"]}, {"required": complete}],
        "$defs": definitions,
    }


def _section(schema: Schema) -> Schema:
    """Return a section's schema without required keys, which another file of `extends:` may
    provide.
    """
    properties = {key: _with_expressions(part) for key, part in schema["properties"].items()}
    left_out = ("required", "title")
    kept = {key: part for key, part in schema.items() if key not in left_out}
    return {**kept, "properties": properties}


def _choice(description: str, kinds: Kinds) -> Schema:
    one = {
        "type": "object",
        "description": "One of these with its parameters.",
        "minProperties": 1,
        "maxProperties": 1,
        "properties": {name: _parameters(kind) for name, kind in kinds.items()},
        "additionalProperties": False,
    }
    names = {"enum": sorted(kinds), "description": "One of these with its default parameters."}
    return {"description": description, "anyOf": [names, one]}


def _parameters(kind: Mapping[str, Any]) -> Schema:
    """Return the schema of a kind's parameters; if none is required, null is allowed."""
    free = {key: _with_expressions(part) for key, part in kind["properties"].items()}
    parameters: Schema = {
        "type": "object" if kind.get("required") else ["object", "null"],
        "description": kind.get("description", ""),
        "properties": free,
        "additionalProperties": False,
    }
    if kind.get("required"):
        parameters["required"] = list(kind["required"])
    return parameters


def _dataset(schema: Schema, datasets: Kinds) -> Schema:
    own = {key: schema["properties"][key] for key in sorted(DatasetSection.OWN_KEYS)}
    kinds = []
    for name, options in datasets.items():
        free = {key: _with_expressions(part) for key, part in options["properties"].items()}
        if "path" in free:
            # Null: the path is given later, on the command line.
            free["path"] = _or_null(free["path"])
        named = {**own["dataset"], "const": name}
        kinds.append(
            {
                "type": "object",
                "description": options.get("description", ""),
                "properties": {**own, "dataset": named, **free},
                "additionalProperties": False,
            }
        )
    return {"description": schema.get("description", ""), "anyOf": kinds}


def _layer_definitions(operators: Kinds) -> Schema:
    own = _properties(LayerKeys)
    layers, edits = {"$ref": "#/$defs/Layers"}, {"$ref": "#/$defs/LayerEdits"}
    recurrent = {key: value for key, value in own.items() if key == "name"}
    recurrent |= _properties(RecurrentKeys)
    parameters = _properties(BlockKeys)["parameters"]["description"]
    block = {
        "parameters": {"type": ["object", "null"], "description": parameters},
        "layers": {"$ref": "#/$defs/EditableLayers"},
    }
    return {
        "Layers": {
            "type": "array",
            "description": "The layers, in order; each takes the previous one's output as its "
            "first tensor.",
            "minItems": 1,
            "items": {"$ref": "#/$defs/Layer"},
        },
        "Layer": _layer(operators, own),
        "EditableLayers": {
            "description": "The layers, or edits of the layers of an extended config.",
            "anyOf": [layers, edits],
        },
        "LayerEdits": _layer_edits(),
        "Repeat": _closed(
            RepeatKeys, {**_properties(RepeatKeys), "layers": layers}, ["count", "layers"]
        ),
        "Recurrent": _closed(RecurrentKeys, {**recurrent, "layers": layers}, ["layers"]),
        "MemoryKeys": _closed(MemoryKeys, _properties(MemoryKeys), ["layer"]),
        "Block": _closed(BlockKeys, block, ["layers"]),
    }


def _layer(operators: Kinds, own: Schema) -> Schema:
    """Return the schema of one layer; `own` are the keys that every layer has."""
    bare = {"type": "string", "description": "An operator or block without parameters."}
    one_layer = {
        "type": "object",
        "description": "An operator, a block, repeat or recurrent, with its parameters.",
        "minProperties": 1,
        "maxProperties": 1,
        "properties": {
            **{name: _operator(parameters, own) for name, parameters in operators.items()},
            "repeat": {"$ref": "#/$defs/Repeat"},
            "recurrent": {"$ref": "#/$defs/Recurrent"},
        },
        "additionalProperties": {
            "type": ["object", "null"],
            "description": "A block defined in `blocks:`, with its parameters.",
        },
    }
    return {"description": "A layer.", "anyOf": [bare, one_layer]}


def _closed(section: type[Section], properties: Schema, required: list[str]) -> Schema:
    """Return the schema of an object with no other keys, described by its section."""
    return {
        "type": "object",
        "description": docstring(section),
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _layer_edits() -> Schema:
    layer, layers = {"$ref": "#/$defs/Layer"}, {"$ref": "#/$defs/Layers"}
    changed = {
        "type": ["object", "null"],
        "description": "The new parameters of the layer; it keeps all others.",
    }
    edits = {CHANGE: changed, REPLACE: {"anyOf": [layer, layers]}}
    edits |= {INSERT_BEFORE: layers, INSERT_AFTER: layers}
    properties = _properties(LayerEditKeys)
    by_layer = {
        kind: {
            "type": "object",
            "description": properties[kind]["description"],
            "additionalProperties": edit,
        }
        for kind, edit in edits.items()
    }
    names = {"type": "string", "description": "The name of a layer or block."}
    return {
        "type": "object",
        "description": docstring(LayerEditKeys),
        "properties": {
            **by_layer,
            REMOVE: {
                "type": "array",
                "description": properties[REMOVE]["description"],
                "items": names,
            },
        },
        "additionalProperties": False,
    }


def _operator(kind: Mapping[str, Any], own: Schema) -> Schema:
    """Return the schema of a layer; `own` are the keys that every layer has."""
    parameters = _parameters(kind)
    parameters["properties"] |= own
    parameters["additionalProperties"] = {
        "type": "string",
        "description": "A tensor argument: the name of a layer, an input or a variable.",
    }
    return parameters


def _file_keys() -> Schema:
    keys = _properties(FileKeys)
    blocks = {
        "type": "object",
        "description": keys["blocks"]["description"],
        "propertyNames": {"pattern": f"^{NAME}$"},
        "additionalProperties": {"$ref": "#/$defs/Block"},
    }
    return {**keys, "blocks": blocks}


def _properties(model: type[Section]) -> Schema:
    """Return the schemas of a model's keys; an optional key is left out, not null."""
    return {
        key: _with_expressions(_without_null(part))
        for key, part in model_schema(model)["properties"].items()
    }


def _without_null(schema: Mapping[str, Any]) -> Schema:
    members = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    if len(members) != 1:
        return dict(schema)
    kept = {key: part for key, part in schema.items() if key not in ("anyOf", "default", "title")}
    return {**members[0], **kept}


def _with_expressions(schema: Mapping[str, Any]) -> Schema:
    """Return `schema` with an expression allowed for every value that is not free text."""
    outer = {key: schema[key] for key in ("description", "default") if key in schema}
    inner = {key: part for key, part in schema.items() if key not in (*outer, "title")}
    for key in ("items", "additionalProperties"):
        if isinstance(inner.get(key), Mapping):
            inner[key] = _with_expressions(inner[key])
    for key in ("properties", "patternProperties"):
        if key in inner:
            inner[key] = {name: _with_expressions(part) for name, part in inner[key].items()}
    if "prefixItems" in inner:
        inner["prefixItems"] = [_with_expressions(part) for part in inner["prefixItems"]]
    if "anyOf" in inner:
        parts = [_with_expressions(part) for part in inner["anyOf"]]
        choices = [choice for part in parts for choice in part.get("anyOf", [part])]
        unique = [choice for at, choice in enumerate(choices) if choice not in choices[:at]]
        return {**inner, "anyOf": unique, **outer}
    if NULL in inner.get("enum", ()):
        # An unquoted null is parsed as YAML's null.
        inner["enum"] = [*inner["enum"], None]
        inner.pop("type", None)
    is_value = "enum" in inner or inner.get("type") in ("integer", "number", "boolean", "array")
    return {"anyOf": [inner, _EXPRESSION], **outer} if is_value else {**inner, **outer}


def _or_null(path: Schema) -> Schema:
    """Return the schema of a path, one or a list, that may also be null."""
    if "anyOf" in path:
        return {**path, "anyOf": [*path["anyOf"], {"type": "null"}]}
    return {**path, "type": ["string", "null"]}
