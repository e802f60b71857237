"""oneDNN kernels for the convolutions of known networks: none is a reference or gemm kernel."""

from __future__ import annotations

import re
from typing import Any

import pytest
from executors import cpu

from mxrun import library
from mxrun.base.errors import InternalError
from mxrun.base.tensor import CHANNELS_LAST, PLAIN, Shape, TensorSpec
from mxrun.device.cpu.onednn import library as onednn_library
from mxrun.operator.gradient_parts import GradientParts
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import source
from mxrun.operator.register import create, implementations
from mxrun.operator.shape import require_complete

pytestmark = pytest.mark.skipif(onednn_library.load() is None, reason=onednn_library.reason())

library.load()

DEVICE = cpu(2)
# Convolutions of each network, as (parameters, data).
RESNET20: list[tuple[dict[str, Any], Shape]] = [
    ({"kernel": (3, 3), "num_filter": 16, "pad": (1, 1)}, (64, 3, 32, 32)),
    ({"kernel": (3, 3), "num_filter": 16, "pad": (1, 1)}, (64, 16, 32, 32)),
    ({"kernel": (3, 3), "num_filter": 32, "stride": (2, 2), "pad": (1, 1)}, (64, 16, 32, 32)),
    ({"kernel": (3, 3), "num_filter": 64, "stride": (2, 2), "pad": (1, 1)}, (64, 32, 16, 16)),
    ({"kernel": (3, 3), "num_filter": 64, "pad": (1, 1)}, (64, 64, 8, 8)),
    ({"kernel": (1, 1), "num_filter": 32, "stride": (2, 2)}, (64, 16, 32, 32)),
    ({"kernel": (1, 1), "num_filter": 64, "stride": (2, 2)}, (64, 32, 16, 16)),
]
DEPTHWISE: list[tuple[dict[str, Any], Shape]] = [
    ({"kernel": (3, 3), "num_filter": 32, "num_group": 32, "pad": (1, 1)}, (4, 32, 112, 112)),
    (
        {"kernel": (3, 3), "num_filter": 64, "num_group": 64, "stride": (2, 2), "pad": (1, 1)},
        (4, 64, 56, 56),
    ),
    ({"kernel": (3, 3), "num_filter": 1024, "num_group": 1024, "pad": (1, 1)}, (4, 1024, 7, 7)),
    ({"kernel": (7, 7), "num_filter": 96, "num_group": 96, "pad": (3, 3)}, (2, 96, 28, 28)),
    (
        {"kernel": (3, 3), "num_filter": 96, "num_group": 96, "dilate": (2, 2), "pad": (2, 2)},
        (2, 96, 28, 28),
    ),
    ({"kernel": (5,), "num_filter": 64, "num_group": 64, "stride": (2,)}, (4, 64, 128)),
    ({"kernel": (3, 3, 3), "num_filter": 32, "num_group": 32, "pad": (1,) * 3}, (2, 32, 8, 14, 14)),
]
GROUPED: list[tuple[dict[str, Any], Shape]] = [
    ({"kernel": (3, 3), "num_filter": 128, "num_group": 32, "pad": (1, 1)}, (4, 128, 56, 56)),
    (
        {"kernel": (3, 3), "num_filter": 256, "num_group": 32, "stride": (2, 2), "pad": (1, 1)},
        (4, 256, 56, 56),
    ),
    ({"kernel": (1, 1), "num_filter": 240, "num_group": 3}, (4, 240, 28, 28)),
    ({"kernel": (3, 3, 3), "num_filter": 32, "num_group": 4, "pad": (1,) * 3}, (2, 16, 8, 14, 14)),
]
DILATED: list[tuple[dict[str, Any], Shape]] = [
    ({"kernel": (3, 3), "num_filter": 64, "dilate": (4, 4), "pad": (4, 4)}, (4, 64, 28, 28)),
    (
        {"kernel": (3, 3), "num_filter": 64, "stride": (2, 2), "dilate": (2, 2), "pad": (2, 2)},
        (4, 64, 28, 28),
    ),
    ({"kernel": (7,), "num_filter": 32, "stride": (3,), "dilate": (2,)}, (4, 16, 128)),
    ({"kernel": (5,), "num_filter": 64, "stride": (3,)}, (4, 64, 256)),
    ({"kernel": (3, 3, 3), "num_filter": 32, "dilate": (2, 2, 2)}, (2, 16, 8, 14, 14)),
]
# As (parameters, data): DCGAN, FCN's upsampling of every channel by itself, one and three axes.
DECONVOLUTIONS: list[tuple[dict[str, Any], Shape]] = [
    ({"kernel": (4, 4), "num_filter": 512}, (16, 100, 1, 1)),
    ({"kernel": (4, 4), "num_filter": 128, "stride": (2, 2), "pad": (1, 1)}, (16, 256, 8, 8)),
    ({"kernel": (4, 4), "num_filter": 3, "stride": (2, 2), "pad": (1, 1)}, (16, 64, 32, 32)),
    (
        {"kernel": (4, 4), "num_filter": 21, "num_group": 21, "stride": (2, 2), "pad": (1, 1)},
        (2, 21, 16, 16),
    ),
    ({"kernel": (4,), "num_filter": 32, "stride": (2,), "pad": (1,)}, (4, 64, 64)),
    ({"kernel": (2, 2, 2), "num_filter": 16, "stride": (2, 2, 2)}, (2, 32, 4, 8, 8)),
]


def kernels(operator: str, parameters: dict[str, Any], data: Shape) -> tuple[Kernel, Kernel]:
    """Return the oneDNN kernels that train one layer: forward and backward.

    The bias is left out, as its gradient is a matrix product.
    """
    prop = create(operator, {"no_bias": True, **parameters})
    inferred = prop.infer_shape([data, *[None] * (len(prop.list_arguments()) - 1)], [None])
    inputs = tuple(TensorSpec(require_complete(shape)) for shape in inferred.inputs)
    output = TensorSpec(require_complete(inferred.outputs[0]))
    onednn = implementations(operator)["onednn"]
    written = (OpReqType.WRITE,)
    forward = onednn.prepare_forward(prop, ForwardRequest(inputs, (output,), written, True, DEVICE))
    assert forward is not None
    requests = written * len(inputs)
    read = (*inputs[:2], *(None,) * (len(inputs) - 2))
    backward = onednn.prepare_backward(
        prop, BackwardRequest((output,), read, (None,), inputs, requests, forward, DEVICE)
    )
    assert backward is not None
    return forward, backward


@pytest.mark.skipif(
    "avx512" not in onednn_library.version(), reason="oneDNN needs AVX-512 for some of the shapes"
)
@pytest.mark.parametrize(
    ("operator", "parameters", "data"),
    [
        *(("Convolution", *case) for case in (*RESNET20, *DEPTHWISE, *GROUPED, *DILATED)),
        *(("Deconvolution", *case) for case in DECONVOLUTIONS),
    ],
    ids=str,
)
def test_no_direction_runs_reference_code(
    operator: str, parameters: dict[str, Any], data: Shape
) -> None:
    for kernel in kernels(operator, parameters, data):
        assert not re.search(r"\b(ref|gemm)", kernel.implementation), kernel.implementation


@pytest.mark.parametrize("rank", [1, 2])
def test_depthwise_convolutions_have_code_of_their_own(rank: int) -> None:
    window = {"kernel": (3,) * rank, "pad": (1,) * rank}
    parameters = {**window, "num_filter": 64, "num_group": 64}
    forward, backward = kernels("Convolution", parameters, (4, 64, *(32,) * rank))
    assert re.fullmatch(r"onednn:\w+_dw:\w+", forward.implementation)
    assert re.fullmatch(r"onednn:\w+_dw:\w+\+\w+_dw:\w+", backward.implementation)


def test_a_backward_kernel_reads_and_writes_only_what_is_asked_for() -> None:
    """The data gradient does not read the data, nor the weight gradient the weight."""
    prop = create("Convolution", {"kernel": (3, 3), "num_filter": 4})
    inputs = tuple(map(TensorSpec, ((2, 3, 5, 5), (4, 3, 3, 3), (4,))))
    output = TensorSpec((2, 4, 3, 3))
    onednn = implementations("Convolution")["onednn"]
    write, null = OpReqType.WRITE, OpReqType.NULL
    forward = onednn.prepare_forward(prop, ForwardRequest(inputs, (output,), (write,), True, cpu()))
    assert forward is not None
    for wanted, read in ((0, {0, 2}), (1, {0, 1}), (2, {0})):
        requests = tuple(write if index == wanted else null for index in range(3))
        request = BackwardRequest(
            (output,), (*inputs[:2], None), (None,), inputs, requests, forward, cpu()
        )
        kernel = onednn.prepare_backward(prop, request)
        assert kernel is not None
        assert {index for index, spec in enumerate(kernel.inputs) if spec is not None} == read
        assert [spec is not None for spec in kernel.outputs] == [i == wanted for i in range(3)]


def test_two_parts_may_not_want_one_tensor_in_two_layouts() -> None:
    spec = TensorSpec((2, 4, 3, 3))
    total = TensorSpec((4,))
    write = OpReqType.WRITE
    empty = Kernel("none", (), (), lambda handles: ())
    parts = GradientParts(
        BackwardRequest((spec,), (spec, None), (None,), (spec, total), (write, write), empty, cpu())
    )
    assert [parts.is_requested(index) for index in range(3)] == [True, True, False]
    parts.use(source(0), CHANNELS_LAST)
    with pytest.raises(InternalError, match="@channels_last and as float32"):
        parts.use(source(0), PLAIN)
    with pytest.raises(InternalError, match="does not declare"):
        parts.use(source(2), PLAIN)
