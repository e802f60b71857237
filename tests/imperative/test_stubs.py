"""Type stubs of mxrun.nd and mxrun.sym, which the build makes: type checkers understand them."""

from __future__ import annotations

import ast
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mxrun import nd, sym
from mxrun.imperative.calls.functions import public_names
from mxrun.packaging.operator_stubs import ROOT, STUBS, write_stubs

_PROGRAM = """
from typing import Any

import mxrun
from mxrun import autograd, nd, sym


def loss(data: mxrun.NDArray, weight: mxrun.NDArray, bias: mxrun.NDArray) -> mxrun.NDArray:
    hidden = nd.FullyConnected(data, weight, bias, num_hidden=4)
    hidden = nd.Activation(hidden, act_type="relu")
    scaled = 2 * hidden - hidden / 3 + hidden @ weight[0].reshape((4, 1))
    parts: list[mxrun.NDArray] = nd.moments(scaled, axes=(0,))
    joined = nd.concat(parts[0], parts[1], dim=0)
    return nd.smooth_l1(joined, scalar=1.0).sum(axis=0, keepdims=True)


weight = nd.random.normal(0, 0.1, shape=(4, 3))
weight.attach_grad()
data = nd.array([[1, 2, 3]], ctx=mxrun.cpu(), dtype="float32")
with autograd.record():
    result = loss(data, weight, nd.zeros(4))
result.backward()
value: float = float(result)
nd.sgd_update(weight, weight.grad, lr=0.1, out=weight)
nd.save("weights", {"weight": weight})
loaded: Any = nd.load("weights")
mask: mxrun.NDArray = (weight > 0) * weight.clip(0, 1)

relu = sym.Activation(act_type="relu", name="relu")
net: sym.Symbol = sym.SoftmaxOutput(relu(sym.Variable("x", shape=(2, 3))).sum(axis=1), name="out")
executor: sym.Executor = sym.Group([net, net * 2 - 1]).simple_bind(grad_req="null", x=(2, 3))
executor.forward(is_train=False)
"""
_MISTAKES = {
    'nd.FullyConnected(nd.ones((2, 3)), num_hidden="ten")': "num_hidden",
    "nd.Activation(nd.ones((2,)), act_type='rely')": "act_type",
    "nd.relu(nd.ones((2,)), foo=3)": "foo",
    "nd.clip(nd.ones((2,)), 0)": "a_max",
    "nd.ones((2,)).sum(axes=0)": "axes",
    "nd.no_such_operator(nd.ones((2,)))": "no_such_operator",
    "nd.ones((2,)).summ()": "summ",
    "sym.Activation(sym.Variable('x'), act_type='rely')": "act_type",
    "sym.FullyConnected(sym.Variable('x'))": "num_hidden",
    "sym.Variable('x').sum(axes=0)": "axes",
    "sym.no_such_operator(sym.Variable('x'))": "no_such_operator",
}


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("mxrun/imperative/operators.pyi", nd.__all__),
        ("mxrun/imperative/symbolic/__init__.pyi", sym.__all__),
    ],
)
def test_stubs_declare_every_operator_and_every_other_name(path: str, names: list[str]) -> None:
    tree = ast.parse(STUBS[path]())
    declared = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            declared.add(node.name)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            declared.add(node.targets[0].id)
        elif isinstance(node, ast.ImportFrom):
            declared |= {alias.asname for alias in node.names if alias.asname}
    assert {*public_names(), *names} <= declared


@pytest.mark.full
def test_mypy_checks_programs_that_use_arrays(tmp_path: Path) -> None:
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    # The stubs in the checkout are those of the last build.
    shutil.copytree(ROOT / "mxrun", tmp_path / "mxrun", ignore=shutil.ignore_patterns("*.pyc"))
    write_stubs(tmp_path)
    program, wrong = tmp_path / "program.py", tmp_path / "wrong.py"
    program.write_text(_PROGRAM)
    wrong.write_text("from mxrun import nd, sym\n\n" + "\n".join(_MISTAKES) + "\n")
    environment = {**os.environ, "MYPYPATH": str(tmp_path)}
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent"]
    command += ["--cache-dir", str(tmp_path / "cache"), "--python-version", "3.10"]
    done = subprocess.run(
        [*command, str(program), str(wrong)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert "program.py" not in done.stdout, done.stdout + done.stderr
    for line, (text, word) in enumerate(_MISTAKES.items(), 3):
        found = [each for each in done.stdout.splitlines() if f"wrong.py:{line}:" in each]
        assert any(word in each for each in found), f"{text}: {done.stdout}{done.stderr}"
