"""Sums and copies of arrays as engine operations, beside the computation.

They run in the pool for communication, so that they never wait for a worker that computes, each on
one thread, because they are limited by memory and the other threads compute. A copy is the sum of
one array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from mxrun.base.context import Context
from mxrun.base.fold_tree import FoldStep
from mxrun.base.tensor import TensorSpec
from mxrun.device.registry import device_kind
from mxrun.imperative.arrays.creation import empty
from mxrun.imperative.arrays.ndarray import NDArray
from mxrun.imperative.calls.prepared import SHORT_BYTES, PreparedOperator
from mxrun.operator.register import create
from mxrun.runtime.engine.interface import EngineOperator, Pool, RunContext


def push_sum(terms: Sequence[NDArray], total: NDArray, name: str, priority: int) -> None:
    """Push the sum of arrays, in order, into another one, which may be one of them.

    Arrays of other kinds of devices are first copied to the context of `total`.
    """
    near = [
        each if _shares_memory(each, total) else _brought(each, total, name, priority)
        for each in terms
    ]
    handles = [each.handle for each in (*near, total)]
    key = total.context, total.spec, len(near)

    def run(context: RunContext) -> None:
        _summation(*key).run(handles, context)

    _push(run, near, total, name, priority)


def push_tree_sum(terms: Sequence[NDArray], total: NDArray, name: str, priority: int) -> None:
    """Push the sum of arrays in the order of `fold_tree` into another one."""
    branches = list(terms)
    if len(terms) > 2:
        middle = 1 << ((len(terms) - 1).bit_length() - 1)
        branches = [new_array(total, total.context) for _ in range(2)]
        push_tree_sum(terms[:middle], branches[0], name, priority)
        push_tree_sum(terms[middle:], branches[1], name, priority)
    push_sum(branches, total, name, priority)


def sum_everywhere(
    arrays: Sequence[NDArray], home: NDArray, name: str, priority: int
) -> EngineOperator:
    """Return the operation that stores the sum of arrays, in order, in each of them.

    It sums on the context of `home`, one of the arrays, and copies from there. Arrays in memories
    of which one program cannot use all are copied to the host, and summed there.
    """
    if not all(_shares_memory(each, home) for each in arrays):
        return _everywhere(_summed_on_host(arrays), arrays, home, name, priority)
    total, handles = home.handle, [*(each.handle for each in arrays), home.handle]
    copies = [[total, each.handle] for each in arrays if each is not home]
    add = _summation(home.context, home.spec, len(arrays))
    copy = _summation(home.context, home.spec, 1)

    def run(context: RunContext) -> None:
        add.run(handles, context)
        for pair in copies:
            copy.run(pair, context)

    return _everywhere(run, arrays, home, name, priority)


def _summed_on_host(arrays: Sequence[NDArray]) -> Callable[[RunContext], None]:
    """Return the function that replaces arrays by their sum, in order."""
    mirrors = [each.chunk.device.mirror(each.handle, each.spec) for each in arrays]
    first, *others = mirrors

    def run(_: RunContext) -> None:
        for each in mirrors:
            each.load()
        for each in others:
            np.add(first.array, each.array, out=first.array)
        for each in others:
            np.copyto(each.array, first.array)
        for each in mirrors:
            each.store()

    return run


def _everywhere(
    run: Callable[[RunContext], None],
    arrays: Sequence[NDArray],
    home: NDArray,
    name: str,
    priority: int,
) -> EngineOperator:
    return EngineOperator(
        run,
        updates=[each.chunk.variable for each in arrays],
        name=name,
        context=home.context,
        pool=Pool.COMMUNICATION,
        priority=priority,
    )


def fold(
    array: NDArray, levels: Sequence[NDArray], step: FoldStep, name: str, priority: int
) -> list[EngineOperator]:
    """Return the operation that adds waiting sums to an array and lets the result wait.

    levels: the arrays in which sums wait. Empty if nothing is to be done.
    """
    terms = [levels[level] for level in step.levels]
    target = array if step.target is None else levels[step.target]
    if not terms and target is array:
        return []
    add, copy = (_summation(array.context, array.spec, count) for count in (2, 1))
    last = terms.pop() if terms else None
    sums = [(each.handle, array.handle, array.handle) for each in terms]

    def run(context: RunContext) -> None:
        for handles in sums:
            add.run(handles, context)
        if last is None:
            copy.run([array.handle, target.handle], context)
        else:
            add.run([last.handle, array.handle, target.handle], context)

    changed = dict.fromkeys(each.chunk.variable for each in (array, target))
    read = [each.chunk.variable for each in (*terms, last) if each is not None]
    operator = EngineOperator(
        run,
        reads=read,
        updates=[*changed],
        name=name,
        context=array.context,
        pool=Pool.COMMUNICATION,
        priority=priority,
    )
    return [operator]


def push_copy(source: NDArray, target: NDArray, name: str, priority: int) -> None:
    """Push the copy of one array to another, on any device."""
    if _shares_memory(source, target):
        push_sum([source], target, name, priority)
        return
    read, write = source.chunk.device.read, target.chunk.device.write
    read_from, write_to, spec = source.handle, target.handle, source.spec

    def run(_: RunContext) -> None:
        write(write_to, read(read_from, spec))

    _push(run, [source], target, name, priority)


def _push(
    run: Callable[[RunContext], object],
    sources: Sequence[NDArray],
    target: NDArray,
    name: str,
    priority: int,
) -> None:
    written = target.chunk.variable
    read = dict.fromkeys(each.chunk.variable for each in sources)
    # A part of a chunk leaves the rest as it is; a stored array may be pushed to its own key.
    is_all = target.nbytes == target.chunk.nbytes and written not in read
    operator = EngineOperator(
        run,
        reads=[each for each in read if each is not written],
        writes=[written] if is_all else [],
        updates=[] if is_all else [written],
        name=name,
        context=target.context,
        pool=Pool.COMMUNICATION,
        priority=priority,
    )
    engine = target.chunk.engine
    # Handing a short sum to a worker takes longer than the sum.
    if target.nbytes * (len(sources) + 1) < SHORT_BYTES:
        engine.run_or_push(operator)
    else:
        engine.push(operator)


def _brought(source: NDArray, beside: NDArray, name: str, priority: int) -> NDArray:
    """Return a copy of an array on the device of another one."""
    found = new_array(source, beside.context)
    push_copy(source, found, name, priority)
    return found


def new_array(like: NDArray, context: Context) -> NDArray:
    """Return an array of the same shape and type on a context, with undefined content."""
    made: NDArray = empty(like.shape, context, like.dtype)
    return made


def _shares_memory(one: NDArray, other: NDArray) -> bool:
    """Return whether one program can use both arrays."""
    if one.context.kind != other.context.kind:
        return False
    return one.context == other.context or one.chunk.device.has_host_memory


@cache
def _summation(context: Context, spec: TensorSpec, count: int) -> PreparedOperator:
    """Return the sum of tensors from left to right: ((t0 + t1) + t2) + ...

    Its bits do not depend on what runs at what time. The sum may be in the place of one of them.
    """
    kind = device_kind(context.kind)
    device = kind(kind.describe(context.index, 1))
    add = create("add_n", {"num_args": count})
    return PreparedOperator(add, (spec,) * count, device, context, False, False, True)
