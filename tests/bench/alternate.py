"""Calls of mxrun and of PyTorch, alternating in one process, and the table of their times.

Both write into existing tensors, on the same number of threads. mxrun runs kernels that are bound
to memory, as the programs of an executor do. Needs torch in the same environment. Import this
module before torch, because its runtime of threads reads its settings once.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The peer's threads must not keep the cores while they wait.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")
# The system must not move a thread to the core of the thread that waits for it, which halves the
# speed.
os.environ.setdefault("GOMP_CPU_AFFINITY", " ".join(map(str, sorted(os.sched_getaffinity(0)))))

# Helpers that the tests share.
sys.path.append(str(Path(__file__).parents[1] / "support"))

import torch
from executors import cpu
from launches import aligned, bound, handles_of

from mxrun import library
from mxrun.base.tensor import TensorSpec
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import KernelPart
from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.register import create, implementations

THREADS = 2
_clock = time.perf_counter
_PAUSE_SECONDS = 0.001
_MIN_SECONDS = 0.001


@dataclass(frozen=True)
class Match:
    """Calls of both sides; `error` compares their results after both have run."""

    own: Callable[[], object]
    peer: Callable[[], object]
    error: Callable[[], float]


def run_of(
    prepared: Kernel | KernelPart,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    extra: Sequence[Any] = (),
    workspace_bytes: int = 0,
) -> Callable[[], None]:
    """Return the run of a kernel, or of a part of one, on tensors of PyTorch; None is absent."""
    groups = ([_array(tensor) for tensor in group] for group in (inputs, outputs, extra))
    return bound(prepared, handles_of(*groups, aligned(workspace_bytes)), THREADS)


def difference(own: Any, peer: Any) -> float:
    """Return the largest error of one number, relative to the peer's if that is beyond 1."""
    return float(((own - peer).abs() / peer.abs().clamp(min=1)).max())


class Bound:
    """Operator bound to tensors of PyTorch: `forward` and `backward` return calls.

    Every output and every gradient in `wanted` is written. The data that a forward kernel saves for
    its backward kernel stays in memory between the two. out_grad: None if the outputs have no
    gradient.
    """

    def __init__(
        self,
        operator: str,
        parameters: dict[str, object],
        inputs: Sequence[Any],
        out_grad: Sequence[Any] | None = (),
        wanted: Sequence[int] = (0,),
    ) -> None:
        library.load()
        self.prop = create(operator, parameters)
        self.candidates = [*implementations(operator).values(), NUMPY]
        self.inputs, self.out_grad = list(inputs), out_grad
        shapes = [tuple(tensor.shape) for tensor in inputs]
        names = self.prop.list_outputs()
        inferred = self.prop.infer_shape(shapes, [None] * len(names))
        self.outputs = [torch.empty(shape) for shape in inferred.outputs]
        # As under `precision: bfloat16`, only the first output has data's type.
        if self.inputs[0].dtype == torch.bfloat16:
            self.outputs[0] = self.outputs[0].bfloat16()
        self.gradients = [
            torch.empty_like(tensor) if index in wanted else None
            for index, tensor in enumerate(self.inputs)
        ]

    def forward(self) -> Callable[[], None]:
        """The outputs from the inputs."""
        request = ForwardRequest(
            tuple(map(_spec, self.inputs)),
            tuple(map(_spec, self.outputs)),
            (OpReqType.WRITE,) * len(self.outputs),
            True,
            cpu(THREADS),
        )
        kernels = (candidate.prepare_forward(self.prop, request) for candidate in self.candidates)
        self.kernel = next(kernel for kernel in kernels if kernel is not None)
        self._extra = [torch.empty(spec.shape) for spec in self.kernel.extra_outputs]
        scratch = self.kernel.workspace_bytes
        return run_of(self.kernel, self.inputs, self.outputs, self._extra, scratch)

    def backward(self) -> Callable[[], None]:
        """Return the call of backward for the declared dependencies; forward has run before."""
        out_grad = self.out_grad or [None] * len(self.outputs)
        groups = [*out_grad, *self.inputs, *self.outputs]
        first, second = len(out_grad), len(out_grad) + len(self.inputs)
        places = range(len(groups))
        declared = self.prop.declare_backward_dependency(
            places[:first], places[first:second], places[second:]
        )
        groups = [tensor if place in declared else None for place, tensor in enumerate(groups)]
        specs = tuple(None if tensor is None else _spec(tensor) for tensor in groups)
        request = BackwardRequest(
            specs[:first],
            specs[first:second],
            specs[second:],
            tuple(map(_spec, self.inputs)),
            tuple(OpReqType.NULL if g is None else OpReqType.WRITE for g in self.gradients),
            self.kernel,
            cpu(THREADS),
        )
        kernels = (candidate.prepare_backward(self.prop, request) for candidate in self.candidates)
        kernel = next(kernel for kernel in kernels if kernel is not None)
        inputs, scratch = [*groups, *self._extra], kernel.workspace_bytes
        extra = [torch.empty(spec.shape) for spec in kernel.extra_outputs]
        # Forward writes its extra outputs anew; other tensors are read again.
        for source, number in kernel.in_place:
            if source >= len(groups):
                extra[number] = inputs[source]
        return run_of(kernel, inputs, self.gradients, extra, scratch)


def use_threads(count: int) -> None:
    """Set the threads of both sides, for matches that are made afterwards."""
    global THREADS
    THREADS = count


def use_processor_time() -> None:
    """Measure both sides on one thread, in seconds of the processor: other processes do not count.

    They still share caches and memory bandwidth with the calls.
    """
    global _clock
    use_threads(1)
    _clock = time.process_time


def _spec(tensor: Any) -> TensorSpec:
    return TensorSpec(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))


def _array(tensor: Any) -> Any:
    """Return a tensor's memory as an array; NumPy has no bfloat16."""
    if tensor is None:
        return None
    return (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy()


def _seconds(run: Callable[[], object], repeat: int) -> float:
    """Return the best time of three consecutive calls while the other side's threads sleep."""
    times = []
    time.sleep(_PAUSE_SECONDS)
    for _ in range(3):
        begin = _clock()
        for _ in range(repeat):
            run()
        times.append((_clock() - begin) / repeat)
    return min(times)


def arguments(description: str | None) -> argparse.ArgumentParser:
    """Return a parser of the options that all tables share."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    return parser


# Name and factory of a match; tensors of one case exist at a time.
Case = tuple[str, Callable[[], Match]]


def main(description: str | None, cases: Iterable[Case]) -> None:
    """Print the table of a benchmark that has no options but the shared ones and `--threads`."""
    parser = arguments(description)
    parser.add_argument("--threads", type=int, default=THREADS)
    options = parser.parse_args()
    use_threads(options.threads)
    table(cases, options.rounds, options.only)


def table(cases: Iterable[Case], rounds: int, only: str) -> None:
    """Print a line for each case: medians, their ratio, that of the best, and the error."""
    torch.set_num_threads(THREADS)
    print(f"{'':42}{'mxrun us':>10}{'PyTorch us':>12}{'ratio':>8}{'best':>8}{'error':>10}")
    for name, make in cases:
        if only not in name:
            continue
        match = make()
        for run in (match.own, match.peer):
            run()
        repeat = max(1, int(_MIN_SECONDS / _seconds(match.own, 1)))
        pairs = [(_seconds(match.own, repeat), _seconds(match.peer, repeat)) for _ in range(rounds)]
        own, peer = (statistics.median(column) * 1e6 for column in zip(*pairs, strict=True))
        fastest = [min(column) for column in zip(*pairs, strict=True)]
        print(
            f"{name:42}{own:10.1f}{peer:12.1f}{peer / own:8.2f}"
            f"{fastest[1] / fastest[0]:8.2f}{match.error():10.1e}",
            flush=True,
        )
