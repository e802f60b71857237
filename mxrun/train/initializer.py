"""Initialisers: initial values of parameters, as functions of seed, name and shape alone.

Formulas and defaults are those of MXNet 1.9.1 (python/mxnet/initializer.py); the random streams are
mxrun's own (`mxrun.runtime.random`).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.params import Float32, NotNegative, Parameters, Positive
from mxrun.base.registry import Registry
from mxrun.base.tensor import Shape
from mxrun.runtime import random

# Maximum number of values drawn at once: half a MiB of float64, which fits into caches.
CHUNK = 1 << 16
# Index of the first value, in row-major order, and the values from there on.
Chunk = tuple[int, npt.NDArray[np.float64]]
FactorType = Literal["avg", "in", "out"]

# Suffixes of parameter names with initial value 0 or 1, by MXNet's naming.
_ZEROS = ("_bias", "_beta", "_moving_mean")
_ONES = ("_gamma", "_moving_var")
_LSTM_GATES, _FORGET_GATE = 4, 1
# Suffix of the biases of a recurrent layer's input.
_INPUT_BIAS = "_i2h_bias"


class Initializer(Parameters):
    """Rule for initial values."""

    def why_unsupported(self, shape: Shape) -> Diagnostic | None:
        """Return a diagnostic if the rule does not support this shape, else None."""
        return None

    @abstractmethod
    def chunks(self, seed: int, stream: str, shape: Shape) -> Iterator[Chunk]:
        """Yield values of `shape` in row-major order, from the random stream `stream` under `seed`.

        Pieces have bounded size, so that the largest parameter is not in memory twice.
        """


INITIALIZERS: Registry[type[Initializer]] = Registry("initializer")


def _ranges(count: int) -> Iterator[tuple[int, int]]:
    """Yield the first index and the size of each piece of `count` values."""
    for first in range(0, count, CHUNK):
        yield first, min(CHUNK, count - first)


@INITIALIZERS.register("uniform", foreign={"uniform": "randomuniform"})
class Uniform(Initializer):
    """Uniform values between -scale and scale."""

    scale: Positive = Field(0.07, description="The largest absolute value.")

    def chunks(self, seed: int, stream: str, shape: Shape) -> Iterator[Chunk]:
        """Yield (2 u - 1) * scale with u uniform in [0, 1)."""
        for first, size in _ranges(math.prod(shape)):
            values = random.uniform(seed, stream, (size,), first)
            values *= 2 * self.scale
            values -= self.scale
            yield first, values


@INITIALIZERS.register("normal", foreign={"normal": "randomnormal gaussian truncatednormal"})
class Normal(Initializer):
    """Normal values with mean 0."""

    # Bounded so that eight standard deviations, the range of draws, fit into float32.
    sigma: Positive = Field(0.01, le=1e37, description="The standard deviation.")

    def chunks(self, seed: int, stream: str, shape: Shape) -> Iterator[Chunk]:
        """Yield z * sigma with z standard normal."""
        for first, values in random.normal_chunks(seed, stream, math.prod(shape), CHUNK):
            values *= self.sigma
            yield first, values


@INITIALIZERS.register(
    "constant", foreign={"constant: {value: 0}": "zero zeros", "constant: {value: 1}": "one ones"}
)
class ConstantInitializer(Initializer):
    """One value for all elements."""

    value: Float32 = Field(0.0, description="The value.")

    def chunks(self, seed: int, stream: str, shape: Shape) -> Iterator[Chunk]:
        """Yield the constant value."""
        for first, size in _ranges(math.prod(shape)):
            yield first, np.full(size, self.value, np.float64)


class FanScaled(Initializer):
    """Values with scale sqrt(magnitude / factor), where factor is a fan of the weight.

    With hw the number of kernel positions (OIHW: H * W, else 1), fan_in = shape[1] * hw and fan_out
    = shape[0] * hw.
    """

    min_axes: ClassVar[int] = 2
    factor_type: FactorType = Field(
        "avg",
        description="The fan that determines the scale: the mean of both, incoming, or outgoing.",
    )

    def why_unsupported(self, shape: Shape) -> Diagnostic | None:
        """Return a diagnostic if the shape has no fans, else None."""
        if len(shape) >= self.min_axes and 0 not in shape:
            return None
        return Diagnostic(
            "this initializer needs a weight with incoming and outgoing fans",
            expected="a shape of two or more axes",
            got=str(list(shape)),
            hint="give the variable its own init, such as {normal: {sigma: 0.01}}",
        )

    def scale(self, magnitude: float, shape: Shape) -> float:
        """Return sqrt(magnitude / factor); raises UserError for a shape without fans."""
        if (problem := self.why_unsupported(shape)) is not None:
            raise UserError(problem)
        positions = math.prod(shape[2:])
        fan_in, fan_out = shape[1] * positions, shape[0] * positions
        factors = {"avg": (fan_in + fan_out) / 2, "in": fan_in, "out": fan_out}
        return math.sqrt(magnitude / factors[self.factor_type])


@INITIALIZERS.register(
    "xavier", foreign={"xavier": "xavieruniform glorot glorotuniform xaviernormal glorotnormal"}
)
class Xavier(FanScaled):
    """Uniform or normal values by Glorot and Bengio (2010), for tanh and sigmoid networks."""

    rnd_type: Literal["uniform", "gaussian"] = Field("uniform", description="The distribution.")
    magnitude: Positive = Field(3.0, description="Factor of the variance.")

    def chunks(self, seed: int, stream: str, shape: Shape) -> Iterator[Chunk]:
        """Yield values uniform in [-scale, scale), or normal with standard deviation scale."""
        scale = self.scale(self.magnitude, shape)
        if self.rnd_type == "uniform":
            return Uniform(scale=scale).chunks(seed, stream, shape)
        return Normal(sigma=scale).chunks(seed, stream, shape)


@INITIALIZERS.register(
    "msra", foreign={"msra": "kaiming kaimingnormal kaiminguniform he henormal heuniform msraprelu"}
)
class Msra(FanScaled):
    """Normal values by He et al. (2015), for networks of (leaky) ReLUs; MXNet's MSRAPrelu."""

    slope: NotNegative = Field(0.25, description="The slope of the leaky ReLU below zero.")

    def chunks(self, seed: int, stream: str, shape: Shape) -> Iterator[Chunk]:
        """Yield normal values with variance 2 / (1 + slope^2) / factor."""
        scale = self.scale(2 / (1 + self.slope**2), shape)
        return Normal(sigma=scale).chunks(seed, stream, shape)


@INITIALIZERS.register("lstm_bias")
class LSTMBias(Initializer):
    """Biases of an LSTM: 0, but `forget_bias` for the forget gate, which is the second of four.

    For RNN's packed vector: these biases for the input of each layer, 0 for those of its state, and
    the default initialiser for its weights.
    """

    forget_bias: Float32 = Field(1.0, description="The bias of the forget gate.")

    def why_unsupported(self, shape: Shape) -> Diagnostic | None:
        """Return a diagnostic if the shape is no vector of four gates, else None."""
        if len(shape) == 1 and shape[0] % _LSTM_GATES == 0:
            return None
        return Diagnostic(
            "this initializer needs the biases of four gates, or an RNN's packed vector",
            expected="a shape of one axis, a multiple of 4",
            got=str(list(shape)),
        )

    def chunks(self, seed: int, stream: str, shape: Shape) -> Iterator[Chunk]:
        """Yield the biases of each gate."""
        if (problem := self.why_unsupported(shape)) is not None:
            raise UserError(problem)
        size = shape[0] // _LSTM_GATES
        for gate in range(_LSTM_GATES):
            value = self.forget_bias if gate == _FORGET_GATE else 0.0
            for first, values in ConstantInitializer(value=value).chunks(seed, stream, (size,)):
                yield gate * size + first, values


class PackedInitializer(Initializer):
    """Initial values of a vector that holds several parameters one after the other."""

    parts: tuple[tuple[str, Shape, Initializer], ...]

    def why_unsupported(self, shape: Shape) -> Diagnostic | None:
        """Return the diagnostic of the first part whose rule does not support its shape."""
        problems = (rule.why_unsupported(own) for _, own, rule in self.parts)
        return next((problem for problem in problems if problem is not None), None)

    def chunks(self, seed: int, stream: str, shape: Shape) -> Iterator[Chunk]:
        """Yield the values of each part, from a random stream of its own."""
        at = 0
        for name, own, rule in self.parts:
            for first, values in rule.chunks(seed, f"{stream}/{name}", own):
                yield at + first, values
            at += math.prod(own)


def initializer_for(
    parameter_name: str,
    default: Initializer,
    explicit: Initializer | None = None,
    parts: Mapping[str, Shape] | None = None,
) -> Initializer:
    """Return the initialiser of a parameter: `explicit` if given, else MXNet's rule for its name.

    Biases, betas and moving means start at 0, gammas and moving variances at 1; `default` is used
    for all others. parts: of a vector that holds several parameters, to each of which this applies.
    """
    if parts:
        rules = [
            (name, shape, initializer_for(name, default, _of_part(name, explicit)))
            for name, shape in parts.items()
        ]
        return PackedInitializer(parts=tuple(rules))
    if explicit is not None:
        return explicit
    if parameter_name.endswith(_ZEROS):
        return ConstantInitializer(value=0.0)
    if parameter_name.endswith(_ONES):
        return ConstantInitializer(value=1.0)
    return default


def _of_part(name: str, explicit: Initializer | None) -> Initializer | None:
    """Return what a packed vector's own rule means for one of its parts."""
    if isinstance(explicit, LSTMBias) and not name.endswith(_INPUT_BIAS):
        return None
    return explicit


def initial_value(
    initializer: Initializer, parameter_name: str, shape: Shape, seed: int
) -> npt.NDArray[np.float32]:
    """Return the initial value of a parameter: float32, a function of the arguments alone.

    Raises UserError naming the parameter if the initialiser does not support its shape.
    """
    values = np.empty(shape, np.float32)
    initialise(values, initializer, parameter_name, seed)
    return values


def initialise(
    target: npt.NDArray[Any], initializer: Initializer, parameter_name: str, seed: int
) -> None:
    """Write a parameter's initial value, as float32, into contiguous memory of its shape.

    Raises UserError as `initial_value` does.
    """
    flat = target.reshape(-1)
    try:
        stream = f"initializer/{parameter_name}"
        for first, values in initializer.chunks(seed, stream, target.shape):
            flat[first : first + len(values)] = values.astype(np.float32)
    except UserError as error:
        raise UserError(
            Diagnostic(
                f"parameter {parameter_name!r}: {found.problem}",
                expected=found.expected,
                got=found.got,
                hint=found.hint,
            )
            for found in error.diagnostics
        ) from error
