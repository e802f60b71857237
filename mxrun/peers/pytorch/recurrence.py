"""Reference function of mxrun's recurrences: a loop over the steps."""

from __future__ import annotations

import ast
import functools
import importlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mxrun.peers.pytorch.parameters import MXNetParameters, Operators, Tensor

# Parameter with the JSON of the body, which the parser of symbols adds.
BODY = "__body__"


@dataclass(frozen=True)
class _Node:
    """Node of a body: operator, name, parameters, and inputs as (node, output)."""

    operator: str
    name: str
    parameters: MXNetParameters
    inputs: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class _TorchBody:
    """Nodes in topological order, and heads as (node, output)."""

    nodes: tuple[_Node, ...]
    heads: tuple[tuple[int, int], ...]

    def values(self, variables: Mapping[str, Tensor]) -> list[Tensor]:
        """Return the heads, given the variables."""
        # The table is complete when all families are imported, this one included.
        functions = importlib.import_module("mxrun.peers.pytorch").OPERATORS
        found: list[Sequence[Tensor]] = []
        for node in self.nodes:
            if node.operator == "null":
                found.append((variables[node.name],))
                continue
            if node.operator not in functions:
                raise ValueError(f"operator {node.operator} ({node.name!r}) is not supported")
            inputs = [found[source][output] for source, output in node.inputs]
            result = functions[node.operator](node.parameters, *inputs)
            found.append(result if isinstance(result, (tuple, list)) else (result,))
        return [found[source][output] for source, output in self.heads]


@functools.cache
def _body(text: str, is_train: bool) -> _TorchBody:
    content = json.loads(text)
    nodes = []
    for entry in content["nodes"]:
        attributes = dict(entry.get("attrs") or {})
        if "subgraphs" in entry:
            attributes[BODY] = json.dumps(entry["subgraphs"][0])
        inputs = tuple((source[0], source[1]) for source in entry["inputs"])
        parameters = MXNetParameters(attributes, is_train)
        nodes.append(_Node(entry["op"], entry["name"], parameters, inputs))
    return _TorchBody(tuple(nodes), tuple((head[0], head[1]) for head in content["heads"]))


class _Recurrence:
    """Recurrence with its tensors: memories by name, the values of each by step, oldest first."""

    def __init__(self, parameters: MXNetParameters, tensors: Sequence[Tensor]) -> None:
        def names(key: str) -> tuple[Any, ...]:
            return tuple(ast.literal_eval(parameters.text(key, "()")))

        self.body = _body(parameters.text(BODY, ""), parameters.is_train)
        self.sequences, memories, self.valid = names("sequences"), names("memories"), names("valid")
        own = {*self.sequences, *memories, *self.valid}
        variables = [node.name for node in self.body.nodes if node.operator == "null"]
        self.others = [name for name in variables if name not in own]
        self.offsets = dict(zip(memories, names("offsets"), strict=True))
        initial = [name for name in memories if name in names("initial")]
        arguments = (*self.sequences, *initial, *self.others, "sequence_length")
        self.given = dict(zip(arguments, tensors, strict=False))
        self.history = {name: self._initial(name, name in initial) for name in memories}

    def _initial(self, name: str, is_given: bool) -> list[Tensor]:
        offset = self.offsets[name]
        if is_given:
            return [self.given[name]] if offset == 1 else [*self.given[name]]
        node = next((node for node in self.body.nodes if node.name == name), None)
        shape = (0,) if node is None else node.parameters.shape("__shape__", ())
        if not shape:
            raise ValueError(f"the memory {name} needs its shape")
        batch = self.given[self.sequences[0]].shape[1]
        return [torch.zeros([batch if size == 0 else size for size in shape])] * offset

    def step(self, number: int, time: int) -> list[Tensor]:
        """Return the heads of one step; all but those of the memories are outputs."""
        now = {name: self.given[name] for name in self.others}
        now |= {name: self.given[name][time] for name in self.sequences}
        now |= {name: values[number] for name, values in self.history.items()}
        for name in self.valid:
            now[name] = (self.given["sequence_length"] > number).float()
        heads = self.body.values(now)
        outputs = heads[: len(heads) - len(self.history)]
        for name, head in zip(self.history, heads[len(outputs) :], strict=True):
            self.history[name].append(head)
        return outputs


def recurrent(parameters: MXNetParameters, *tensors: Tensor) -> list[Tensor]:
    """Return the stacked heads and the final memories."""
    recurrence = _Recurrence(parameters, tensors)
    steps = ast.literal_eval(parameters.text("steps", "None")) or tensors[0].shape[0]
    is_reversed = parameters.flag("reverse", False)
    times = range(steps - 1, -1, -1) if is_reversed else range(steps)
    rows = [recurrence.step(number, time) for number, time in enumerate(times)]
    rows = rows[::-1] if is_reversed else rows
    outputs = [torch.stack(each) for each in zip(*rows, strict=True)]
    for name in ast.literal_eval(parameters.text("final", "()")):
        last = recurrence.history[name][-recurrence.offsets[name] :]
        outputs.append(last[0] if len(last) == 1 else torch.stack(last))
    return outputs


OPERATORS: Operators = {"recurrent": recurrent}
