"""Tables of `ops`, made from its JSON report."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from mxrun.report.figures import bytes_text
from mxrun.report.tables import titled_table

Description = Mapping[str, Any]
Part = Table | Text


def operators_table(operators: Sequence[Description]) -> Table:
    """Return one row per operator."""
    table = titled_table(
        f"{len(operators)} operators",
        names=("operator",),
        least_important=("also called", "kernels", "gradient"),
    )
    for name in ("operator", "also called", "kernels", "gradient"):
        table.add_column(name, no_wrap=True)
    table.add_column("what it does")
    for operator in operators:
        _row(
            table,
            operator["name"],
            ", ".join(operator["aliases"]),
            ", ".join(operator["backends"]),
            "yes" if operator["differentiable"] else "no",
            operator["summary"],
        )
    return table


def operator_parts(operator: Description) -> list[Part]:
    """Return the full description of one operator, for the parameters of the report."""
    name = Text(operator["name"], "bold")
    if operator["aliases"]:
        name.append(f"  also called {', '.join(operator['aliases'])}", "dim")
    parts: list[Part] = [name, _indented(operator["doc"])]
    if operator["example"]:
        given = ", ".join(f"{key}={_value(value)}" for key, value in operator["example"].items())
        parts.append(Text(f"described with {given}", "italic"))
    parts += [_tensors(operator), *_parameters(operator["parameters"]), _facts(operator)]
    if operator["yaml"]:
        parts += [Text("in a config", "bold"), _indented(operator["yaml"])]
    return parts


def _tensors(operator: Description) -> Table:
    """Return a table of arguments, auxiliary states and outputs with notes on each."""
    table = titled_table("tensors", "name", "kind", "notes")
    overwritten, reads = operator["overwrites"], set(operator["backward_reads"])
    for argument in operator["arguments"]:
        name = argument["name"]
        notes = [f"gradient: {argument['gradient']}"] if operator["differentiable"] else []
        notes += [f"overwritten by {overwritten[name]}"] if name in overwritten else []
        notes += ["read by backward"] if name in reads else []
        _row(table, name, "argument", ", ".join(notes))
    updates = {update["state"]: update for update in operator["state_updates"]}
    carried = {each["state"]: each["value"] for each in operator["carried_states"]}
    for name in operator["auxiliary_states"]:
        note = f"after every run {carried[name]}" if name in carried else ""
        _row(table, name, "auxiliary state", note or _state_note(updates.get(name)))
    for output in operator["outputs"]:
        name = output["name"]
        notes = [] if output["visible"] else ["no layer can read it"]
        notes += ["read by backward"] if name in reads else []
        notes += ["its gradient is read by backward"] if f"gradient of {name}" in reads else []
        kind = "output" if output["visible"] else "hidden output"
        _row(table, name, kind, ", ".join(notes))
    return table


def _state_note(update: Mapping[str, Any] | None) -> str:
    if update is None:
        return ""
    momentum = update["momentum"]
    return (
        f"in training {momentum:g} * {update['state']} + {1 - momentum:g} * {update['output']} "
        "after every step"
    )


def _parameters(parameters: Sequence[Description]) -> list[Part]:
    if not parameters:
        return [Text("no parameters")]
    table = titled_table("parameters", "name", "accepts", "default", "meaning")
    for parameter in parameters:
        default = "required" if parameter["required"] else _value(parameter["default"])
        _row(table, parameter["name"], parameter["accepts"], default, parameter["doc"])
    return [table]


def _facts(operator: Description) -> Table:
    """Return the facts used by the planner: dependencies, hints, resources, implementations."""
    table = titled_table("plan", "what", "value")
    inplace = operator["inplace"]
    _row(table, "implementations, best first", ", ".join(operator["backends"]))
    if operator["differentiable"]:
        _row(table, "backward reads", ", ".join(operator["backward_reads"]) or "nothing")
    else:
        _row(table, "backward", "none: no gradient")
    if operator["nonstandard_gradient"]:
        _row(table, "nonstandard gradient", operator["nonstandard_gradient"])
    _row(table, "forward may write", _pairs(inplace["forward"]))
    if operator["differentiable"]:
        _row(table, "backward may write", _pairs(inplace["backward"]))
    resources = operator["resources"]
    for phase in ("forward", "backward"):
        requests = resources.get(phase, ())
        if requests:
            shapes = ", ".join(f"{name} {shape}" for name, shape in resources["shapes"].items())
            _row(table, f"{phase} requests", f"{_requests(requests)} for {shapes}")
    return table


def _pairs(pairs: Iterable[Sequence[str]]) -> str:
    return "; ".join(f"{target} over {source}" for source, target in pairs) or "nothing in place"


def _requests(requests: Iterable[Mapping[str, Any]]) -> str:
    return ", ".join(
        "random numbers"
        if request["kind"] == "random"
        else f"temporary space of {bytes_text(request['bytes'])}"
        for request in requests
    )


def _value(value: object) -> str:
    """Return the value of a parameter in YAML, as a config or the command line accepts it."""
    return value if isinstance(value, str) else json.dumps(value)


def _indented(text: str) -> Text:
    return Text(textwrap.indent(text.rstrip("\n"), "  "))


def _row(table: Table, *texts: str) -> None:
    """Add a row of plain texts, in which brackets are not markup."""
    table.add_row(*map(Text, texts))
