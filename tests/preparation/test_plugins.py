"""Operators of a user: from a file named in a config to a trained run."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from commands import mxrun, python_output, refused, result, succeeded
from layer_configs import config_file, config_text
from planted import SOUND

from mxrun.base.errors import UserError
from mxrun.operator.register import OPERATORS, implementations
from mxrun.preparation.planning import load
from mxrun.preparation.plugins import plugin_hashes

pytestmark = pytest.mark.usefixtures("separate_registry")

SWISH = '''"""The activation of the article."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from pydantic import Field

from mxrun.base.params import Parameters, Positive
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import PartialInference, OperatorProperty, PartialShapes, same_shape
from mxrun.operator.register import register

T = TypeVar("T")


class SwishParameters(Parameters):
    """Parameters of my_swish."""

    beta: Positive = Field(default=1.0, description="Steepness of the gate.")


@register("my_swish")
class SwishProperty(OperatorProperty[SwishParameters]):
    """output = data / (1 + exp(-beta * data)). Backward reads the output's gradient and data."""

    type_string = "my_swish"
    parameter_type = SwishParameters

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        data, output = same_shape(("data", "output"), [*inputs, *outputs], "elementwise")
        return PartialInference([data], [output], [])

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        return [out_grad[0], in_data[0]]

    def create_operator(self) -> Operator:
        return Swish(self.parameters.beta)


class Swish(Operator):
    """NumPy expressions."""

    def __init__(self, beta: float) -> None:
        self.beta = beta

    def forward(self, call: ForwardCall) -> None:
        x = call.inputs.data
        call.store(output=x / (1 + np.exp(-self.beta * x)))

    def backward(self, call: BackwardCall) -> None:
        data = call.inputs.data
        gate = 1 / (1 + np.exp(-self.beta * data))
        slope = gate + self.beta * data * gate * (1 - gate)
        call.store(data=call.output_gradients.output * slope)
'''

CONFIG = config_text(
    """\
    - FullyConnected: {name: fc1, num_hidden: 32}
    - my_swish: {beta: 1.5}
    - FullyConnected: {name: fc2, num_hidden: 10}
    - SoftmaxOutput: {name: softmax, label: label}
""",
    name="swish",
    settings="seed: 3\nthreads: 1\nplugins: [ops/my_ops.py]\n",
    train="""\
train:
  epochs: 6
  optimizer: {sgd: {lr: 0.1, momentum: 0.9}}
  metrics: [accuracy]
""",
)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A config in a folder with its plugin below."""
    folder = tmp_path / "project"
    (folder / "ops").mkdir(parents=True)
    (folder / "ops" / "my_ops.py").write_text(SWISH)
    return config_file(folder, CONFIG, "swish.yaml")


def plugin_of(config: Path) -> Path:
    return config.parent / "ops" / "my_ops.py"


def test_P14_a_users_operator_trains_from_any_folder(config: Path, tmp_path: Path) -> None:
    summary = result("train", str(config), cwd=tmp_path)
    assert summary["eval"]["accuracy"] > 0.9
    layers = result("check", str(config), cwd=tmp_path)["rows"]
    assert [row["operator"] for row in layers].count("my_swish") == 1
    # Only the run's folder names the file of the operator.
    run = tmp_path / "runs" / "swish"
    again = mxrun("infer", str(run), "--split", "test", "--json", cwd=tmp_path)
    assert again.returncode == 0, again.stderr


def untrusted(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A short run of the config, whose plugin this user never ran."""
    result("train", str(config), "train.epochs=1", cwd=tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "runs" / "swish"


def test_the_plugin_of_anothers_run_is_not_run_unless_allowed(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = untrusted(config, tmp_path, monkeypatch)
    marker = tmp_path / "was run"
    plugin_of(config).write_text(SWISH + f"open({str(marker)!r}, 'w').close()\n")
    saved = str(run / "config.yaml")
    for command in (
        ("check", saved),
        ("inspect-memory", saved),
        ("plot", saved),
        ("infer", str(run), "--split", "test"),
        ("convert", str(run), "-o", "net.onnx"),
    ):
        text = refused(*command, cwd=tmp_path)
        assert f"the plugin {plugin_of(config)} was never run by you" in text, command
        assert f"a file of {plugin_of(config).owner()}" in text
        assert f"`mxrun check {saved} --allow-plugins`" in text
    assert not marker.exists()
    # The command that runs it allows it from then on; a change since training is a separate check.
    assert result("check", saved, "--allow-plugins", cwd=tmp_path)["rows"]
    assert marker.exists()
    assert result("check", saved, cwd=tmp_path)["rows"]
    assert "code of my_ops.py has changed" in refused("infer", str(run), "7.png", cwd=tmp_path)
    plugin_of(config).write_text(SWISH)
    assert "--allow-plugins" in refused("infer", str(run), "--split", "test", cwd=tmp_path)
    succeeded(mxrun("infer", str(run), "--split", "test", "--allow-plugins", cwd=tmp_path))


def test_a_changed_plugin_changes_no_result_unless_allowed(config: Path, tmp_path: Path) -> None:
    result("train", str(config), "train.epochs=1", cwd=tmp_path)
    plugin_of(config).write_text(SWISH.replace("=x / (1 + ", "=-x / (1 + "))
    result("check", str(config), cwd=tmp_path)
    command = ("infer", str(tmp_path / "runs" / "swish"), "--split", "test")
    text = refused(*command, cwd=tmp_path)
    assert "plugins: the code of my_ops.py has changed" in text
    assert "--allow-changes" in text
    done = succeeded(mxrun(*command, "--allow-changes", "--json", cwd=tmp_path))
    assert "this differs from the trained network: plugins: the code of my_ops.py" in done.stderr


def test_P11_a_users_operator_is_shown(config: Path, tmp_path: Path) -> None:
    target = f"{plugin_of(config)}:my_swish"
    shown = result("ops", target, cwd=tmp_path)
    assert shown["summary"].startswith("output = data / (1 + exp(-beta * data))")
    assert shown["backward_reads"] == ["gradient of output", "data"]
    assert "my_swish" in shown["yaml"]
    assert "Steepness of the gate." in mxrun("ops", target, cwd=tmp_path).stdout


def test_F8_a_users_operator_keeps_the_contract(config: Path, tmp_path: Path) -> None:
    found = result("check-op", f"{plugin_of(config)}:my_swish", cwd=tmp_path)
    assert found["passed"], found


def test_the_hash_is_that_of_the_file_that_was_run(config: Path) -> None:
    built = load(config)
    wanted = hashlib.sha256(plugin_of(config).read_bytes()).hexdigest()
    assert plugin_hashes(built.options) == {"my_ops.py": wanted}


def test_where_a_plugin_lies_is_no_part_of_what_a_config_says(config: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    config.parent.rename(elsewhere)
    moved = load(elsewhere / config.name).options
    config.parent.mkdir()
    (config.parent / "ops").mkdir()
    plugin_of(config).write_text(SWISH)
    config.write_text(CONFIG)
    assert moved.sha256() == load(config).options.sha256()
    assert moved.plugins != load(config).options.plugins


def line_of(text: str, words: str) -> int:
    """The line of a text that begins with some words, counted from 1."""
    return next(i for i, line in enumerate(text.splitlines(), 1) if line.startswith(words))


DUPLICATE = SOUND.lstrip().replace('"planted"', '"Flatten"')
MISNAMED = SOUND.lstrip().replace('type_string = "planted"', 'type_string = "other"')
ABSTRACT = SOUND.lstrip().replace("def infer_shape", "def infer_shapes")
UNTYPED = SOUND.lstrip().replace("    parameter_type = PlantedParameters\n", "")
UNNAMED = SOUND.lstrip().replace('"planted"', '"repeat"')
BROKEN: dict[str, tuple[str, int, str]] = {
    "syntax": ("import math\nx = = 1\n", 2, "not valid Python"),
    "bytes": ("x = 1\0\n", 1, "not valid Python"),
    "raises": ("import math\n\nmath.sqrt(-1)\n", 3, "ValueError: math domain error"),
    "exits": ("import sys\nsys.exit(7)\n", 2, "SystemExit: 7"),
    "imports": ("\nimport no_such_module_here\n", 2, "ModuleNotFoundError"),
    "duplicate": (DUPLICATE, line_of(DUPLICATE, "@register"), "'Flatten' is registered twice"),
    "abstract": (ABSTRACT, line_of(ABSTRACT, "@register"), "PlantedProperty lacks infer_shape"),
    "no property": (
        'from mxrun.operator.register import register\n\n@register("x")\nclass X:\n    pass\n',
        3,
        "X is not an OperatorProperty",
    ),
    "no parameters": (UNTYPED, line_of(UNTYPED, "@register"), "PlantedProperty lacks parameter_ty"),
    "unnameable": (UNNAMED, line_of(UNNAMED, "@register"), "PlantedProperty cannot be registered"),
    "misnamed": (MISNAMED, line_of(MISNAMED, "@register"), "but its type string is 'other'"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_P14_P20_a_wrong_plugin_is_one_error_with_its_line(
    config: Path, kind: str, tmp_path: Path
) -> None:
    text, line, words = BROKEN[kind]
    plugin_of(config).write_text(text)
    for command in (("train", str(config)), ("check-op", f"{plugin_of(config)}:planted")):
        said = refused(*command, cwd=tmp_path)
        assert said.splitlines()[0].startswith(f"{plugin_of(config)}:{line}:")
        assert words in said
        # The layer that the plugin should have registered is not reported.
        assert "unknown operator" not in said


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ('data, output = same_shape(("data"', "infer_shape"),
        ("x = call.inputs.data", "forward"),
        ("data = call.inputs.data", "backward"),
    ],
)
def test_P14_what_an_operator_raises_at_work_is_one_error_with_its_line(
    config: Path, line: str, name: str, tmp_path: Path
) -> None:
    broken = SWISH.replace(f"        {line}", f"        1 / 0\n        {line}")
    plugin_of(config).write_text(broken)
    said = refused("train", str(config), cwd=tmp_path)
    number = line_of(broken, "        1 / 0")
    assert f"{plugin_of(config)}:{number}:1: the plugin's {name} raised ZeroDivisionError" in said
    # And the layer that it was at work for.
    layer = line_of(CONFIG, "    - my_swish")
    work = "backward of " * (name == "backward") + "my_swish 'my_swish0'"
    assert f", while running {work}" in said
    assert f" at {config}:{layer}:7" in said


@pytest.mark.parametrize("name", ["forward", "backward"])
def test_an_operator_that_ends_the_process_is_one_error_with_its_line(
    config: Path, name: str, tmp_path: Path
) -> None:
    line = {"forward": "x = call.inputs.data", "backward": "data = call.inputs.data"}[name]
    broken = SWISH.replace(f"        {line}", f"        raise SystemExit(0)\n        {line}")
    plugin_of(config).write_text(broken)
    done = mxrun("train", str(config), cwd=tmp_path)
    assert done.returncode == 2
    number = line_of(broken, "        raise SystemExit(0)")
    said = f"{plugin_of(config)}:{number}:1: the plugin's {name} raised SystemExit: 0"
    assert said in done.stderr
    found = mxrun("check-op", f"{plugin_of(config)}:my_swish", cwd=tmp_path)
    assert found.returncode != 0
    assert f"{name} raises SystemExit: 0" in found.stdout
    assert f"my_ops.py:{number} ({name})" in found.stdout


def test_a_body_that_is_no_operator_is_one_error_with_its_line(
    config: Path, tmp_path: Path
) -> None:
    broken = SWISH.replace("return Swish(self.parameters.beta)", "Swish(self.parameters.beta)")
    plugin_of(config).write_text(broken)
    line = line_of(broken, "    def create_operator")
    done = mxrun("train", str(config), cwd=tmp_path)
    assert done.returncode == 2
    said = f"{plugin_of(config)}:{line}:1: create_operator of my_swish returns NoneType"
    assert done.stderr.startswith(said)


def test_a_body_with_other_arguments_is_one_error_with_its_line(
    config: Path, tmp_path: Path
) -> None:
    for name, arguments in (
        ("forward", "self, context, in_data, req, out_data, aux_states"),
        ("backward", "self, context, out_grad, in_data, out_data, req, in_grad, aux_states"),
    ):
        kind = f"{name.capitalize()}Call"
        broken = SWISH.replace(f"def {name}(self, call: {kind})", f"def {name}({arguments})")
        plugin_of(config).write_text(broken)
        line = line_of(broken, f"    def {name}(")
        done = mxrun("train", str(config), cwd=tmp_path)
        assert done.returncode == 2
        said = f"{plugin_of(config)}:{line}:1: {name} of my_swish has other arguments than one call"
        assert done.stderr.startswith(said)
        assert f"{name}(self, call: {kind})" in done.stderr
        assert f"({arguments})" in done.stderr
        assert "call.store(NAME=value)" in done.stderr
        found = mxrun("check-op", f"{plugin_of(config)}:my_swish", cwd=tmp_path)
        assert found.returncode != 0
        assert f"{name} of my_swish has other arguments than one call" in found.stdout


ARRAYS = '''from mxrun.operator.simple import reads_inputs, simple_operator


def gradient(env, out_grad, data):
    return out_grad


@simple_operator("my_swish", gradient=reads_inputs(gradient))
def identity(env, data):
    """output = data. Backward reads its gradient."""
    return data
'''


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("return data\n", "return data.ravel()[:1]\n", "identity returns float32 of shape (1,) as"),
        ("return data\n", "return None\n", "identity returns NoneType as the output, float32 of"),
        (
            "return out_grad\n",
            "return out_grad[None]\n",
            "gradient returns float32 of shape (1, 64",
        ),
    ],
)
def test_a_value_of_another_shape_is_one_error_at_the_functions_line(
    config: Path, right: str, wrong: str, said: str, tmp_path: Path
) -> None:
    text = ARRAYS.replace(right, wrong)
    plugin_of(config).write_text(text)
    config.write_text(CONFIG.replace("{beta: 1.5}", "{}"))
    line = line_of(text, "def gradient" if "gradient" in said else "@simple_operator")
    done = mxrun("train", str(config), cwd=tmp_path)
    assert done.returncode == 2
    assert f"{plugin_of(config)}:{line}:1: {said}" in done.stderr


def test_what_mxrun_refuses_within_a_plugin_is_said_as_it_is(config: Path, tmp_path: Path) -> None:
    lines = (
        "from mxrun.operator.simple import simple_operator",
        "def three(x, y, z):",
        '    """Too many."""',
        "    return x",
        'simple_operator("three")(three)',
    )
    plugin_of(config).write_text("\n".join(lines))
    said = refused("check", str(config), cwd=tmp_path)
    assert said.splitlines()[0] == f"{plugin_of(config)}:2:1: three has 3 inputs"
    assert "OperatorProperty" in said
    # An error without a location of its own is reported at the line that caused it.
    nowhere = "from mxrun.operator.register import create\n\ncreate('Flattern', {})\n"
    plugin_of(config).write_text(nowhere)
    said = refused("check", str(config), cwd=tmp_path)
    assert said.splitlines()[0] == f"{plugin_of(config)}:3:1: unknown operator 'Flattern'"
    assert "did you mean 'Flatten' or 'flatten'?" in said


def test_a_plugin_that_fails_halfway_leaves_nothing_registered(config: Path) -> None:
    before = {name: OPERATORS.get(name) for name in OPERATORS}
    whole = plugin_of(config).read_text()
    implemented = whole.replace("import register\n", "import Implementation, implement, register\n")
    implemented += (
        '\n\n@implement("my_swish", "Flatten", backend="mine")\n'
        "class Mine(Implementation):\n    pass\n"
    )
    assert implemented != whole
    plugin_of(config).write_text(f"{implemented}\n1 / 0\n")
    with pytest.raises(UserError, match="ZeroDivisionError"):
        load(config)
    assert {name: OPERATORS.get(name) for name in OPERATORS} == before
    assert implementations("my_swish") == {}
    assert "mine" not in implementations("Flatten")
    # The file can then be corrected in the same process.
    plugin_of(config).write_text(whole)
    load(config)
    assert "my_swish" in OPERATORS


def test_a_missing_plugin_is_said_where_it_is_named(config: Path, tmp_path: Path) -> None:
    plugin_of(config).unlink()
    said = refused("check", str(config), cwd=tmp_path)
    assert said.startswith(f"{config}:4:11: cannot read the plugin {plugin_of(config)}")


def test_what_else_is_wrong_is_said_with_it(config: Path, tmp_path: Path) -> None:
    plugin_of(config).unlink()
    config.write_text(CONFIG.replace("epochs: 6", "epochs: 0"))
    said = refused("check", str(config), cwd=tmp_path)
    assert "cannot read the plugin" in said
    assert "train.epochs" in said


def test_an_operator_that_a_file_lacks_is_refused_with_those_it_has(
    config: Path, tmp_path: Path
) -> None:
    for target in (f"{plugin_of(config)}:my_swoosh", f"{plugin_of(config)}:Convolution"):
        said = refused("check-op", target, cwd=tmp_path)
        assert "registers no operator" in said
        assert f"{plugin_of(config)}:my_swish" in said
    assert "which operator" in refused("ops", str(plugin_of(config)), cwd=tmp_path)


def test_a_plugin_that_changes_under_a_process_is_refused(config: Path) -> None:
    plugin = plugin_of(config)
    plugin.write_text(SWISH.replace("my_swish", "my_changing"))
    config.write_text(CONFIG.replace("my_swish", "my_changing"))
    load(config)
    plugin.write_text(plugin.read_text() + "\n")
    with pytest.raises(UserError, match="changed since this process loaded it"):
        load(config)


NATIVE = '''"""A loop."""
from mxrun.codegen.arguments import Arguments, Float32s
from mxrun.codegen.jit import native


class Storing(Arguments):
    """Arguments of `my_loop`."""

    output: Float32s


@native
def my_loop(call: Storing):
    """Store a constant."""
    call.output[0] = 3.0
'''
PROBE = """
import sys, json
import numpy as np
from mxrun import library
from mxrun.codegen.host_loop import HostLoop
plugin = library.load_plugin(sys.argv[1])
if len(sys.argv) > 2:
    open(sys.argv[1], "w").write(sys.argv[2])
module = sys.modules[plugin.module]
value = np.zeros(1, np.float32)
HostLoop(module.my_loop, module.Storing(output=value))()
json.dump(value.tolist(), sys.stdout)
"""


def test_compiled_code_follows_the_file(tmp_path: Path) -> None:
    plugin = tmp_path / "loop.py"
    values = []
    for constant in ("3.0", "5.0", "3.0"):
        plugin.write_text(NATIVE.replace("3.0", constant))
        values += json.loads(python_output("-c", PROBE, plugin))
    assert values == [3.0, 5.0, 3.0]


def test_compiled_code_is_of_what_was_run_although_the_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Otherwise the cache may have the code already.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    plugin = tmp_path / "loop.py"
    plugin.write_text(NATIVE)
    changed = NATIVE.replace("3.0", "5.0")
    assert json.loads(python_output("-c", PROBE, plugin, changed)) == [3.0]
    assert plugin.read_text() == changed
    assert json.loads(python_output("-c", PROBE, plugin)) == [5.0]


DATA_SET = """\
import numpy as np
from mxrun.base.params import Parameters
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field
from mxrun.io.dataset.registry import register

class Options(Parameters):
    pass

@register("waves", Options, ("train",))
def read(options, split, inputs):
    data, label = np.zeros((8, 4), "float32"), np.zeros(8, "float32")
    return RESULT
"""
WAVES = """\
name: waves
plugins: [waves.py]
network:
  inputs: {data: [4], label: []}
  layers:
    - FullyConnected: {num_hidden: 1}
    - LinearRegressionOutput: {label: label}
data: {batch_size: 4, train: {dataset: waves, split: train}}
train: {epochs: 1, optimizer: sgd}
"""


@pytest.mark.parametrize(
    ("result", "line", "problem"),
    [
        ("{'data': Field(data)}", 10, "read returned no Dataset"),
        ("Dataset('waves', {'data': data})", 13, "'data' is no Field of an array"),
        ("Dataset('waves', {'data': Field(data.tolist())})", 13, "'data' is no Field of an array"),
        ("Dataset('waves', {'data': Field(np.array(['a', 'b']))})", 13, "'data' is no Field of an"),
        ("Dataset('waves', {'data': Field(data), 'label': Field(label[1:])})", 13, "[7, 8]"),
        ("Dataset(['waves'], {'data': Field(data)})", 13, "name of a data set is a text"),
        ("Dataset('waves', {'data': Field(data * 1.0), 'label': Field(label * np.float64(1))})",
         None, "'label' does not fit"),
    ],
)  # fmt: skip
def test_P14_a_wrong_data_set_of_a_plugin_is_one_error_with_its_line(
    tmp_path: Path, result: str, line: int | None, problem: str
) -> None:
    (tmp_path / "waves.py").write_text(DATA_SET.replace("RESULT", result))
    (tmp_path / "waves.yaml").write_text(WAVES)
    message = refused("train", "waves.yaml", cwd=tmp_path)
    assert problem in message
    if line is None:
        assert "values.astype('float32')" in message
    else:
        assert f"waves.py:{line}:1: " in message
