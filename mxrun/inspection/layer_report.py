"""Layers of a network: their shapes, parameters and operations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, field
from typing import Any

from mxrun.base.dataclass import dataclass
from mxrun.base.tensor import Shape
from mxrun.frontend import ModelDefinition
from mxrun.graph.node import NodeEntry
from mxrun.io.dataset.pixels import values_text
from mxrun.io.loading.batch import is_label
from mxrun.preparation.variables import trainable_elements
from mxrun.train.measure import figure_prefixes


@dataclass(frozen=True)
class LayerRow:
    """Row of the layer table; FLOPs are those of forward for a batch."""

    name: str
    operator: str
    output_shapes: tuple[Shape, ...]
    parameters: int
    flops: int


@dataclass(frozen=True)
class CheckReport:
    """Layers and totals of a valid config.

    trainable: elements that training changes; None if the config freezes none. carried: shapes of
    the states that carry values from each batch to the next, by name. values: how the numbers of
    training's records are read, where images are among them or could be. metrics: layer and label
    of each figure, if several layers are measured or metrics name theirs.
    """

    name: str
    batch_size: int
    rows: tuple[LayerRow, ...]
    parameters: int
    flops: int
    trainable: int | None
    carried: Mapping[str, Shape]
    values: str = ""
    metrics: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON; `frozen` counts the parameters that are not trainable."""
        frozen = 0 if self.trainable is None else self.parameters - self.trainable
        return {**asdict(self), "trainable": self.parameters - frozen, "frozen": frozen}


def check_report(built: ModelDefinition) -> CheckReport:
    """Return the layers and totals of a network."""
    rows = tuple(_layer_rows(built))
    return CheckReport(
        name=built.options.name,
        batch_size=built.options.data.batch_size,
        rows=rows,
        parameters=sum(row.parameters for row in rows),
        flops=sum(row.flops for row in rows),
        trainable=trainable_elements(built),
        carried={name: spec.shape for name, spec in built.model.carried.items()},
        values=_values(built),
        metrics=_metrics(built),
    )


def _metrics(built: ModelDefinition) -> dict[str, tuple[str, str]]:
    """Return layer and label of each figure; nothing if a single loss is all that is measured."""
    measured, kinds = built.model.measured, built.training.metrics
    if sum(layer.is_compared for layer in measured) < 2 and not built.model.layers:
        return {}
    return {
        f"{prefix}{kind.figure}": (layer.name, layer.label)
        for prefix, layer in zip(figure_prefixes(measured), measured, strict=True)
        for kind in layer.named(kinds)
        if not kind.why_unsupported(layer.measured)
    }


def _values(built: ModelDefinition) -> str:
    """Return how the numbers of training's records are read, as far as the config tells."""
    request = built.data.get("train")
    whites = None if request is None else request.format.whites(request.options)
    if whites is None:
        return ""
    records = built.model.records
    floats = [name for name, spec in records.items() if spec.dtype == "float32"]
    return values_text(whites, [n for n in floats if n in whites or not is_label(n)])


def _layer_rows(built: ModelDefinition) -> Iterator[LayerRow]:
    """Yield one row per operator; a shared parameter counts for its first reader."""
    model = built.model
    specs = model.parameters
    counted: set[str] = set()
    for node in model.symbol.nodes:
        if node.prop is None:
            continue
        names = [entry.name for entry in node.inputs if entry.name in specs]
        parameters = sum(specs[name].elements for name in names if name not in counted)
        counted.update(names)
        arguments = [model.inference.spec(entry).shape for entry in node.argument_entries()]
        outputs = [
            model.inference.spec(NodeEntry(node, index)).shape for index in range(node.num_outputs)
        ]
        yield LayerRow(
            name=node.name,
            operator=node.operator,
            output_shapes=tuple(outputs[: node.prop.num_visible_outputs]),
            parameters=parameters,
            flops=node.prop.flops(arguments, outputs),
        )
