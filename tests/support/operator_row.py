"""One case of an operator: its parameters, the shapes of its arguments and the values in them."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.contract.case import blank, exact
from mxrun.operator.property import GradientKind, PartialInference, PartialShapes
from mxrun.operator.register import AnyProperty, create
from mxrun.operator.shape import require_complete

Array = npt.NDArray[Any]
# (parameters, inputs) -> outputs, by a formula of its own.
Reference = Callable[[Any, list[Array]], list[Array]]
# (row, inputs, outputs, out_grad) -> the scalar whose gradient backward gives.
Objective = Callable[["Row", list[Array], list[Array], list[Array]], float]
# Relative tolerance between two libraries that compute in float32.
AGREEMENT = 1e-5
# (random, shape, dtype) -> the values of one argument.
Values = Callable[[np.random.Generator, tuple[int, ...], str], Array]


@dataclass(frozen=True)
class Row:
    """One operator with one set of parameters and one shape of its first argument.

    shapes: of further arguments that do not follow from the first. values: of arguments that are
    not normally distributed. labels: class ids are drawn from [low, high); "probabilities" for
    labels of data's shape. is_train: whether forward runs in training mode. differentiable: whether
    backward gives the derivative of the objective. peers: peers for comparison; none for parameters
    that only mxrun has. no_peer: the reason for which MXNet, PyTorch or both support no case of the
    operator. agreement: tolerance against the peers' float32 numbers, see `agree`; a value other
    than the default is an exception, with a comment that gives its reason. any_rank: whether the
    outputs have one shape for any rank of data.
    """

    operator: str
    parameters: Mapping[str, object]
    shape: tuple[int, ...]
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    values: Mapping[str, Values] = field(default_factory=dict)
    labels: tuple[int, int] | str = (0, 3)
    label_dtype: str = "int32"
    is_train: bool = True
    differentiable: bool = True
    peers: tuple[str, ...] = ("MXNet", "PyTorch")
    no_peer: str = ""
    agreement: float = AGREEMENT
    any_rank: bool = False

    def __str__(self) -> str:
        words = [f"{name}={value}".replace(" ", "") for name, value in self.parameters.items()]
        words += ["x".join(map(str, shape)) for shape in self.shapes.values()]
        words += [] if self.is_train else ["evaluated"]
        return "-".join([self.operator, "x".join(map(str, self.shape)), *words])

    def create(self) -> AnyProperty:
        """The property."""
        return create(self.operator, self.parameters)

    @property
    def names(self) -> tuple[str, ...]:
        """Arguments, then auxiliary states."""
        prop = self.create()
        return (*prop.list_arguments(), *prop.list_auxiliary_states())

    @property
    def has_gradient(self) -> bool:
        """Return whether backward computes anything."""
        return GradientKind.COMPUTES in self.create().list_gradients()

    def infer(self) -> PartialInference:
        """Infer all shapes from the first argument's and those of the row."""
        prop = self.create()
        names = prop.list_arguments()
        inputs: PartialShapes = [self.shapes.get(name) for name in names]
        inputs[0] = self.shape
        if self.labels == "probabilities":
            inputs[names.index("label")] = self.shape
        return prop.infer_shape(inputs, [None] * len(prop.list_outputs()))

    def inputs(self, dtype: str, seed: int = 0) -> list[Array]:
        """Values for every argument and auxiliary state: numbers that every dtype has."""
        random = np.random.default_rng([zlib.crc32(str(self).encode()), seed])
        inferred = self.infer()
        shapes = map(require_complete, [*inferred.inputs, *inferred.auxiliary])
        return [
            exact(self._value(random, name, shape, dtype))
            for name, shape in zip(self.names, shapes, strict=True)
        ]

    def _value(
        self, random: np.random.Generator, name: str, shape: tuple[int, ...], dtype: str
    ) -> Array:
        if name in self.values:
            return self.values[name](random, shape, dtype)
        if name == "label" and isinstance(self.labels, str):
            values = random.random(shape)
            return (values / values.sum(axis=1, keepdims=True)).astype(dtype)
        if name == "label":
            assert isinstance(self.labels, tuple)
            return random.integers(*self.labels, shape).astype(self.label_dtype)
        if name == "sample_weight":
            return np.resize([1.0, 0.0, 0.5], shape).astype("float32")
        if name == "schedule":
            return np.resize([0.75, 0.25, 0.125], shape).astype("float32")
        return random.standard_normal(shape).astype(dtype)

    def blank_outputs(self, dtype: str, value: float = np.nan) -> list[Array]:
        """Return arrays for the outputs, filled with `value`; integers have 99 in place of NaN."""
        prop = self.create()
        given: list[str | None] = [dtype] * len(prop.list_arguments())
        _, types = prop.infer_type(given, [None] * len(prop.list_outputs()))
        return [
            blank(require_complete(shape), found or dtype, value)
            for shape, found in zip(self.infer().outputs, types, strict=True)
        ]


def agree(got: Array, want: Array, agreement: float, name: str = "") -> None:
    """Assert that float32 numbers agree within `agreement`, relative to each number.

    Numbers near 0 that are differences of much larger ones may be off by a tenth of it, relative to
    the root mean square of all numbers, as float32 has no more digits of them.
    """
    finite = want[np.isfinite(want)].astype(np.float64)
    scale = float(np.sqrt((finite * finite).mean())) if finite.size else 0.0
    np.testing.assert_allclose(got, want, agreement, 0.1 * agreement * scale, err_msg=name)


def rows(
    operator: str, *cases: tuple[dict[str, object], tuple[int, ...]], **more: Any
) -> list[Row]:
    """Return rows of one operator with common settings."""
    return [Row(operator, parameters, shape, **more) for parameters, shape in cases]
