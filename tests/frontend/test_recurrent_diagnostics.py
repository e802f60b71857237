"""Wrong `recurrent:` layers: each mistake is one problem, at its place."""

from __future__ import annotations

from pathlib import Path

import pytest
from layer_configs import config_file, problems
from recurrent_networks import CELL, LOSS, TARGETS, config

INPUTS = "{data: [7, 3], target: [7, 5]}"
FIRST = "{data: [7, 3], target: [7, 5], first: [4]}"
LENGTHS = "{data: [7, 3], target: [7, 5], lengths: [2]}"
MEMORY = "memories: {h: {layer: next, shape: [5]}}"
OUTPUTS = "        outputs: [next]\n"


def outputs_and(keys: str) -> tuple[str, str]:
    return OUTPUTS, f"{OUTPUTS}        {keys}\n"


# The inputs, what is replaced by what, and the problem with its line and column.
CASES: dict[str, tuple[str, list[tuple[str, str]], str, int, int]] = {
    "initial of another width": (
        FIRST,
        [("[5]}}", "[5], initial: first}}")],
        "the initial value of the memory 'rnn/h' has another shape than the memory",
        *(8, 20),
    ),
    "initial of another rank": (
        FIRST.replace("[4]", "[2, 5]"),
        [("[5]}}", "[5], initial: first}}")],
        "the initial value of the memory 'rnn/h' has another shape than the memory",
        *(8, 20),
    ),
    "initial that is one of two": (
        FIRST.replace("[4]", "[5]"),
        [("[5]}}", "[5], offset: 2, initial: first}}")],
        "the initial value of the memory 'rnn/h' has another shape than the memory",
        *(8, 20),
    ),
    "initial from within": (
        INPUTS,
        [("[5]}}", "[5], initial: fc}}")],
        "nothing is named 'fc'",
        *(8, 58),
    ),
    "a memory of another shape": (
        INPUTS,
        [("[5]", "[4]")],
        "the memory 'rnn/h' has another shape than 'rnn/next'",
        *(8, 20),
    ),
    "memories of each other": (
        INPUTS,
        [(MEMORY, "memories: {h: {layer: g, shape: [5]}, g: {layer: h, shape: [5]}}")],
        "'rnn': no layer computes the memory 'h'",
        *(8, 31),
    ),
    "an unread memory": (INPUTS, [("[x, h]", "[x]")], "nothing reads the memory 'rnn/h'", 8, 20),
    "an unread sequence": (
        INPUTS,
        [("[x, h]", "[h]")],
        "nothing reads the sequence 'rnn/x'",
        7,
        21,
    ),
    "offset 0": (INPUTS, [("[5]}", "[5], offset: 0}")], "memories.h.offset cannot be 0", 8, 57),
    "offset -1": (INPUTS, [("[5]}", "[5], offset: -1}")], "memories.h.offset cannot be -1", 8, 57),
    "an offset beyond the steps": (
        INPUTS,
        [("[5]}", "[5], offset: 99999999999}")],
        "'rnn': the memory 'rnn/h' reads 99999999999 steps before",
        *(8, 20),
    ),
    "lengths of another shape": (
        LENGTHS,
        [outputs_and("lengths: lengths")],
        "'rnn': lengths is one number for each record",
        *(14, 18),
    ),
    "lengths as a number": (INPUTS, [outputs_and("lengths: 5")], "lengths cannot be 5", 14, 18),
    "reversed and carried": (
        INPUTS,
        [("[5]}", "[5], carry: true}"), outputs_and("reverse: true")],
        "'rnn': a memory that is carried cannot be used with reverse",
        *(8, 49),
    ),
    "reversed and bidirectional": (
        INPUTS,
        [outputs_and("reverse: true\n        bidirectional: true")],
        "'rnn' is reversed and bidirectional",
        *(14, 9),
    ),
    "a sequence and a memory of one name": (
        INPUTS,
        [("{h: {", "{x: {"), ("[x, h]", "[x]")],
        "'rnn' has a sequence and a memory named 'x'",
        *(8, 20),
    ),
    "a sequence named like a layer": (
        INPUTS,
        [("{x: data}", "{fc: data}"), ("[x, h]", "[fc, h]")],
        "the name 'rnn/fc' is taken by a sequence or memory at",
        *(11, 36),
    ),
    "a memory named like a layer": (
        INPUTS,
        [("{h: {", "{next: {"), ("[x, h]", "[x, next]")],
        "the name 'rnn/next' is taken by a sequence or memory at",
        *(12, 32),
    ),
    "a recurrence named like an input": (
        INPUTS,
        [("name: rnn", "name: data")],
        "the name 'data' is taken by an input",
        *(6, 15),
    ),
    "no sequence": (
        INPUTS,
        [("        sequences: {x: data}\n", ""), ("[x, h]", "[h]")],
        "'rnn' reads no sequence",
        *(5, 7),
    ),
    "sequences and steps": (
        INPUTS,
        [outputs_and("steps: 7")],
        "'rnn' has sequences and a number of steps",
        *(14, 9),
    ),
    "steps of unknown records": (
        INPUTS,
        [("sequences: {x: data}", "steps: 7"), ("[x, h]", "[h]")],
        "not enough is known: the shapes within 'rnn'",
        *(5, 7),
    ),
    "no outputs": (INPUTS, [("outputs: [next]", "outputs: []")], "outputs cannot be []", 13, 18),
    "final of no memory": (
        INPUTS,
        [outputs_and("final: [next]")],
        "'rnn' has no memory 'next'",
        *(14, 17),
    ),
    "an unknown key": (INPUTS, [outputs_and("revers: true")], "unknown key 'revers'", 14, 9),
    "a layer that comes later": (
        INPUTS,
        [("[x, h]", "[x, h, next]")],
        "'next' is defined later, at",
        *(10, 49),
    ),
    "a layer that reads itself": (
        INPUTS,
        [("[x, h]", "[x, h, both]")],
        "'rnn/both' reads its own output: a cycle",
        *(10, 49),
    ),
}

NESTED = """\
    - recurrent:
        name: doc
        sequences: {s: data}
        memories: {c: {layer: after, shape: [5]}}
        layers:
          - recurrent:
              name: words
              sequences: {w: s}
              memories: {h: {layer: next, shape: [5]}}
              layers:
                - Concat: {name: both, inputs: [w, h, c]}
                - FullyConnected: {name: fc, num_hidden: 5}
                - Activation: {name: next, act_type: tanh}
              outputs: [next]
              final: [h]
          - FullyConnected: {name: after, data: "words[h]", num_hidden: 5}
        outputs: [after]
"""
WITHIN: dict[str, tuple[str, str, str, int, int]] = {
    "an unknown key": ("final: [h]", "finale: [h]", "unknown key 'finale'", 19, 15),
    "a carried memory": (
        *("{layer: next, shape: [5]}", "{layer: next, shape: [5], carry: true}"),
        "'doc/words': a memory that is carried cannot be used with a recurrence around it",
        *(13, 55),
    ),
    "an initial value of another shape": (
        *("{layer: next, shape: [5]}", "{layer: next, shape: [5], initial: s}"),
        "the initial value of the memory 'doc/words/h' has another shape than the memory",
        *(13, 26),
    ),
    "a sequence and a memory of one name": (
        *("{w: s}", "{h: s}"),
        "'doc/words' has a sequence and a memory named 'h'",
        *(13, 26),
    ),
    "an output of another recurrence": (
        *("words[h]", "words[c]", "'doc/words' has no output 'c'", 20, 49),
    ),
}


def the_problem(folder: Path, inputs: str, layers: str, text: str, at: tuple[int, int]) -> None:
    """Assert that a config has one problem, with a text, at a line and column, and a remedy."""
    path = config_file(folder, config(inputs, layers + TARGETS))
    (found,) = problems(path)
    assert found.problem.startswith(text)
    assert found.place is not None
    assert (found.place.line, found.place.column) == at
    assert found.hint or (found.expected and found.got)


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_is_one_problem_at_its_place(case: str, tmp_path: Path) -> None:
    inputs, replaced, text, line, column = CASES[case]
    layers = CELL
    for old, new in replaced:
        assert old in layers
        layers = layers.replace(old, new, 1)
    the_problem(tmp_path, inputs, layers, text, (line, column))


@pytest.mark.parametrize("case", WITHIN)
def test_a_mistake_within_a_nested_recurrence_is_one_problem(case: str, tmp_path: Path) -> None:
    old, new, text, line, column = WITHIN[case]
    assert old in NESTED
    layers = NESTED.replace(old, new, 1)
    the_problem(tmp_path, "{data: [4, 7, 3], target: [4, 5]}", layers, text, (line, column))


WRONG = {
    "sequences: {x: nothing}": ("nothing is named 'nothing'", 7, 24),
    "memories: {h: {layer: nxt}}": ("nothing is named 'nxt'", 8, 31),
    "memories: {h: {layr: next}}": ("unknown key 'layr' in memories.h", 8, 24),
    "outputs: [fcc]": ("nothing is named 'fcc'", 13, 19),
    "final: [g]": ("'rnn' has no memory 'g'", 13, 17),
    "reverse: 1": ("reverse cannot be 1", 13, 18),
    "lengths: lenghts": ("nothing is named 'lenghts'", 13, 18),
}


def replaced(line: str) -> str:
    """Return the cell with the line in place of that of the same key, or in place of outputs."""
    key = line.split(":", maxsplit=1)[0]
    lines = CELL.splitlines()
    at = next((i for i, old in enumerate(lines) if old.strip().startswith(f"{key}:")), None)
    lines[len(lines) - 1 if at is None else at] = f"        {line}"
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("line", WRONG)
def test_problems_have_their_place(tmp_path: Path, line: str) -> None:
    path = config_file(tmp_path, config(INPUTS, replaced(line) + TARGETS))
    found = problems(path)
    text, row, column = WRONG[line]
    own = [each for each in found if each.problem == text]
    assert own, found
    place = own[0].place
    assert place is not None
    assert (place.line, place.column) == (row, column)


@pytest.mark.parametrize(
    ("layers", "text"),
    [
        (
            CELL.replace("- Activation: {name: next, act_type: tanh}", "- BatchNorm: {name: next}"),
            "BatchNorm 'rnn/next' has states, which the steps of a recurrence cannot share",
        ),
        (
            CELL.replace(
                "          - Act", "          - Flatten: {name: idle}\n          - Act"
            ).replace("{name: next, act", "{name: next, data: fc, act"),
            "nothing reads the layer 'rnn/idle'",
        ),
        (
            CELL + "    - Flatten: {name: flat, data: rnn/fc}\n",
            "'rnn/fc' is within the recurrence 'rnn'",
        ),
        (CELL + '    - Flatten: {name: flat, data: "rnn[h]"}\n', "'rnn' has no output 'h'"),
    ],
)
def test_layers_that_cannot_be_there(tmp_path: Path, layers: str, text: str) -> None:
    path = config_file(tmp_path, config(INPUTS, layers + TARGETS))
    assert text in [each.problem for each in problems(path)]


def test_an_unread_recurrence_of_both_directions_is_reported_once(tmp_path: Path) -> None:
    cell = CELL.replace(*outputs_and("bidirectional: true"))
    path = config_file(
        tmp_path,
        config(
            "{data: [7, 3], label: []}", cell + LOSS.replace(": logits", ": logits, data: data")
        ),
    )
    assert [each.problem for each in problems(path)] == ["nothing reads the layer 'rnn'"]
