"""Automatic differentiation of operators called one by one (mxnet.autograd).

While a thread records, every operator that reads a marked variable, or something computed from one,
leaves a recorded call behind. `backward` differentiates the calls that end with given heads, as the
graph of a network is differentiated, and runs all backward steps as one operation of the engine.
"""

from __future__ import annotations

import atexit
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from mxrun.base.context import Context
from mxrun.base.dtype import numpy_dtype
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.tensor import Shape
from mxrun.imperative.arrays import array as array_module
from mxrun.imperative.arrays.array import NDArrayBase
from mxrun.imperative.arrays.chunk import allocate
from mxrun.imperative.differentiation.backward import ADD, NULL, WRITE
from mxrun.imperative.differentiation.differentiate import (
    Gradients,
    RecordedGraph,
    Target,
    differentiate,
    fill_zero,
    new_array,
)
from mxrun.imperative.differentiation.function import Function
from mxrun.imperative.differentiation.modes import (
    is_recording,
    is_training,
    pause,
    predict_mode,
    record,
    train_mode,
)
from mxrun.imperative.differentiation.overlap import separate
from mxrun.imperative.differentiation.tape import Entry, MarkedVariable

__all__ = [
    "Function",
    "attach_grad",
    "backward",
    "grad",
    "is_recording",
    "is_training",
    "mark_variables",
    "pause",
    "predict_mode",
    "record",
    "train_mode",
]

# Ones for larger heads are made anew for every backward.
_MAX_SHARED_BYTES = 1 << 16


# -- variables -----------------------------------------------------------------------------------


def mark_variables(
    variables: Sequence[NDArrayBase],
    gradients: Sequence[NDArrayBase | None],
    grad_reqs: str | Sequence[str] = WRITE,
) -> None:
    """Make arrays variables whose gradients `backward` stores in `gradients`.

    grad_reqs: `write`, `add` or `null`, for all or for each. An array that was computed while
    recording is cut off from what it was computed from. Raises UserError for another request, and
    for a gradient of another shape or dtype than its variable.
    """
    requests = [grad_reqs] * len(variables) if isinstance(grad_reqs, str) else grad_reqs
    for variable, gradient, request in zip(variables, gradients, requests, strict=True):
        if request not in (WRITE, ADD, NULL):
            expected = f"{WRITE}, {ADD} or {NULL}"
            raise UserError(Diagnostic("an unknown grad_req", None, expected, repr(request)))
        if gradient is not None and gradient.spec != variable.spec:
            raise UserError(
                Diagnostic(
                    "the gradient of a variable has another shape or dtype",
                    expected=str(variable.spec),
                    got=str(gradient.spec),
                )
            )
        given = None if request == NULL else gradient
        variable.grad, variable.grad_req = given, request
        marked = MarkedVariable(variable.shape, variable.dtype, given, request)
        variable.entry = Entry(marked)


def attach_grad(variable: NDArrayBase, grad_req: str = WRITE) -> None:
    """Make an array a variable with a new gradient, which is zero until `backward` stores one."""
    gradient = None
    if grad_req != NULL:
        gradient = new_array(variable.context, variable.shape, variable.dtype)
        fill_zero(gradient)
    mark_variables([variable], [gradient], grad_req)


# -- gradients -----------------------------------------------------------------------------------


def backward(
    heads: NDArrayBase | Sequence[NDArrayBase],
    head_grads: NDArrayBase | Sequence[NDArrayBase | None] | None = None,
    retain_graph: bool = False,
    train_mode: bool = True,
) -> None:
    """Compute the gradients of all marked variables that `heads` depend on.

    head_grads: the gradients of the heads; None for ones. Operators with a loss, such as
    SoftmaxOutput, ignore theirs. retain_graph: whether the recording can be differentiated once
    more. train_mode: as in MXNet; the backward of an operator follows the mode in which its forward
    ran.

    Gradients that share memory with each other are added up in the order in which the variables
    were marked.

    Raises UserError for a head that was not recorded, or whose recording was differentiated before,
    if it depends on no variable, if an operator in between has no gradient, and if gradients that
    share memory are not all added.
    """
    given = _given(heads, head_grads)
    graph = RecordedGraph.ending_with(given)
    if not graph.variables:
        raise UserError(
            Diagnostic(
                "the heads depend on no variable",
                hint="call attach_grad() on an input before recording, and retain_graph=True to "
                "differentiate parts of a graph one after the other",
            )
        )
    targets = {
        variable: Target(variable.grad, variable.request)
        for variable in graph.variables
        if variable.grad is not None
    }
    with pause():
        separated = separate(graph, given.arrays(), targets)
        differentiate(graph, given, targets)
        if separated is not None:
            separated.store()
    if not retain_graph:
        graph.free()


def grad(
    heads: NDArrayBase | Sequence[NDArrayBase],
    variables: NDArrayBase | Sequence[NDArrayBase],
    head_grads: NDArrayBase | Sequence[NDArrayBase | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    train_mode: bool = True,
) -> list[Any]:
    """Return the gradients of `heads` with respect to marked variables, as new arrays.

    What `attach_grad` made for the variables is left as it is. create_graph: whether the gradients
    can be differentiated again, which is not supported. The others are those of `backward`.

    Raises UserError as `backward` does, for an array that is no marked variable or that no head
    depends on, and for create_graph.
    """
    if create_graph:
        raise UserError("gradients cannot be differentiated again: create_graph must be False")
    listed = [variables] if isinstance(variables, NDArrayBase) else list(variables)
    given = _given(heads, head_grads)
    graph = RecordedGraph.ending_with(given)
    targets: dict[MarkedVariable, Target] = {}
    nodes = []
    for number, variable in enumerate(listed, 1):
        node = None if variable.entry is None else variable.entry.node
        if not isinstance(node, MarkedVariable):
            raise UserError(f"variable {number} is no marked variable; call attach_grad() on it")
        if node not in graph.variables:
            raise UserError(f"no head depends on variable {number}")
        nodes.append(node)
        if node not in targets:
            targets[node] = Target(new_array(variable.context, variable.shape, variable.dtype))
    with pause():
        differentiate(graph, given, targets)
    if not retain_graph:
        graph.free()
    return [targets[node].array for node in nodes]


def _given(
    heads: NDArrayBase | Sequence[NDArrayBase],
    head_grads: NDArrayBase | Sequence[NDArrayBase | None] | None,
) -> Gradients:
    """Return the gradients of the heads, each once."""
    listed = [heads] if isinstance(heads, NDArrayBase) else list(heads)
    if head_grads is None or isinstance(head_grads, NDArrayBase):
        given = [head_grads] * len(listed)
    else:
        given = list(head_grads)
    if len(given) != len(listed):
        raise UserError(f"{len(listed)} heads have {len(given)} head gradients")
    found = Gradients()
    for head, gradient in zip(listed, given, strict=True):
        entry = head.entry
        if entry is None or not entry.is_live:
            raise UserError(
                Diagnostic(
                    "a head is not part of a recorded graph",
                    hint="compute it within autograd.record(); to differentiate a graph twice, "
                    "pass retain_graph=True to the first backward",
                )
            )
        if gradient is not None and gradient.spec != head.spec:
            raise UserError(
                Diagnostic(
                    "a head gradient has another shape or dtype than its head",
                    expected=str(head.spec),
                    got=str(gradient.spec),
                )
            )
        with pause():
            found.add(entry, _ones(head) if gradient is None else gradient)
    return found


def _ones(array: NDArrayBase) -> Any:
    """Return an array of ones like another one; small ones are made once."""
    if array.nbytes > _MAX_SHARED_BYTES:
        return _filled_ones(array.context, array.shape, array.dtype)
    return _shared_ones(array.context, array.shape, array.dtype)


def _filled_ones(context: Context, shape: Shape, dtype: str) -> Any:
    ones = np.ones(shape, numpy_dtype(dtype))
    chunk = allocate(context, ones.nbytes)
    chunk.device.write(chunk.handle, ones)
    return array_module.make(chunk, shape, dtype)


_shared_ones = lru_cache(maxsize=256)(_filled_ones)
# While the interpreter deletes modules, arrays can no longer give their memory back.
atexit.register(_shared_ones.cache_clear)
