"""Implementation of `plot`: data of a network's graph, or of the learning curves of runs."""

from __future__ import annotations

import os.path
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mxrun import library
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.flags import runs_folder
from mxrun.base.tensor import PartialShape
from mxrun.commands.ops import example
from mxrun.config.bundled import find_config, is_config
from mxrun.graph.node import Node, NodeEntry
from mxrun.operator.register import OPERATORS, AnyProperty
from mxrun.session.learning_curves import learning_curves
from mxrun.session.planning import load
from mxrun.train.run_directory import find_run, is_run, run_of

Report = dict[str, Any]
Shapes = Mapping[NodeEntry, PartialShape]


def plot(targets: Sequence[str], settings: Sequence[str] = (), runs: Path | None = None) -> Report:
    """Return the data to plot of runs, a config or an operator; `kind` names the plot.

    targets: paths of runs' folders or names of runs in the folder `runs`; or a single operator or
    config, whose name goes before that of a run. Raises UserError if a target is none of these,
    or if `settings` are not supported for it.
    """
    folders = [_run(target, len(targets) == 1, runs_folder(runs)) for target in targets]
    found = [folder for folder in folders if folder is not None]
    if len(found) == len(targets):
        if settings:
            hint = f"mxrun plot {found[0] / 'config.yaml'} draws the run's network"
            raise UserError(Diagnostic("a run's curves take no KEY=VALUE", hint=hint))
        curves = [learning_curves(folder) for folder in found]
        notes = [note for run in curves for note in run["notes"]]
        return {"kind": "curves", "notes": notes, "runs": curves}
    if len(targets) > 1:
        raise UserError(
            Diagnostic(
                f"{target} is not a run",
                expected="runs, whose curves are drawn together; or one config or operator",
                got=", ".join(targets),
                hint="`mxrun runs` lists runs",
            )
            for target, folder in zip(targets, folders, strict=True)
            if folder is None
        )
    (target,) = targets
    library.load()
    if not is_config(target) and target in OPERATORS:
        return _operator(example(target, settings))
    report = _network(find_config(target), settings)
    run = find_run(target, runs_folder(runs))
    if not os.path.exists(target) and is_run(run):
        note = f"{run} is a run of that name: mxrun plot {run} draws its learning curves"
        report["notes"] = [note]
    return report


def _run(target: str, alone: bool, runs: Path) -> Path | None:
    """Return the folder of a run; None for anything else, and for a config's name if `alone`."""
    folder = target if os.path.isdir(target) else str(find_run(target, runs))
    if alone and folder != target and is_config(target):
        return None
    return run_of(Path(folder)) if os.path.isdir(folder) and is_run(Path(folder)) else None


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
