"""Configs that change, replace, insert and remove layers of the config that they extend."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from layer_configs import config_file

from mxrun.base.errors import Diagnostic, SourceLocation, UserError
from mxrun.config import LayerConfig, RunConfig, load_config, parse
from mxrun.config.layer_edits import EDITS
from mxrun.preparation.planning import load

BASE = """
blocks:
  unit:
    parameters: {filters: 4}
    layers:
      - Convolution: {name: conv, num_filter: "${filters}", kernel: [3, 3], pad: [1, 1]}
      - Activation: {act_type: relu}
      - elemwise_add: {name: add, lhs: conv, rhs: activation0}
network:
  inputs: {data: [1, 8, 8], label: []}
  layers:
    - Convolution: {name: conv1, num_filter: 4, kernel: [3, 3], pad: [1, 1]}
    - Activation: {act_type: relu}
    - repeat: {count: 2, layers: [{unit: {name: "stage${i}"}}]}
    - Activation: {act_type: tanh}
    - FullyConnected: {name: fc, num_hidden: 10}
    - SoftmaxOutput: {name: softmax, label: label}
data: {batch_size: 4, train: {dataset: digits}}
train: {epochs: 1, optimizer: sgd}
"""
STAGES = [f"stage{i}/{name}" for i in (0, 1) for name in ("conv", "activation0", "add")]
NAMES = ["conv1", "activation0", *STAGES, "activation1", "fc", "softmax"]


def write(folder: Path, text: str, name: str = "run.yaml") -> Path:
    return config_file(folder, text, name)


def extended(folder: Path, layers: str, name: str = "run.yaml", base: str = "base.yaml") -> Path:
    """Write a config with edits of the base's layers, which begin in line 4 and column 5."""
    write(folder, BASE, "base.yaml")
    return write(folder, f"extends: {base}\nnetwork:\n  layers:\n    {layers}\n", name)


def by_name(config: RunConfig) -> dict[str, LayerConfig]:
    return {layer.name: layer for layer in config.network.layers}


def names(config: RunConfig) -> list[str]:
    return [*by_name(config)]


def problem_of(path: Path, *overrides: str) -> Diagnostic:
    (found,) = parse(path, overrides).diagnostics
    return found


def test_parameters_of_layers_and_blocks_are_changed_by_the_names_that_check_shows(
    tmp_path: Path,
) -> None:
    path = extended(
        tmp_path,
        "change: {fc: {num_hidden: 3}, stage0: {filters: 8}, stage1/conv: {no_bias: true}, "
        "activation1: {act_type: sigmoid, name: last}}",
    )
    layers = by_name(load_config(path))
    assert [*layers] == [*NAMES[:8], "last", *NAMES[9:]]
    assert layers["fc"].parameters["num_hidden"].value == 3
    assert layers["fc"].place_of("num_hidden") == SourceLocation(str(path), 4, 31)
    assert layers["stage0/conv"].parameters["num_filter"].value == 8
    changed, other = layers["stage1/conv"].parameters, layers["stage0/conv"].parameters
    assert (changed["num_filter"].value, changed["no_bias"].value) == (4, True)
    assert "no_bias" not in other
    assert layers["last"].parameters["act_type"].value == "sigmoid"


def test_layers_are_replaced_inserted_and_removed_and_all_others_keep_their_names(
    tmp_path: Path,
) -> None:
    path = extended(
        tmp_path,
        """insert_before: {stage0/conv: [Flatten, {Activation: {act_type: tanh}}]}
    insert_after: {activation0: [{Activation: {act_type: tanh}}, {unit: {name: added}}]}
    replace:
      conv1: Dropout
      stage1: [{BatchNorm: {name: bn}}, {Activation: {act_type: relu}}]
      fc: {unit: {filters: 2}}
    remove: [activation1, stage0/activation0]""",
    )
    config = load_config(path)
    assert names(config) == [
        "conv1",
        "activation0",
        "activation0_activation0",
        *(f"added/{name}" for name in ("conv", "activation0", "add")),
        "stage0/conv_flatten0",
        "stage0/conv_activation0",
        "stage0/conv",
        "stage0/add",
        "stage1/bn",
        "stage1/activation0",
        *(f"fc/{name}" for name in ("conv", "activation0", "add")),
        "softmax",
    ]
    assert by_name(config)["conv1"].operator == "Dropout"
    saved = write(tmp_path, config.resolved(), "saved.yaml")
    assert load_config(saved).resolved() == config.resolved()


def test_edits_of_a_chain_apply_one_after_the_other_and_the_command_line_last(
    tmp_path: Path,
) -> None:
    middle = "insert_after: {conv1: [{Dropout: {name: drop, p: 0.1}}]}\n    remove: [activation0]"
    extended(tmp_path, middle, "middle.yaml")
    path = extended(tmp_path, "change: {drop: {p: 0.2}}", base="middle.yaml")
    config = load_config(path)
    assert names(config) == ["conv1", "drop", *NAMES[2:]]
    assert by_name(config)["drop"].parameters["p"].value == 0.2
    overrides = [
        "network.layers.change.drop.p=0.3",
        "network.layers.change.stage0/conv.num_filter=6",
        "network.layers.remove=[stage1]",
        "network.layers[0].Convolution.num_filter=5",
    ]
    layers = by_name(load_config(path, overrides))
    assert [*layers] == ["conv1", "drop", *STAGES[:3], *NAMES[8:]]
    assert layers["drop"].parameters["p"].value == 0.3
    assert layers["drop"].place_of("p") == SourceLocation("<command line>", 1, 30)
    widths = [layers[name].parameters["num_filter"].value for name in ("conv1", "stage0/conv")]
    assert widths == [5, 6]
    assert names(load_config(path, ["network.layers={remove: [drop]}"])) == ["conv1", *NAMES[2:]]
    path.write_text(path.read_text() + "    insert_before: {fc: [Flatten]}\n")
    assert names(load_config(path, ["network.layers=[{A: {name: a}}]"])) == ["a"]
    found = problem_of(path, "network.layers.remove=[activation0]")
    assert (found.problem, found.place) == (
        "there is no layer 'activation0' to remove",
        SourceLocation("<command line>", 1, 24),
    )
    assert found.expected == f"a layer of {path}"


def test_the_layers_of_a_block_are_edited_in_its_definition(tmp_path: Path) -> None:
    write(tmp_path, BASE, "base.yaml")
    edits = (
        '{change: {conv: {num_filter: "${2 * filters}"}}, remove: [activation0], '
        "replace: {add: {_copy: {}}}}"
    )
    text = f"extends: base.yaml\nblocks: {{unit: {{layers: {edits}}}}}\n"
    layers = by_name(load_config(write(tmp_path, text)))
    inner = [f"stage{i}/{name}" for i in (0, 1) for name in ("conv", "add")]
    assert [*layers] == ["conv1", "activation0", *inner, *NAMES[8:]]
    assert layers["stage1/conv"].parameters["num_filter"].value == 8
    text = text.replace("remove: [activation0]", "remove: [activation1]")
    assert problem_of(write(tmp_path, text)).hint.startswith("did you mean 'activation0'")
    text = "blocks: {unit: {layers: {remove: [a]}}}\nextends: digits_lenet\n"
    assert problem_of(write(tmp_path, text)).problem == "block 'unit': there are no layers to edit"


@pytest.mark.parametrize(
    ("edits", "column", "problem", "hint"),
    [
        ("change: {fcc: {}}", 14, "there is no layer 'fcc' to change", "did you mean 'fc'?"),
        ("insert_after: {x: []}", 20, "there is no layer 'x' to insert after", "its layers: conv1"),
        (
            "{remove: [stage0], change: {stage0/conv: {num_filter: 2}}}",
            33,
            "the layer 'stage0/conv' is edited, but 'stage0' is removed",
            "that is at ",
        ),
        (
            "{change: {fc: {a: 1}}, remove: [fc]}",
            37,
            "the layer 'fc' is changed and removed",
            "leave out this edit, or that at ",
        ),
        ("insert: {fc: [Flatten]}", 5, "unknown edit 'insert' of layers", "did you mean"),
        ("change: [fc]", 13, "change: is not of the form {layer: {parameter: value}}", ""),
        ("change: {fc: 3}", 18, "change: is not of the form {layer: {parameter: value}}", ""),
        ("remove: fc", 13, "remove: is not of the form [layer, ...]", ""),
        ("remove: [1]", 14, "remove: is not of the form [layer, ...]", ""),
        ("replace: {fc: {A: 1}}", 23, "the parameters of 'A' are a mapping", ""),
        ("replace: {fc: {A: , B: }}", 19, "a layer is one operator with its parameters", ""),
    ],
)
def test_a_wrong_edit_is_reported_with_its_place(
    tmp_path: Path, edits: str, column: int, problem: str, hint: str
) -> None:
    path = extended(tmp_path, edits)
    found = problem_of(path)
    assert found.problem == problem
    assert found.place == SourceLocation(str(path), 4, column)
    assert found.hint.startswith(hint)


def test_edits_without_layers_to_edit(tmp_path: Path) -> None:
    path = write(tmp_path, BASE.partition("  layers:\n    - Conv")[0] + "  layers: {remove: [a]}\n")
    found = {each.problem: each.hint for each in parse(path).diagnostics}
    hint = "a mapping edits the layers of the config that this one extends"
    assert found["network.layers: there are no layers to edit"] == hint
    assert not [problem for problem in found if problem.startswith("network.layers cannot")]


def test_a_reference_to_a_removed_layer_says_where_it_was_removed(tmp_path: Path) -> None:
    path = extended(tmp_path, "remove: [stage1/conv, stage0]")
    with pytest.raises(UserError) as caught:
        load(path, ["network.outputs=[stage0, softmax]"])
    found = {each.problem: each for each in caught.value.diagnostics}
    assert found["nothing is named 'conv'"].hint == f"'stage1/conv' is removed at {path}:4:14"
    assert found["nothing is named 'conv'"].place == SourceLocation(
        str(tmp_path / "base.yaml"), 8, 40
    )
    assert found["nothing is named 'stage0'"].hint == f"'stage0' is removed at {path}:4:27"


@pytest.mark.full
def test_no_shape_of_edits_gives_anything_but_diagnostics_with_places(tmp_path: Path) -> None:
    draw = random.Random(3)
    scalars = ["fc", "stage0", "stage1/conv", "none", 1, 2.5, None, True, "${i}", "Flatten", "unit"]

    def value(depth: int) -> object:
        kind = draw.randrange(4) if depth else 0
        if kind < 2:
            return draw.choice(scalars)
        parts = [value(depth - 1) for _ in range(draw.randrange(3))]
        keys = [*EDITS, "fc", "conv", "stage0", "Activation", "repeat", "name", "layers", "count"]
        return parts if kind == 2 else {draw.choice(keys): part for part in parts}

    texts = [repr({draw.choice(EDITS): value(3), draw.choice(EDITS): value(4)}) for _ in range(300)]
    for text in texts:
        text = text.replace("None", "null").replace("True", "true")
        block = draw.random() < 0.3
        path = extended(tmp_path, "{}" if block else text)
        if block:
            path.write_text(f"extends: base.yaml\nblocks: {{unit: {{layers: {text}}}}}\n")
        parsed = parse(path)
        assert parsed.config or parsed.diagnostics
        for problem in parsed.diagnostics:
            assert problem.place, (text, problem)
            assert Path(problem.place.file).parent == tmp_path, (text, problem)


@pytest.mark.parametrize("given", ["", "name: stages, "])
def test_the_count_of_a_repeat_is_changed_by_its_name(tmp_path: Path, given: str) -> None:
    name = "stages" if given else "repeat0"
    path = extended(tmp_path, f"change: {{{name}: {{count: 3}}, stage2: {{filters: 6}}}}")
    write(tmp_path, BASE.replace("repeat: {", f"repeat: {{{given}"), "base.yaml")
    config = load_config(path)
    stages = [f"stage{i}/{part}" for i in range(3) for part in ("conv", "activation0", "add")]
    assert names(config)[2:-3] == stages
    assert by_name(config)["stage2/conv"].parameters["num_filter"].plain() == 6
    # The command line changes what the file has changed.
    again = load_config(path, [f"network.layers.change.{name}.count=4"])
    assert len(names(again)) == len(names(config)) + 3
    misspelled = f"network: {{layers: {{change: {{{name}: {{cont: 3}}}}}}}}"
    write(tmp_path, f"extends: base.yaml\n{misspelled}\n")
    assert "'cont' of repeat" in problem_of(tmp_path / "run.yaml").problem
    write(tmp_path, "extends: base.yaml\nnetwork: {layers: {change: {repeat9: {count: 3}}}}\n")
    assert name in problem_of(tmp_path / "run.yaml").hint
