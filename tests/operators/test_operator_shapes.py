"""Shape and type inference of every operator, in both directions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from executors import cpu
from inference import backward_reads, contradiction
from operator_harness import Memory, execute, spec_of
from operator_row import Row
from operator_rows import ROWS

from mxrun.base.params import Parameters
from mxrun.base.tensor import PartialShape, TensorSpec
from mxrun.operator.kernel import ForwardRequest, OpReqType
from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.operator import ForwardCall, Operator
from mxrun.operator.property import (
    OperatorProperty,
    PartialInference,
    PartialShapes,
    ResourceKind,
    ResourceRequest,
    same_shape,
)
from mxrun.operator.register import create
from mxrun.operator.shape import ShapeContradiction, is_known

every_row = pytest.mark.parametrize("row", ROWS, ids=str)


@every_row
def test_P1_all_shapes_follow_from_the_data(row: Row) -> None:
    inferred = row.infer()
    assert all(is_known(shape) for shape in (*inferred.inputs, *inferred.outputs))


# The gradients of a global norm may have any shapes, and so may the data of a full reduction.
RANKED = [r for r in ROWS if r.operator != "_global_norm_scale" and not r.any_rank]


@pytest.mark.parametrize("row", RANKED, ids=str)
def test_P3_a_changed_rank_contradicts(row: Row) -> None:
    prop, full = row.create(), row.infer()
    everything = [*full.inputs, *full.outputs]
    for position, shape in enumerate(everything):
        assert shape is not None
        wrong: PartialShapes = [*everything]
        wrong[position] = (*shape, 2)
        with pytest.raises(ShapeContradiction):
            prop.infer_shape(wrong[: len(full.inputs)], wrong[len(full.inputs) :])


BACKWARD: list[tuple[str, dict[str, object], list[PartialShape], PartialShape, PartialShapes]] = [
    (
        "Convolution",
        {"kernel": (3, 3), "num_filter": 8, "pad": (1, 1), "num_group": 2},
        [None, (8, 2, 3, 3), None],
        (5, None, 6, 7),
        [(5, 4, 6, 7), (8, 2, 3, 3), (8,)],
    ),
    (
        "Convolution",
        {"kernel": (3, 3), "num_filter": 8, "stride": (2, 1), "no_bias": True},
        [(None, 3, None, None), None],
        (4, 8, 6, 7),
        [(4, 3, None, 9), (8, 3, 3, 3)],
    ),
    (
        "FullyConnected",
        {"num_hidden": 10},
        [(None, 4, None, 3), (None, 60), None],
        (8, None),
        [(8, 4, 5, 3), (10, 60), (10,)],
    ),
    (
        "FullyConnected",
        {"num_hidden": 10, "flatten": False, "no_bias": True},
        [None, (10, 6)],
        (2, 3, 10),
        [(2, 3, 6), (10, 6)],
    ),
    ("Activation", {"act_type": "relu"}, [(None, 4)], (3, None), [(3, 4)]),
    ("Pooling", {"kernel": (3, 3), "stride": (1, 2)}, [None], (2, 3, 4, 4), [(2, 3, 6, None)]),
    ("Pooling", {"global_pool": True}, [(None, None, 7, 7)], (2, 3, 1, 1), [(2, 3, 7, 7)]),
    ("Flatten", {}, [(None, 3, None)], (4, 12), [(4, 3, 4)]),
    ("elemwise_add", {}, [(2, None), None], (None, 3), [(2, 3), (2, 3)]),
    ("SoftmaxOutput", {}, [None, None], (6, 10), [(6, 10), (6,)]),
    ("SoftmaxOutput", {}, [(None, 10), (6,)], None, [(6, 10), (6,)]),
    ("SoftmaxOutput", {"multi_output": True}, [(2, 3, 4, 5), None], None, [(2, 3, 4, 5), (2, 20)]),
    (
        "SoftmaxOutput",
        {"multi_output": True},
        [(2, 3, 4, 5), (2, 4, 5)],
        None,
        [(2, 3, 4, 5), (2, 4, 5)],
    ),
    (
        "SoftmaxOutput",
        {"use_sample_weight": True},
        [(None, 3), None, (4,)],
        None,
        [(4, 3), (4,), (4,)],
    ),
    ("sgd_mom_update", {"lr": 0.1}, [None, (3,), None], None, [(3,), (3,), (3,)]),
]


@pytest.mark.parametrize(("operator", "parameters", "inputs", "output", "expected"), BACKWARD)
def test_P2_knowledge_flows_to_the_inputs(
    operator: str,
    parameters: dict[str, object],
    inputs: list[PartialShape],
    output: PartialShape,
    expected: PartialShapes,
) -> None:
    prop = create(operator, parameters)
    outputs = [output, *[None] * (len(prop.list_outputs()) - 1)]
    assert prop.infer_shape(inputs, outputs).inputs == expected


CONTRADICTIONS: list[tuple[str, dict[str, object], list[PartialShape], str, str]] = [
    (
        "Convolution",
        {"kernel": (3, 3), "num_filter": 8},
        [(1, 3, 8, 8), (8, 4, 3, 3), None],
        "weight",
        "data's channels / num_group",
    ),
    (
        "Convolution",
        {"kernel": (3, 3), "num_filter": 8, "num_group": 2},
        [(1, 3, 8, 8), None, None],
        "data",
        "num_group 2",
    ),
    (
        "Convolution",
        {"kernel": (5, 5), "num_filter": 8},
        [(1, 3, 4, 8), None, None],
        "data",
        "kernel",
    ),
    ("Convolution", {"kernel": (5, 5), "num_filter": 8}, [(1, 3, 4), None, None], "data", "kernel"),
    ("Convolution", {"kernel": (1, 1), "num_filter": 8}, [None, None, (9,)], "bias", "num_filter"),
    ("FullyConnected", {"num_hidden": 4}, [(2, 3), (4, 5), None], "weight", "data"),
    ("FullyConnected", {"num_hidden": 4}, [(2, 3), (5, 3), None], "weight", "num_hidden"),
    ("FullyConnected", {"num_hidden": 4}, [(2, 7, None), (4, 15), None], "data", "weight"),
    ("Pooling", {"kernel": (3, 3)}, [(1, 1, 2, 5)], "data", "kernel"),
    ("Pooling", {"global_pool": True}, [(1, 1)], "data", "spatial"),
    ("elemwise_add", {}, [(1, 2), (2, 1)], "rhs", "elementwise"),
    ("SoftmaxOutput", {}, [(4, 3), (5,)], "data", "label"),
    ("SoftmaxOutput", {}, [(4, 3), (4, 2)], "label", "data"),
    ("SoftmaxOutput", {}, [(4,), None], "data", "rows"),
    ("sgd_update", {"lr": 1.0, "scheduled": True}, [(4,), None, (2,)], "schedule", "three numbers"),
]


@pytest.mark.parametrize(("operator", "parameters", "inputs", "argument", "rule"), CONTRADICTIONS)
def test_P3_a_contradiction_names_argument_and_rule(
    operator: str,
    parameters: dict[str, object],
    inputs: list[PartialShape],
    argument: str,
    rule: str,
) -> None:
    found = contradiction(operator, parameters, inputs)
    assert found.argument == argument
    assert rule in found.rule
    assert found.given != found.inferred


def test_labels_are_int32_unless_given_and_weights_float32() -> None:
    prop = create("SoftmaxOutput", {"use_sample_weight": True})
    types = prop.infer_type([None, None, None], ["float64", None])
    assert types == (["float64", "int32", "float32"], ["float64", "float64"])
    types = prop.infer_type(["float32", "float32", None], [None, None])
    assert types == (["float32", "float32", "float32"], ["float32", "float32"])


class RecorderParameters(Parameters):
    """None."""


class Recorder(Operator):
    """Recorder of the tensors and resources of forward."""

    def __init__(self) -> None:
        self.seen: list[TensorSpec] = []
        self.requested: list[int] = []

    def forward(self, call: ForwardCall) -> None:
        self.seen = [spec_of(array) for array in (*call.inputs, *call.outputs)]
        self.requested = [call.space(index).nbytes for index in range(len(call.resources))]


class RecorderProperty(OperatorProperty[RecorderParameters]):
    """Two resources in an order of its own; everything else by default."""

    type_string = "recorder"
    parameter_type = RecorderParameters

    def __init__(self, body: Recorder) -> None:
        super().__init__(RecorderParameters())
        self.body = body

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        data, output = same_shape(("data", "output"), [*inputs, *outputs], "elementwise")
        return PartialInference([data], [output], [])

    def forward_resource(self, inputs: Sequence[TensorSpec]) -> list[ResourceRequest]:
        size = inputs[0].nbytes
        return [
            ResourceRequest(ResourceKind.TEMP_SPACE, 2 * size),
            ResourceRequest(ResourceKind.TEMP_SPACE, size),
        ]

    def create_operator(self) -> Operator:
        return self.body


def test_P4_R3_forward_sees_the_planned_sizes_and_its_requests_in_order() -> None:
    body = Recorder()
    prop = RecorderProperty(body)
    inferred = prop.infer_shape([(3, 5)], [None])
    assert inferred.outputs == [(3, 5)]
    data = np.zeros((3, 5), "float32")
    request = ForwardRequest((spec_of(data),), (spec_of(data),), (OpReqType.WRITE,), True, cpu())
    kernel = NUMPY.prepare_forward(prop, request)
    execute(kernel, [Memory(spec_of(data), data)], [Memory(spec_of(data))])
    assert body.seen == [*kernel.inputs, *kernel.outputs]
    assert body.requested == [120, 60]
    assert kernel.workspace_bytes == 128 + 64


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_R4_convolution_asks_for_columns_by_shape_type_and_workspace(dtype: str) -> None:
    def requested_bytes(batch: int, **parameters: Any) -> int:
        prop = create("Convolution", {"kernel": (3, 3), "num_filter": 4, **parameters})
        specs = [TensorSpec((batch, 8, 34, 34), dtype), TensorSpec((4, 8, 3, 3), dtype)]
        (resource,) = prop.forward_resource(specs)
        assert prop.backward_resource(specs) == [resource]
        return resource.nbytes

    image = 8 * 9 * 32 * 32 * np.dtype(dtype).itemsize
    assert requested_bytes(1) == image
    assert requested_bytes(2) == 2 * image
    assert requested_bytes(64, workspace=0) == image
    assert requested_bytes(64, workspace=4) == 4 * 2**20 // image * image


def test_P6_without_a_declaration_backward_keeps_everything() -> None:
    prop = RecorderProperty(Recorder())
    assert prop.declare_backward_dependency(["g"], ["x"], ["y"]) == ["g", "x", "y"]


@pytest.mark.parametrize(
    ("operator", "parameters", "expected"),
    [
        ("Convolution", {"kernel": (1, 1), "num_filter": 1}, {"g", "a", "b"}),
        ("FullyConnected", {"num_hidden": 1}, {"g", "a", "b"}),
        ("Activation", {"act_type": "softsign"}, {"g", "y"}),
        ("Pooling", {"kernel": (2, 2)}, {"g", "a", "y"}),
        ("Pooling", {"kernel": (2, 2), "pool_type": "avg"}, {"g"}),
        ("Flatten", {}, {"g"}),
        ("elemwise_add", {}, {"g"}),
        ("SoftmaxOutput", {}, {"b", "y"}),
        ("SoftmaxOutput", {"out_grad": True}, {"g", "b", "y"}),
        ("SoftmaxOutput", {"use_sample_weight": True}, {"b", "c", "y"}),
    ],
)
def test_P5_each_operator_declares_what_its_backward_reads(
    operator: str, parameters: dict[str, object], expected: set[str]
) -> None:
    assert backward_reads(operator, parameters) == expected


def test_flops_count_a_multiplication_with_a_weight_as_two() -> None:
    convolution = create("Convolution", {"kernel": (3, 3), "num_filter": 8, "num_group": 2})
    shapes = [(2, 4, 10, 10), (8, 2, 3, 3), (8,)]
    assert convolution.flops(shapes, [(2, 8, 8, 8)]) == 2 * (2 * 8 * 8 * 8) * (2 * 3 * 3)
    dense = create("FullyConnected", {"num_hidden": 5})
    assert dense.flops([(3, 7), (5, 7), (5,)], [(3, 5)]) == 2 * 3 * 5 * 7
