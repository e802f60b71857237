"""oneDNN's weight gradients of convolutions are correct in all cases in which they are used.

Faulty kernels may write anywhere, so the gradients are computed in a separate process: this file,
run as a script with the name of a set of cases, prints one word per case.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from operator_harness import BackwardData, backward, forward, implementations

from mxrun.base.dtype import BFLOAT16, FLOAT32, numpy_dtype
from mxrun.base.tensor import Shape, TensorSpec
from mxrun.contract.problem import Breach
from mxrun.device.cpu.onednn import library
from mxrun.device.cpu.onednn.backward_convolution import weight_gradient_is_sound
from mxrun.device.cpu.onednn.operations import SlidingWindow
from mxrun.operator.kernel import OpReqType
from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.register import AnyProperty, create
from mxrun.operator.shape import require_complete

pytestmark = pytest.mark.skipif(library.load() is None, reason=library.reason())

THREADS = 2
RIGHT, DECLINED = "right", "declined"
SWEEP_SEED, SWEEP_SIZE = 5, 100
# The weight's gradient alone: the code for that of data has conditions of its own.
REQUESTS = [OpReqType.NULL, OpReqType.WRITE]


@dataclass(frozen=True)
class Case:
    """One layer with the shape of its data; fields are named like the operator's parameters."""

    data: Shape
    kernel: Shape
    stride: Shape
    pad: Shape
    dilate: Shape = ()
    num_filter: int = 16
    num_group: int = 1
    dtype: str = FLOAT32
    operator: str = "Convolution"

    def __str__(self) -> str:
        window = [self.kernel, self.stride, self.pad, self.dilate]
        shapes = ["x".join(map(str, shape)) for shape in (self.data, *window)]
        return "-".join([self.operator, self.dtype, *shapes])

    def create(self) -> AnyProperty:
        """The property; without the bias, whose gradient is no convolution's."""
        return create(
            self.operator,
            {
                "kernel": self.kernel,
                "stride": self.stride,
                "pad": self.pad,
                "dilate": self.dilate or (1,) * len(self.kernel),
                "num_filter": self.num_filter,
                "num_group": self.num_group,
                "no_bias": True,
            },
        )

    def shapes(self) -> tuple[Shape, Shape, Shape]:
        """Shapes of data, weight and output."""
        inferred = self.create().infer_shape([self.data, None], [None])
        data, weight = map(require_complete, inferred.inputs)
        return data, weight, require_complete(inferred.outputs[0])

    @property
    def fits(self) -> bool:
        """Return whether the window has any position."""
        data, dilate = self.data[2:], self.dilate or (1,) * len(self.kernel)
        axes = zip(data, self.kernel, self.stride, self.pad, dilate, strict=True)
        if self.operator == "Convolution":
            return all(n + 2 * p > d * (k - 1) for n, k, _, p, d in axes)
        return all((n - 1) * s + d * (k - 1) >= 2 * p for n, k, s, p, d in axes)

    @property
    def is_sound(self) -> bool:
        """Return the verdict of the rule; a deconvolution counts as a convolution of its output."""
        data, weight, output = self.shapes()
        if self.operator == "Deconvolution":
            data, output = output, data
        dilate = self.dilate or (1,) * len(self.kernel)
        window = SlidingWindow(self.stride, dilate, self.pad, self.pad, self.num_group)
        specs = TensorSpec(data, self.dtype), TensorSpec(output, self.dtype)
        return weight_gradient_is_sound(specs[0], weight[2:], specs[1], window)


# Strides, dilation and padding at which it is right, some of them just outside of the rule.
SOUND = [
    Case((2, 16, 9), (3,), (2,), (1,)),
    Case((2, 16, 9), (3,), (2,), (4,)),
    Case((2, 3, 12), (4,), (3,), (2,), (2,)),
    Case((2, 16, 7, 8), (3, 3), (1, 1), (1, 1)),
    Case((2, 16, 7, 8), (3, 5), (2, 3), (3, 4)),
    Case((2, 16, 9, 8), (3, 3), (2, 2), (2, 3), (2, 2)),
    Case((2, 16, 6, 6), (3, 3), (2, 2), (1, 1), num_group=16),
    Case((2, 16, 6, 5, 5), (3, 3, 3), (2, 2, 2), (1, 1, 1)),
    Case((2, 16, 4, 5, 5), (2, 2, 2), (2, 2, 2), (2, 1, 1)),
    Case((2, 16, 3, 5, 5), (5, 3, 3), (1, 2, 1), (4, 1, 1)),
    Case((2, 16, 9, 4, 4), (7, 3, 3), (2, 1, 1), (3, 1, 1)),
    Case((2, 3, 9, 6, 6), (3, 3, 3), (2, 1, 2), (2, 2, 2), (2, 1, 1)),
    Case((2, 16, 9), (3,), (2,), (1,), dtype=BFLOAT16),
    Case((2, 16, 7, 8), (3, 3), (2, 2), (1, 1), dtype=BFLOAT16),
    Case((2, 16, 6, 6), (3, 3), (1, 1), (1, 1), num_group=16, dtype=BFLOAT16),
    Case((2, 16, 6, 5, 5), (3, 3, 3), (2, 2, 2), (1, 1, 1), dtype=BFLOAT16),
    Case((2, 16, 9), (4,), (2,), (1,), operator="Deconvolution"),
    Case((2, 16, 4, 5), (4, 4), (2, 2), (1, 1), operator="Deconvolution"),
    Case((2, 16, 3, 4, 4), (4, 4, 4), (2, 2, 2), (1, 1, 1), operator="Deconvolution"),
    Case((2, 16, 3, 4, 4), (3, 3, 3), (3, 2, 2), (1, 1, 1), (2, 1, 1), operator="Deconvolution"),
]
# At each of these oneDNN 3.2 with AVX-512 gives wrong numbers or writes beyond its memory.
UNSOUND = [
    Case((1, 16, 3, 4, 4), (4, 2, 2), (2, 1, 1), (3, 0, 0)),
    Case((1, 16, 2, 4, 4), (5, 2, 2), (2, 1, 1), (4, 0, 0)),
    Case((1, 16, 6, 4, 4), (5, 2, 2), (3, 1, 1), (4, 0, 0)),
    Case((1, 16, 7, 4, 4), (7, 2, 2), (2, 1, 1), (3, 0, 0)),
    Case((1, 16, 10, 4, 4), (9, 2, 2), (3, 1, 1), (4, 0, 0)),
    Case((1, 16, 7, 4, 4), (3, 2, 2), (2, 1, 1), (3, 0, 0), (3, 1, 1)),
    Case((3, 3, 4, 7, 6), (3, 3, 3), (2, 2, 1), (3, 1, 2), (3, 1, 2), operator="Deconvolution"),
    Case((1, 16, 1, 4, 4), (2, 2, 2), (1, 1, 1), (1, 0, 0), dtype=BFLOAT16),
    Case((1, 16, 2, 4, 4), (4, 2, 2), (1, 1, 1), (2, 0, 0), dtype=BFLOAT16),
    Case((1, 16, 2, 4, 4), (3, 2, 2), (2, 1, 1), (2, 0, 0), dtype=BFLOAT16),
]


def drawn(chance: random.Random) -> Case:
    """Return a random layer, with more depth and padding than usual."""
    rank = chance.choice([1, 2, 3, 3, 3])
    dtype = chance.choice([FLOAT32, FLOAT32, BFLOAT16])
    channels, filters = chance.choice([(3, 16), (16, 16), (16, 4), (17, 24)])
    group = chance.choice([1, 1, channels])
    return Case(
        (2, channels, *(chance.randint(1, most) for most in (10, 6, 5)[-rank:])),
        tuple(chance.randint(1, most) for most in (7, 4, 3)[-rank:]),
        tuple(chance.randint(1, 3) for _ in range(rank)),
        tuple(chance.randint(0, most) for most in (4, 3, 2)[-rank:]),
        tuple(chance.choice([1, 1, 1, 2]) for _ in range(rank)) if dtype == FLOAT32 else (),
        filters if group == 1 else channels,
        group,
        dtype,
        chance.choice(["Convolution", "Convolution", "Deconvolution"])
        if dtype == FLOAT32
        else "Convolution",
    )


@cache
def cases(name: str) -> tuple[Case, ...]:
    """`listed`: those above; `sweep`: random ones that the rule calls sound."""
    if name == "listed":
        return (*SOUND, *UNSOUND)
    chance = random.Random(SWEEP_SEED)
    found: list[Case] = []
    while len(found) < SWEEP_SIZE:
        case = drawn(chance)
        if case.fits and case.is_sound:
            found.append(case)
    return tuple(found)


def verdict(case: Case) -> str:
    """Return whether oneDNN declines to train the layer, or whether its gradient equals NumPy's.

    The numbers are small integers, so that every sum is exact.
    """
    prop, (data, weight, output) = case.create(), case.shapes()
    chance = np.random.default_rng(1)
    inputs = [chance.integers(-3, 4, shape).astype(FLOAT32) for shape in (data, weight)]
    gradient = chance.integers(-3, 4, output).astype(FLOAT32)
    onednn = implementations(case.operator)["onednn"]

    def weight_gradient(implementation: Any, dtype: str) -> Any:
        kept = [np.zeros(output, numpy_dtype(dtype))]
        run = forward(implementation, prop, inputs, kept, threads=THREADS)
        if run is None:
            return None
        read = BackwardData([gradient.astype(numpy_dtype(dtype))], inputs, run.outputs)
        before = [np.full_like(array, np.nan) for array in inputs]
        return backward(implementation, prop, read, before, run, REQUESTS, THREADS)[1]

    try:
        got = weight_gradient(onednn, case.dtype)
    except Breach as breach:
        return str(breach).replace("\n", " ")
    if got is None:
        return DECLINED
    wrong = int((got != weight_gradient(NUMPY, FLOAT32)).sum())
    return f"{wrong} of {got.size} wrong" if wrong else RIGHT


@cache
def verdicts(name: str) -> dict[Case, str]:
    """Return the verdict of each case, including cases that crash the process."""
    done = subprocess.run(
        [sys.executable, __file__, name],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    words = done.stdout.splitlines()
    if done.returncode:
        words.append(f"ends the process with {done.returncode}: {done.stderr[-2000:]}")
    unknown = ["not reached"] * len(cases(name))
    return dict(zip(cases(name), [*words, *unknown], strict=False))


@pytest.mark.parametrize("case", SOUND, ids=str)
def test_a_sound_weight_gradient_is_that_of_the_formula(case: Case) -> None:
    assert case.is_sound
    assert verdicts("listed")[case] in (RIGHT, DECLINED)


@pytest.mark.parametrize("case", UNSOUND, ids=str)
def test_what_onednn_does_not_compute_is_left_to_other_code(case: Case) -> None:
    assert not case.is_sound
    assert verdicts("listed")[case] == DECLINED


def test_wherever_the_rule_says_sound_the_weight_gradient_is_right() -> None:
    found = verdicts("sweep")
    assert {str(case): word for case, word in found.items() if word not in (RIGHT, DECLINED)} == {}
    assert sum(word == RIGHT for word in found.values()) > SWEEP_SIZE // 4


if __name__ == "__main__":
    for each in cases(sys.argv[1]):
        print(verdict(each), flush=True)
