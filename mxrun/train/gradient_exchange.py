"""Sums of a bucket's gradients over all contexts, written back to each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mxrun.base.errors import InternalError
from mxrun.base.tensor import TensorSpec
from mxrun.executor.executor import Executor
from mxrun.executor.gradient_buckets import GradientBucket
from mxrun.kvstore.summation import Summation
from mxrun.operator.launch import Handle


def exchange_of(bucket: GradientBucket, executors: Sequence[Executor]) -> Callable[[], None]:
    """Return the function that replaces a bucket in every arena by the sum of all of them.

    Gradients are added in the order of the contexts. The function needs one thread, and memory that
    the host can view; raises InternalError for another device.
    """
    first = executors[0].device
    if not first.has_host_memory:
        raise InternalError(f"gradients on {first.description.family} cannot be summed on the host")
    kind, spec = type(first), TensorSpec((bucket.elements,))
    device = kind(kind.describe(first.description.index, 1))
    add, copy = Summation(device, spec, len(executors)), Summation(device, spec, 1)
    total, *others = handles = [Handle(each.memory, bucket.begin) for each in executors]

    def exchange() -> None:
        add.run([*handles, total])
        for other in others:
            copy.run([total, other])

    return exchange
