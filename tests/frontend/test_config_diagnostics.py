"""All errors of a config are reported at once, with locations, before anything is allocated."""

from __future__ import annotations

import random
import resource
import subprocess
from pathlib import Path

import pytest
from commands import CONFIGS, MXRUN, mxrun, refused
from layer_configs import DENSE, SOFTMAX, problems, written
from mutations import is_yaml, mutate

from mxrun.base.errors import Diagnostic, UserError
from mxrun.commands.check import check

MUTATIONS = 500
# Through processes: damage that `check` refuses, and damage that changes a config into another.
REFUSED, ACCEPTED = 15, 5
# Enough to import and plan everything, far below the requested sizes.
ADDRESSES = 4 << 30

CONVOLUTION = "Convolution: {name: conv, num_filter: 4, kernel: [3, 3]}"


def checked(path: Path) -> tuple[Diagnostic, ...]:
    """Return the errors of a config, or nothing; any other exception fails the test."""
    try:
        report = check(path)
    except UserError as error:
        return error.diagnostics or pytest.fail("an error that says nothing")
    assert report.rows
    return ()


def mutated(count: int) -> list[bytes]:
    texts = [path.read_bytes() for path in sorted(CONFIGS.glob("*.yaml"))]
    # A config that extends another one is not complete by itself.
    sources = [text for text in texts if b"\nextends:" not in text]
    assert len(sources) >= 3
    source = random.Random(3)
    return [mutate(sources[number % len(sources)], source) for number in range(count)]


def test_F9_mutated_configs_are_checked_without_a_traceback(tmp_path: Path) -> None:
    path = tmp_path / "mutated.yaml"
    well_formed = accepted = 0
    told: set[str] = set()
    for content in mutated(MUTATIONS):
        path.write_bytes(content)
        well_formed += is_yaml(content)
        found = checked(path)
        accepted += not found
        for problem in found:
            assert problem.place is not None, (content, problem)
            assert problem.place.file == str(path)
            assert 1 <= problem.place.line <= content.count(b"\n") + 2, (content, problem)
            assert problem.place.column >= 1
            told.add(problem.problem)
    assert well_formed >= MUTATIONS / 2
    assert MUTATIONS / 20 < accepted < MUTATIONS / 2
    assert any("contradict each other" in text for text in told)
    assert any("nothing is named" in text for text in told)
    assert any("unknown operator" in text for text in told)


def of_both_kinds(path: Path) -> list[bytes]:
    """The first mutations that are refused and the first that are accepted."""
    left, found = {True: REFUSED, False: ACCEPTED}, []
    for content in mutated(MUTATIONS):
        path.write_bytes(content)
        is_refused = bool(checked(path))
        if left[is_refused]:
            left[is_refused] -= 1
            found.append(content)
        if not any(left.values()):
            break
    return found


def test_F9_mutated_configs_end_processes_with_0_or_2(tmp_path: Path) -> None:
    codes = set()
    for number, content in enumerate(of_both_kinds(tmp_path / "mutated.yaml")):
        (tmp_path / "net.yaml").write_bytes(content)
        command = ("check", "inspect-memory")[number % 2]
        done = mxrun(command, "net.yaml", cwd=tmp_path)
        codes.add(done.returncode)
        assert "Traceback" not in done.stderr, content
        if done.returncode == 2:
            assert done.stdout == ""
            assert done.stderr.startswith("net.yaml:"), done.stderr
        else:
            assert done.returncode == 0, content
            assert done.stderr == ""
    assert codes == {0, 2}


@pytest.mark.parametrize(
    ("layers", "line", "column", "problem", "expected", "got", "hint"),
    [
        (
            ["FullyConected: {num_hidden: 3}", SOFTMAX],
            *(5, 7, "unknown operator 'FullyConected'", "", "", "did you mean 'FullyConnected'?"),
        ),
        (
            ["FullyConnected: {name: fc, num_hidden: 3, flaten: true}", SOFTMAX],
            *(5, 49, "'fc' has no parameter or argument 'flaten'"),
            *("one of num_hidden, no_bias, flatten", "flaten", "did you mean 'flatten'?"),
        ),
        (
            ["FullyConnected: {name: fc, num_hidden: ten}", SOFTMAX],
            *(5, 46, "parameter 'num_hidden' cannot be 'ten'", "integer >= 1", "'ten'", ""),
        ),
        (
            ["FullyConnected: {name: fc, num_hidden: 0}", SOFTMAX],
            *(5, 46, "parameter 'num_hidden' cannot be 0", "integer >= 1", "0", ""),
        ),
        (
            ["Convolution: {name: conv, kernel: [3, 3]}", SOFTMAX],
            *(
                5,
                7,
                "parameter 'num_filter' is missing",
                "integer >= 1",
                "nothing",
                "output channels",
            ),
        ),
        (
            ["Convolution: {name: conv, num_filter: 2, kernel: [3, -3]}", SOFTMAX],
            *(5, 60, "parameter 'kernel", "", "-3", ""),
        ),
        (
            ["FullyConnected: {name: fc, num_hidden: 3, data: dat}", SOFTMAX],
            *(5, 55, "nothing is named 'dat'", "a layer, an input or a variable", "dat"),
            "did you mean 'data'?",
        ),
        ([DENSE, DENSE, SOFTMAX], 6, 30, "the name 'fc' is taken by the layer at", "", "", ""),
        (
            ["FullyConnected: {name: label, num_hidden: 3}", SOFTMAX],
            *(5, 30, "the name 'label' is taken by an input", "", "", ""),
        ),
        (
            ["elemwise_add: {name: sum, lhs: data, rhs: fc}", DENSE, SOFTMAX],
            *(5, 49, "'fc' is defined later, at", "defined before", "fc", "move that layer up"),
        ),
        (
            ["FullyConnected: {name: fc, num_hidden: 3, data: fc}", SOFTMAX],
            *(5, 55, "'fc' reads its own output: a cycle", "", "", "only layers before"),
        ),
        (
            [CONVOLUTION, "FullyConnected: {name: fc, num_hidden: 9, data: data}", SOFTMAX],
            *(5, 7, "nothing reads the layer 'conv'", "a layer that reads 'conv'"),
            *("outputs: [softmax], by default the last layer",),
            "write network.outputs: [conv, softmax] for one more output or loss, or remove",
        ),
        (
            [DENSE, "FullyConnected: {name: two, num_hidden: 3, weight: w1}", SOFTMAX],
            *(6, 58, "nothing is named 'w1'", "a layer, an input or a variable", "w1"),
            "to share the weight of another layer, write its name, such as fc_weight; a variable "
            "with a name of its own is declared: network.variables: {w1: {}}",
        ),
        (
            ["FullyConnected: {name: fc, num_hidden: 3, bias: false}", SOFTMAX],
            *(5, 55, "bias takes the name of a layer", "a name", "False"),
            "no_bias: true leaves it out",
        ),
        (
            ["FullyConnected: {name: fc, num_hidden: 3, use_bias: false}", SOFTMAX],
            *(5, 49, "no parameter or argument 'use_bias'", "no_bias", "use_bias"),
            "no_bias: true leaves the bias out",
        ),
        (
            [DENSE, "Activation: {act_type: gelu}", SOFTMAX],
            *(6, 30, "'act_type' cannot be 'gelu'", "one of relu", "'gelu'"),
            "a layer of its own: gelu",
        ),
        (
            [DENSE, "FullyConnected: {name: of, num_hidden: 3, data: label}", SOFTMAX],
            *(6, 7, "'label' is a label, yet FullyConnected 'of' reads it as data"),
            *("an input that is not a label", "label"),
            "class numbers, which one_hot, Embedding and pick read as such",
        ),
        (
            [DENSE, "SoftmaxOutput: {name: softmax}"],
            *(6, 7, "needs its 'label'", "the name of one of the network's inputs", ""),
            "inputs: data, label",
        ),
        (
            [DENSE, "SoftmaxOutput: {name: softmax, label: 'label[1]'}"],
            *(6, 45, "'label' has no output 1", "1 output", "output 1", ""),
        ),
        ([DENSE], 4, 3, "the network has no loss", "", "", "SoftmaxOutput"),
        (
            [DENSE, "Convolution: {name: conv, num_filter: 4, kernel: [3, 3]}", SOFTMAX],
            *(6, 7, "shapes of Convolution 'conv' contradict each other at 'data'"),
            *("data [?, ?, ?, ?]", "data [4, 10]", ""),
        ),
    ],
)
def test_F9_X7_one_mistake_in_a_layer_is_one_diagnostic(
    layers: list[str],
    line: int,
    column: int,
    problem: str,
    expected: str,
    got: str,
    hint: str,
    tmp_path: Path,
) -> None:
    path = written(tmp_path, layers)
    (found,) = problems(path)
    assert found.place is not None
    assert (found.place.file, found.place.line, found.place.column) == (str(path), line, column)
    assert problem in found.problem
    assert expected in found.expected
    assert got in found.got
    assert hint in found.hint
    for said, wanted in ((found.expected, expected), (found.got, got), (found.hint, hint)):
        assert said or not wanted


@pytest.mark.parametrize(
    ("override", "column", "problem", "hint"),
    [
        ("train.initializer=xaver", 19, "unknown initializer 'xaver'", "'xavier'"),
        ("train.optimizer=sdg", 17, "unknown optimizer 'sdg'", "'sgd'"),
        ("train.optimizer={sgd: {lr: -1}}", 28, "sgd: parameter 'lr' cannot be -1", ""),
        ("train.optimizer={sgd: {rl: 1}}", 24, "sgd: unknown parameter 'rl'", ""),
        ("train.optimizer={sgd: {learning_rate: 1}}", 24, "'learning_rate'", "mxrun calls it lr"),
        ("train.optimizer={sgd: {nesterov: true}}", 24, "'nesterov'", "train.optimizer: {nag: "),
        ("train.optimizer={sgd:1}", 18, "optimizer 'sgd:1'", "a space after the colon: sgd: 1"),
        ("train.schedule={step: {gamma: 0.1}}", 24, "parameter 'gamma'", "mxrun calls it factor"),
        ("train.early_stopping=5", 22, "train.early_stopping cannot be 5", ""),
        ("train.checkpoint.best=val_loss", 23, "nothing measures 'val_loss'", "write loss: it is"),
        ("train.checkpoint.best=f1", 23, "nothing measures 'f1'", "add it to train.metrics"),
        ("train.metrics=accuracy", 15, "train.metrics cannot be 'accuracy'", "write [accuracy]"),
        ("network.inputs={data: 10, label: []}", 23, "network.inputs.data", "write [10]"),
        ("data.train.shufle=true", 12, "'shufle'", "'data.train.shuffle' or 'data.eval.shuffle'"),
        ("train.patience=3", 7, "unknown key 'patience'", "'train.early_stopping.patience'"),
        ("train.lr=3", 7, "unknown key 'lr'", "train.optimizer: {sgd: {lr: 0.1}}"),
        ("train.loss=mse", 7, "unknown key 'loss'", "the loss is the network's last layer"),
        ("epochs=3", 1, "unknown key 'epochs'", "did you mean 'train.epochs'?"),
        ("batch_size=3", 1, "unknown key 'batch_size'", "did you mean 'data.batch_size'?"),
        ("data.train.batch_size=3", 12, "'batch_size'", "did you mean 'data.batch_size'?"),
        (
            "data.validation={dataset: digits}",
            6,
            "unknown key 'validation'",
            "did you mean 'data.eval'?",
        ),
        ("data.num_workers=3", 6, "unknown key 'num_workers'", "did you mean 'data.workers'?"),
        ("device=cuda", 1, "unknown key 'device'", "mxrun calls it context"),
        ("precision=bf16", 11, "precision cannot be 'bf16'", "mxrun calls it bfloat16"),
        ("data.train.dataset=a.csv", 20, "unknown data set 'a.csv'", "path: a.csv"),
        ("train.metrics=[accuracy, acuracy]", 26, "unknown metric 'acuracy'", "'accuracy'"),
        ("train.epoch=3", 7, "unknown key 'epoch' in train", "'epochs'"),
        ("data.train.dataset=digts", 20, "unknown data set 'digts'", "'digits'"),
        ("data.train.split=trian", 18, "unknown split 'trian'", "'train'"),
        ("data.train.split={of: train, range: [5, 3]}", 37, "data.train.split.range", ""),
        ("data.train.context=cpu", 12, "'context'", "a key of the config itself"),
        ("data.train.color=red", 12, "color", ""),
        ("data.train={dataset: csv, path: a.csv, data: [0, 1.5]}", 50, "data[1]", ""),
        ("network.outputs=[fcc]", 18, "nothing is named 'fcc'", "'fc'"),
        ("network.variables={'fx_*': {frozen: true}}", 20, "matches 'fx_*'", "fc_weight"),
        ("network.variables={fc_weigth: {lr_mult: 2}}", 20, "'fc_weigth'", "'fc_weight'"),
        ("network.variables={fc_weight: {init: xavir}}", 38, "unknown initializer", "'xavier'"),
        ("memory={budget: 150%}", 17, "memory.budget cannot be '150%'", ""),
        ("memory={micro_batches: true}", 9, "memory.budget, which is not given", "add a budget"),
        ("memory={micro_batches: 4}", 24, "memory.micro_batches cannot be 4", ""),
        ("plugins=[a.py]", 10, "cannot read the plugin", "relative to the folder"),
        ("plugins=[a.txt]", 10, "plugins[0] cannot be", ""),
        ("plugins=[a.py, b/a.py]", 9, "plugins cannot be [", ""),
        ("train.epochs", 13, "not an override", ""),
        ("network.layers[9].FullyConnected.num_hidden=3", 15, "9", ""),
    ],
)
def test_F9_one_mistake_elsewhere_is_one_diagnostic(
    override: str, column: int, problem: str, hint: str, tmp_path: Path
) -> None:
    path = written(tmp_path, [DENSE, SOFTMAX])
    (found,) = problems(path, [override])
    assert found.place is not None
    assert found.place.file == "<command line>"
    assert found.place.column == column
    assert problem in found.problem
    assert hint in found.hint


UNKNOWN = """\
blocks:
  unit:
    parameters: {units: null, kind: relu}
    layers:
      - FullyConnected: {name: fc, num_hidden: "${2 * units}"}
      - Activation: {name: act, act_type: "${kind}"}
"""


@pytest.mark.parametrize(
    "layer",
    [
        "FullyConnected: {num_hidden: '${x}'}",
        "FullyConnected: {num_hidden: 'a${x}'}",
        "Convolution: {num_filter: 3, kernel: ['${x}', 3]}",
        "Activation: {act_type: '${x}'}",
        "FullyConnected: {name: '${x}', num_hidden: 3}",
        "unit: {name: a, units: '${x}'}",
        "unit: {name: a, units: 3, kind: '${x}'}",
        "repeat: {count: '${x}', layers: [unit: {units: '${1 // i}'}]}",
    ],
)
def test_what_follows_from_an_expression_without_a_value_is_not_reported(
    layer: str, tmp_path: Path
) -> None:
    path = written(tmp_path, [layer, DENSE, SOFTMAX])
    path.write_text(path.read_text() + UNKNOWN)
    overrides = ["train.epochs=${y}", "train.optimizer={sgd: {lr: '${z}', momentum: 9}}"]
    found = sorted(each.problem.partition(" (")[0] for each in problems(path, overrides))
    unknown = [f"unknown name {name!r}" for name in "xyz"]
    assert found == ["sgd: parameter 'momentum' cannot be 9", *unknown]


def test_F9_P3_all_kinds_of_mistakes_come_in_one_pass(tmp_path: Path) -> None:
    """Two shape contradictions with their chains, a bad parameter, and two config errors."""
    path = written(
        tmp_path,
        [
            CONVOLUTION,
            "elemwise_add: {name: sum, lhs: conv, rhs: data}",
            "Convolution: {name: big, num_filter: 2, kernel: [9, 9], data: data}",
            "FullyConnected: {name: wrong, num_hidden: 0}",
            "FullyConnected: {name: fc, num_hidden: 10, data: sum}",
            SOFTMAX,
        ],
    )
    found = problems(path, ["train.metrics=[acuracy]", "data.train.dataset=digts"])
    assert [(p.place.line, p.place.column) for p in found if p.place] == [
        *((6, 7), (7, 7), (8, 49)),
        *((1, 16), (2, 20)),
    ]
    total, kernel, *_ = found
    assert "contradict each other at 'rhs'" in total.problem
    assert (total.expected, total.got) == (
        "rhs [4, 4, 6, 6] (elementwise)",
        "rhs [4, 1, 8, 8]",
    )
    assert total.chain == (
        f"conv_output is [4, 4, 6, 6], by Convolution 'conv' at {path}:5:7",
        f"data is [4, 1, 8, 8], as given at {path}:3:12",
    )
    assert "'big'" in kernel.problem
    assert kernel.chain == (f"data is [4, 1, 8, 8], as given at {path}:3:12",)


def test_many_mistakes_are_told_in_part_and_without_internal_names(tmp_path: Path) -> None:
    layers = [f"FullyConected: {{name: fc{i}, num_hidden: 3}}" for i in range(300)]
    path = written(tmp_path, [*layers, SOFTMAX])
    found = problems(path)
    assert len(found) == 300
    assert {problem.hint for problem in found[:20]} == {"did you mean 'FullyConnected'?"}
    # These are not shown, so no similar names are searched for.
    assert {problem.hint for problem in found[20:]} == {"`mxrun ops` lists the operators"}
    said = refused("check", "net.yaml", cwd=tmp_path)
    assert said.count("unknown operator") == 20
    assert said.endswith("and 280 more problems\n")


def test_many_variables_are_settled_once(tmp_path: Path) -> None:
    layers = [f"FullyConnected: {{name: fc{i}, num_hidden: 2}}" for i in range(30)]
    path = written(tmp_path, [*layers, DENSE, SOFTMAX])
    names = ", ".join(f"fc{i}_wieght: {{frozen: true}}" for i in range(30))
    found = problems(path, [f"network.variables={{{names}}}"])
    assert len(found) == 30
    assert "'fc0_weight'" in found[0].hint
    assert found[-1].hint.endswith("and 50 more")


def test_F9_a_mistake_in_the_network_section_brings_no_others_along(tmp_path: Path) -> None:
    path = written(tmp_path, [DENSE, "Activation: {act_type: relu, implementation: one}", SOFTMAX])
    (found,) = problems(path)
    assert found.place is not None
    assert found.place.line == 6
    assert "implementation" in found.problem


def test_P3_L2_a_weight_cannot_be_shared_by_layers_of_other_shapes(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        [
            "FullyConnected: {name: fc1, num_hidden: 10}",
            "FullyConnected: {name: fc2, num_hidden: 10, weight: fc1_weight}",
            SOFTMAX,
        ],
    )
    (found,) = problems(path)
    assert "FullyConnected 'fc2' contradict each other at 'weight'" in found.problem
    assert found.expected.startswith("weight [?, 10]")
    assert found.got == "weight [10, 64]"
    assert any("fc1_weight is [10, 64], by FullyConnected 'fc1'" in line for line in found.chain)


def test_P3_a_declared_shape_is_blamed_where_it_is_declared(tmp_path: Path) -> None:
    path = written(tmp_path, [DENSE, SOFTMAX])
    (found,) = problems(path, ["network.variables={fc_weight: {shape: [3, 4]}}"])
    assert (found.expected, found.got) == ("weight [10, ?] (num_hidden)", "weight [3, 4]")
    assert "fc_weight is [3, 4], as given at <command line>:1:20" in found.chain


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"name: \xff\n", "net.yaml:1:7: the file is not UTF-8 text"),
        (b"", "net.yaml:1:1: "),
        (b"- a\n- b\n", "net.yaml:1:1: "),
        (b"name: a\nnetwork: {inputs: {data: [1]}, layers: []}\n", "net.yaml:2:40: "),
        (b"network: &n {layers: *n}\n", "net.yaml:1:"),
        (b"name: a\n  b: c\n", "net.yaml:2:"),
    ],
)
def test_F9_a_file_that_is_no_config(content: bytes, problem: str, tmp_path: Path) -> None:
    (tmp_path / "net.yaml").write_bytes(content)
    assert problem in refused("check", "net.yaml", cwd=tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "what", "hint"),
    [
        ("net.onnx", b"\x08\x08\x12\x07pytorch", "an ONNX model", "mxrun convert"),
        ("m.safetensors", b"\x40" + bytes(7) + b'{"w": {}}', "a safetensors file", "infer RUN"),
        ("data.npz", b"PK\x03\x04\x14", "a NumPy archive (.npz)", "data section"),
        ("model.pt", b"PK\x03\x04\x14", "a PyTorch file", "write its layers as a config"),
        ("other", b"PK\x03\x04\x14", "a ZIP archive", "unpack it"),
        ("x.npy", b"\x93NUMPY\x01", "a NumPy array (.npy)", "data section"),
        ("seven.png", b"\x89PNG\r\n", "a PNG image", "mxrun infer RUN FILE"),
        ("net.params", b"\x12\x01" + bytes(6) + b"\x00", "MXNet parameters", "sets its weights"),
        (
            *("net-symbol.json", b'{"nodes": [], "arg_nodes": [], "heads": []}'),
            *("an MXNet symbol file", "no command reads this format yet"),
        ),
    ],
)
def test_a_file_of_another_kind_is_told_as_what_it_is(
    name: str, content: bytes, what: str, hint: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    # Larger than the limit for configs: the kind of file is reported first.
    path.write_bytes(content + b" " * (2 << 20 if name == "net.onnx" else 0))
    (found,) = problems(path)
    assert what in found.problem
    assert "YAML" in found.expected
    assert hint in found.hint
    assert found.place is not None
    assert (found.place.line, found.place.column) == (1, 1)


def test_F9_a_folder_is_no_config(tmp_path: Path) -> None:
    assert "is a folder" in refused("check", ".", cwd=tmp_path)


@pytest.mark.parametrize(
    "overrides",
    [
        ("data.batch_size=2147483647",),
        ("network.layers[0].FullyConnected.num_hidden=2147483647", "data.batch_size=100000"),
    ],
)
def test_F1_what_no_memory_can_hold_is_refused_before_anything_is_allocated(
    overrides: tuple[str, ...], tmp_path: Path
) -> None:
    written(tmp_path, [DENSE, "FullyConnected: {name: fc2, num_hidden: 10}", SOFTMAX])
    done = subprocess.run(
        [*MXRUN, "train", "net.yaml", *overrides],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES)),
        check=False,
    )
    assert done.returncode == 2, done.stderr[-500:]
    assert "Traceback" not in done.stderr
    assert "memory" in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("layers", "overrides", "problem"),
    [
        ([DENSE, SOFTMAX], ["network.variables={'*': {frozen: true}}"], "every variable is frozen"),
        (["Flatten: {}", SOFTMAX], [], "the network has no variables"),
    ],
)
def test_nothing_to_train_is_said(
    layers: list[str], overrides: list[str], problem: str, tmp_path: Path
) -> None:
    (found,) = problems(written(tmp_path, layers), overrides)
    assert problem in found.problem
    assert found.place is not None
