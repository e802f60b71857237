"""oneDNN primitives compared with NumPy; their layouts and workspaces."""

import ctypes
import itertools

import numpy as np
import pytest

from mxrun.base.device import Cut
from mxrun.base.errors import InternalError
from mxrun.base.tensor import CHANNELS_LAST, PLAIN, TensorSpec
from mxrun.device.cpu.onednn import library, operations
from mxrun.device.cpu.onednn.cut import CutComputation
from mxrun.device.cpu.onednn.descriptor import ANY, describe
from mxrun.device.cpu.onednn.operations import PoolType, SlidingWindow
from mxrun.device.cpu.onednn.primitive import (
    FORWARD_TRAINING,
    Argument,
)
from mxrun.operator.constraints import Unsupported

pytestmark = pytest.mark.skipif(library.load() is None, reason=library.reason())

THREADS = 2
CUT = Cut(4, THREADS)
GUARD = 64


def aligned(count):
    """`count` bytes at a 64-byte boundary, filled with a sentinel and followed by a guard."""
    raw = np.full(count + 64 + GUARD, 0xA5, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + count + GUARD]


def stored(array, spec):
    """The bytes of a logical array in the spec's layout."""
    block = aligned(spec.nbytes)
    if spec.layout.nbytes is not None:
        plain = spec.with_layout(PLAIN)
        reorder = operations.reorder(plain, spec, Cut(1, THREADS))
        run(reorder, {Argument.SOURCE: stored(array, plain), Argument.OUTPUT: block})
        return block
    last = spec.layout == CHANNELS_LAST and array.ndim > 2
    physical = np.moveaxis(array, 1, -1) if last else array
    data = np.ascontiguousarray(physical, spec.dtype).view(np.uint8).reshape(-1)
    block[: spec.nbytes] = data
    return block


def loaded(block, spec):
    """Return the logical array stored in the spec's layout."""
    if spec.layout.nbytes is not None:
        plain = spec.with_layout(PLAIN)
        target = aligned(plain.nbytes)
        reorder = operations.reorder(spec, plain, Cut(1, THREADS))
        run(reorder, {Argument.SOURCE: block, Argument.OUTPUT: target})
        return loaded(target, plain)
    flat = block[: spec.nbytes].view(spec.dtype)
    if spec.layout == CHANNELS_LAST and len(spec.shape) > 2:
        batch, channels, *space = spec.shape
        return np.moveaxis(flat.reshape(batch, *space, channels), -1, 1).copy()
    return flat.reshape(spec.shape).copy()


def make(calls):
    """Make native calls; a checked one must return success."""
    for each in calls:
        signature = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * len(each.arguments))
        status = signature(each.function)(*each.arguments)
        assert not each.checked or status == library.SUCCESS


def run(primitive, blocks):
    """Execute on blocks by argument; asserts that no byte after any block changes."""
    scratchpad = aligned(primitive.scratchpad_bytes)
    addresses = {argument: block.ctypes.data for argument, block in blocks.items()}
    make(primitive.bind(addresses, scratchpad.ctypes.data))
    for block in (scratchpad, *blocks.values()):
        assert (block[-GUARD:] == 0xA5).all()


def compute(primitive, wanted, **arrays):
    """Run on logical arrays by argument, and return the logical results named in `wanted`."""
    blocks = {argument: aligned(spec.nbytes) for argument, spec in primitive.specs.items()}
    for name, array in arrays.items():
        argument = Argument[name]
        blocks[argument] = stored(array, primitive.specs[argument])
    run(primitive, blocks)
    return tuple(loaded(blocks[argument], primitive.specs[argument]) for argument in wanted)


def normal(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def allocates(implementation):
    """Return whether oneDNN's kernel of that name allocates memory while it runs."""
    return "gemm" in implementation.split(":")


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-5 * np.abs(expected).max())


# (batch, channels, height, width), filters, kernel, window
CONVOLUTIONS = [
    ((2, 1, 9, 8), 5, (3, 3), SlidingWindow((1, 1), (1, 1), (0, 0), (0, 0))),
    ((3, 7, 8, 9), 13, (3, 2), SlidingWindow((2, 1), (1, 1), (1, 0), (1, 1))),
    ((2, 20, 12, 12), 50, (5, 5), SlidingWindow((1, 1), (1, 1), (0, 0), (0, 0))),
    ((2, 16, 10, 10), 16, (3, 3), SlidingWindow((1, 1), (2, 2), (2, 2), (2, 2))),
    ((2, 8, 7, 7), 12, (3, 3), SlidingWindow((1, 1), (1, 1), (1, 1), (1, 1), groups=4)),
    ((2, 6, 9, 9), 6, (3, 3), SlidingWindow((2, 2), (1, 1), (1, 1), (1, 1), groups=6)),
    ((4, 64, 6, 6), 32, (1, 1), SlidingWindow((1, 1), (1, 1), (0, 0), (0, 0))),
    ((2, 3, 17, 17), 64, (7, 7), SlidingWindow((2, 2), (1, 1), (3, 3), (2, 2))),
]


def taps(kernel, window, output_shape):
    """Per kernel tap: its index and the slices of the padded source that it reads."""
    for tap in itertools.product(*map(range, kernel)):
        yield (
            tap,
            tuple(
                slice(at * gap, at * gap + (size - 1) * step + 1, step)
                for at, gap, size, step in zip(
                    tap, window.dilation, output_shape, window.stride, strict=True
                )
            ),
        )


def output_space(source_shape, kernel, window):
    return tuple(
        (size + begin + end - gap * (taps_ - 1) - 1) // step + 1
        for size, begin, end, gap, taps_, step in zip(
            source_shape[2:],
            window.pad_begin,
            window.pad_end,
            window.dilation,
            kernel,
            window.stride,
            strict=True,
        )
    )


def padded(array, window, value=0.0):
    width = [(0, 0), (0, 0), *zip(window.pad_begin, window.pad_end, strict=True)]
    return np.pad(array.astype(np.float64), width, constant_values=value)


def reference_convolution(source, weights, grad, window):
    """Output, source gradient and weight gradient in float64, tap by tap and group by group."""
    groups, kernel = window.groups, weights.shape[2:]
    big = padded(source, window)
    big_grad = np.zeros_like(big)
    output = np.zeros(grad.shape)
    weights_grad = np.zeros(weights.shape)
    inputs, filters = source.shape[1] // groups, weights.shape[0] // groups
    for group in range(groups):
        ins = slice(group * inputs, (group + 1) * inputs)
        outs = slice(group * filters, (group + 1) * filters)
        for tap, where in taps(kernel, window, grad.shape[2:]):
            index = (slice(None), ins, *where)
            tap_weights = weights[outs][(..., *tap)].astype(np.float64)
            output[:, outs] += np.einsum("oc,nchw->nohw", tap_weights, big[index])
            big_grad[index] += np.einsum("oc,nohw->nchw", tap_weights, grad[:, outs])
            weights_grad[(outs, slice(None), *tap)] = np.einsum(
                "nohw,nchw->oc", grad[:, outs], big[index]
            )
    inner = tuple(
        slice(begin, begin + size)
        for begin, size in zip(window.pad_begin, source.shape[2:], strict=True)
    )
    return output, big_grad[(..., *inner)], weights_grad


@pytest.mark.parametrize(("shape", "filters", "kernel", "window"), CONVOLUTIONS)
def test_convolution_and_its_gradients(shape, filters, kernel, window):
    weights_shape = (filters, shape[1] // window.groups, *kernel)
    output_shape = (shape[0], filters, *output_space(shape, kernel, window))
    source, weights, bias = normal(*shape), normal(*weights_shape), normal(filters)
    grad = normal(*output_shape) + 0.5
    output, source_grad, weights_grad = reference_convolution(source, weights, grad, window)
    x = TensorSpec(shape, layout=CHANNELS_LAST)
    w = TensorSpec(weights_shape, layout=ANY)
    y = TensorSpec(output_shape, layout=CHANNELS_LAST)

    forward = operations.convolution_forward(x, w, y, window, CUT, bias=True)
    (found,) = compute(forward, [Argument.OUTPUT], SOURCE=source, WEIGHTS=weights, BIAS=bias)
    close(found, output + bias[:, None, None])

    data = operations.convolution_backward_data(x, w, y, window, CUT)
    (found,) = compute(data, [Argument.SOURCE_GRAD], WEIGHTS=weights, OUTPUT_GRAD=grad)
    close(found, source_grad)

    parameters = operations.convolution_backward_weights(x, w, y, window, CUT)
    (found,) = compute(parameters, [Argument.WEIGHTS_GRAD], SOURCE=source, OUTPUT_GRAD=grad)
    close(found, weights_grad)

    for primitive in (forward, data, parameters):
        assert not allocates(primitive.implementation)
        assert not primitive.is_reference
        assert primitive.specs[next(iter(primitive.specs))].layout == CHANNELS_LAST


def test_convolution_without_bias():
    shape, filters, kernel, window = CONVOLUTIONS[1]
    source, weights = normal(*shape), normal(filters, shape[1], *kernel)
    y = TensorSpec((shape[0], filters, *output_space(shape, kernel, window)))
    expected, _, _ = reference_convolution(source, weights, np.zeros(y.shape), window)
    primitive = operations.convolution_forward(
        TensorSpec(shape, layout=CHANNELS_LAST),
        TensorSpec(weights.shape, layout=ANY),
        y.with_layout(CHANNELS_LAST),
        window,
        CUT,
    )
    (found,) = compute(primitive, [Argument.OUTPUT], SOURCE=source, WEIGHTS=weights)
    close(found, expected)


@pytest.mark.parametrize("transpose_left", [False, True])
@pytest.mark.parametrize("transpose_right", [False, True])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("cut", [Cut(1, 1), CUT])
def test_matmul(transpose_left, transpose_right, packed, cut):
    left, right, bias = normal(33, 21), normal(21, 47), normal(47)
    a = TensorSpec((21, 33) if transpose_left else (33, 21))
    b = TensorSpec((47, 21) if transpose_right else (21, 47))
    primitive = operations.matmul(
        a,
        b.with_layout(ANY) if packed else b,
        TensorSpec((33, 47)),
        cut,
        transpose_left,
        transpose_right,
        bias=True,
    )
    if cut.tasks == 1:
        assert packed == (primitive.specs[Argument.WEIGHTS].layout.nbytes is not None)
    (found,) = compute(
        primitive,
        [Argument.OUTPUT],
        SOURCE=left.T if transpose_left else left,
        WEIGHTS=right.T if transpose_right else right,
        BIAS=bias,
    )
    close(found, left.astype(np.float64) @ right + bias)


POOLINGS = [
    ((2, 5, 8, 6), (2, 2), SlidingWindow((2, 2), (1, 1), (0, 0), (0, 0))),
    ((2, 17, 9, 9), (3, 3), SlidingWindow((2, 2), (1, 1), (1, 1), (1, 1))),
    ((1, 3, 7, 8), (3, 2), SlidingWindow((1, 2), (1, 1), (1, 0), (0, 1))),
]


def reference_pooling(source, grad, kernel, window, pool_type):
    """Output and source gradient in float64; a maximum belongs to the first tap that has it."""
    maximum = pool_type == PoolType.MAX
    big = padded(source, window, -np.inf if maximum else 0.0)
    inside = padded(np.ones(source.shape), window)
    where = [slices for _, slices in taps(kernel, window, grad.shape[2:])]
    values = np.stack([big[(..., *slices)] for slices in where])
    counts = np.stack([inside[(..., *slices)] for slices in where]).sum(0)
    if pool_type == PoolType.AVERAGE_WITH_PADDING:
        counts = np.full_like(counts, len(where))
    big_grad = np.zeros_like(big)
    for index, slices in enumerate(where):
        share = (values.argmax(0) == index) if maximum else 1 / counts
        big_grad[(..., *slices)] += grad * share
    inner = tuple(
        slice(begin, begin + size)
        for begin, size in zip(window.pad_begin, source.shape[2:], strict=True)
    )
    return (values.max(0) if maximum else values.sum(0) / counts), big_grad[(..., *inner)]


@pytest.mark.parametrize("pool_type", PoolType)
@pytest.mark.parametrize(("shape", "kernel", "window"), POOLINGS)
def test_pooling_and_its_gradient(shape, kernel, window, pool_type):
    source = normal(*shape)
    output_shape = (*shape[:2], *output_space(shape, kernel, window))
    grad = normal(*output_shape)
    output, source_grad = reference_pooling(source, grad, kernel, window, pool_type)
    x = TensorSpec(shape, layout=CHANNELS_LAST)
    y = TensorSpec(output_shape, layout=CHANNELS_LAST)
    forward = operations.pooling_forward(x, y, pool_type, kernel, window, CUT)
    wanted = [Argument.OUTPUT]
    hands_over = Argument.WORKSPACE in forward.specs
    assert hands_over == (pool_type == PoolType.MAX)
    if hands_over:
        wanted.append(Argument.WORKSPACE)
    found, *workspace = compute(forward, wanted, SOURCE=source)
    close(found, output)
    backward = operations.pooling_backward(x, y, pool_type, kernel, window, CUT)
    more = {"WORKSPACE": workspace[0]} if hands_over else {}
    (found,) = compute(backward, [Argument.SOURCE_GRAD], OUTPUT_GRAD=grad, **more)
    close(found, source_grad)
    inference = operations.pooling_forward(x, y, pool_type, kernel, window, CUT, False)
    assert Argument.WORKSPACE not in inference.specs


def test_packed_layouts_round_trip_and_are_named_by_their_bytes():
    shape = (50, 20, 5, 5)
    x = TensorSpec((2, 20, 12, 12), layout=CHANNELS_LAST)
    y = TensorSpec((2, 50, 8, 8), layout=CHANNELS_LAST)
    w = TensorSpec(shape, layout=ANY)
    window = SlidingWindow((1, 1), (1, 1), (0, 0), (0, 0))
    forward = operations.convolution_forward(x, w, y, window, CUT)
    backward = operations.convolution_backward_data(x, w, y, window, CUT)
    packed = [primitive.specs[Argument.WEIGHTS] for primitive in (forward, backward)]
    assert packed[0].layout != packed[1].layout
    weights = normal(*shape)
    for spec in packed:
        assert spec.nbytes >= weights.nbytes
        np.testing.assert_array_equal(loaded(stored(weights, spec), spec), weights)
    # Asking for the packed layout by name gives the same computation.
    again = operations.convolution_forward(x, packed[0], y, window, CUT)
    assert again.specs == forward.specs


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 1, 4, 5), (2, 3, 1, 1), (2, 3, 4)])
def test_channels_last_round_trip(shape):
    array = normal(*shape)
    plain, last = TensorSpec(shape), TensorSpec(shape, layout=CHANNELS_LAST)
    there = operations.reorder(plain, last, Cut(1, THREADS))
    (found,) = compute(there, [Argument.OUTPUT], SOURCE=array)
    np.testing.assert_array_equal(found, array)
    back = operations.reorder(last, plain, Cut(1, THREADS))
    (found,) = compute(back, [Argument.OUTPUT], SOURCE=array)
    np.testing.assert_array_equal(found, array)


def test_a_packed_layout_does_not_suit_another_view():
    square = TensorSpec((32, 32))
    packed = operations.matmul(
        square, square.with_layout(ANY), square, CUT, transpose_right=True
    ).specs[Argument.WEIGHTS]
    assert packed.layout.nbytes is not None
    with pytest.raises(InternalError, match="does not suit"):
        operations.matmul(square, packed, square, CUT)


def test_the_scratchpad_is_the_callers():
    x, w, y = TensorSpec((64, 784)), TensorSpec((128, 784)), TensorSpec((64, 128))
    primitive = operations.matmul(x, w, y, Cut(1, 1), transpose_right=True)
    assert primitive.scratchpad_bytes > 0
    blocks = [aligned(primitive.specs[argument].nbytes) for argument in primitive.specs]
    addresses = dict(zip(primitive.specs, (block.ctypes.data for block in blocks), strict=True))
    with pytest.raises(InternalError, match="no address"):
        primitive.bind(addresses)
    del addresses[Argument.OUTPUT]
    with pytest.raises(InternalError, match="no address"):
        primitive.bind(addresses, blocks[0].ctypes.data)


def test_a_row_that_is_stored_as_a_column_has_a_primitive_and_scratch_of_its_own():
    """Its strides differ from those of a row alone; oneDNN's cache would give one for the other."""
    right, output = TensorSpec((5, 4)), TensorSpec((1, 4))
    column = operations.matmul(TensorSpec((5, 1)), right, output, CUT, transpose_left=True)
    row = operations.matmul(TensorSpec((1, 5)), right, output, CUT)
    a, b = normal(1, 5), normal(5, 4)
    for primitive, left in ((column, a.T), (row, a)):
        (result,) = compute(primitive, [Argument.OUTPUT], SOURCE=left, WEIGHTS=b)
        np.testing.assert_allclose(result, a @ b, rtol=1e-5)


def test_implementations_that_allocate_are_refused():
    """oneDNN's first choice for a convolution of plain tensors is `gemm`, which must not be
    selected.
    """
    loaded_library = library.require()
    x, w = TensorSpec((2, 16, 10, 10)), TensorSpec((16, 16, 3, 3))
    window = SlidingWindow((1, 1), (1, 1), (1, 1), (1, 1))
    data, weights = (describe(spec).value for spec in (x, w))
    direct = 1
    descriptor = loaded_library.create(
        "dnnl_convolution_forward_primitive_desc_create",
        *(loaded_library.engine, FORWARD_TRAINING, direct),
        *(data, weights, None, data, *window.arguments(), None),
    )
    name = ctypes.c_char_p()
    loaded_library.call("dnnl_primitive_desc_query", descriptor, 8, 0, ctypes.byref(name))
    loaded_library.call("dnnl_primitive_desc_destroy", descriptor)
    assert allocates(name.value.decode())
    chosen = operations.convolution_forward(x, w, x, window, CUT)
    assert not allocates(chosen.implementation)
    assert chosen.is_reference


def test_what_onednn_cannot_do_is_said():
    numbers, integers = TensorSpec((4, 4)), TensorSpec((4, 4), "int32")
    with pytest.raises(Unsupported, match=r"matmul.*int32\[4, 4\]"):
        operations.matmul(numbers, numbers, integers, Cut(1, 1))


def test_a_primitive_is_prepared_once_per_specs_and_cut():
    tensor = TensorSpec((8, 8))
    first = operations.matmul(tensor, tensor, tensor, CUT)
    assert operations.matmul(tensor, tensor, TensorSpec((8, 8)), CUT) is first
    assert operations.matmul(tensor, tensor, tensor, Cut(2, 2)) is not first


@pytest.mark.parametrize("images", [4, 6, 9])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_parts_of_the_images_give_the_bits_of_the_whole(images: int, threads: int) -> None:
    shape, filters, kernel, window = (images, 20, 9, 7), 24, (3, 3), SlidingWindow(*[(1, 1)] * 4)
    weights_shape = (filters, shape[1], *kernel)
    x = TensorSpec(shape, layout=CHANNELS_LAST)
    w = TensorSpec(weights_shape, layout=ANY)
    y = TensorSpec((images, filters, 9, 7), layout=CHANNELS_LAST)
    given = {"SOURCE": normal(*shape), "WEIGHTS": normal(*weights_shape), "BIAS": normal(filters)}
    found = []
    for cut in (Cut(1, 1), Cut(4, threads)):
        forward = operations.convolution_forward(x, w, y, window, cut, bias=True)
        found += compute(forward, [Argument.OUTPUT], **given)
    assert isinstance(forward, CutComputation)
    assert len(forward.parts) == {4: 4, 6: 3, 9: 3}[images]
    assert (found[0] == found[1]).all()


@pytest.mark.parametrize("threads", [1, THREADS])
@pytest.mark.parametrize(
    ("size", "kernel", "stride", "dilation", "pad"),
    [
        ((14, 14), (3, 3), (1, 1), (1, 1), (1, 1)),
        ((23, 9), (3, 3), (2, 2), (1, 1), (1, 1)),
        ((20, 11), (1, 1), (1, 1), (1, 1), (0, 0)),
        ((31, 12), (5, 3), (2, 1), (2, 2), (4, 2)),
        ((16, 40), (7, 7), (2, 2), (1, 1), (3, 3)),
    ],
)
def test_parts_of_the_rows_of_one_image_give_the_whole(
    size: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
    pad: tuple[int, int],
    threads: int,
) -> None:
    channels, filters = 20, 24
    extents = [1 + (k - 1) * d for k, d in zip(kernel, dilation, strict=True)]
    sizes = zip(size, pad, extents, stride, strict=True)
    rows, columns = ((each + 2 * p - extent) // s + 1 for each, p, extent, s in sizes)
    window = SlidingWindow(stride, dilation, pad, pad)
    weights_shape = (filters, channels, *kernel)
    x = TensorSpec((1, channels, *size), layout=CHANNELS_LAST)
    w = TensorSpec(weights_shape, layout=ANY)
    y = TensorSpec((1, filters, rows, columns), layout=CHANNELS_LAST)
    given = {
        "SOURCE": normal(1, channels, *size),
        "WEIGHTS": normal(*weights_shape),
        "BIAS": normal(filters),
    }
    found = []
    for cut in (Cut(1, 1), Cut(4, threads)):
        forward = operations.convolution_forward(x, w, y, window, cut, bias=True)
        found += compute(forward, [Argument.OUTPUT], **given)
    assert isinstance(forward, CutComputation)
    assert len(forward.parts) >= 2
    np.testing.assert_allclose(found[1], found[0], 1e-4, 1e-5)
    again = operations.convolution_forward(x, w, y, window, Cut(4, 1), bias=True)
    (alone,) = compute(again, [Argument.OUTPUT], **given)
    np.testing.assert_array_equal(alone, found[1])


@pytest.mark.parametrize(("images", "parts"), [(64, 32), (32, 16), (6, 3), (2, 2)])
def test_sums_of_a_weight_are_fewer_where_more_take_longer(images: int, parts: int) -> None:
    shape, filters, window = (images, 20, 9, 7), 24, SlidingWindow(*[(1, 1)] * 4)
    x = TensorSpec(shape, layout=CHANNELS_LAST)
    w = TensorSpec((filters, 20, 3, 3), layout=ANY)
    y = TensorSpec((images, filters, 9, 7), layout=CHANNELS_LAST)
    given = {"SOURCE": normal(*shape), "OUTPUT_GRAD": normal(*y.shape)}
    found = []
    for cut in (Cut(1, 1), Cut(32, 1), Cut(32, THREADS)):
        gradient = operations.convolution_backward_weights(x, w, y, window, cut)
        found += compute(gradient, [Argument.WEIGHTS_GRAD], **given)
    assert isinstance(gradient, CutComputation)
    assert len(gradient.parts) == parts
    np.testing.assert_allclose(found[1], found[0], 1e-4, 1e-3)
    np.testing.assert_array_equal(found[1], found[2])


@pytest.mark.parametrize("kind", list(operations.PoolType))
def test_parts_of_the_rows_of_one_image_are_pooled(kind: operations.PoolType) -> None:
    window = SlidingWindow((2, 2), (1, 1), (1, 1), (1, 1))
    x = TensorSpec((1, 16, 33, 30), layout=CHANNELS_LAST)
    y = TensorSpec((1, 16, 17, 15), layout=CHANNELS_LAST)
    given, found = {"SOURCE": normal(*x.shape)}, []
    for cut in (Cut(1, 1), Cut(4, THREADS)):
        pooling = operations.pooling_forward(x, y, kind, (3, 3), window, cut, is_train=False)
        found += compute(pooling, [Argument.OUTPUT], **given)
    assert isinstance(pooling, CutComputation)
    np.testing.assert_allclose(found[1], found[0], 1e-6)
