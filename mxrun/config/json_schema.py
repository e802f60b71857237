"""JSON Schema of a config file, for editors, generated from the models that validate it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mxrun.base.params import NULL
from mxrun.config.layer_edits import CHANGE, INSERT_AFTER, INSERT_BEFORE, REMOVE, REPLACE
from mxrun.config.layers import IMPLEMENTATIONS
from mxrun.config.names import NAME, REFERENCE
from mxrun.config.schema import DatasetSection, Settings
from mxrun.config.section import sections_in

Schema = dict[str, Any]
Kinds = Mapping[str, Mapping[str, Any]]

_EXPRESSION: Schema = {
    "type": "string",
    "pattern": r"\$\{",
    "description": "Arithmetic, evaluated when the config is read.",
}
_OWN_LAYER_KEYS: Mapping[str, Schema] = {
    "name": {
        "type": "string",
        "description": "The layer's name; default: the operator's name in lower case and a number.",
    },
    "inputs": {
        "type": "array",
        "items": {"type": "string", "pattern": f"^{REFERENCE}$"},
        "description": "The layers whose outputs are the operator's tensors, by position.",
    },
    "implementation": {
        "enum": list(IMPLEMENTATIONS),
        "description": "The kernels to use; default: the config's.",
    },
    "fused": {
        "type": "boolean",
        "description": "Whether the layer may be fused with its neighbours into one operator; "
        "default: true.",
    },
}

_PARTS_BUILT_ELSEWHERE = (
    ("NetworkSection", "layers", "EditableLayers"),
    ("Variable", "init", "Initializer"),
    ("Train", "optimizer", "Optimizer"),
    ("Train", "initializer", "Initializer"),
)


def json_schema(
    operators: Kinds,
    datasets: Kinds,
    optimizers: Kinds,
    initializers: Kinds,
    metrics: Kinds,
    transforms: Kinds,
) -> Schema:
    """Return the JSON Schema of a config file.

    Every argument gives, by name, the schema of the parameters of one kind, without references: a
    `description`, the `properties`, each with a description, and the `required` ones. If Python
    strips docstrings (`-OO`), the descriptions of kinds and sections are empty.
    """
    schema = Settings.model_json_schema()
    definitions = schema["$defs"]
    definitions["Train"]["properties"]["metrics"]["anyOf"][0]["items"] = {"$ref": "#/$defs/Metric"}
    for model in set(sections_in(Settings)):
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
            free["path"] = {**free["path"], "type": ["string", "null"]}
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
    layers = {"$ref": "#/$defs/Layers"}
    editable = {"$ref": "#/$defs/EditableLayers"}
    one_layer = {
        "type": "object",
        "description": "An operator, a block or repeat, with its parameters.",
        "minProperties": 1,
        "maxProperties": 1,
        "properties": {
            **{name: _operator(parameters) for name, parameters in operators.items()},
            "repeat": {"$ref": "#/$defs/Repeat"},
        },
        "additionalProperties": {
            "type": ["object", "null"],
            "description": "A block defined in `blocks:`, with its parameters.",
        },
    }
    bare = {"type": "string", "description": "An operator or block without parameters."}
    count = {"type": "integer", "minimum": 0, "description": "Number of repetitions."}
    parameters = {
        "type": ["object", "null"],
        "description": "The parameters and their defaults; null: must be given.",
    }
    return {
        "Layers": {
            "type": "array",
            "description": "The layers, in order; each takes the previous one's output as its "
            "first tensor.",
            "minItems": 1,
            "items": {"$ref": "#/$defs/Layer"},
        },
        "Layer": {"description": "A layer.", "anyOf": [bare, one_layer]},
        "EditableLayers": {
            "description": "The layers, or edits of the layers of an extended config.",
            "anyOf": [layers, {"$ref": "#/$defs/LayerEdits"}],
        },
        "LayerEdits": _layer_edits(),
        "Repeat": {
            "type": "object",
            "description": "Layers repeated; ${i} counts from 0.",
            "properties": {"count": _with_expressions(count), "layers": layers},
            "required": ["count", "layers"],
            "additionalProperties": False,
        },
        "Block": {
            "type": "object",
            "description": "A parameterised group of layers, used like an operator.",
            "properties": {"parameters": parameters, "layers": editable},
            "required": ["layers"],
            "additionalProperties": False,
        },
    }


def _layer_edits() -> Schema:
    """Return the schema of the edits of the layers of an extended config."""
    layer, layers = {"$ref": "#/$defs/Layer"}, {"$ref": "#/$defs/Layers"}
    kinds: Mapping[str, tuple[str, Schema]] = {
        CHANGE: (
            "Parameters that replace those of the layer, or of the use of a block, of that name.",
            {
                "type": ["object", "null"],
                "description": "The layer's new parameters; it keeps all others.",
            },
        ),
        REPLACE: (
            "The layer that stands in the place of the one of that name, and keeps the name; or "
            "several, whose names then begin with it.",
            {"anyOf": [layer, layers]},
        ),
        INSERT_BEFORE: ("Layers inserted before the layer of that name.", layers),
        INSERT_AFTER: ("Layers inserted after the layer of that name.", layers),
    }
    by_name: Schema = {
        kind: {"type": "object", "description": text, "additionalProperties": edit}
        for kind, (text, edit) in kinds.items()
    }
    names = {"type": "string", "description": "The name of a layer or block."}
    removed = {
        "type": "array",
        "description": "Names of layers that are left out; what read one by order reads the layer "
        "before it.",
        "items": names,
    }
    return {
        "type": "object",
        "description": "Edits of the layers of the config that this one extends, by their names "
        "there.",
        "properties": {**by_name, REMOVE: removed},
        "additionalProperties": False,
    }


def _operator(kind: Mapping[str, Any]) -> Schema:
    parameters = _parameters(kind)
    parameters["properties"] |= _OWN_LAYER_KEYS
    parameters["additionalProperties"] = {
        "type": "string",
        "description": "A tensor argument: the name of a layer, an input or a variable.",
    }
    return parameters


def _file_keys() -> Schema:
    return {
        "extends": {
            "type": "string",
            "description": "Another config over which this one is merged: a file, relative to this "
            "one, or the name of a bundled config. Its name is not inherited, and its layers can "
            "be edited by name (network.layers).",
        },
        "blocks": {
            "type": "object",
            "description": "Parameterised groups of layers, used like operators; in their layers "
            "${parameter} is a parameter's value, and ${input} the tensor that the block is "
            "applied to: the previous layer, or that in `inputs: [name]` where the block is used.",
            "propertyNames": {"pattern": f"^{NAME}$"},
            "additionalProperties": {"$ref": "#/$defs/Block"},
        },
    }


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
