"""Batch normalisation of bfloat16 memory, and fused with the operators that follow it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from executors import cpu
from operator_harness import Memory, Part, execute

from mxrun.base.dtype import numpy_dtype
from mxrun.base.errors import UserError
from mxrun.base.tensor import CHANNELS_LAST, PLAIN, Layout, TensorSpec
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.register import AnyProperty, create, implementations
from mxrun.ops.activation import relu, relu_gradient
from mxrun.ops.clip import clip, clip_gradient

Array = npt.NDArray[Any]
WRITE, ADD = OpReqType.WRITE, OpReqType.ADD
FREE: dict[str, object] = {"fix_gamma": False}
PROPERTIES = {
    "BatchNorm": create("BatchNorm", FREE),
    "rectified": create("_batch_norm_limited", FREE),
    "rectified sum": create("_batch_norm_limited", {**FREE, "residual": True}),
    "clipped": create("_batch_norm_limited", {**FREE, "limits": (0.0, 1.0)}),
    "narrow": create("_batch_norm_limited", {**FREE, "limits": (0.1, 0.7)}),
    "inverted": create("_batch_norm_limited", {**FREE, "limits": (1.0, 0.5)}),
}
LIMITED = [kind for kind in PROPERTIES if kind != "BatchNorm"]
STATISTICS = ("mean", "var", "gamma_grad", "beta_grad")


@dataclass(frozen=True)
class Case:
    """Normalisation of tensors in one layout and memory type."""

    prop: AnyProperty
    shape: tuple[int, ...]
    layout: Layout
    dtype: str
    threads: int = 2

    @property
    def tensor(self) -> TensorSpec:
        return TensorSpec(self.shape, self.dtype, self.layout)

    @property
    def channels(self) -> TensorSpec:
        return TensorSpec(self.shape[1:2])

    @property
    def residual(self) -> list[TensorSpec]:
        """Spec of the tensor that is added."""
        return [self.tensor] * (len(self.prop.list_arguments()) - 3)

    def forward_kernel(self, request: OpReqType = WRITE) -> Kernel | None:
        tensor, channels = self.tensor, self.channels
        inputs = (tensor, channels, channels, *self.residual, channels, channels)
        requests = (request, WRITE, WRITE)
        return implementations(self.prop.type_string)["jit"].prepare_forward(
            self.prop,
            ForwardRequest(inputs, (tensor, channels, channels), requests, True, cpu(self.threads)),
        )

    def backward_kernel(self, forward: Kernel, residual: OpReqType = WRITE) -> Kernel:
        tensor, channels, added = self.tensor, self.channels, self.residual
        output = tensor if self.prop.type_string != "BatchNorm" else None
        kernel = implementations(self.prop.type_string)["jit"].prepare_backward(
            self.prop,
            BackwardRequest(
                (tensor, None, None),
                (tensor, channels, None, *(None for _ in added)),
                (output, channels, channels),
                (tensor, channels, channels, *added),
                (WRITE, WRITE, WRITE, *(residual for _ in added)),
                forward,
                cpu(self.threads),
            ),
        )
        assert kernel is not None
        return kernel

    def given(self) -> tuple[list[Array], list[Array]]:
        """Return data, residual and the output's gradient, equal numbers in either type; gamma,
        beta.

        The first channel is so small that bfloat16 rounds some of its values to 0.
        """
        random, exact = np.random.default_rng(5), numpy_dtype("bfloat16")
        tensors = [
            (random.standard_normal(self.shape) + 1).astype(exact).astype(numpy_dtype(self.dtype))
            for _ in range(3)
        ]
        scales = [random.uniform(0.5, 2, self.shape[1]).astype("float32") for _ in range(2)]
        scales[0][0], scales[1][0] = 4e-41, 0
        return tensors, scales

    def run(
        self,
        residual_grad: OpReqType = WRITE,
        out_grad: Array | None = None,
        data_memory: type[Memory | Part] = Memory,
        output_memory: type[Memory | Part] = Memory,
    ) -> dict[str, Array]:
        """Return all outputs and gradients."""
        tensor, channels = self.tensor, self.channels
        tensors, scales = self.given()
        if out_grad is not None:
            tensors[2] = out_grad
        data, other, grad = (
            kind(tensor, array)
            for kind, array in zip((data_memory, Memory, Memory), tensors, strict=True)
        )
        gamma, beta = (Memory(channels, array) for array in scales)
        output, mean, var = output_memory(tensor), Memory(channels), Memory(channels)
        forward = self.forward_kernel()
        assert forward is not None
        extra = [Memory(spec) for spec in forward.extra_outputs]
        added = [other for _ in self.residual]
        execute(forward, [data, gamma, beta, *added, None, None], [output, mean, var], extra)
        assert forward.inputs[0] == forward.outputs[0] == tensor
        backward = self.backward_kernel(forward, residual_grad)
        absent = [None for _ in added]
        reads = [grad, None, None, data, gamma, None, *absent, output, mean, var, *extra]
        gradients = [Memory(tensor), Memory(channels), Memory(channels)]
        gradients += [Memory(spec) for spec in self.residual]
        execute(backward, reads, gradients)
        names = ("data_grad", "gamma_grad", "beta_grad", "residual_grad")
        made = {
            "output": output,
            "mean": mean,
            "var": var,
            **dict(zip(names, gradients, strict=False)),
        }
        return {name: memory.load() for name, memory in made.items()}


SHAPES = [(64, 24, 16, 16), (3, 5, 23, 29), (9, 1040, 3, 3), (2, 2500, 2, 1), (13, 1, 7, 9)]


@pytest.mark.parametrize("layout", [PLAIN, CHANNELS_LAST], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_bfloat16_rounds_what_float32_gives(shape: tuple[int, ...], layout: Layout) -> None:
    """Every sum and factor keeps its bits."""
    prop = PROPERTIES["BatchNorm"]
    low, full = (Case(prop, shape, layout, dtype).run() for dtype in ("bfloat16", "float32"))
    for name, expected in full.items():
        rounded = expected if name in STATISTICS else expected.astype(numpy_dtype("bfloat16"))
        assert low[name].dtype == rounded.dtype
        np.testing.assert_array_equal(low[name], rounded, err_msg=name)


def chain(case: Case) -> dict[str, Array]:
    """Return the results of separate operators: each reads memory and rounds its results."""

    def stored(values: Array) -> Array:
        return values.astype(numpy_dtype(case.dtype))

    def read(values: Array) -> Array:
        return values.astype("float32")

    alone = Case(PROPERTIES["BatchNorm"], case.shape, case.layout, case.dtype)
    (_, other, out_grad), _ = case.given()
    before, gradient = read(alone.run()["output"]), read(out_grad)
    if case.residual:
        before = read(stored(before + read(other)))
    if case.prop.parameters.limits is None:
        output = relu(before)
        passed = relu_gradient(gradient, read(stored(output)))
    else:
        output = clip(before, *case.prop.parameters.limits)
        passed = clip_gradient(gradient, before, *case.prop.parameters.limits)
    found = alone.run(out_grad=stored(passed))
    return {**found, "output": stored(output), "residual_grad": stored(passed)}


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("layout", [PLAIN, CHANNELS_LAST], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", LIMITED)
def test_one_operator_has_the_bits_of_its_chain(
    kind: str, shape: tuple[int, ...], layout: Layout, dtype: str
) -> None:
    """Includes the signs of zeros."""
    case = Case(PROPERTIES[kind], shape, layout, dtype)
    found, expected = case.run(), chain(case)
    for name, array in found.items():
        assert array.dtype == expected[name].dtype
        assert array.tobytes() == expected[name].tobytes(), name


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("shape", [*SHAPES, (5, 16, 3, 3), (7, 96, 4, 5)], ids=str)
@pytest.mark.parametrize("kind", PROPERTIES)
def test_S5_no_bit_depends_on_what_lies_between_rows(
    kind: str, shape: tuple[int, ...], dtype: str
) -> None:
    case = Case(PROPERTIES[kind], shape, CHANNELS_LAST, dtype)
    forward = case.forward_kernel()
    assert forward is not None
    assert forward.pitched_inputs == forward.pitched_outputs == {0: shape[1]}
    assert case.backward_kernel(forward).pitched_inputs == {3: shape[1]}
    alone, data = case.run(), case.run(data_memory=Part)
    for name, expected in alone.items():
        assert data[name].tobytes() == expected.tobytes(), name
    # If backward reads the output, it must be contiguous.
    if not case.residual:
        written = case.run(data_memory=Part, output_memory=Part)["output"]
        assert written.tobytes() == alone["output"].tobytes()


def test_S5_planes_lie_in_one_piece() -> None:
    kernel = Case(PROPERTIES["rectified"], (4, 8, 5, 5), PLAIN, "float32").forward_kernel()
    assert kernel is not None
    assert not kernel.pitched_inputs
    assert not kernel.pitched_outputs


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("layout", [PLAIN, CHANNELS_LAST], ids=str)
@pytest.mark.parametrize("kind", PROPERTIES)
def test_no_bit_depends_on_the_threads(kind: str, layout: Layout, dtype: str) -> None:
    alone, *others = (
        Case(PROPERTIES[kind], SHAPES[0], layout, dtype, threads).run() for threads in (1, 2, 3)
    )
    for found in others:
        for name, expected in alone.items():
            assert found[name].tobytes() == expected.tobytes(), name


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_residual_whose_gradient_nobody_wants_changes_nothing(dtype: str) -> None:
    case = Case(PROPERTIES["rectified sum"], (4, 20, 5, 6), CHANNELS_LAST, dtype)
    wanted, unwanted = case.run(), case.run(OpReqType.NULL)
    for name in ("data_grad", "gamma_grad", "beta_grad"):
        assert wanted[name].tobytes() == unwanted[name].tobytes(), name


def test_limits_without_residual_read_no_output_backward() -> None:
    """Backward needs only two numbers per channel from forward, so memory is free sooner."""
    for kind, reads in (("rectified", False), ("clipped", False), ("rectified sum", True)):
        case = Case(PROPERTIES[kind], (4, 16, 5, 6), CHANNELS_LAST, "float32")
        forward = case.forward_kernel()
        assert forward is not None
        read = case.backward_kernel(forward).inputs[6 + len(case.residual)]
        assert (read is not None) == reads
        assert forward.extra_outputs == (() if reads else (case.channels,) * 2)


def test_what_is_added_to_bfloat16_is_declined() -> None:
    for dtype, served in (("float32", True), ("bfloat16", False)):
        case = Case(PROPERTIES["BatchNorm"], (4, 16, 5, 6), PLAIN, dtype)
        assert (case.forward_kernel(ADD) is not None) == served
        assert case.forward_kernel() is not None


def test_a_residual_has_no_limits_but_relu() -> None:
    with pytest.raises(UserError, match="a residual is added before relu alone"):
        create("_batch_norm_limited", {"residual": True, "limits": (0.0, 6.0)})


@pytest.mark.parametrize("place", ["data", "residual", "output", "gamma"])
def test_tensors_of_two_types_are_declined(place: str) -> None:
    low, channels = TensorSpec((4, 16, 5, 6), "bfloat16"), TensorSpec((16,))
    wide = TensorSpec(low.shape)
    prop = PROPERTIES["rectified sum"]
    inputs = [low, channels, channels, low, channels, channels]
    output = low
    if place == "output":
        output = wide
    elif place == "gamma":
        inputs[1] = TensorSpec((16,), "bfloat16")
    else:
        inputs[prop.list_arguments().index(place)] = wide
    request = ForwardRequest(
        tuple(inputs), (output, channels, channels), (WRITE,) * 3, True, cpu(2)
    )
    assert implementations("_batch_norm_limited")["jit"].prepare_forward(prop, request) is None
