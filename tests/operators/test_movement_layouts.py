"""Operators that move elements, on channels-last tensors and on any number of threads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from executors import cpu
from operator_harness import BackwardData, Memory, backward, execute, forward, spec_of

from mxrun.base.tensor import CHANNELS_LAST, PLAIN, Layout, TensorSpec
from mxrun.device.cpu.onednn import library as onednn
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.register import AnyProperty, create, implementations

Array = npt.NDArray[Any]
NULL, WRITE, _, ADD = OpReqType

CASES: list[tuple[str, Mapping[str, object], tuple[tuple[int, ...], ...]]] = [
    ("Concat", {"num_args": 3}, ((2, 3, 4, 5), (2, 1, 4, 5), (2, 6, 4, 5))),
    ("Concat", {"num_args": 2, "dim": 2}, ((2, 3, 4, 5), (2, 3, 1, 5))),
    ("Concat", {"num_args": 2, "dim": 0}, ((2, 3, 4), (1, 3, 4))),
    ("Concat", {"num_args": 2, "dim": 1}, ((4, 40, 16, 16), (4, 24, 16, 16))),
    ("SliceChannel", {"num_outputs": 3}, ((2, 6, 4, 5),)),
    ("SliceChannel", {"num_outputs": 2, "axis": 3}, ((2, 3, 5, 4),)),
    ("SliceChannel", {"num_outputs": 4, "squeeze_axis": True}, ((2, 4, 5, 3),)),
    ("SliceChannel", {"num_outputs": 2, "axis": 1}, ((4, 64, 16, 16),)),
    ("add_n", {"num_args": 3}, ((2, 3, 4, 5),) * 3),
    ("add_n", {"num_args": 4}, ((4, 16, 25, 25),) * 4),
    *(
        pytest.param(*case, marks=pytest.mark.skipif(onednn.load() is None, reason=onednn.reason()))
        for case in (
            ("transpose", {"axes": (0, 2, 3, 1)}, ((2, 3, 4, 5),)),
            ("transpose", {}, ((4, 16, 30, 20),)),
            ("SwapAxis", {"dim1": 1, "dim2": 2}, ((2, 3, 4, 5),)),
        )
    ),
]


def drawn(shapes: tuple[tuple[int, ...], ...], seed: int = 0) -> list[Array]:
    random = np.random.default_rng(seed)
    return [random.standard_normal(shape).astype("float32") for shape in shapes]


def as_they_come(specs: list[TensorSpec], layout: Layout) -> tuple[TensorSpec, ...]:
    """Return the specs, the first one in a layout that a previous kernel may have produced."""
    return tuple(spec.with_layout(PLAIN if index else layout) for index, spec in enumerate(specs))


def run(kernel: Kernel, inputs: list[Array | None], outputs: list[Array]) -> list[Array]:
    sources = [
        None if spec is None or value is None else Memory(spec, value)
        for spec, value in zip(kernel.inputs, inputs, strict=True)
    ]
    targets = [
        Memory(spec_of(value) if spec is None else spec, value)
        for spec, value in zip(kernel.outputs, outputs, strict=True)
    ]
    execute(kernel, sources, targets)
    return [target.load() for target in targets]


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("layout", [PLAIN, CHANNELS_LAST], ids=str)
@pytest.mark.parametrize(("operator", "parameters", "shapes"), CASES)
def test_P12_any_layout_and_threads_move_the_same_bits(
    operator: str,
    parameters: Mapping[str, object],
    shapes: tuple[tuple[int, ...], ...],
    layout: Layout,
    threads: int,
) -> None:
    prop, inputs = create(operator, parameters), drawn(shapes)
    (implementation,) = implementations(operator).values()
    expected = readable(prop, inputs)
    count = len(expected.outputs)
    request = ForwardRequest(
        as_they_come([spec_of(value) for value in inputs], layout),
        tuple(map(spec_of, expected.outputs)),
        (WRITE,) * count,
        True,
        cpu(threads),
    )
    kernel = implementation.prepare_forward(prop, request)
    assert kernel is not None
    if layout == CHANNELS_LAST and "squeeze_axis" not in parameters:
        assert kernel.inputs[0] is not None
        assert kernel.inputs[0].layout == CHANNELS_LAST
    blank = [np.full_like(value, np.nan) for value in expected.outputs]
    same(run(kernel, [*inputs], blank), expected.outputs)

    out_grad = drawn(tuple(value.shape for value in expected.outputs), seed=1)
    data = BackwardData(out_grad, inputs, expected.outputs)
    blank = [np.full_like(value, 2) for value in inputs]
    for requests in ((WRITE,) * len(inputs), (ADD, *(NULL,) * (len(inputs) - 1))):
        undone = BackwardRequest(
            as_they_come([spec_of(value) for value in out_grad], layout),
            (None,) * len(inputs),
            (None,) * count,
            tuple(map(spec_of, inputs)),
            requests,
            kernel,
            cpu(threads),
        )
        reverse = implementation.prepare_backward(prop, undone)
        assert reverse is not None
        values = [*out_grad, *(None,) * (len(inputs) + count)]
        want = backward(NUMPY, prop, data, blank, expected, requests)
        same(run(reverse, values, blank), want)


def readable(prop: AnyProperty, inputs: list[Array]) -> Any:
    inferred = prop.infer_shape(
        [value.shape for value in inputs], [None] * len(prop.list_outputs())
    )
    blank = [
        np.full([size or 0 for size in shape or ()], np.nan, "float32")
        for shape in inferred.outputs
    ]
    result = forward(NUMPY, prop, inputs, blank)
    assert result is not None
    return result


def same(got: list[Array], want: list[Array]) -> None:
    for one, other in zip(got, want, strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("implementation", ["numpy", "jit"])
def test_L15_an_absent_gradient_of_an_output_is_a_part_of_zeros(implementation: str) -> None:
    prop, inputs = create("SliceChannel", {"num_outputs": 3}), drawn(((2, 6, 5),))
    chosen = {**implementations("SliceChannel"), "numpy": NUMPY}[implementation]
    run_forward = readable(prop, inputs)
    out_grad = drawn(((2, 2, 5),) * 3, seed=1)
    kernel = chosen.prepare_forward(
        prop,
        ForwardRequest(
            (spec_of(inputs[0]),), tuple(map(spec_of, out_grad)), (WRITE,) * 3, True, cpu()
        ),
    )
    assert kernel is not None
    request = BackwardRequest(
        (spec_of(out_grad[0]), None, spec_of(out_grad[2])),
        (None,),
        (None,) * 3,
        (spec_of(inputs[0]),),
        (WRITE,),
        kernel,
        cpu(),
    )
    reverse = chosen.prepare_backward(prop, request)
    assert reverse is not None
    values = [out_grad[0], None, out_grad[2], *(None,) * 4]
    (found,) = run(reverse, values, [np.full_like(inputs[0], np.nan)])
    zero = np.zeros_like(run_forward.outputs[1])
    same([found], [np.concatenate([out_grad[0], zero, out_grad[2]], 1)])


@pytest.mark.parametrize("columns", [1, 16, 33, 200])
def test_the_gradient_of_an_embedding_has_the_same_bits_with_any_threads(columns: int) -> None:
    prop = create("Embedding", {"input_dim": 500, "output_dim": columns})
    random = np.random.default_rng(2)
    ids = random.integers(-3, 520, (40, 35)).astype("int32")
    weight = random.standard_normal((500, columns)).astype("float32")
    compiled = implementations("Embedding")["jit"]
    outputs = [np.empty((40, 35, columns), "float32")]
    out_grad = [random.standard_normal(outputs[0].shape).astype("float32")]
    found = []
    for threads in (1, 2, 3):
        done = forward(compiled, prop, [ids, weight], outputs, threads=threads)
        assert done is not None
        same(done.outputs, [weight[np.clip(ids, 0, 499)]])
        data = BackwardData(out_grad, [ids, weight], done.outputs)
        blank = [np.zeros_like(ids), np.full_like(weight, np.nan)]
        found.append(backward(compiled, prop, data, blank, done, threads=threads)[1])
    expected = np.zeros(weight.shape)
    np.add.at(expected, np.clip(ids, 0, 499), out_grad[0])
    same(found, [expected.astype(np.float32)] * 3)


def test_a_sum_may_lie_over_any_input_even_if_others_are_the_same_memory() -> None:
    prop = create("add_n", {"num_args": 4})
    compiled = implementations("add_n")["jit"]
    shape = (3, 3000)
    spec = TensorSpec(shape)
    kernel = compiled.prepare_forward(
        prop, ForwardRequest((spec,) * 4, (spec,), (WRITE,), True, cpu(2))
    )
    assert kernel is not None
    first, second = drawn((shape, shape))
    memory, other = Memory(spec, first), Memory(spec, second)
    execute(kernel, [other, memory, memory, memory], [memory])
    same([memory.load()], [((second + first) + first) + first])
