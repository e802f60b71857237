"""Form of the configs of the part `batches`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Config = dict[str, Any]
Options = Mapping[str, Any]

BATCH = 8
# Shuffled unless a case says otherwise: 77 records are 10 batches, two epochs 20.
SHUFFLED = {"shuffle": True}
TABLE = {"data": "float32 6", "label": "int32"}
IMAGE = {"data": "float32 3 16 16", "label": "int32"}
GREY = {"data": "float32 1 16 16", "label": "int32"}
SMALL = {"data": "float32 3 12 10", "label": "int32"}
TEXT = {"data": "int32 12", "label": "int32 12"}
LINES = {"data": "int32 10", "mask": "float32 10", "lengths": "int32", "label": "int32"}
# Images of all sizes become those of IMAGE.
FIT: Sequence[Any] = ({"resize": {"size": [16, 16]}},)


def case(
    inputs: Mapping[str, str],
    dataset: str,
    evaluate: Options | None = None,
    section: Options | None = None,
    outputs: int = 3,
    **options: Any,
) -> Config:
    """Config whose network reads the inputs, {name: "dtype shape"}, in the operator `seen`.

    Options are those of `data.train`, `evaluate` those of `data.eval`, `section` keys of `data`.
    """
    parts = {name: each.split() for name, each in inputs.items()}
    shapes = {name: [int(size) for size in shape] for name, (_, *shape) in parts.items()}
    types = " ".join(dtype for dtype, *_ in parts.values())
    layers: list[Config] = [{"seen": {"types": types, "inputs": list(parts)}}]
    if parts["data"][0] == "int32":
        layers += [{"Embedding": {"input_dim": 300, "output_dim": 4}}, {"mean": {"axis": 1}}]
    layers.append({"FullyConnected": {"num_hidden": outputs}})
    is_class = parts.get("label") == ["int32"]
    layers.append({"SoftmaxOutput": {"label": "label"}} if is_class else {"MakeLoss": {}})
    train = {"dataset": dataset, **SHUFFLED, **options}
    data: Config = {"batch_size": BATCH, "train": train, **(section or {})}
    if evaluate is not None:
        data["eval"] = {"dataset": dataset, **evaluate}
    return {
        "network": {"inputs": shapes, "layers": layers},
        "data": data,
        "train": {"epochs": 2, "optimizer": {"sgd": {"lr": 0.001}}},
    }
