"""JSON Schema of configs: every field, with the options of operators, data sets and the others."""

import json
from typing import Any

from mxrun.config import json_schema
from mxrun.config.data import DatasetSection


def schemas_without_description(schema: Any, path: str) -> list[str]:
    """Return the paths of properties without a description, their own or that of a reference."""
    found = []
    if isinstance(schema, dict):
        for key, part in schema.get("properties", {}).items():
            if "description" not in part and "$ref" not in part:
                found.append(f"{path}.{key}")
        for key, part in schema.items():
            found += schemas_without_description(part, f"{path}.{key}")
    elif isinstance(schema, list):
        for part in schema:
            found += schemas_without_description(part, path)
    return found


def test_P15_the_json_schema_describes_every_field() -> None:
    described = {"description": "A number."}
    integer = {"type": "integer", **described}
    norm = {"enum": ["null", "batch"], "type": "string", "description": "What divides."}
    operators = {
        "A": {
            "description": "An A.",
            "properties": {"x": integer, "norm": norm},
            "required": ["x"],
        },
        "B": {"description": "A B.", "properties": {}},
    }
    text = {"type": "string", "description": "A folder."}
    datasets = {"mnist": {"description": "Digits.", "properties": {"path": text}}}
    sgd = {"description": "Descent.", "properties": {"lr": {"type": "number", **described}}}
    constant = {"description": "C.", "properties": {"value": integer}, "required": ["value"]}
    flip = {"description": "Mirror.", "properties": {"probability": integer}}
    schema = json_schema(
        operators,
        datasets,
        {"sgd": sgd},
        {"cosine": {"description": "C.", "properties": {"final": integer}}},
        {"constant": constant},
        {"top_k": {"description": "T.", "properties": {"k": integer}}},
        {"flip": flip},
    )
    assert json.loads(json.dumps(schema)) == schema
    assert schemas_without_description(schema, "") == []
    for name, definition in schema["$defs"].items():
        assert definition["description"], name
    text = json.dumps(schema)
    for reference in {part.split('"')[0] for part in text.split('"#/$defs/')[1:]}:
        assert reference in schema["$defs"]
    layer = schema["$defs"]["Layer"]["anyOf"][1]["properties"]
    assert layer["A"]["required"] == ["x"]
    assert layer["A"]["properties"]["x"]["anyOf"][0] == {"type": "integer"}
    assert layer["A"]["properties"]["norm"]["anyOf"][0] == {"enum": ["null", "batch", None]}
    assert set(layer) == {"A", "B", "repeat", "recurrent"}
    assert layer["A"]["additionalProperties"]["type"] == "string"
    assert layer["B"]["type"] == ["object", "null"]
    initializers = schema["$defs"]["Initializer"]["anyOf"]
    assert initializers[0]["enum"] == ["constant"]
    assert initializers[1]["properties"]["constant"]["required"] == ["value"]
    train = schema["$defs"]["Train"]["properties"]
    assert train["initializer"]["$ref"] == "#/$defs/Initializer"
    assert train["schedule"]["$ref"] == "#/$defs/Schedule"
    assert schema["$defs"]["Schedule"]["anyOf"][0]["enum"] == ["cosine"]
    assert {"name", "inputs", "implementation", "precision", "fused"} <= set(
        layer["A"]["properties"]
    )
    metrics = train["metrics"]["anyOf"][0]["items"]
    assert metrics == {"$ref": "#/$defs/Metric"}
    assert schema["$defs"]["Metric"]["anyOf"][0]["enum"] == ["top_k"]
    assert schema["$defs"]["CheckpointSection"]["properties"]["every"]["default"] == "1 epoch"
    (digits,) = schema["$defs"]["DatasetSection"]["anyOf"]
    assert set(digits["properties"]) == {*DatasetSection.OWN_KEYS, "path"}
    assert digits["properties"]["path"]["type"] == ["string", "null"]
    assert digits["properties"]["transforms"]["items"] == {"$ref": "#/$defs/Transform"}
    assert (
        "probability"
        in schema["$defs"]["Transform"]["anyOf"][1]["properties"]["flip"]["properties"]
    )
    assert set(schema["properties"]) >= {"name", "extends", "blocks", "network", "data", "train"}


def test_the_json_schema_knows_that_a_split_may_be_its_name() -> None:
    text = {"type": "string", "description": "A folder."}
    datasets = {"mnist": {"description": "Digits.", "properties": {"path": text}}}
    (section,) = json_schema({}, datasets, {}, {}, {}, {}, {})["$defs"]["DatasetSection"]["anyOf"]
    split = section["properties"]["split"]["anyOf"]
    assert split[0] == {"type": "string", "minLength": 1}
