"""Implementation of `plot`: data of a network's graph, or of a run's learning curves."""

from __future__ import annotations

import json
import math
import os.path
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mxrun import library
from mxrun.base.errors import Diagnostic, SourceLocation, UserError
from mxrun.base.tensor import PartialShape
from mxrun.commands.ops import example
from mxrun.config.bundled import bundled_configs, find_config
from mxrun.graph.node import Node, NodeEntry
from mxrun.operator.register import OPERATORS, AnyProperty
from mxrun.session.planning import load
from mxrun.session.saved_summary import is_count, is_number
from mxrun.session.synthetic_data import synthetic_notes

_METRICS = "metrics.jsonl"
_OF_A_RUN = (_METRICS, "config.yaml")

Report = dict[str, Any]
Shapes = Mapping[NodeEntry, PartialShape]


def plot(target: str, settings: Sequence[str] = ()) -> Report:
    """Return the data to plot of a run's folder, a config or an operator; `kind` names the plot.

    Raises UserError if `target` is none of these, or if `settings` are not supported for it.
    """
    folder = Path(target)
    if os.path.isdir(target) and any((folder / name).is_file() for name in _OF_A_RUN):
        if settings:
            hint = f"mxrun plot {folder / 'config.yaml'} draws the run's network"
            raise UserError(Diagnostic("a run's curves take no KEY=VALUE", hint=hint))
        return curves(folder)
    library.load()
    known = os.path.isfile(target) or target.removesuffix(".yaml") in bundled_configs()
    if not known and target in OPERATORS:
        return _operator(example(target, settings))
    return _network(find_config(target), settings)


def _network(path: Path, overrides: Sequence[str]) -> Report:
    built = load(path, overrides, needs_device=False)
    model = built.model
    return {
        "kind": "network",
        "name": built.config.name,
        "batch_size": built.config.data.batch_size,
        "nodes": described(model.symbol.nodes, model.inference.shapes, model.records),
    }


def _operator(prop: AnyProperty) -> Report:
    """Return the node of an operator without inputs."""
    name = prop.type_string
    nodes = described([Node(name.lower(), prop)], {}, ())
    return {"kind": "network", "name": name, "batch_size": None, "nodes": nodes}


def described(nodes: Sequence[Node], shapes: Shapes, inputs: Collection[str]) -> list[Report]:
    """Describe all nodes, inputs before users, with the shapes of their outputs and inputs.

    kind: operator, unapplied (an operator without inputs), input (a variable filled with data) or
    variable. family: module of the operator's implementation. Unknown shapes are null.
    """
    return [
        {
            "name": node.name,
            "kind": _kind(node, inputs),
            "operator": node.operator,
            "family": _family(node.prop),
            "parameters": {} if node.prop is None else node.prop.parameters.to_strings(),
            "outputs": [
                {"name": name, "shape": _shape(shapes, NodeEntry(node, index))}
                for index, name in enumerate(_visible_outputs(node))
            ],
            "inputs": list(_inputs(node, shapes)),
        }
        for node in nodes
    ]


def _kind(node: Node, inputs: Collection[str]) -> str:
    if node.prop is None:
        return "input" if node.name in inputs else "variable"
    return "unapplied" if node.prop.list_arguments() and not node.inputs else "operator"


def _family(prop: AnyProperty | None) -> str:
    if prop is None:
        return "variable"
    return type(prop).__module__.removeprefix("mxrun.ops.").partition(".")[0].replace("_", " ")


def _visible_outputs(node: Node) -> tuple[str, ...]:
    if node.prop is None:
        return ("output",)
    return node.prop.list_outputs()[: node.prop.num_visible_outputs]


def _inputs(node: Node, shapes: Shapes) -> Iterator[Report]:
    """Yield the arguments and auxiliary states; `node` is null if nothing is wired."""
    if node.prop is None:
        return
    names = (*node.prop.list_arguments(), *node.prop.list_auxiliary_states())
    for position, name in enumerate(names):
        if position < len(node.inputs):
            entry = node.inputs[position]
            source = {"node": entry.node.name, "output": entry.index}
            yield {"argument": name, **source, "shape": _shape(shapes, entry)}
        else:
            yield {"argument": name, "node": None, "output": 0, "shape": None}


def _shape(shapes: Shapes, entry: NodeEntry) -> list[int | None] | None:
    shape = shapes.get(entry)
    return None if shape is None else list(shape)


def curves(folder: Path) -> Report:
    """Return the learning curves of a run: the values of each metric after each epoch.

    Raises UserError naming file and line if metrics.jsonl is damaged or has no epoch yet.
    """
    path = folder / _METRICS
    records = list(_read_records(path))
    if not records:
        hint = "curves begin with the first epoch that ends"
        raise UserError(Diagnostic(f"{folder} has no finished epoch yet", hint=hint))
    names = {
        name: None
        for record in records
        for part in ("train", "eval")
        for name, value in record[part].items()
        if not isinstance(value, (list, Mapping))
    }

    def number(value: Any) -> float | None:
        """Return the value of a curve; null if the metric is a table in this epoch."""
        return None if isinstance(value, (list, Mapping)) else value

    return {
        "kind": "curves",
        "name": folder.resolve().name,
        "run_dir": str(folder),
        "notes": list(synthetic_notes(folder)),
        "epochs": [record["epoch"] for record in records],
        "steps": [record["step"] for record in records],
        "metrics": [
            {
                "name": name,
                **{
                    part: [number(record[part].get(name)) for record in records]
                    for part in ("train", "eval")
                },
            }
            for name in names
        ],
    }


def _read_records(path: Path) -> Iterator[Report]:
    """Yield the records of metrics.jsonl; none if there is no such file."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UserError(Diagnostic(f"cannot read {path}: {reason}")) from error
    last = 0
    for number, line in enumerate(content.splitlines(), 1):
        place = SourceLocation(str(path), number, 1)
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise _damaged(place, f"{type(error).__name__}: {error}") from error
        if not _is_record(record):
            raise _damaged(place, line[:100].decode("utf-8", "replace"))
        if record["epoch"] <= last:
            raise _damaged(place, f"epoch {record['epoch']} after epoch {last}")
        last = record["epoch"]
        yield record


def _is_record(record: Any) -> bool:
    if not isinstance(record, Mapping):
        return False
    counts = all(is_count(record.get(key), minimum=1) for key in ("epoch", "step"))
    parts = (record.get("train"), record.get("eval"))
    return counts and all(isinstance(part, Mapping) and _is_measured(part) for part in parts)


def _is_measured(part: Mapping[str, Any]) -> bool:
    """Return whether all values are numbers, null (not finite), or tables, which have no curve."""
    return all(
        value is None
        or isinstance(value, (list, Mapping))
        or (is_number(value) and math.isfinite(value))
        for value in part.values()
    )


def _damaged(place: SourceLocation, got: str) -> UserError:
    return UserError(
        Diagnostic(
            "this line is damaged",
            place,
            expected='{"epoch": 1, "eval": {...}, "step": 23, "train": {"loss": 0.5, ...}}',
            got=got,
            hint="remove the line, or train again",
        )
    )
