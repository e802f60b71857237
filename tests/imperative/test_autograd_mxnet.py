"""autograd computes what MXNet's computes: random programs of operators run by both."""

from __future__ import annotations

import json
import os
import random
import subprocess
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pytest
from imperative import array, call, variable

from mxrun.imperative.differentiation import autograd

pytestmark = pytest.mark.skipif(
    "MXRUN_MXNET_PYTHON" not in os.environ, reason="MXRUN_MXNET_PYTHON is not set"
)

# Runs the programs of its standard input and prints the gradients of all variables.
MXNET = """
import json, sys
import mxnet as mx
def run(program):
    arrays = {name: mx.nd.array(values) for name, values in program["constants"].items()}
    for name, values in program["variables"].items():
        arrays[name] = mx.nd.array(values)
        arrays[name].attach_grad(program["requests"][name])
    for _ in range(program["repeats"]):
        with mx.autograd.record():
            for target, operator, inputs, parameters in program["calls"]:
                function = getattr(mx.nd, operator, None) or getattr(mx.nd._internal, operator)
                arrays[target] = function(*[arrays[name] for name in inputs], **parameters)
        heads = [arrays[name] for name in program["heads"]]
        given = [None if g is None else arrays[g] for g in program["head_grads"]]
        mx.autograd.backward(heads, given)
    return {
        name: None if arrays[name].grad is None else arrays[name].grad.asnumpy().tolist()
        for name in program["variables"]
    }
print(json.dumps([run(program) for program in json.load(sys.stdin)]))
"""

SHAPE = (3, 4)
# Operator, inputs, parameters.
Call = tuple[str, list[str], dict[str, Any]]


@dataclass
class Program:
    """Calls (target, operator, inputs, parameters) on named arrays, and the heads."""

    variables: dict[str, Any] = field(default_factory=dict)
    requests: dict[str, str] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    calls: list[tuple[str, str, list[str], dict[str, Any]]] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    head_grads: list[str | None] = field(default_factory=list)
    repeats: int = 1


UNARY = ["tanh", "sigmoid", "relu", "exp", "negative", "square", "round", "abs", "identity"]
BINARY = ["elemwise_add", "elemwise_mul", "elemwise_sub", "broadcast_add", "broadcast_mul"]


def random_program(seed: int) -> Program:
    choose = random.Random(seed)
    values = np.random.default_rng(seed)
    program = Program(repeats=choose.choice([1, 1, 2]))
    for index in range(choose.randint(1, 3)):
        name = f"v{index}"
        program.variables[name] = values.normal(size=SHAPE).round(3).tolist()
        program.requests[name] = choose.choice(["write", "write", "add", "null"])
    program.requests["v0"] = "write"
    program.constants["c"] = values.normal(size=SHAPE).round(3).tolist()
    program.constants["label"] = values.integers(0, 4, size=SHAPE[:1]).tolist()
    program.constants["g"] = values.normal(size=SHAPE).round(3).tolist()
    known = [*program.variables, "c"]
    for index in range(choose.randint(2, 8)):
        target, kind = f"t{index}", choose.random()
        if kind < 0.35:
            added: tuple[str, list[str], dict[str, Any]] = (
                choose.choice(UNARY),
                [choose.choice(known)],
                {},
            )
        elif kind < 0.8:
            added = (choose.choice(BINARY), [choose.choice(known), choose.choice(known)], {})
        elif kind < 0.9:
            added = ("_mul_scalar", [choose.choice(known)], {"scalar": 0.5})
        elif kind < 0.95:
            added = ("SoftmaxOutput", [choose.choice(known), "label"], {})
        else:
            added = ("BlockGrad", [choose.choice(known)], {})
        program.calls.append((target, *added))
        known.append(target)
    # MXNet's SoftmaxOutput overwrites a gradient that it should be added to.
    if any(operator == "SoftmaxOutput" for _, operator, _, _ in program.calls):
        program.requests |= {n: "write" for n, kind in program.requests.items() if kind == "add"}
    # Something that depends on v0, so that both differentiate the program.
    last = f"t{len(program.calls)}"
    program.calls.append((last, "elemwise_mul", [known[-1], "v0"], {}))
    program.heads = [last]
    program.head_grads = [choose.choice([None, "g"])]
    return program


def ours(program: Program) -> dict[str, Any]:
    arrays = {name: array(values) for name, values in program.constants.items()}
    for name, values in program.variables.items():
        arrays[name] = variable(values, program.requests[name])
    for _ in range(program.repeats):
        with autograd.record():
            for target, operator, inputs, parameters in program.calls:
                arrays[target] = call(operator, *(arrays[name] for name in inputs), **parameters)
        given = [None if name is None else arrays[name] for name in program.head_grads]
        autograd.backward([arrays[name] for name in program.heads], given)
    return {
        name: None if arrays[name].grad is None else arrays[name].grad.asnumpy().tolist()
        for name in program.variables
    }


def test_gradients_of_random_programs_are_mxnet_s() -> None:
    programs = [random_program(seed) for seed in range(60)]
    done = subprocess.run(
        [os.environ["MXRUN_MXNET_PYTHON"], "-c", MXNET],
        input=json.dumps([asdict(program) for program in programs]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    expected = json.loads(done.stdout.splitlines()[-1])
    for program, wanted in zip(programs, expected, strict=True):
        found = ours(program)
        assert found.keys() == wanted.keys()
        for name, gradient in wanted.items():
            # With the null request MXNet has zeros or nothing, depending on the program.
            if program.requests[name] == "null":
                assert found[name] is None
                continue
            np.testing.assert_allclose(
                found[name], gradient, rtol=1e-4, atol=1e-4, err_msg=f"{name} of {program}"
            )
