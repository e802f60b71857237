"""The public names: typed as they are, imported when they are used."""

from __future__ import annotations

import ast
import sys
from importlib import import_module
from pathlib import Path

import pytest
from commands import python_output

import mxrun

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


def test_the_import_loads_nothing_else() -> None:
    assert python_output("-c", IMPORTED).split() == ["mxrun"]


def test_pictures_alone_need_rich() -> None:
    script = "import sys, mxrun; mxrun.load('digits_lenet').plan(); print('rich' in sys.modules)"
    assert python_output("-c", script, cwd=Path(sys.prefix)).strip() == "False"
