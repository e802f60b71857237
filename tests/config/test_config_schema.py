"""Validation: types without coercion, ranges, unknown and unavailable keys, all in one pass."""

import json
from pathlib import Path

import pytest
from layer_configs import config_file

from mxrun.base.errors import SourceLocation, UserError
from mxrun.base.interval import Interval
from mxrun.config import Choice, SourceNode, load_config, parse
from mxrun.config.run_config import RunConfig

CONFIGS = Path(__file__).parents[2] / "configs"
GOOD = """\
name: good
network:
  inputs: {data: [1, 8, 8], label: []}
  layers:
    - A: {name: a, x: 1, y: [2, 3]}
    - B
data: {batch_size: 4, train: {dataset: digits}}
train: {epochs: 1, optimizer: sgd}
"""


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return config_file(tmp_path, GOOD, "good.yaml")


def test_defaults(good: Path) -> None:
    config = load_config(good)
    assert (config.seed, config.context, config.threads) == (0, "cpu", None)
    assert (config.precision, config.engine, config.backward) == (
        "float32",
        "threaded",
        "explicit_graph",
    )
    assert config.train.initializer == Choice("xavier", {}, SourceLocation("", 0, 0))
    assert config.train.optimizer == Choice("sgd", {}, SourceLocation("", 0, 0))
    assert config.train.optimizer.place == SourceLocation(str(good), 8, 31)
    assert config.train.metrics is None
    assert (config.train.schedule.kind, config.train.accumulate) == ("constant", 1)
    assert config.train.checkpoint.every == Interval(1, "epochs")
    assert (config.data.eval, config.data.train.split, config.data.train.shuffle) == (
        None,
        None,
        False,
    )
    assert config.network.inputs == {"data": (1, 8, 8), "label": ()}
    assert (config.network.outputs, config.network.variables) == ((), {})


@pytest.mark.parametrize(
    ("written", "device"),
    [("cpu", ("cpu", 0)), ("gpu:3", ("gpu", 3)), ("my-device_2:0", ("my-device_2", 0))],
)
def test_a_context_is_a_kind_and_a_number(
    good: Path, written: str, device: tuple[str, int]
) -> None:
    assert load_config(good, [f"context={written}"]).device == device
    found = parse(good, [f"context={written}", "seed=-1"])
    assert (found.config, found.devices) == (None, (device,))
    assert parse(good, ["context=:1"]).devices == ()
    assert parse(good).devices == (("cpu", 0),)


def test_several_contexts_are_devices_of_one_kind(good: Path) -> None:
    config = load_config(good, ["context=[gpu:2, gpu, gpu:1]"])
    assert config.devices == (("gpu", 2), ("gpu", 0), ("gpu", 1))
    assert config.device == ("gpu", 2)
    assert load_config(good, ["context=[cpu]"]).devices == (("cpu", 0),)


def test_the_context_that_is_listed_twice_is_the_one_pointed_at(good: Path) -> None:
    good.write_text("context:\n  - gpu:1\n  - gpu\n  -   gpu:0\n" + good.read_text())
    (problem,) = parse(good).diagnostics
    assert str(problem.place) == f"{good}:4:7"
    assert problem.problem == "context[2] cannot be 'gpu:0'"


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("cpu", "cpu:0", True),
        ("cpu", "[cpu:0]", True),
        ("cpu", "[cpu:1]", True),
        ("[cpu:0, cpu:1]", "[cpu:1, cpu]", True),
        ("cpu", "reference", False),
    ],
)
def test_contexts_of_one_kind_name_the_same_training(
    good: Path, one: str, other: str, is_same: bool
) -> None:
    """Their number is part of the plan, and compared with that."""
    first, second = (load_config(good, [f"context={each}"]) for each in (one, other))
    assert (first.identity() == second.identity()) == is_same


def test_the_default_context_may_be_written_or_not(good: Path) -> None:
    assert load_config(good).sha256() == load_config(good, ["context=[cpu]"]).sha256()


def test_a_config_is_frozen(good: Path) -> None:
    config = load_config(good)
    with pytest.raises(ValueError, match="frozen"):
        config.seed = 1  # type: ignore[misc]


@pytest.mark.parametrize("name", ["digits_lenet", "mlp_mnist", "lenet_mnist"])
def test_bundled_configs_load_and_their_resolved_text_is_the_same_config(
    name: str, tmp_path: Path
) -> None:
    path = CONFIGS / f"{name}.yaml"
    assert path.read_text().startswith("# ")
    config = load_config(path)
    assert config.name == name
    again = config_file(tmp_path, config.resolved(), "config.yaml")
    assert load_config(again) == config
    assert load_config(again).sha256() == config.sha256()
    assert load_config(again).resolved() == config.resolved()
    assert load_config(again, ["seed=9"]) != config
    assert load_config(again, ["seed=9"]).sha256() != config.sha256()


def test_the_resolved_text_keeps_every_kind_of_value(good: Path, tmp_path: Path) -> None:
    texts = ["1e-3", "no", "0o17", "~", "", "a: b", "#", "$${x}", "é\u2028\x7f\U0001f600\n\t\"'\\"]
    texts += ["- a", "{", "true", "???x"[3:], " a ", "1_0", "\x85", "-", "/a/b", "null"]
    numbers = [1e-300, 1e16, 0.1, -0.0, 1e22, 3, -5, True, None]
    overrides = [
        "network.layers[0].A.x="
        + json.dumps(texts, ensure_ascii=True).replace("\\ud83d\\ude00", "😀"),
        "network.layers[0].A.y=" + json.dumps(numbers),
        "network.layers[0].A.z={a: {b: [[1, [2]], {c: .inf}]}, '${d': {}, e: []}",
        "data.train.long=" + "x" * 200,
    ]
    config = load_config(good, overrides)
    expected = tuple("${x}" if text == "$${x}" else text for text in texts)
    assert config.network.layers[0].parameters["x"].plain() == expected
    again = config_file(tmp_path, config.resolved(), "again.yaml")
    assert load_config(again) == config
    types = [
        type(part.value) for part in load_config(again).network.layers[0].parameters["y"].value
    ]
    assert types == [type(number) for number in numbers]


def test_places_of_keys_and_values(good: Path) -> None:
    config = load_config(good)
    file = str(good)
    assert config.place("train", "epochs") == SourceLocation(file, 8, 17)
    assert config.key_place("train", "epochs") == SourceLocation(file, 8, 9)
    assert config.place("network", "inputs", "data", 2) == SourceLocation(file, 3, 25)
    layer = config.network.layers[0]
    assert (layer.place, layer.name_place) == (
        SourceLocation(file, 5, 7),
        SourceLocation(file, 5, 17),
    )
    assert (layer.key_place_of("x"), layer.place_of("x")) == (
        SourceLocation(file, 5, 20),
        SourceLocation(file, 5, 23),
    )
    assert layer.parameters["y"].value == (
        SourceNode(2, SourceLocation("", 0, 0)),
        SourceNode(3, SourceLocation("", 0, 0)),
    )
    assert layer.parameters["y"].find(1).place == SourceLocation(file, 5, 33)
    assert layer.place_of("z") == layer.place


@pytest.mark.parametrize(
    ("override", "expected", "got", "hint"),
    [
        ("train.epochs='3'", "integer", "'3' (text)", "remove the quotes: 3"),
        ("train.epochs=3.0", "integer", "3.0 (a number)", "write 3"),
        ("train.epochs=true", "integer", "true (true or false)", ""),
        ("data.batch_size=", "integer", "nothing (null)", ""),
        ("train.epochs=[1]", "integer", "a list", ""),
        ("train.epochs=0", ">= 1", "0 (an integer)", ""),
        ("seed=-1", ">= 0", "-1 (an integer)", ""),
        (f"seed={2**63}", "within int64", f"{2**63} (an integer)", ""),
        ("name=3", "a name of letters", "3 (an integer)", "write it in quotes"),
        ("name=a/b", "a name of letters, digits, _ . and -", "'a/b' (text)", ""),
        ("threads=0", ">= 1", "0 (an integer)", ""),
        ("backward=revers", "one of explicit_graph, reverse", "'revers' (text)", "'reverse'"),
        ("context=cpu:x", "KIND or KIND:INDEX", "'cpu:x' (text)", ""),
        ("context='gpu: 1'", "KIND or KIND:INDEX", "'gpu: 1' (text)", ""),
        ("context=gpu:-1", "KIND or KIND:INDEX", "'gpu:-1' (text)", ""),
        ("context=[cpu, 0]", "KIND or KIND:INDEX", "0 (an integer)", ""),
        ("context=[cpu, cpu:0]", "different devices, each listed once", "'cpu:0' (text)", ""),
        ("context=[cpu:0, gpu:0]", "devices of one kind", "'gpu:0' (text)", ""),
        ("context=[]", "at least one device", "a list", ""),
        ("network=[3]", "mapping", "a list", ""),
        ("data=3", "mapping", "3 (an integer)", ""),
        ("data.train=digits", "mapping", "'digits' (text)", ""),
        ("data.train.shuffle=yes", "true or false", "'yes' (text)", "write true"),
        ("data.train.split=3", "a split's name or a mapping", "3 (an integer)", ""),
        ("data.train.split={of: test, range: [0]}", "too few", "", ""),
        ("data.train.split={of: test, range: [5, 5]}", "[first, end] with", "a list", ""),
        ("data.train.split={of: test, range: [0, 1.5]}", "integer", "1.5 (a number)", ""),
        ("data.train.split={of: test, range: [0, 1, 2]}", "[integer, integer]", "a list", ""),
        ("train.optimizer={sgd: 3}", "{kind: {parameter: value}}", "a mapping", ""),
        ("train.optimizer={}", "{kind: {parameter: value}}", "a mapping", ""),
        ("train.optimizer=3", "{kind: {parameter: value}}", "3 (an integer)", ""),
        ("train.optimizer=", "{kind: {parameter: value}}", "nothing (null)", ""),
        ("train.initializer={xavier: , msra: }", "{kind:", "a mapping", ""),
        ("network.variables={w: {init: 3}}", "{kind:", "3 (an integer)", ""),
        ("network.variables={w: {lr_mult: .nan}}", "within float32", "nan (a number)", ""),
        ("network.variables={w: {wd_mult: fast}}", "number", "'fast' (text)", ""),
        ("train.metrics=accuracy", "[{kind: {parameter: value}}, ...]", "'accuracy' (text)", ""),
        ("network.inputs={}", "at least 1", "a mapping", ""),
        ("network.inputs.data=[1, 0]", ">= 1", "0 (an integer)", ""),
        ("network.inputs.data=[1, -8.5]", "integer", "-8.5 (a number)", ""),
        ('network.inputs."a b"=[1]', "letters", "", ""),
        ("network.layers=[]", "at least 1", "a list", ""),
        ("network.layers=3", "[{Operator: {parameter: value}}, ...]", "3 (an integer)", ""),
        ("network.layers=[3]", "{Operator: {parameter: value}}", "3 (an integer)", ""),
        ("network.layers=[{A: , B: }]", "{Operator:", "a mapping with 2 keys: A, B", "indent"),
        ("network.layers=[{A: {name: 3}}]", "letters", "3 (an integer)", ""),
        ("network.layers=[{A: {inputs: a}}]", "a list of names", "'a' (text)", ""),
        ("network.layers=[{A: {inputs: [3]}}]", "a name", "3 (an integer)", ""),
        ("network.layers=[{A: {implementation: onednm}}]", "auto", "'onednm'", "'onednn'"),
        ("network.outputs=[a b]", "a name", "'a b' (text)", ""),
        ("network.variables={w: {frozen: 1}}", "true or false", "1 (an integer)", ""),
        ("network.variables={w: {lr_mult: -1}}", ">= 0", "-1 (an integer)", ""),
    ],
)
def test_P13_each_violation_says_place_expected_and_got(
    good: Path, override: str, expected: str, got: str, hint: str
) -> None:
    (problem,) = parse(good, [override]).diagnostics
    assert problem.place is not None
    assert problem.place.file == "<command line>"
    assert expected in problem.expected + problem.problem
    assert problem.got.startswith(got)
    assert hint in problem.hint


@pytest.mark.parametrize(
    ("override", "problem", "hint"),
    [
        ("sed=1", "unknown key 'sed'", "'seed'"),
        ("extend=a", "unknown key 'extend'", "'extends'"),
        ("zzz=1", "unknown key 'zzz'", "known keys: name, seed"),
        ("data.batchsize=1", "unknown key 'batchsize' in data", "'batch_size'"),
        ("network.variables.w={frozn: true}", "unknown key 'frozn'", "'frozen'"),
    ],
)
def test_unknown_keys_are_answered_with_the_nearest(
    good: Path, override: str, problem: str, hint: str
) -> None:
    found = parse(good, [override]).diagnostics[0]
    assert problem in found.problem
    assert hint in found.hint


@pytest.mark.parametrize(
    "override",
    [
        "network.layers[0].A.outputs=[x]",
        "network.layers[0].A.implementation=cupy",
    ],
)
def test_parts_of_the_grammar_not_built_yet_say_so(good: Path, override: str) -> None:
    (problem,) = parse(good, [override]).diagnostics
    assert "not available yet" in problem.problem


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        ("network:", ["network is missing"]),
        ("data:", ["data.batch_size is missing", "data.train is missing"]),
        ("train:", ["train.epochs is missing", "train.optimizer is missing"]),
    ],
)
def test_missing_keys_are_reported_at_their_section(
    good: Path, line: str, missing: list[str]
) -> None:
    if line == "network:":
        good.write_text(GOOD[: GOOD.index("network")] + GOOD[GOOD.index("data: {b") :])
    else:
        lines = [f"{line} {{}}" if row.startswith(line) else row for row in GOOD.splitlines()]
        good.write_text("\n".join(lines))
    assert [problem.problem for problem in parse(good).diagnostics] == missing


@pytest.mark.parametrize(
    ("override", "expected", "hint"),
    [
        ("train={epochs: 1}", "{kind: {parameter: value}}, such as {sgd: {lr: 0.1}}", "gradients"),
        (
            "train={optimizer: sgd}",
            "integer >= 1 and within int32 or null, such as 20",
            "Number of passes",
        ),
        (
            "train.early_stopping={metric: loss}",
            "integer >= 1 and within int32, such as 3",
            "Successive evaluations",
        ),
        (
            "train.start_from={load: [a]}",
            "the name or path of a run, or weights: FILE instead, such as runs/digits_lenet",
            "run's folder",
        ),
        (
            "data={train: {dataset: digits}}",
            "integer >= 1 and within int32, such as 64",
            "per step",
        ),
        ("data={batch_size: 4}", "mapping, such as {dataset: digits, split: train}", "training"),
        (
            "network={layers: [A]}",
            "mapping with at least 1 item, such as {data: [1, 28, 28], label: []}",
            "input",
        ),
    ],
)
def test_what_is_missing_is_described_by_its_form_and_an_example(
    good: Path, override: str, expected: str, hint: str
) -> None:
    found = [each for each in parse(good, [override]).diagnostics if "missing" in each.problem]
    (problem,) = found
    assert (problem.expected, problem.got) == (expected, "nothing")
    assert hint in problem.hint


def test_the_examples_of_the_sections_are_a_config(tmp_path: Path) -> None:
    sections = ("network", "data", "train")
    examples = {name: RunConfig.model_fields[name].examples for name in sections}
    # JSON is YAML.
    text = json.dumps({name: found[0] for name, found in examples.items() if found})
    (tmp_path / "net.yaml").write_text(text)
    assert load_config(tmp_path / "net.yaml").train.epochs == 20


def test_F9_everything_wrong_is_reported_in_one_pass_in_the_file_order(good: Path) -> None:
    good.write_text(
        "name: good\nsead: 1\nnetwork:\n  inputs: {data: [1, 0]}\n  layers:\n"
        "    - A: {name: a, inputs: 3}\n    - B: {name: 'b c'}\n    - 7\n"
        "data: {batch_size: '4', train: {dataset: digits}}\ntrain: {epochs: 1.0}\nname: twice\n"
    )
    with pytest.raises(UserError) as raised:
        load_config(good)
    places = [problem.place for problem in raised.value.diagnostics]
    assert [(place.line, place.column) for place in places if place] == [
        (2, 1),
        (4, 22),
        (6, 28),
        (7, 17),
        (8, 7),
        (9, 20),
        (10, 1),
        (10, 17),
        (11, 1),
    ]
    assert raised.value.exit_code == 2


def test_what_is_right_is_given_whatever_is_wrong_elsewhere(good: Path) -> None:
    parsed = parse(good, ["train.epochs=x", "sed=1"])
    assert parsed.config is None
    assert len(parsed.diagnostics) == 2
    assert parsed.network is not None
    assert parsed.data is not None
    assert [layer.name for layer in parsed.layers] == ["a", "b0"]
    broken = parse(good, ["network.layers[1]=3", "data.batch_size=0"])
    assert broken.network is None
    # The wrong batch size is replaced, so that the rest of the section is checked too.
    assert broken.data is not None
    assert broken.data.train.dataset == "digits"
    assert broken.train is not None
    assert broken.key_place("train", "epochs") == SourceLocation(str(good), 8, 9)
    assert [layer.name for layer in broken.layers] == ["a"]


def test_values_still_to_be_given(good: Path) -> None:
    mnist = CONFIGS / "mlp_mnist.yaml"
    config = load_config(mnist)
    (problem,) = config.missing
    assert problem.problem == "data.train.path must be given"
    assert "data.train.path=" in problem.hint
    assert problem.place == SourceLocation(str(mnist), 17, 11)
    assert config.data.train.options["path"].is_placeholder
    given = load_config(mnist, ["data.train.path=folder"])
    assert given.missing == ()
    assert given.data.train.options["path"].value == str(Path("folder").absolute())
    (problem,) = parse(good, ["train.epochs=???"]).diagnostics
    assert problem.problem == "train.epochs must be given"
    (problem,) = parse(good, ["network.layers[0].A.x=??? the x"]).diagnostics
    assert (problem.problem, problem.expected) == (
        "network.layers[0].A.x must be given",
        "the x",
    )


def test_options_of_a_data_set_are_free_and_keep_their_places(good: Path) -> None:
    config = load_config(good, ["data.train={dataset: x, split: test, options: 1, path: p}"])
    train = config.data.train
    assert train.split is not None
    assert (train.split.of, train.split.range) == ("test", None)
    options = {key: part.value for key, part in train.options.items()}
    assert options == {"options": 1, "path": str(Path("p").absolute())}
    assert train.options["path"].place == SourceLocation("<command line>", 1, 56)


def test_automatic_names_are_names_whatever_the_operator(good: Path, tmp_path: Path) -> None:
    config = load_config(good, ["network.layers=['7&A b', é, '9', A, 'A']"])
    names = [layer.name for layer in config.network.layers]
    assert names == ["_a_b0", "_0", "layer0", "a0", "a1"]
    again = config_file(tmp_path, config.resolved(), "again.yaml")
    assert load_config(again) == config


def test_variables(good: Path) -> None:
    text = "network.variables={'a_*': {shape: [2, 3], init: {constant: {value: 1}}, wd_mult: 0}}"
    (variable,) = load_config(good, [text]).network.variables.values()
    assert variable.shape == (2, 3)
    assert variable.init is not None
    assert variable.init.parameters["value"].value == 1
    assert (variable.lr_mult, variable.wd_mult, variable.frozen) == (1, 0, None)
