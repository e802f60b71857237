"""Kernels of cuDNN for recorded cards: the right tensors, types and layouts; nothing runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cudnn import card_description, needs_cudnn, plan_launches

from mxrun.base.keywords import AUTO, PREFERRED
from mxrun.base.tensor import CHANNELS_LAST, PLAIN, Shape, TensorSpec
from mxrun.device.cuda.cudnn.graph import ConvolutionOperation, MatrixMultiplication, Role
from mxrun.graph.graph import Step, StepKind, ValueId
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.register import AnyProperty, create, implementations
from mxrun.operator.shape import require_complete
from mxrun.passes.candidates import candidates

pytestmark = needs_cudnn

WRITE = OpReqType.WRITE
# Operator, shape of data, parameters.
CONVOLUTIONS: list[tuple[str, Shape, dict[str, Any]]] = [
    ("Convolution", (4, 16, 12, 12), {"num_filter": 24, "kernel": (3, 3), "pad": (1, 1)}),
    ("Convolution", (4, 16, 12, 12), {"num_filter": 8, "kernel": (1, 1), "no_bias": True}),
    ("Convolution", (4, 8, 15, 13), {"num_filter": 16, "kernel": (3, 2), "stride": (2, 1)}),
    ("Convolution", (4, 16, 12, 12), {"num_filter": 16, "kernel": (3, 3), "num_group": 4}),
    ("Convolution", (4, 16, 12, 12), {"num_filter": 16, "kernel": (3, 3), "num_group": 16}),
    ("Convolution", (4, 8, 12, 12), {"num_filter": 8, "kernel": (3, 3), "dilate": (2, 2)}),
    ("Convolution", (4, 3, 20, 20), {"num_filter": 16, "kernel": (7, 7), "stride": (2, 2)}),
    ("Convolution", (5, 7, 9, 9), {"num_filter": 13, "kernel": (3, 3)}),
    ("Convolution", (4, 16, 40), {"num_filter": 16, "kernel": (5,), "stride": (2,)}),
    ("Convolution", (2, 8, 6, 8, 8), {"num_filter": 8, "kernel": (3, 3, 3)}),
    ("Convolution", (1, 1, 1, 1), {"num_filter": 1, "kernel": (1, 1)}),
    ("Deconvolution", (4, 16, 6, 6), {"num_filter": 8, "kernel": (4, 4), "stride": (2, 2)}),
    (
        "Deconvolution",
        (4, 16, 6, 6),
        {"num_filter": 8, "kernel": (3, 3), "stride": (2, 2), "adj": (1, 1), "no_bias": False},
    ),
]
PRODUCTS: list[tuple[str, list[Shape], dict[str, Any]]] = [
    ("FullyConnected", [(64, 784)], {"num_hidden": 128}),
    ("FullyConnected", [(8, 16, 24)], {"num_hidden": 10, "flatten": False, "no_bias": True}),
    ("FullyConnected", [(7, 13)], {"num_hidden": 1}),
    ("FullyConnected", [(1, 1)], {"num_hidden": 1}),
    ("dot", [(7, 5), (5, 3)], {}),
    ("dot", [(5, 7), (5, 3)], {"transpose_a": True}),
    ("dot", [(7, 5), (3, 5)], {"transpose_b": True}),
    ("batch_dot", [(6, 7, 5), (6, 5, 3)], {}),
    ("batch_dot", [(2, 3, 32, 16), (2, 3, 24, 16)], {"transpose_b": True}),
    ("batch_dot", [(6, 16, 32), (6, 16, 24)], {"transpose_a": True}),
]


def name(value: object) -> str:
    return str(value).replace(" ", "")


def shapes_of(prop: AnyProperty, given: list[Shape]) -> tuple[list[Shape], list[Shape]]:
    unknown = [None] * (len(prop.list_arguments()) - len(given))
    found = prop.infer_shape([*given, *unknown], [None] * len(prop.list_outputs()))
    return list(map(require_complete, found.inputs)), list(map(require_complete, found.outputs))


def prepared(
    operator: str,
    given: list[Shape],
    parameters: dict[str, Any],
    dtype: str,
    implementation: str = "cudnn",
    card: str = "h100",
) -> tuple[Kernel | None, Kernel | None]:
    """Return the kernels of cuDNN in training: forward, and backward with all gradients."""
    prop, cudnn = create(operator, parameters), implementations(operator)[implementation]
    inputs, outputs = shapes_of(prop, given)
    device = card_description(card)
    request = ForwardRequest(
        tuple(TensorSpec(shape, dtype) for shape in inputs),
        tuple(TensorSpec(shape, dtype) for shape in outputs),
        (WRITE,),
        True,
        device,
    )
    forward = cudnn.prepare_forward(prop, request)
    if forward is None:
        return None, None
    backward = cudnn.prepare_backward(
        prop,
        BackwardRequest(
            request.outputs,
            tuple(spec if i < 2 else None for i, spec in enumerate(request.inputs)),
            (None,),
            tuple(TensorSpec(shape) for shape in inputs),
            (WRITE,) * len(inputs),
            forward,
            device,
        ),
    )
    return forward, backward


@pytest.mark.parametrize(("operator", "shape", "parameters"), CONVOLUTIONS, ids=name)
def test_convolutions_in_float32(operator: str, shape: Shape, parameters: dict[str, Any]) -> None:
    forward, backward = prepared(operator, [shape], parameters, "float32")
    assert forward is not None
    assert backward is not None
    (launch,) = plan_launches(forward)
    assert isinstance(launch.plan.graph.operations[0], ConvolutionOperation)
    assert len(plan_launches(backward)) == 2
    specs = [each for each in (*forward.inputs, *forward.outputs, *backward.outputs) if each]
    assert {spec.layout for spec in specs} == {PLAIN}
    assert {spec.dtype for spec in specs} == {"float32"}


@pytest.mark.parametrize(
    ("operator", "shape", "parameters"),
    [case for case in CONVOLUTIONS if case[0] == "Convolution"],
    ids=name,
)
def test_convolutions_in_bfloat16(operator: str, shape: Shape, parameters: dict[str, Any]) -> None:
    """They have channels last, and the weight's gradient is float32.

    cuDNN has no such gradient where a group's channels are no multiples of 8; these layers are then
    float32.
    """
    forward, backward = prepared(operator, [shape], parameters, "bfloat16")
    channels = (shape[1], parameters["num_filter"])
    groups = parameters.get("num_group", 1)
    assert (forward is None) == any(size // groups % 8 for size in channels)
    if forward is None or backward is None:
        return
    assert len(plan_launches(forward)) == 1
    assert len(plan_launches(backward)) == 2
    data, weight, *_ = (each for each in forward.inputs if each is not None)
    assert (data.layout, data.dtype) == (CHANNELS_LAST, "bfloat16")
    assert (weight.layout, weight.dtype) == (CHANNELS_LAST, "bfloat16")
    gradients = [each for each in backward.outputs if each is not None]
    assert [each.dtype for each in gradients[:2]] == ["bfloat16", "float32"]
    assert [each.layout for each in gradients[2:]] == [PLAIN] * len(gradients[2:])


@pytest.mark.parametrize("card", ["a100", "b200", "h100"])
def test_every_card_has_float32_gradients_of_bfloat16(card: str) -> None:
    parameters = {"num_filter": 32, "kernel": (3, 3), "no_bias": True}
    forward, backward = prepared(
        "Convolution", [(4, 16, 12, 12)], parameters, "bfloat16", card=card
    )
    assert forward is not None
    assert backward is not None
    gradient = plan_launches(backward)[1].plan.graph.tensors[Role.OUTPUT]
    assert gradient.dtype == "float32"


@pytest.mark.parametrize(("operator", "shapes", "parameters"), PRODUCTS, ids=name)
@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.soak)])
def test_products(
    operator: str, shapes: list[Shape], parameters: dict[str, Any], dtype: str
) -> None:
    """float32 has them as convolutions alone, which stacks of matrices are not."""
    forward, backward = prepared(operator, shapes, parameters, dtype)
    if operator == "batch_dot" and dtype == "float32":
        assert forward is None
        return
    assert forward is not None
    assert backward is not None
    launches = [*plan_launches(forward), *plan_launches(backward)]
    assert len(launches) == 3
    kinds = {type(launch.plan.graph.operations[0]) for launch in launches}
    if dtype == "float32":
        assert kinds == {ConvolutionOperation}
    elif operator == "batch_dot":
        assert kinds == {MatrixMultiplication}
    weight = launches[2].plan.graph.tensors[Role.OUTPUT]
    assert weight.dtype == "float32"


def test_a_bias_is_added_by_the_engine_or_in_a_pass_of_its_own() -> None:
    parameters = {"num_filter": 16, "kernel": (3, 3)}
    device = card_description("h100")
    prop, cudnn = create("Convolution", parameters), implementations("Convolution")["cudnn"]
    inputs, outputs = shapes_of(prop, [(4, 8, 10, 10)])
    launches = {}
    for dtype in ("float32", "bfloat16"):
        request = ForwardRequest(
            tuple(TensorSpec(shape, dtype) for shape in inputs),
            (TensorSpec(outputs[0], dtype),),
            (WRITE,),
            False,
            device,
        )
        kernel = cudnn.prepare_forward(prop, request)
        assert kernel is not None
        (launches[dtype],) = plan_launches(kernel)
    assert Role.BIAS in launches["bfloat16"].places
    assert len(launches["bfloat16"].plan.graph.operations) == 2


def test_a_fused_convolution_adds_to_the_residual_where_it_is() -> None:
    parameters = {"num_filter": 16, "kernel": (1, 1), "residual": True, "low": 0.0}
    prop = create("_convolution_fused", parameters)
    inputs, outputs = shapes_of(prop, [(4, 8, 10, 10)])
    request = ForwardRequest(
        tuple(map(TensorSpec, inputs)),
        tuple(map(TensorSpec, outputs)),
        (WRITE,),
        False,
        card_description("h100"),
    )
    kernel = implementations("_convolution_fused")["cudnn"].prepare_forward(prop, request)
    assert kernel is not None
    (launch,) = plan_launches(kernel)
    (operation,) = launch.plan.graph.operations
    assert isinstance(operation, ConvolutionOperation)
    assert operation.is_added


def test_workspace_limits_the_scratch_space() -> None:
    """Unless every engine needs more."""
    parameters = {"num_filter": 64, "kernel": (3, 3), "pad": (1, 1), "no_bias": True}
    free, _ = prepared("Convolution", [(64, 64, 28, 28)], parameters, "float32")
    limited, _ = prepared(
        "Convolution", [(64, 64, 28, 28)], {**parameters, "workspace": 0}, "float32"
    )
    assert free is not None
    assert limited is not None
    assert limited.workspace_bytes == 0


def test_without_a_known_card_there_is_no_kernel() -> None:
    prop, cudnn = create("dot", {}), implementations("dot")["cudnn"]
    device = replace(card_description("h100"), card="")
    specs = (TensorSpec((4, 5)), TensorSpec((5, 6)))
    request = ForwardRequest(specs, (TensorSpec((4, 6)),), (WRITE,), False, device)
    assert cudnn.prepare_forward(prop, request) is None


@pytest.mark.parametrize(
    ("operator", "shapes", "parameters"),
    [
        ("Convolution", [(16, 32, 14, 14)], {"num_filter": 32, "kernel": (3, 3)}),
        ("batch_dot", [(6, 32, 16), (6, 16, 24)], {}),
    ],
    ids=name,
)
def test_tensor_cores_multiply_float32_where_a_config_names_them(
    operator: str, shapes: list[Shape], parameters: dict[str, Any]
) -> None:
    forward, backward = prepared(
        operator, shapes, parameters, "float32", implementation="cudnn_tf32"
    )
    assert forward is not None
    assert backward is not None
    launches = [*plan_launches(forward), *plan_launches(backward)]
    assert len(launches) == 3
    assert all(launch.plan.graph.is_tf32 for launch in launches)


def test_nothing_else_selects_tensor_cores_for_float32() -> None:
    prop = create("batch_dot", {})
    value = ValueId(0)
    step = Step("product", StepKind.FORWARD, prop, (value, value), (value,), (WRITE,))
    device = card_description("h100")
    names = [each.name for each in candidates(step, device, PREFERRED, False)]
    assert names[0] == "cudnn"
    assert "cudnn_tf32" not in names
    assert "cudnn_tf32" not in [each.name for each in candidates(step, device, AUTO, False)]
    assert candidates(step, device, "cudnn_tf32", False)[0].name == "cudnn_tf32"
