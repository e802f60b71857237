"""Code of compiled maps: its memory reads, and branches for rare elements."""

from __future__ import annotations

import re
from typing import Any

import pytest

from mxrun.codegen.processor import KINDS, lacks
from mxrun.codegen.scalar_functions import VOCABULARY
from mxrun.codegen.scalar_llvm import map_module
from mxrun.codegen.scalar_value import LoopForm, ScalarGraph, ScalarValue, rare_contexts
from mxrun.operator import scalar

ARGUMENTS = {"pow": 2, "mod": 2, "maximum": 2, "minimum": 2, "fma": 3}


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("name", VOCABULARY)
def test_code_reads_nothing_that_is_not_there(
    name: str, adds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    word, count = VOCABULARY[name], ARGUMENTS.get(name, 1)
    functions = (None, lambda x: word(x), lambda x, y: word(x, y), lambda x, y, z: word(x, y, z))
    kernel = scalar.compile(functions[count])
    form = LoopForm("float32", (1,) * count, (adds,))
    for processor in (each for each in KINDS if not lacks(each)):
        monkeypatch.setenv("MXRUN_PROCESSOR", processor)
        text = str(map_module("loop", kernel.graph, kernel.results, form))
        # Undefined values are allowed only as the start of a vector that is then filled.
        for line in text.splitlines():
            if re.search(r"\b(undef|poison)\b", line):
                assert re.search(r"= (insertelement|shufflevector) ", line), line
        rooms = re.findall(r"(%\S+) = alloca ", text)
        assert len(rooms) == 1 + count
        for room in rooms:
            assert re.search(rf"store <\d+ x \w+> zeroinitializer, .*{re.escape(room)}\b", text)


def graph_of_rare_values() -> tuple[ScalarGraph, list[ScalarValue], int]:
    """rarely(x < 0, a + b, b), where a is rarely(x < -9, x * x, x)."""
    graph = ScalarGraph()
    x = graph.add("operand", "float32", (), 0)
    square = x * x
    a = graph.add("rarely", "float32", (x < -9, square, x))
    b = x + 1
    total = a + b
    result = graph.add("rarely", "float32", (x < 0, total, b))
    return graph, [x, square, a, b, total, result], result.index


def test_what_is_computed_for_rare_elements_alone() -> None:
    graph, (x, square, a, b, total, result), place = graph_of_rare_values()
    found = rare_contexts(graph, [place])
    assert found[x.index] == found[b.index] == found[result.index] == ()
    assert found[a.index] == found[total.index] == (result.index,)
    assert found[square.index] == (result.index, a.index)
    assert (x * 7).index not in found


@pytest.mark.parametrize(("name", "branches"), [("exp", 0), ("sin", 1), ("pow", 1)])
def test_rare_elements_cost_one_branch(name: str, branches: int) -> None:
    def function(x: Any, y: Any) -> Any:
        return VOCABULARY[name](*(x, y)[: ARGUMENTS.get(name, 1)]) + y

    plain, kernel = scalar.compile(lambda x, y: x + y), scalar.compile(function)
    jumps = []
    for each in (plain, kernel):
        text = str(map_module("loop", each.graph, each.results, LoopForm("float32", (1, 1))))
        jumps.append(len(re.findall(r"br i1 ", text)))
    assert jumps[1] - jumps[0] == branches
