"""`extends:`, overrides, blocks, repeats and expressions, from files to a RunConfig."""

from pathlib import Path

import pytest
from layer_configs import config_file

from mxrun.base.errors import SourceLocation
from mxrun.config import Choice, Names, RunConfig, load_config, parse

TAIL = """
data: {batch_size: 4, train: {dataset: digits}}
train: {epochs: 1, optimizer: sgd}
"""


def write(folder: Path, text: str, name: str = "run.yaml") -> Path:
    return config_file(folder, text, name)


def network(folder: Path, layers: str, blocks: str = "") -> Path:
    head = "network:\n  inputs: {data: [1, 8, 8], label: []}\n  layers:\n"
    return write(folder, blocks + head + layers + TAIL)


def names_of(config: RunConfig) -> list[str]:
    return [layer.name for layer in config.network.layers]


def test_extends_merges_deeply_and_the_later_wins(tmp_path: Path) -> None:
    (tmp_path / "bases").mkdir()
    base = network(tmp_path / "bases", "    - A: {name: a}\n    - B: {name: b}\n")
    middle = write(tmp_path / "bases", "extends: run.yaml\nseed: 1\ntrain: {epochs: 5}\n", "m.yaml")
    text = "extends: bases/m.yaml\nseed: 2\nnetwork: {layers: [C]}\n"
    config = load_config(write(tmp_path, text))
    assert (config.seed, config.train.epochs, config.data.batch_size) == (2, 5, 4)
    assert [layer.operator for layer in config.network.layers] == ["C"]
    assert config.place("train", "epochs") == SourceLocation(str(middle), 3, 17)
    assert config.key_place("data", "batch_size") == SourceLocation(str(base), 7, 8)
    assert config.place("seed") == SourceLocation(str(tmp_path / "run.yaml"), 2, 7)
    assert config.name == "run"


def test_another_choice_replaces_the_one_extended(tmp_path: Path) -> None:
    write(tmp_path, "train: {initializer: {xavier: {magnitude: 2}}}\n", "base.yaml")
    own = network(tmp_path, "    - A\n")
    own.write_text(
        "extends: base.yaml\n"
        + own.read_text().replace("optimizer: sgd", "optimizer: sgd, initializer: {normal: }")
    )
    config = load_config(own)
    assert config.train.initializer == Choice("normal", {}, SourceLocation("", 0, 0))
    own.write_text(own.read_text().replace("{normal: }", "{xavier: {rnd_type: gaussian}}"))
    xavier = load_config(own).train.initializer
    parameters = {key: part.value for key, part in xavier.parameters.items()}
    assert (xavier.kind, parameters) == ("xavier", {"magnitude": 2, "rnd_type": "gaussian"})


def test_extends_in_a_circle_and_bases_that_are_missing(tmp_path: Path) -> None:
    path = write(tmp_path, "extends: other.yaml\n")
    write(tmp_path, "a: 1\nextends: run.yaml\n", "other.yaml")
    (problem,) = parse(path).diagnostics
    assert "circle" in problem.problem
    assert problem.place == SourceLocation(str(tmp_path / "other.yaml"), 2, 10)
    assert problem.got == "run.yaml -> other.yaml -> run.yaml"
    (problem,) = parse(write(tmp_path, "extends: digit_lenet\n")).diagnostics
    assert problem.problem == "extends: there is no such file or bundled config"
    assert problem.place == SourceLocation(str(path), 1, 10)
    assert (problem.got, problem.hint) == ("digit_lenet", "did you mean 'digits_lenet'?")
    (problem,) = parse(write(tmp_path, "extends: .\n")).diagnostics
    assert problem.problem == "is a folder"
    assert problem.chain == (f"extended from {path}:1:10",)
    problems = parse(write(tmp_path, "extends: [a]\n")).diagnostics
    assert "extends: names a config" in [problem.problem for problem in problems]


def test_a_bundled_config_is_extended_by_name_but_its_name_is_not_inherited(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, "extends: digits_lenet\nseed: 3\n", "own.yaml"))
    assert (config.name, config.seed, config.network.layers[0].name) == ("own", 3, "conv1")
    assert load_config(write(tmp_path, "extends: own.yaml\n")).name == "run"
    # A file in the same folder takes precedence.
    network(tmp_path, "    - C\n").rename(tmp_path / "digits_lenet.yaml")
    config = load_config(write(tmp_path, "extends: digits_lenet.yaml\n"))
    assert [layer.operator for layer in config.network.layers] == ["C"]


def test_overrides_reach_every_value_and_keep_their_place(tmp_path: Path) -> None:
    path = network(tmp_path, "    - A: {name: a, x: 1}\n    - B\n    - C:\n")
    config = load_config(
        path,
        [
            "train.epochs=3",
            "network.layers[0].A.x=1e-3",
            "network.layers[2].C.kernel=[3, 3]",
            "train.optimizer={sgd: {momentum: 0.9}}",
            'network.variables."fc*_weight".frozen=true',
            "data.train.path=/a=b",
            "name=no",
        ],
    )
    assert config.train.epochs == 3
    assert config.network.layers[0].parameters["x"].value == 1e-3
    assert config.network.layers[2].parameters["kernel"].plain() == (3, 3)
    assert config.train.optimizer.parameters["momentum"].value == 0.9
    assert config.network.variables["fc*_weight"].frozen
    assert config.data.train.options["path"].value == "/a=b"
    assert config.name == "no"
    assert config.place("train", "epochs") == SourceLocation("<command line>", 1, 14)
    assert config.key_place("train", "epochs") == SourceLocation("<command line>", 1, 7)
    assert config.network.layers[2].place_of("kernel") == SourceLocation("<command line>", 3, 28)


@pytest.mark.parametrize(
    ("argument", "column", "words"),
    [
        ("train.epochs", 13, "not an override"),
        ("", 1, "not an override"),
        ("=3", 1, "not an override"),
        ("train..epochs=3", 6, "not an override"),
        ("train.epochs]=3", 13, "not an override"),
        ("[0]=3", 1, "not an override"),
        ("train.epochs=[", 15, "not valid YAML"),
        ("train.epochs.x=3", 14, "has no key"),
        ("network.layers.A=3", 16, "has no key"),
        ("network.layers[9].A=3", 15, "has no item 9"),
        ("network[0]=3", 8, "has no item 0"),
        ("extends=b.yaml", 1, "cannot be overridden"),
        ("train.epoch=3", 7, "unknown key 'epoch'"),
        ("train.epochs=x", 14, "cannot be 'x'"),
    ],
)
def test_a_bad_override_is_placed_in_its_argument(
    tmp_path: Path, argument: str, column: int, words: str
) -> None:
    (problem,) = parse(network(tmp_path, "    - A\n"), ["seed=1", argument]).diagnostics
    assert words in problem.problem
    assert problem.place == SourceLocation("<command line>", 2, column)


def test_layers_without_names_are_counted_by_operator(tmp_path: Path) -> None:
    layers = "    - Conv\n    - Conv: {name: conv2}\n    - Conv: {name: conv1}\n    - Conv:\n"
    assert names_of(load_config(network(tmp_path, layers))) == ["conv0", "conv2", "conv1", "conv3"]


BLOCKS = """
blocks:
  pair:
    parameters: {filters: null, kernel: [3, 3], double: "${2 * filters}"}
    layers:
      - Conv: {name: conv, num_filter: "${filters}", kernel: "${kernel}", x: "${double}"}
      - Relu
  residual:
    parameters: {filters: null}
    layers:
      - pair: {name: body, filters: "${filters}"}
      - Add: {name: add, lhs: body, rhs: "${input}"}
"""


def test_blocks_are_used_like_operators(tmp_path: Path) -> None:
    layers = """
    - pair: {name: stem, filters: 8}
    - residual: {name: r1, filters: 8}
    - pair: {filters: "${4 * 4}", kernel: [1, 1]}
    - residual: {name: r2, inputs: [stem], filters: 8}
    - Out: {data: r2}
"""
    config = load_config(network(tmp_path, layers, BLOCKS))
    assert names_of(config) == [
        "stem/conv",
        "stem/relu0",
        "r1/body/conv",
        "r1/body/relu0",
        "r1/add",
        "pair0/conv",
        "pair0/relu0",
        "r2/body/conv",
        "r2/body/relu0",
        "r2/add",
        "out0",
    ]
    by_name = {layer.name: layer for layer in config.network.layers}
    assert by_name["stem/conv"].parameters["kernel"].plain() == (3, 3)
    assert by_name["stem/conv"].parameters["x"].value == 16
    assert by_name["pair0/conv"].parameters["kernel"].plain() == (1, 1)
    assert by_name["pair0/conv"].parameters["num_filter"].value == 16
    assert by_name["r1/add"].parameters["rhs"].value == "/stem/relu0"
    assert by_name["r1/body/conv"].inputs == ()
    assert by_name["r2/add"].parameters["rhs"].value == "/stem/relu0"
    assert [part.value for part in by_name["r2/body/conv"].inputs] == ["/stem/relu0"]
    assert by_name["r2/body/conv"].chain == (
        f"block 'residual' is used as 'r2' at {tmp_path / 'run.yaml'}:20:7",
        f"block 'pair' is used as 'r2/body' at {tmp_path / 'run.yaml'}:11:9",
    )
    names = Names([*config.network.inputs, *names_of(config)])
    assert names.resolve("body", "r1") == ("r1/body/relu0", 0)
    assert names.resolve("r2[1]") == ("r2/add", 1)
    assert names.resolve("/data", "r1") == ("data", 0)
    assert names.resolve("add", "r1/body") == ("r1/add", 0)
    assert names.resolve("/add", "r1") is None
    assert names.resolve("a b") is None


def test_repeat_binds_i(tmp_path: Path) -> None:
    layers = """
    - repeat:
        count: ${1 + 2}
        layers:
          - Conv: {name: "conv${i}", num_filter: "${16 * 2 ** i}", text: "$${i} is ${i}"}
          - repeat: {count: 2, layers: [Relu]}
    - repeat: {count: 0, layers: [Never]}
"""
    config = load_config(network(tmp_path, layers))
    convolutions = [layer for layer in config.network.layers if layer.operator == "Conv"]
    assert [layer.name for layer in convolutions] == ["conv0", "conv1", "conv2"]
    assert [layer.parameters["num_filter"].value for layer in convolutions] == [16, 32, 64]
    assert convolutions[2].parameters["text"].value == "${i} is 2"
    assert names_of(config)[-2:] == ["relu4", "relu5"]
    assert config == load_config(write(tmp_path, config.resolved(), "again.yaml"))


def test_expressions_work_anywhere(tmp_path: Path) -> None:
    path = network(tmp_path, "    - A\n")
    config = load_config(path, ["train.epochs=${2 * 3}", "seed=${7 // 2}"])
    assert (config.train.epochs, config.seed) == (6, 3)


@pytest.mark.parametrize(
    ("layers", "line", "column", "words"),
    [
        ("    - pair: {name: a}\n", 16, 7, "needs the parameter 'filters'"),
        ("    - pair: {filters: 3, kernal: 1}\n", 16, 26, "no parameter 'kernal'"),
        ("    - pair: {filters: 3, inputs: [b]}\n", 16, 35, "no layer 'b'"),
        ("    - pair: {filters: 3, inputs: b}\n", 16, 34, "one input"),
        ("    - pair: {filters: 3, name: 7}\n", 16, 32, "not a name"),
        ("    - pair: 7\n", 16, 13, "are a mapping"),
        ("    - A: {x: '${filters}'}\n", 16, 14, "unknown name 'filters'"),
        ("    - A: {x: '${1 +}'}\n", 16, 14, "too early"),
        ("    - A: {x: 'a${1'}\n", 16, 14, "missing"),
        ("    - A: {name: 'a ${1.5}'}\n", 16, 17, "not a name"),
        ("    - repeat: {count: -1, layers: [A]}\n", 16, 23, "number of repetitions"),
        ("    - repeat: {count: true, layers: [A]}\n", 16, 23, "number of repetitions"),
        ("    - repeat: {layers: [A]}\n", 16, 7, "needs a count"),
        ("    - repeat: {count: 2}\n", 16, 7, "needs layers"),
        ("    - repeat: {count: 2, layers: [A], of: 3}\n", 16, 39, "unknown key 'of'"),
        ("    - repeat: {count: 9999999999, layers: [A]}\n", 16, 23, "number of repetitions"),
        ("    - repeat: {count: 3, layers: [A: 3]}\n", 16, 38, "are a mapping"),
    ],
)
def test_F9_what_is_wrong_with_a_use_is_said_once_and_there(
    tmp_path: Path, layers: str, line: int, column: int, words: str
) -> None:
    path = network(tmp_path, layers, BLOCKS)
    (problem, *more) = parse(path).diagnostics
    assert more == []
    assert words in problem.problem
    assert problem.place == SourceLocation(str(path), line, column)


@pytest.mark.parametrize(
    ("blocks", "words"),
    [
        ("blocks: 3\n", "a mapping"),
        ("blocks: {a: {layers: []}}\n", "needs layers"),
        ("blocks: {a: {parameters: {x: 1}}}\n", "needs layers"),
        ("blocks: {a: {layers: [A], parameters: 3}}\n", "a mapping"),
        ("blocks: {a: {layers: [A], parameter: {}}}\n", "unknown key 'parameter'"),
        ("blocks: {a: {layers: [A], parameters: {input: 1}}}\n", "cannot be named 'input'"),
        ("blocks: {a: {layers: [A], parameters: {min: 1}}}\n", "cannot be named 'min'"),
        ("blocks: {a b: {layers: [A]}}\n", "not a name"),
        ("blocks: {repeat: {layers: [A]}}\n", "not a name"),
    ],
)
def test_a_bad_block_is_reported_though_unused(tmp_path: Path, blocks: str, words: str) -> None:
    (problem,) = parse(network(tmp_path, "    - A\n", blocks)).diagnostics
    assert words in problem.problem
    assert problem.place is not None
    assert problem.place.line == 1


def test_blocks_without_end_and_texts_that_explode_are_refused(tmp_path: Path) -> None:
    circle = "blocks: {a: {layers: [b]}, b: {layers: [a: {}]}}\n"
    (problem, *_) = parse(network(tmp_path, "    - a\n", circle)).diagnostics
    assert "in a circle" in problem.problem
    assert problem.got == "a -> b -> a"
    doubling = "blocks:\n" + "".join(
        f"  b{i}:\n    parameters: {{t: null}}\n    layers:\n"
        f"      - b{i + 1}: {{t: ['${{t}}', '${{t}}']}}\n"
        for i in range(25)
    )
    doubling += "  b25: {parameters: {t: null}, layers: [A: {t: '${t}'}]}\n"
    for text in (doubling, doubling.replace("['${t}', '${t}']", "'${t}${t}'")):
        (problem, *_) = parse(network(tmp_path, "    - b0: {t: xx}\n", text)).diagnostics
        assert "too" in problem.problem


def test_a_problem_inside_a_block_tells_where_the_block_is_used(tmp_path: Path) -> None:
    blocks = "blocks: {a: {parameters: {n: 1}, layers: [A: {x: '${n / 0}'}]}}\n"
    path = network(tmp_path, "    - a: {name: first}\n    - a: {name: second}\n", blocks)
    (problem,) = parse(path).diagnostics
    assert problem.chain == (f"block 'a' is used as 'first' at {path}:5:7",)


def test_resnet_50_stays_below_eighty_lines(tmp_path: Path) -> None:
    path = Path(__file__).parent / "resnet50.yaml"
    assert len(path.read_text().splitlines()) < 80
    config = load_config(path)
    layers = config.network.layers
    assert sum(layer.operator == "Convolution" for layer in layers) == 53
    assert sum(layer.operator == "elemwise_add" for layer in layers) == 16
    assert len({layer.name for layer in layers}) == len(layers) == 176
    names = Names(config.network.inputs)
    for layer in layers:
        for key in ("lhs", "rhs", "label"):
            if key in layer.parameters:
                assert names.resolve(str(layer.parameters[key].value), layer.scope) is not None
        names.add(layer.name)
    filters = [
        layer.parameters["num_filter"].value for layer in layers if layer.operator == "Convolution"
    ]
    assert filters[:6] == [64, 64, 64, 256, 256, 64]
    assert filters[-3:] == [512, 512, 2048]
    assert config == load_config(write(tmp_path, config.resolved(), "flat.yaml"))


def test_a_file_takes_precedence_over_a_bundled_config(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, "extends: digits_lenet.yaml\n"))
    assert config.network.layers[0].operator == "Convolution"
    network(tmp_path, "    - C\n").rename(tmp_path / "digits_lenet.yaml")
    config = load_config(write(tmp_path, "extends: digits_lenet.yaml\n"))
    assert [layer.operator for layer in config.network.layers] == ["C"]
