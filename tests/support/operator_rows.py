"""The table of operator cases: one row per parameter set; every operator test runs all of them."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from operator_harness import filled
from operator_references import softmax_samples, target_of

from mxrun.operator.property import Inferred, PartialShapes
from mxrun.operator.register import AnyProperty, create
from mxrun.operator.shape import known

Array = npt.NDArray[Any]


OUTSIDE_THE_CLASSES = (-2, 6)


@dataclass(frozen=True)
class Row:
    """One operator under one parameter set on one shape of its first argument.

    labels: class ids are drawn from [low, high); "probabilities" for labels of data's shape.
    peers: who can be asked: nobody about parameters that only mxrun has.
    """

    operator: str
    parameters: Mapping[str, object]
    shape: tuple[int, ...]
    labels: tuple[int, int] | str = (0, 3)
    label_dtype: str = "int32"
    peers: tuple[str, ...] = ("MXNet", "PyTorch")

    def __str__(self) -> str:
        words = [f"{name}={value}".replace(" ", "") for name, value in self.parameters.items()]
        return "-".join([self.operator, "x".join(map(str, self.shape)), *words])

    def create(self) -> AnyProperty:
        """The property."""
        return create(self.operator, self.parameters)

    def infer(self) -> Inferred:
        """All shapes from the first argument's."""
        prop = self.create()
        names = prop.list_arguments()
        inputs: PartialShapes = [self.shape, *[None] * (len(names) - 1)]
        if self.labels == "probabilities":
            inputs[names.index("label")] = self.shape
        return prop.infer_shape(inputs, [None] * len(prop.list_outputs()))

    def inputs(self, dtype: str, seed: int = 0) -> list[Array]:
        """Values for every argument, the same for every dtype."""
        random = np.random.default_rng([zlib.crc32(str(self).encode()), seed])
        names = self.create().list_arguments()
        shapes = map(known, self.infer().inputs)
        return [
            self._value(random, name, shape, dtype)
            for name, shape in zip(names, shapes, strict=True)
        ]

    def _value(
        self, random: np.random.Generator, name: str, shape: tuple[int, ...], dtype: str
    ) -> Array:
        if name == "label" and isinstance(self.labels, str):
            values = random.random(shape)
            return (values / values.sum(axis=1, keepdims=True)).astype(dtype)
        if name == "label":
            assert isinstance(self.labels, tuple)
            return random.integers(*self.labels, shape).astype(self.label_dtype)
        if name == "sample_weight":
            return np.resize([1.0, 0.0, 0.5], shape).astype("float32")
        if name == "schedule":
            return np.full(shape, 0.75, "float32")
        return random.standard_normal(shape).astype(dtype)

    def blank_outputs(self, dtype: str, value: float = np.nan) -> list[Array]:
        """Arrays to write the outputs into."""
        return filled([known(shape) for shape in self.infer().outputs], value, dtype)


def softmax_scale(row: Row, inputs: list[Array]) -> float:
    """What SoftmaxOutput multiplies the loss's gradient by: grad_scale / normalization."""
    p = row.create().parameters
    data, label, *weight = inputs
    if label.shape == data.shape:
        return float(p.grad_scale)
    rows = label.reshape(data.shape[0], -1)
    present = np.ones(len(rows), bool) if not weight else weight[0] != 0
    divisors = {
        "null": data[0, 0].size if p.multi_output else 1,
        "batch": sum(rows.shape[1] for here in present if here),
        "valid": max(1, int((rows[present].astype(int) != int(p.ignore_label)).sum())),
    }
    return float(p.grad_scale / divisors[p.normalization])


def softmax_gradient(row: Row, inputs: list[Array], out_grad: Array) -> Array:
    """SoftmaxOutput's data gradient by MXNet's rules, sample by sample."""
    p = row.create().parameters
    data, label, *weight = inputs
    result = np.zeros_like(data)
    for place, wanted, number in softmax_samples(p, data, label):
        if p.use_ignore and np.ndim(wanted) == 0 and int(wanted) == int(p.ignore_label):
            continue
        exponential = np.exp(data[place])
        probability = exponential / exponential.sum()
        target, _ = target_of(p, wanted, probability.size)
        slope = probability - np.reshape(target, probability.shape)
        result[place] = slope * float(weight[0][number] if weight else 1)
    result *= softmax_scale(row, inputs)
    return result * out_grad if p.out_grad else result


def _rows(
    operator: str, *cases: tuple[dict[str, object], tuple[int, ...]], **more: Any
) -> list[Row]:
    return [Row(operator, parameters, shape, **more) for parameters, shape in cases]


ROWS: list[Row] = [
    *_rows(
        "Convolution",
        ({"kernel": (3, 3), "num_filter": 4, "pad": (1, 1)}, (3, 2, 6, 5)),
        ({"kernel": (1, 1), "num_filter": 5, "no_bias": True}, (2, 3, 4, 4)),
        ({"kernel": (3, 2), "num_filter": 4, "stride": (2, 1), "num_group": 2}, (2, 4, 7, 6)),
        ({"kernel": (3, 3), "num_filter": 2, "dilate": (2, 2), "pad": (2, 1)}, (2, 3, 8, 7)),
        ({"kernel": (3,), "num_filter": 3, "stride": (2,), "pad": (1,)}, (2, 2, 9)),
        ({"kernel": (2, 3, 2), "num_filter": 2, "pad": (0, 1, 1)}, (2, 2, 4, 5, 3)),
        ({"kernel": (5, 5), "num_filter": 6, "num_group": 3, "workspace": 0}, (3, 6, 5, 6)),
        (
            {"kernel": (3, 3), "num_filter": 16, "stride": (2, 2), "pad": (1, 1), "no_bias": True},
            (2, 16, 9, 9),
        ),
    ),
    *_rows(
        "FullyConnected",
        ({"num_hidden": 5}, (3, 7)),
        ({"num_hidden": 4, "no_bias": True}, (6, 3)),
        ({"num_hidden": 6}, (2, 3, 2, 4)),
        ({"num_hidden": 3, "flatten": False}, (2, 4, 5)),
        ({"num_hidden": 1, "flatten": False, "no_bias": True}, (2, 2, 3, 4)),
        ({"num_hidden": 16}, (32, 64)),
    ),
    *_rows(
        "Activation",
        *(
            ({"act_type": name}, shape)
            for name, shape in (
                ("relu", (4, 5)),
                ("sigmoid", (2, 3, 4)),
                ("softrelu", (7,)),
                ("softsign", (2, 3, 2, 2)),
                ("tanh", (3, 6)),
            )
        ),
    ),
    *_rows(
        "Pooling",
        ({"kernel": (2, 2), "stride": (2, 2)}, (2, 3, 6, 4)),
        ({"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1)}, (2, 3, 7, 6)),
        ({"kernel": (3, 2), "stride": (2, 1), "pool_type": "avg", "pad": (1, 1)}, (2, 2, 6, 5)),
        (
            {
                "kernel": (3, 3),
                "stride": (2, 2),
                "pad": (1, 1),
                "pool_type": "avg",
                "count_include_pad": False,
            },
            (1, 3, 8, 5),
        ),
        (
            {
                "kernel": (3, 3),
                "stride": (2, 2),
                "pool_type": "avg",
                "pooling_convention": "full",
                "pad": (1, 1),
            },
            (2, 2, 6, 6),
        ),
        ({"kernel": (3, 3), "stride": (2, 2), "pooling_convention": "full"}, (2, 2, 6, 7)),
        ({"kernel": (2, 3), "pool_type": "sum"}, (2, 2, 4, 5)),
        ({"kernel": (2, 2), "stride": (2, 2), "pool_type": "lp", "p_value": 2}, (2, 2, 4, 6)),
        ({"kernel": (2, 2), "pool_type": "lp", "p_value": 1}, (1, 2, 3, 4)),
        ({"global_pool": True, "pool_type": "avg"}, (2, 3, 5, 4)),
        ({"global_pool": True, "kernel": (2, 2), "pad": (1, 1)}, (2, 3, 4, 4)),
        ({"kernel": (2, 2, 2), "stride": (2, 1, 2), "pool_type": "avg"}, (1, 2, 4, 3, 4)),
        ({"kernel": (3,), "stride": (2,), "pad": (1,)}, (2, 2, 9)),
    ),
    # PyTorch takes no root of a negative sum.
    *_rows(
        "Pooling",
        ({"kernel": (3,), "stride": (2,), "pool_type": "lp", "p_value": 3}, (2, 2, 7)),
        peers=("MXNet",),
    ),
    # MXNet 1.9.1 has the convention `same`, but its CPU build can run none of it.
    *_rows(
        "Pooling",
        ({"kernel": (3,), "stride": (2,), "pooling_convention": "same"}, (2, 2, 7)),
        peers=(),
    ),
    *_rows(
        "Flatten",
        *(({}, shape) for shape in ((2, 3, 4), (3, 5), (2, 3, 2, 2), (1, 7, 1), (2, 2, 1, 3, 2))),
    ),
    *_rows(
        "elemwise_add",
        *(({}, shape) for shape in ((5,), (2, 3), (2, 3, 4), (1, 1), (2, 3, 2, 4), (3, 4001))),
    ),
    *_rows(
        "SoftmaxOutput",
        ({}, (5, 4)),
        ({"grad_scale": 0.5, "normalization": "batch"}, (4, 3)),
        ({"use_ignore": True, "ignore_label": 1.0, "normalization": "valid"}, (6, 3)),
        ({"multi_output": True}, (2, 3, 4)),
        ({"multi_output": True, "use_ignore": True, "ignore_label": 2.0}, (2, 4, 3, 2)),
        ({"multi_output": True, "normalization": "batch"}, (3, 3, 2)),
        ({"multi_output": True, "normalization": "valid", "ignore_label": 0.0}, (3, 3, 2)),
        ({"preserve_shape": True, "normalization": "batch"}, (2, 3, 4)),
        ({"preserve_shape": True, "use_ignore": True, "ignore_label": 0.0}, (2, 3, 4)),
        ({"smooth_alpha": 0.3}, (4, 5)),
        ({"normalization": "valid", "ignore_label": 2.0}, (150, 60)),
    ),
    # MXNet 1.9.1 multiplies by the output instead, against its own documentation.
    *_rows(
        "SoftmaxOutput",
        ({"out_grad": True, "grad_scale": 2.0}, (3, 4)),
        peers=("PyTorch",),
    ),
    *_rows("SoftmaxOutput", ({}, (6, 3)), labels=(0, 3), label_dtype="float32"),
    *_rows("SoftmaxOutput", ({"smooth_alpha": 0.2}, (7, 3)), labels=OUTSIDE_THE_CLASSES),
    # One class: a label per row is still a class and no probability.
    *_rows("SoftmaxOutput", ({}, (5, 1)), labels=(0, 1)),
    *_rows(
        "SoftmaxOutput",
        ({}, (4, 3)),
        ({"multi_output": True, "grad_scale": 3.0, "normalization": "batch"}, (2, 3, 2)),
        labels="probabilities",
    ),
    *_rows(
        "SoftmaxOutput",
        ({"use_sample_weight": True}, (6, 4)),
        ({"use_sample_weight": True, "normalization": "batch"}, (6, 4)),
        ({"use_sample_weight": True, "normalization": "valid", "ignore_label": 1.0}, (7, 4)),
        ({"use_sample_weight": True, "multi_output": True}, (4, 3, 2)),
        ({"use_sample_weight": True, "preserve_shape": True, "normalization": "batch"}, (3, 2, 4)),
        peers=(),
    ),
    *_rows(
        "sgd_update",
        ({"lr": 0.1}, (4, 3)),
        ({"lr": 0.1, "wd": 0.01}, (9001,)),
        ({"lr": 0.5, "rescale_grad": 0.25}, (2, 3, 2, 2)),
        ({"lr": 0.1, "clip_gradient": 0.5, "wd": 0.1}, (5, 3)),
        ({"lr": 0.1, "clip_gradient": 0.0, "lazy_update": False}, (3,)),
    ),
    *_rows("sgd_update", ({"lr": 0.1, "wd": 0.01, "scheduled": True}, (4, 3)), peers=()),
    *_rows(
        "sgd_mom_update",
        ({"lr": 0.1}, (4, 3)),
        ({"lr": 0.1, "momentum": 0.9}, (7,)),
        ({"lr": 0.1, "momentum": 0.9, "wd": 0.01, "rescale_grad": 0.125}, (2, 3, 2, 2)),
        ({"lr": 0.1, "momentum": 0.5, "clip_gradient": 0.5, "wd": 0.1}, (5, 3)),
        ({"lr": 1.0, "momentum": 0.9, "lazy_update": False}, (10007,)),
    ),
    *_rows(
        "sgd_mom_update",
        ({"lr": 0.1, "momentum": 0.9, "wd": 0.01, "scheduled": True}, (4, 3)),
        peers=(),
    ),
]

DIFFERENTIABLE = [row for row in ROWS if not row.operator.startswith("sgd")]
