"""Arrays and calls of operators for tests of the imperative core, which has no functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun import library
from mxrun.base.context import Context, cpu
from mxrun.base.dtype import numpy_dtype
from mxrun.graph.node import NodeEntry
from mxrun.graph.symbol import Symbol
from mxrun.imperative.arrays.chunk import allocate
from mxrun.imperative.arrays.ndarray import NDArray
from mxrun.imperative.calls.invoke import invoke
from mxrun.imperative.differentiation import autograd
from mxrun.operator.register import create

library.load()


def array(values: npt.ArrayLike, dtype: str = "float32", context: Context | None = None) -> NDArray:
    """Return an array with these values."""
    given = np.ascontiguousarray(values, numpy_dtype(dtype)).reshape(np.shape(values))
    chunk = allocate(context or cpu(), given.nbytes)
    chunk.device.write(chunk.handle, given)
    return NDArray(chunk, given.shape, dtype)


def variable(values: npt.ArrayLike, grad_req: str = "write", dtype: str = "float32") -> NDArray:
    """Return an array whose gradient `backward` computes."""
    made = array(values, dtype)
    autograd.attach_grad(made, grad_req)
    return made


def call(operator: str, *inputs: NDArray, out: NDArray | None = None, **parameters: Any) -> NDArray:
    """Call an operator and return its first output."""
    targets = None if out is None else [out]
    outputs = invoke(create(operator, parameters), inputs, targets)
    result: NDArray = outputs[0]
    return result


def run_symbol(symbol: Symbol, arrays: Mapping[str, NDArray]) -> list[NDArray]:
    """Run a symbol's operators one by one on arrays for its variables; return the heads."""
    found: dict[NodeEntry, NDArray] = {}
    for node in symbol.nodes:
        if node.prop is None:
            found[NodeEntry(node)] = arrays[node.name]
            continue
        outputs = invoke(node.prop, [found[entry] for entry in node.inputs])
        found |= {NodeEntry(node, index): output for index, output in enumerate(outputs)}
    return [found[head] for head in symbol.heads]
