"""The public names: typed as they are, imported when they are used."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from commands import python_output

import mxrun
from mxrun.options.declaration import declared_fields
from mxrun.options.evaluate import EvaluateOptions
from mxrun.options.infer import InferOptions
from mxrun.options.inspect_memory import InspectOptions
from mxrun.options.train import TrainOptions

# Functions of the Python face, and the options of the commands that do the same.
FACE: Mapping[str, tuple[Callable[..., Any], type[Any]]] = {
    "load": (mxrun.load, InferOptions),
    "fit": (mxrun.LoadedModel.fit, TrainOptions),
    "evaluate": (mxrun.LoadedModel.evaluate, EvaluateOptions),
    "predict": (mxrun.LoadedModel.predict, InferOptions),
    "generate": (mxrun.LoadedModel.generate, InferOptions),
    "stream": (mxrun.LoadedModel.stream, InferOptions),
    "plan": (mxrun.LoadedModel.plan, InspectOptions),
}

STUB = Path(mxrun.__file__).with_suffix(".pyi")
IMPORTED = """
import sys
before = set(sys.modules)
import mxrun
dir(mxrun)
print(*sorted(set(sys.modules) - before))
"""


def test_the_stub_has_the_names_of_the_package() -> None:
    tree = ast.parse(STUB.read_text())
    stated = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            assert node.module is not None
            stated |= {str(alias.asname): (node.module, alias.name) for alias in node.names}
    assert {*stated, "__version__"} == {*mxrun.__all__}
    for name, (module, attribute) in stated.items():
        assert getattr(mxrun, name) is getattr(import_module(module), attribute)
        assert name in dir(mxrun)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        mxrun.lod  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("gpu", "`context: gpu` is an NVIDIA card; the context cpu, the default, uses all cores"),
        ("mod", "mxrun.load(CONFIG) gives a model with fit, evaluate and predict"),
        ("Module", "mxrun.load(CONFIG) gives a model with fit, evaluate and predict"),
        ("gluon", "layers are written in a config's network section"),
        ("io", "records are read as a config's data section says"),
        ("metric", "train.metrics in a config"),
        ("lr_scheduler", "train.schedule in a config"),
        ("np", "arrays and operators on them are in mxrun.nd"),
        ("lod", "did you mean 'load'?"),
    ],
)
def test_a_name_of_another_framework_is_answered(name: str, hint: str) -> None:
    # In a process: Python adds suggestions of its own to an uncaught error.
    done = subprocess.run(
        [sys.executable, "-c", f"import mxrun as mx; mx.{name}"],
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"AttributeError: module 'mxrun' has no attribute {name!r}: {hint}")
    assert "Did you mean" not in last


def test_operators_of_another_framework_are_answered_alike() -> None:
    for module in (mxrun.nd, mxrun.sym):
        with pytest.raises(AttributeError, match=r"(?s)'Dense'.*mxrun calls it FullyConnected"):
            module.Dense  # noqa: B018


def test_the_import_loads_nothing_else() -> None:
    assert python_output("-c", IMPORTED).split() == ["mxrun"]


def test_pictures_alone_need_rich() -> None:
    script = "import sys, mxrun; mxrun.load('digits_lenet').plan(); print('rich' in sys.modules)"
    assert python_output("-c", script, cwd=Path(sys.prefix)).strip() == "False"


@pytest.mark.parametrize("name", FACE)
def test_keywords_have_the_defaults_of_the_commands(name: str) -> None:
    function, options = FACE[name]
    fields = {field.name: field for field in declared_fields(options)}
    given = inspect.signature(function).parameters.values()
    shared = [each for each in given if each.name in fields and each.default is not each.empty]
    assert shared
    for each in shared:
        field = fields[each.name]
        # What the command line knows as absent, or describes.
        others = [() if field.default is None else field.default, field.parameter.usual]
        assert (
            each.default == field.default
            or each.default in others
            or (isinstance(each.default, float) and f"{each.default:g}" == field.parameter.usual)
        )
