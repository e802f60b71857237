"""Declarations of mxrun.nd, written by `python tests/support/operator_stubs.py`."""

import os
from collections.abc import Sequence
from typing import Any, Literal

from mxrun.base.context import Context
from mxrun.imperative.arrays import sampling
from mxrun.imperative.arrays.creation import DType, ShapeLike
from mxrun.imperative.arrays.ndarray import NDArray as NDArray

__all__: list[str]

random = sampling

def add(lhs: NDArray | float, rhs: NDArray | float, out: Any = None) -> NDArray:
    """output = lhs + rhs, with broadcasting."""

def arange(
    start: float,
    stop: float | None = None,
    step: float = 1.0,
    repeat: int = 1,
    ctx: Context | None = None,
    dtype: DType = None,
) -> NDArray:
    """Return start, start + step, ... below stop, each `repeat` times; 0 to start without stop."""

def array(source: Any, ctx: Context | None = None, dtype: DType = None) -> NDArray:
    """Return an array with the values of a list, a number, a NumPy array or another array."""

def broadcast_like(lhs: NDArray, rhs: NDArray) -> NDArray:
    """Return the elements of `lhs` repeated to the shape of `rhs`."""

def broadcast_to(data: NDArray, shape: Sequence[int]) -> NDArray:
    """Return the elements repeated to a shape of as many axes, in which 0 keeps a size."""

def concatenate(arrays: Sequence[NDArray], axis: int = 0) -> NDArray:
    """Return arrays joined along an axis, on which alone their sizes may differ."""

def divide(lhs: NDArray | float, rhs: NDArray | float, out: Any = None) -> NDArray:
    """output = lhs / rhs, with broadcasting."""

def empty(shape: ShapeLike, ctx: Context | None = None, dtype: DType = None) -> NDArray:
    """Return an array with undefined values; dtype: float32 unless given."""

def equal(lhs: NDArray | float, rhs: NDArray | float, out: Any = None) -> NDArray:
    """output = 1 where lhs = rhs, else 0, with broadcasting."""

def eye(N: int, M: int = 0, k: int = 0, ctx: Context | None = None, dtype: DType = None) -> NDArray:
    """Return an N x M matrix with ones on diagonal `k`; M is N unless given."""

def flip(data: NDArray, axis: int) -> NDArray:
    """Return the elements in reverse order on one axis."""

def from_dlpack(tensor: Any, ctx: Context | None = None) -> NDArray:
    """Return an array with the memory of another library's tensor, which it keeps alive."""

def full(
    shape: ShapeLike,
    val: float,
    ctx: Context | None = None,
    dtype: DType = None,
    out: Any = None,
) -> NDArray:
    """Return an array with the same value everywhere; out: an array that is filled instead."""

def greater(lhs: NDArray | float, rhs: NDArray | float, out: Any = None) -> NDArray:
    """output = 1 where lhs > rhs, else 0, with broadcasting."""

def greater_equal(lhs: NDArray | float, rhs: NDArray | float, out: Any = None) -> NDArray:
    """output = 1 where lhs >= rhs, else 0, with broadcasting."""

def lesser(lhs: NDArray | float, rhs: NDArray | float, out: Any = None) -> NDArray:
    """output = 1 where lhs < rhs, else 0, with broadcasting."""

def lesser_equal(lhs: NDArray | float, rhs: NDArray | float, out: Any = None) -> NDArray:
    """output = 1 where lhs <= rhs, else 0, with broadcasting."""

def linspace(
    start: float,
    stop: float,
    num: int,
    endpoint: bool = True,
    ctx: Context | None = None,
    dtype: DType = None,
) -> NDArray:
    """Return `num` evenly spaced numbers from start to stop, which is the last with `endpoint`."""

def load(fname: str | os.PathLike[str], ctx: Context | None = None) -> Any:
    """Read a file that `save` or another program wrote: a list if a list was saved, else a
    dictionary of arrays by name.
    """

def logical_and(lhs: NDArray | float, rhs: NDArray | float, out: Any = None) -> NDArray:
    """output = 1 where neither lhs nor rhs is 0, else 0, with broadcasting."""

def logical_or(lhs: NDArray | float, rhs: NDArray | float, out: Any = None) -> NDArray:
    """output = 1 where lhs or rhs is not 0, else 0, with broadcasting."""

def logical_xor(lhs: NDArray | float, rhs: NDArray | float, out: Any = None) -> NDArray:
    """output = 1 where exactly one of lhs and rhs is 0, else 0, with broadcasting."""

def maximum(lhs: NDArray | float, rhs: NDArray | float, out: Any = None) -> NDArray:
    """output = max(lhs, rhs), with broadcasting."""

def minimum(lhs: NDArray | float, rhs: NDArray | float, out: Any = None) -> NDArray:
    """output = min(lhs, rhs), with broadcasting."""

def modulo(lhs: NDArray | float, rhs: NDArray | float, out: Any = None) -> NDArray:
    """output = lhs - floor(lhs / rhs) * rhs, and 0 where rhs is 0, with broadcasting."""

def multiply(lhs: NDArray | float, rhs: NDArray | float, out: Any = None) -> NDArray:
    """output = lhs * rhs, with broadcasting."""

def not_equal(lhs: NDArray | float, rhs: NDArray | float, out: Any = None) -> NDArray:
    """output = 1 where lhs != rhs, else 0, with broadcasting."""

def one_hot(
    indices: NDArray,
    depth: int,
    on_value: float = 1.0,
    off_value: float = 0.0,
    dtype: DType = None,
) -> NDArray:
    """Return `on_value` at each index of a new last axis of size `depth`, else `off_value`."""

def ones(shape: ShapeLike, ctx: Context | None = None, dtype: DType = None) -> NDArray:
    """Return an array of ones; dtype: float32 unless given."""

def pick(data: NDArray, index: NDArray, axis: int = -1, keepdims: bool = False) -> NDArray:
    """Return one element along an axis for each index; index has the other axes."""

def power(lhs: NDArray | float, rhs: NDArray | float, out: Any = None) -> NDArray:
    """output = lhs ^ rhs, with broadcasting."""

def repeat(data: NDArray, repeats: int, axis: int | None = None) -> NDArray:
    """Return each element `repeats` times in succession, on one axis or in one row of all."""

def save(fname: str | os.PathLike[str], data: Any) -> None:
    """Write an array, a list of arrays or a dictionary of arrays to a file, atomically."""

def slice(
    data: NDArray,
    begin: Sequence[int | None],
    end: Sequence[int | None],
    step: Sequence[int | None] | None = None,
) -> NDArray:
    """Return the elements from `begin` to `end`, which have a number for each leading axis."""

def slice_axis(data: NDArray, axis: int, begin: int, end: int | None) -> NDArray:
    """Return the elements from `begin` to `end` on one axis."""

def stack(*data: NDArray, axis: int = 0) -> NDArray:
    """Return arrays of one shape joined along a new axis."""

def subtract(lhs: NDArray | float, rhs: NDArray | float, out: Any = None) -> NDArray:
    """output = lhs - rhs, with broadcasting."""

def take(a: NDArray, indices: NDArray, axis: int = 0) -> NDArray:
    """Return the parts of an array at indices along an axis, whose place their axes take."""

def tile(data: NDArray, reps: int | Sequence[int]) -> NDArray:
    """Return the array repeated `reps` times on each of its last axes."""

def true_divide(lhs: NDArray | float, rhs: NDArray | float, out: Any = None) -> NDArray:
    """output = lhs / rhs, with broadcasting."""

def waitall() -> None:
    """Wait until nothing is pending; raises JobError with the failures that no wait has raised."""

def zeros(shape: ShapeLike, ctx: Context | None = None, dtype: DType = None) -> NDArray:
    """Return an array of zeros; dtype: float32 unless given."""

def Activation(
    data: NDArray,
    act_type: Literal["relu", "sigmoid", "softrelu", "softsign", "tanh"],
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = f(data), elementwise, with f = relu, sigmoid, softrelu, softsign or tanh."""

def BatchNorm(
    data: NDArray,
    gamma: NDArray,
    beta: NDArray,
    moving_mean: NDArray,
    moving_var: NDArray,
    eps: float = 0.001,
    momentum: float = 0.9,
    fix_gamma: bool = True,
    use_global_stats: bool = False,
    output_mean_var: bool = False,
    axis: int = 1,
    cudnn_off: bool = False,
    min_calib_range: float | None = None,
    max_calib_range: float | None = None,
    *,
    out: Any = None,
    name: str | None = None,
) -> Any:
    """output = gamma * (data - mean) / sqrt(var + eps) + beta, channel by channel."""

def BlockGrad(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = data; data's gradient is zero, whatever the output's gradient is."""

def CTCLoss(
    data: NDArray,
    label: NDArray,
    data_lengths: NDArray | None = None,
    label_lengths: NDArray | None = None,
    *,
    use_data_lengths: bool = False,
    use_label_lengths: bool = False,
    blank_label: Literal["first", "last"] = "first",
    layout: Literal["TNC", "NTC"] = "TNC",
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output[n] = -log(probability of label[n] by the softmax of data[:, n]), over all
    alignments.
    """

def Cast(data: NDArray, dtype: DType, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = data converted to `dtype`, of any shape."""

def Concat(*data: NDArray, dim: int = 1, out: Any = None, name: str | None = None) -> NDArray:
    """output = concatenation of arg0, arg1, ... along the axis `dim`; all other axes are equal."""

def Convolution(
    data: NDArray,
    weight: NDArray,
    bias: NDArray | None = None,
    *,
    kernel: Sequence[int],
    num_filter: int,
    stride: Sequence[int] = (),
    dilate: Sequence[int] = (),
    pad: Sequence[int] = (),
    num_group: int = 1,
    workspace: int = 1024,
    no_bias: bool = False,
    cudnn_tune: Literal["off", "limited_workspace", "fastest"] | None = None,
    cudnn_off: bool = False,
    layout: Literal["NCW", "NCHW", "NCDHW"] | None = None,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output[n, o, y] = bias[o] + sum over c, k of weight[o, c, k] * data[n, c, y*stride +
    k*dilate - pad].
    """

def Deconvolution(
    data: NDArray,
    weight: NDArray,
    bias: NDArray | None = None,
    *,
    kernel: Sequence[int],
    num_filter: int,
    stride: Sequence[int] = (),
    dilate: Sequence[int] = (),
    pad: Sequence[int] = (),
    num_group: int = 1,
    workspace: int = 512,
    no_bias: bool = True,
    cudnn_tune: Literal["off", "limited_workspace", "fastest"] | None = None,
    cudnn_off: bool = False,
    layout: Literal["NCW", "NCHW", "NCDHW"] | None = None,
    adj: Sequence[int] = (),
    target_shape: Sequence[int] = (),
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output[n, o, y*stride + k*dilate - pad] = sum of weight[c, o, k] * data[n, c, y] over y, k
    and the channels c of o's group, plus bias[o].
    """

def Dropout(
    data: NDArray,
    p: float = 0.5,
    mode: Literal["training", "always"] = "training",
    axes: Sequence[int] = (),
    cudnn_off: bool | None = False,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = data * mask; mask is 1 / (1 - p) with probability 1 - p, else 0."""

def Embedding(
    data: NDArray,
    weight: NDArray,
    input_dim: int,
    output_dim: int,
    dtype: DType = "float32",
    sparse_grad: bool = False,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output[..., :] = weight[id, :] for every id in data."""

def Flatten(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output[n, :] = data[n] in row-major order; data [N, ...], output [N, product of the other
    axes].
    """

def FullyConnected(
    data: NDArray,
    weight: NDArray,
    bias: NDArray | None = None,
    *,
    num_hidden: int,
    no_bias: bool = False,
    flatten: bool = True,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = data x weight^T + bias."""

def LRN(
    data: NDArray,
    *,
    nsize: int,
    alpha: float = 0.0001,
    beta: float = 0.75,
    knorm: float = 2.0,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output[n, c] = data[n, c] * tmp_norm[n, c]^(-beta), with tmp_norm[n, c] = knorm + alpha /
    nsize * the sum of data[n, k]^2 over the channels k with |k - c| <= (nsize - 1) // 2.
    """

def LayerNorm(
    data: NDArray,
    gamma: NDArray,
    beta: NDArray,
    axis: int = -1,
    eps: float = 1e-05,
    output_mean_var: bool = False,
    *,
    out: Any = None,
    name: str | None = None,
) -> Any:
    """output = gamma * (data - mean) / std + beta, std = sqrt(var + eps), along `axis`."""

def LeakyReLU(
    data: NDArray,
    gamma: NDArray | None = None,
    *,
    act_type: Literal["rrelu", "leaky", "prelu", "elu", "selu", "gelu"] = "leaky",
    slope: float = 0.25,
    lower_bound: float = 0.125,
    upper_bound: float = 0.334,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = data where data > 0, elsewhere a function of data given by act_type."""

def LinearRegressionOutput(
    data: NDArray,
    label: NDArray,
    sample_weight: NDArray | None = None,
    *,
    grad_scale: float = 1.0,
    use_sample_weight: bool = False,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = data; loss = sum over samples of mean(0.5 * (data - label)^2)."""

def LogisticRegressionOutput(
    data: NDArray,
    label: NDArray,
    sample_weight: NDArray | None = None,
    *,
    grad_scale: float = 1.0,
    use_sample_weight: bool = False,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = 1 / (1 + exp(-data)); loss = sum over samples of mean(-label * log(output) - (1 -
    label) * log(1 - output)).
    """

def MAERegressionOutput(
    data: NDArray,
    label: NDArray,
    sample_weight: NDArray | None = None,
    *,
    grad_scale: float = 1.0,
    use_sample_weight: bool = False,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = data; loss = sum over samples of mean(|data - label|)."""

def MakeLoss(
    data: NDArray,
    sample_weight: NDArray | None = None,
    *,
    grad_scale: float = 1.0,
    valid_thresh: float = 0.0,
    normalization: Literal["null", "batch", "valid"] = "null",
    use_sample_weight: bool = False,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = data; data's gradient is grad_scale / divisor everywhere, whatever the output's
    gradient is.
    """

def Pooling(
    data: NDArray,
    kernel: Sequence[int] = (),
    pool_type: Literal["max", "avg", "sum", "lp"] = "max",
    global_pool: bool = False,
    cudnn_off: bool = False,
    pooling_convention: Literal["valid", "full", "same"] = "valid",
    stride: Sequence[int] = (),
    pad: Sequence[int] = (),
    p_value: int | None = None,
    count_include_pad: bool | None = None,
    layout: Literal["NCW", "NCHW", "NCDHW"] | None = None,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output[n, c, y] = max, average, sum or p-norm (sum of x^p)^(1/p) of data's window at y."""

def RMSNorm(
    data: NDArray,
    gamma: NDArray,
    axis: int = -1,
    eps: float = 1e-05,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = gamma * data / rms, rms = sqrt(mean of data^2 + eps), along `axis`."""

def RNN(
    data: NDArray,
    parameters: NDArray,
    state: NDArray | None = None,
    state_cell: NDArray | None = None,
    sequence_length: NDArray | None = None,
    carried_state: NDArray | None = None,
    carried_state_cell: NDArray | None = None,
    *,
    state_size: int,
    num_layers: int,
    bidirectional: bool = False,
    mode: Literal["rnn_relu", "rnn_tanh", "lstm", "gru"],
    p: float = 0.0,
    state_outputs: bool = False,
    projection_size: int | None = None,
    lstm_state_clip_min: float | None = None,
    lstm_state_clip_max: float | None = None,
    lstm_state_clip_nan: bool = False,
    use_sequence_length: bool = False,
    layout: Literal["TNC", "NTC"] = "TNC",
    initial_state: Literal["input", "zeros", "carry"] = "input",
    out: Any = None,
    name: str | None = None,
) -> Any:
    """output[t] = h[t] of the last layer, where each layer reads the one below it at step t."""

def Reshape(
    data: NDArray,
    shape: Sequence[int] = (),
    reverse: bool = False,
    target_shape: Sequence[int] = (),
    keep_highest: bool = False,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = data in row-major order with the shape `shape`, which has as many elements."""

def SequenceLast(
    data: NDArray,
    sequence_length: NDArray | None = None,
    *,
    use_sequence_length: bool = False,
    axis: int = 0,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = data's step length - 1 of each sequence, or the last step."""

def SequenceMask(
    data: NDArray,
    sequence_length: NDArray | None = None,
    *,
    use_sequence_length: bool = False,
    axis: int = 0,
    value: float = 0.0,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = data where step < length, else value."""

def SequenceReverse(
    data: NDArray,
    sequence_length: NDArray | None = None,
    *,
    use_sequence_length: bool = False,
    axis: int = 0,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = data with the first `length` steps of each sequence in reverse order."""

def SliceChannel(
    data: NDArray,
    num_outputs: int,
    axis: int = 1,
    squeeze_axis: bool = False,
    *,
    out: Any = None,
    name: str | None = None,
) -> Any:
    """output0, output1, ... = consecutive slices of equal size of data along `axis`."""

def SoftmaxOutput(
    data: NDArray,
    label: NDArray,
    sample_weight: NDArray | None = None,
    *,
    grad_scale: float = 1.0,
    ignore_label: float = -1.0,
    multi_output: bool = False,
    use_ignore: bool = False,
    preserve_shape: bool = False,
    normalization: Literal["null", "batch", "valid"] = "null",
    out_grad: bool = False,
    smooth_alpha: float = 0.0,
    use_sample_weight: bool = False,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = exp(data - max) / sum exp(data - max); loss = sum of -log(output[label])."""

def SwapAxis(
    data: NDArray,
    dim1: int = 0,
    dim2: int = 0,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = data with two axes exchanged."""

def _contrib_interleaved_matmul_encdec_qk(
    queries: NDArray,
    keys_values: NDArray,
    heads: int,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = query x key^T / sqrt(D) of each head."""

def _contrib_interleaved_matmul_encdec_valatt(
    keys_values: NDArray,
    attention: NDArray,
    heads: int,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = attention x value of each head."""

def _contrib_interleaved_matmul_selfatt_qk(
    queries_keys_values: NDArray,
    heads: int,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = query x key^T / sqrt(D) of each head."""

def _contrib_interleaved_matmul_selfatt_valatt(
    queries_keys_values: NDArray,
    attention: NDArray,
    heads: int,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = attention x value of each head."""

def _copy(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = data, elementwise."""

def _div_scalar(
    data: NDArray,
    scalar: float = 1.0,
    is_int: bool = True,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = data / scalar."""

def _equal(lhs: NDArray, rhs: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = 1 where lhs = rhs, else 0, all of one shape."""

def _equal_scalar(
    data: NDArray,
    scalar: float = 1.0,
    is_int: bool = True,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = 1 where data = scalar, else 0."""

def _greater(lhs: NDArray, rhs: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = 1 where lhs > rhs, else 0, all of one shape."""

def _greater_equal(
    lhs: NDArray,
    rhs: NDArray,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = 1 where lhs >= rhs, else 0, all of one shape."""

def _greater_equal_scalar(
    data: NDArray,
    scalar: float = 1.0,
    is_int: bool = True,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = 1 where data >= scalar, else 0."""

def _greater_scalar(
    data: NDArray,
    scalar: float = 1.0,
    is_int: bool = True,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = 1 where data > scalar, else 0."""

def _hypot(lhs: NDArray, rhs: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = sqrt(lhs^2 + rhs^2), all of one shape."""

def _hypot_scalar(
    data: NDArray,
    scalar: float = 1.0,
    is_int: bool = True,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = sqrt(data^2 + scalar^2)."""

def _lesser(lhs: NDArray, rhs: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = 1 where lhs < rhs, else 0, all of one shape."""

def _lesser_equal(
    lhs: NDArray,
    rhs: NDArray,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = 1 where lhs <= rhs, else 0, all of one shape."""

def _lesser_equal_scalar(
    data: NDArray,
    scalar: float = 1.0,
    is_int: bool = True,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = 1 where data <= scalar, else 0."""

def _lesser_scalar(
    data: NDArray,
    scalar: float = 1.0,
    is_int: bool = True,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = 1 where data < scalar, else 0."""

def _logical_and(
    lhs: NDArray,
    rhs: NDArray,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = 1 where neither lhs nor rhs is 0, else 0, all of one shape."""

def _logical_and_scalar(
    data: NDArray,
    scalar: float = 1.0,
    is_int: bool = True,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = 1 where neither data nor scalar is 0, else 0."""

def _logical_or(lhs: NDArray, rhs: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = 1 where lhs or rhs is not 0, else 0, all of one shape."""

def _logical_or_scalar(
    data: NDArray,
    scalar: float = 1.0,
    is_int: bool = True,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = 1 where data or scalar is not 0, else 0."""

def _logical_xor(
    lhs: NDArray,
    rhs: NDArray,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = 1 where exactly one of lhs and rhs is 0, else 0, all of one shape."""

def _logical_xor_scalar(
    data: NDArray,
    scalar: float = 1.0,
    is_int: bool = True,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = 1 where exactly one of data and scalar is 0, else 0."""

def _maximum(lhs: NDArray, rhs: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = max(lhs, rhs), all of one shape."""

def _maximum_scalar(
    data: NDArray,
    scalar: float = 1.0,
    is_int: bool = True,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = max(data, scalar)."""

def _minimum(lhs: NDArray, rhs: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = min(lhs, rhs), all of one shape."""

def _minimum_scalar(
    data: NDArray,
    scalar: float = 1.0,
    is_int: bool = True,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = min(data, scalar)."""

def _minus_scalar(
    data: NDArray,
    scalar: float = 1.0,
    is_int: bool = True,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = data - scalar."""

def _mod(lhs: NDArray, rhs: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = lhs - floor(lhs / rhs) * rhs, and 0 where rhs is 0, all of one shape."""

def _mod_scalar(
    data: NDArray,
    scalar: float = 1.0,
    is_int: bool = True,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = data - floor(data / scalar) * scalar, and 0 where scalar is 0."""

def _mul_scalar(
    data: NDArray,
    scalar: float = 1.0,
    is_int: bool = True,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = data * scalar."""

def _not_equal(lhs: NDArray, rhs: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = 1 where lhs != rhs, else 0, all of one shape."""

def _not_equal_scalar(
    data: NDArray,
    scalar: float = 1.0,
    is_int: bool = True,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = 1 where data != scalar, else 0."""

def _plus_scalar(
    data: NDArray,
    scalar: float = 1.0,
    is_int: bool = True,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = data + scalar."""

def _power(lhs: NDArray, rhs: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = lhs ^ rhs, all of one shape."""

def _power_scalar(
    data: NDArray,
    scalar: float = 1.0,
    is_int: bool = True,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = data ^ scalar."""

def _rdiv_scalar(
    data: NDArray,
    scalar: float = 1.0,
    is_int: bool = True,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = scalar / data."""

def _rminus_scalar(
    data: NDArray,
    scalar: float = 1.0,
    is_int: bool = True,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = scalar - data."""

def _rmod_scalar(
    data: NDArray,
    scalar: float = 1.0,
    is_int: bool = True,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = scalar - floor(scalar / data) * data, and 0 where data is 0."""

def _rpower_scalar(
    data: NDArray,
    scalar: float = 1.0,
    is_int: bool = True,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = scalar ^ data."""

def abs(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = |data|, whose gradient at 0 is 0, elementwise."""

def adagrad_update(
    weight: NDArray,
    grad: NDArray,
    history: NDArray,
    gradient_scale: NDArray | None = None,
    schedule: NDArray | None = None,
    *,
    lr: float,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    scheduled: bool = False,
    scaled: bool = False,
    epsilon: float = 1e-07,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = weight - lr * (g / sqrt(history_output + epsilon) + wd * weight), history_output
    = history + g^2, g = clip(rescale_grad * grad).
    """

def adam_update(
    weight: NDArray,
    grad: NDArray,
    mean: NDArray,
    var: NDArray,
    gradient_scale: NDArray | None = None,
    schedule: NDArray | None = None,
    *,
    lr: float,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    scheduled: bool = False,
    scaled: bool = False,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-08,
    lazy_update: bool = True,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = weight - lr * mean_output / (sqrt(var_output) + epsilon), mean_output = beta1 *
    mean + (1 - beta1) * g, var_output = beta2 * var + (1 - beta2) * g^2, g =
    clip(rescale_grad * grad + wd * weight).
    """

def adamw_update(
    weight: NDArray,
    grad: NDArray,
    mean: NDArray,
    var: NDArray,
    gradient_scale: NDArray | None = None,
    schedule: NDArray | None = None,
    *,
    lr: float,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    scheduled: bool = False,
    scaled: bool = False,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-08,
    eta: float,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = weight - eta * (lr * mean_output / (sqrt(var_output) + epsilon) + wd * weight),
    mean_output = beta1 * mean + (1 - beta1) * g, var_output = beta2 * var + (1 - beta2) *
    g^2, g = clip(rescale_grad * grad).
    """

def add_n(*data: NDArray, out: Any = None, name: str | None = None) -> NDArray:
    """output = arg0 + arg1 + ..., added from left to right."""

def arccos(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = arccos(data); NaN outside of [-1, 1], elementwise."""

def arccosh(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = arccosh(data); NaN below 1, elementwise."""

def arcsin(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = arcsin(data); NaN outside of [-1, 1], elementwise."""

def arcsinh(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = arcsinh(data), elementwise."""

def arctan(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = arctan(data), elementwise."""

def arctanh(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = arctanh(data); NaN outside of [-1, 1], elementwise."""

def argmax(
    data: NDArray,
    axis: int | None = None,
    keepdims: bool = False,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = index of the first maximum along the axis."""

def argmax_channel(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = index of the first maximum along axis 1."""

def argmin(
    data: NDArray,
    axis: int | None = None,
    keepdims: bool = False,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = index of the first minimum along the axis."""

def batch_dot(
    lhs: NDArray,
    rhs: NDArray,
    transpose_a: bool = False,
    transpose_b: bool = False,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output[b] = lhs[b] x rhs[b] for every index b of the leading axes."""

def broadcast_add(
    lhs: NDArray,
    rhs: NDArray,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = lhs + rhs, with broadcasting."""

def broadcast_div(
    lhs: NDArray,
    rhs: NDArray,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = lhs / rhs, with broadcasting."""

def broadcast_equal(
    lhs: NDArray,
    rhs: NDArray,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = 1 where lhs = rhs, else 0, with broadcasting."""

def broadcast_greater(
    lhs: NDArray,
    rhs: NDArray,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = 1 where lhs > rhs, else 0, with broadcasting."""

def broadcast_greater_equal(
    lhs: NDArray,
    rhs: NDArray,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = 1 where lhs >= rhs, else 0, with broadcasting."""

def broadcast_hypot(
    lhs: NDArray,
    rhs: NDArray,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = sqrt(lhs^2 + rhs^2), with broadcasting."""

def broadcast_lesser(
    lhs: NDArray,
    rhs: NDArray,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = 1 where lhs < rhs, else 0, with broadcasting."""

def broadcast_lesser_equal(
    lhs: NDArray,
    rhs: NDArray,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = 1 where lhs <= rhs, else 0, with broadcasting."""

def broadcast_logical_and(
    lhs: NDArray,
    rhs: NDArray,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = 1 where neither lhs nor rhs is 0, else 0, with broadcasting."""

def broadcast_logical_or(
    lhs: NDArray,
    rhs: NDArray,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = 1 where lhs or rhs is not 0, else 0, with broadcasting."""

def broadcast_logical_xor(
    lhs: NDArray,
    rhs: NDArray,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = 1 where exactly one of lhs and rhs is 0, else 0, with broadcasting."""

def broadcast_maximum(
    lhs: NDArray,
    rhs: NDArray,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = max(lhs, rhs), with broadcasting."""

def broadcast_minimum(
    lhs: NDArray,
    rhs: NDArray,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = min(lhs, rhs), with broadcasting."""

def broadcast_mod(
    lhs: NDArray,
    rhs: NDArray,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = lhs - floor(lhs / rhs) * rhs, and 0 where rhs is 0, with broadcasting."""

def broadcast_mul(
    lhs: NDArray,
    rhs: NDArray,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = lhs * rhs, with broadcasting."""

def broadcast_not_equal(
    lhs: NDArray,
    rhs: NDArray,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = 1 where lhs != rhs, else 0, with broadcasting."""

def broadcast_power(
    lhs: NDArray,
    rhs: NDArray,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = lhs ^ rhs, with broadcasting."""

def broadcast_sub(
    lhs: NDArray,
    rhs: NDArray,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = lhs - rhs, with broadcasting."""

def carry(data: NDArray, state: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = data of the previous run; zero in the first run of an epoch or an evaluation."""

def cbrt(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = the real cube root of data, elementwise."""

def ceil(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = the smallest integer >= data, elementwise."""

def clip(
    data: NDArray,
    a_min: float,
    a_max: float,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = a_max where data > a_max, a_min where data < a_min, else data."""

def cos(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = cos(data), data in radians, elementwise."""

def cosh(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = cosh(data), elementwise."""

def cumsum(
    a: NDArray,
    axis: int | None = None,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output[.., i, ..] = sum of a[.., j, ..] over j <= i along the axis; without an axis, the
    output is the cumulative sum over all elements, a vector.
    """

def degrees(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = data * 180 / pi, elementwise."""

def dot(
    lhs: NDArray,
    rhs: NDArray,
    transpose_a: bool = False,
    transpose_b: bool = False,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output[i, j] = sum over k of lhs[i, k] * rhs[k, j]; i and j stand for any number of axes."""

def elemwise_add(
    lhs: NDArray,
    rhs: NDArray,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = lhs + rhs, all of one shape."""

def elemwise_div(
    lhs: NDArray,
    rhs: NDArray,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = lhs / rhs, all of one shape."""

def elemwise_mul(
    lhs: NDArray,
    rhs: NDArray,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = lhs * rhs, all of one shape."""

def elemwise_sub(
    lhs: NDArray,
    rhs: NDArray,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = lhs - rhs, all of one shape."""

def erf(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = the error function, 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to data,
    elementwise.
    """

def erfinv(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = the inverse of erf; NaN outside of [-1, 1], elementwise."""

def exp(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = e^data, elementwise."""

def expand_dims(data: NDArray, axis: int, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = data with an inserted axis of size 1."""

def expm1(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = e^data - 1, exact near 0, elementwise."""

def fix(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = data rounded towards 0, elementwise."""

def floor(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = the largest integer <= data, elementwise."""

def ftrl_update(
    weight: NDArray,
    grad: NDArray,
    z: NDArray,
    n: NDArray,
    gradient_scale: NDArray | None = None,
    schedule: NDArray | None = None,
    *,
    lr: float,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    scheduled: bool = False,
    scaled: bool = False,
    lamda1: float = 0.01,
    beta: float = 1.0,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = (sign(z_output) * lamda1 - z_output) / ((beta + sqrt(n_output)) / lr + wd) where
    |z_output| > lamda1, else 0; z_output = z + g - (sqrt(n_output) - sqrt(n)) * weight / lr,
    n_output = n + g^2, g = clip(rescale_grad * grad).
    """

def gamma(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = the gamma function of data; NaN at -1, -2, ..., elementwise."""

def gammaln(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = log |gamma(data)|; infinite at 0, -1, -2, ..., elementwise."""

def gated_activation(
    data: NDArray,
    act_type: Literal["gelu", "silu", "sigmoid"] = "gelu",
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = act(data[..., :C]) * data[..., C:]."""

def gelu(
    data: NDArray,
    approximate: Literal["none", "tanh"] = "none",
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = data * P(a normal variable <= data), elementwise."""

def hard_sigmoid(
    data: NDArray,
    alpha: float = 0.2,
    beta: float = 0.5,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = max(0, min(1, alpha * data + beta))."""

def lamb_update(
    weight: NDArray,
    grad: NDArray,
    mean: NDArray,
    var: NDArray,
    gradient_scale: NDArray | None = None,
    schedule: NDArray | None = None,
    *,
    lr: float,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    scheduled: bool = False,
    scaled: bool = False,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-06,
    lower_bound: float = -1.0,
    upper_bound: float = -1.0,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = weight - lr * ratio * move, move = mean_output / (sqrt(var_output) + epsilon) +
    wd * weight, ratio = |weight| / |move|, mean_output = beta1 * mean + (1 - beta1) * g,
    var_output = beta2 * var + (1 - beta2) * g^2, g = clip(rescale_grad * grad).
    """

def log(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = the natural logarithm of data, elementwise."""

def log10(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = log10(data), elementwise."""

def log1p(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = log(1 + data), exact near 0, elementwise."""

def log2(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = log2(data), elementwise."""

def log_softmax(
    data: NDArray,
    axis: int = -1,
    temperature: float | None = None,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = x - max x - log(sum of exp(x - max x)) along the axis, x = data / temperature."""

def logical_not(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = 1 where data is 0, else 0, elementwise."""

def max(
    data: NDArray,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    exclude: bool = False,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = maximum of data over the axes."""

def mean(
    data: NDArray,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    exclude: bool = False,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = mean of data over the axes."""

def min(
    data: NDArray,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    exclude: bool = False,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = minimum of data over the axes."""

def moments(
    data: NDArray,
    axes: int | Sequence[int] | None = None,
    keepdims: bool = False,
    *,
    out: Any = None,
    name: str | None = None,
) -> list[NDArray]:
    """mean = mean of data over the n elements along the axes; var = mean of (data - mean)^2."""

def nag_mom_update(
    weight: NDArray,
    grad: NDArray,
    mom: NDArray,
    gradient_scale: NDArray | None = None,
    schedule: NDArray | None = None,
    *,
    lr: float,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    scheduled: bool = False,
    scaled: bool = False,
    momentum: float = 0.0,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """mom_output = momentum * mom - lr * gradient, output = weight + momentum * mom_output - lr
    * gradient, gradient = clip(rescale_grad * grad) + wd * weight.
    """

def nanprod(
    data: NDArray,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    exclude: bool = False,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = product of data over the axes without NaN elements."""

def nansum(
    data: NDArray,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    exclude: bool = False,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = sum of data over the axes without NaN elements."""

def negative(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = -data, elementwise."""

def norm(
    data: NDArray,
    *,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    ord: int = 2,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = sum of |data| (ord 1) or square root of the sum of data^2 (ord 2) over the axes."""

def ones_like(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = 1, elementwise."""

def position_embedding(
    data: NDArray,
    weight: NDArray,
    max_length: int,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output[n, t, :] = data[n, t, :] + weight[t, :]."""

def prod(
    data: NDArray,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    exclude: bool = False,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = product of data over the axes."""

def radians(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = data * pi / 180, elementwise."""

def rcbrt(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = 1 / cbrt(data), elementwise."""

def reciprocal(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = 1 / data, elementwise."""

def relu(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = max(data, 0), elementwise."""

def rint(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = data rounded to the nearest integer, halves down, elementwise."""

def rmsprop_update(
    weight: NDArray,
    grad: NDArray,
    n: NDArray,
    gradient_scale: NDArray | None = None,
    schedule: NDArray | None = None,
    *,
    lr: float,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    scheduled: bool = False,
    scaled: bool = False,
    gamma1: float = 0.95,
    epsilon: float = 1e-08,
    clip_weights: float = -1.0,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = clip_weights(weight - lr * g / sqrt(n_output + epsilon)), n_output = gamma1 * n +
    (1 - gamma1) * g^2, g = clip(rescale_grad * grad + wd * weight).
    """

def rmspropalex_update(
    weight: NDArray,
    grad: NDArray,
    n: NDArray,
    g: NDArray,
    delta: NDArray,
    gradient_scale: NDArray | None = None,
    schedule: NDArray | None = None,
    *,
    lr: float,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    scheduled: bool = False,
    scaled: bool = False,
    gamma1: float = 0.95,
    epsilon: float = 1e-08,
    clip_weights: float = -1.0,
    gamma2: float = 0.9,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = clip_weights(weight + delta_output), delta_output = gamma2 * delta - lr *
    gradient / sqrt(max(n_output - g_output^2, 0) + epsilon), n_output = gamma1 * n + (1 -
    gamma1) * gradient^2, g_output = gamma1 * g + (1 - gamma1) * gradient, gradient =
    clip(rescale_grad * grad + wd * weight).
    """

def rotary_embedding(
    data: NDArray,
    num_heads: int,
    rotated_heads: int | None = None,
    base: float = 10000.0,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """Rotation of the pair (i, i + D / 2) of each head at position t by t * base^(-2 i / D)."""

def round(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = data rounded to the nearest integer, halves away from 0, elementwise."""

def rsqrt(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = data^(-1/2); NaN below 0, elementwise."""

def scaled_dot_product_attention(
    data: NDArray | None = None,
    query: NDArray | None = None,
    key: NDArray | None = None,
    value: NDArray | None = None,
    lengths: NDArray | None = None,
    mask: NDArray | None = None,
    *,
    num_heads: int,
    num_kv_heads: int | None = None,
    causal: bool = False,
    scale: float | None = None,
    packed: bool = False,
    use_mask: bool = False,
    use_lengths: bool = False,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = softmax(scale * query x key^T + mask) x value, for each head."""

def sgd_mom_update(
    weight: NDArray,
    grad: NDArray,
    mom: NDArray,
    gradient_scale: NDArray | None = None,
    schedule: NDArray | None = None,
    *,
    lr: float,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    scheduled: bool = False,
    scaled: bool = False,
    lazy_update: bool = True,
    momentum: float = 0.0,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """mom_output = momentum * mom - lr * gradient, output = weight + mom_output, gradient =
    clip(rescale_grad * grad) + wd * weight.
    """

def sgd_update(
    weight: NDArray,
    grad: NDArray,
    gradient_scale: NDArray | None = None,
    schedule: NDArray | None = None,
    *,
    lr: float,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    scheduled: bool = False,
    scaled: bool = False,
    lazy_update: bool = True,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = weight - lr * gradient, gradient = clip(rescale_grad * grad) + wd * weight."""

def sigmoid(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = 1 / (1 + exp(-data)), elementwise."""

def sign(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = -1, 0 or 1 with the sign of data; 0 of NaN, elementwise."""

def signsgd_update(
    weight: NDArray,
    grad: NDArray,
    gradient_scale: NDArray | None = None,
    schedule: NDArray | None = None,
    *,
    lr: float,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    scheduled: bool = False,
    scaled: bool = False,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = (1 - lr * wd) * weight - lr * sign(rescale_grad * grad)."""

def signum_update(
    weight: NDArray,
    grad: NDArray,
    mom: NDArray,
    gradient_scale: NDArray | None = None,
    schedule: NDArray | None = None,
    *,
    lr: float,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    scheduled: bool = False,
    scaled: bool = False,
    momentum: float = 0.0,
    wd_lh: float = 0.0,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """mom_output = momentum * mom - (1 - momentum) * gradient, output = (1 - lr * wd_lh) *
    weight + lr * sign(mom_output), gradient = clip(rescale_grad * grad) + wd * weight.
    """

def silu(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = data / (1 + exp(-data)), elementwise; also called swish."""

def sin(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = sin(data), data in radians, elementwise."""

def sinh(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = sinh(data), elementwise."""

def smooth_l1(
    data: NDArray,
    scalar: float = 1.0,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = (scalar data)^2 / 2 where |data| <= 1 / scalar^2, else |data| - 1 / (2 scalar^2)."""

def softmax(
    data: NDArray,
    axis: int = -1,
    temperature: float | None = None,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = exp(x - max x) / sum of exp(x - max x) along the axis, x = data / temperature."""

def softmax_cross_entropy(
    data: NDArray,
    label: NDArray,
    sample_weight: NDArray | None = None,
    *,
    grad_scale: float = 1.0,
    use_ignore: bool = False,
    ignore_label: float = -1.0,
    use_sample_weight: bool = False,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = sum over rows of weight * -log(max(p[label], 1e-8)), p = softmax of data's rows."""

def softsign(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = data / (1 + |data|), elementwise."""

def sqrt(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = data^(1/2); NaN below 0, elementwise."""

def square(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = data^2, elementwise."""

def squeeze(
    data: NDArray,
    axis: int | Sequence[int] | None = None,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = data without its axes of size 1; at least one axis remains."""

def sum(
    data: NDArray,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    exclude: bool = False,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = sum of data over the axes."""

def tan(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = tan(data), data in radians, elementwise."""

def tanh(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = tanh(data), elementwise."""

def transpose(
    data: NDArray,
    axes: Sequence[int] = (),
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = data with its axes permuted: axis i of the output is axis `axes[i]` of data."""

def trunc(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = data rounded towards 0, elementwise."""

def where(
    condition: NDArray,
    x: NDArray,
    y: NDArray,
    *,
    out: Any = None,
    name: str | None = None,
) -> NDArray:
    """output = x where condition is not 0, else y; NaN counts as not 0."""

def zeros_like(data: NDArray, *, out: Any = None, name: str | None = None) -> NDArray:
    """output = 0, elementwise."""

ElementWiseSum = add_n
Softmax = SoftmaxOutput
_Div = elemwise_div
_DivScalar = _div_scalar
_Equal = _equal
_EqualScalar = _equal_scalar
_Greater = _greater
_GreaterEqualScalar = _greater_equal_scalar
_GreaterScalar = _greater_scalar
_Greater_Equal = _greater_equal
_Hypot = _hypot
_HypotScalar = _hypot_scalar
_Lesser = _lesser
_LesserEqualScalar = _lesser_equal_scalar
_LesserScalar = _lesser_scalar
_Lesser_Equal = _lesser_equal
_LogicalAndScalar = _logical_and_scalar
_LogicalOrScalar = _logical_or_scalar
_LogicalXorScalar = _logical_xor_scalar
_Logical_And = _logical_and
_Logical_Or = _logical_or
_Logical_Xor = _logical_xor
_Maximum = _maximum
_MaximumScalar = _maximum_scalar
_Minimum = _minimum
_MinimumScalar = _minimum_scalar
_Minus = elemwise_sub
_MinusScalar = _minus_scalar
_Mod = _mod
_ModScalar = _mod_scalar
_Mul = elemwise_mul
_MulScalar = _mul_scalar
_NotEqualScalar = _not_equal_scalar
_Not_Equal = _not_equal
_Plus = elemwise_add
_PlusScalar = _plus_scalar
_Power = _power
_PowerScalar = _power_scalar
_RDivScalar = _rdiv_scalar
_RMinusScalar = _rminus_scalar
_RModScalar = _rmod_scalar
_RPowerScalar = _rpower_scalar
_add = elemwise_add
_div = elemwise_div
_minus = elemwise_sub
_mul = elemwise_mul
_plus = elemwise_add
_sparse_where = where
_sub = elemwise_sub
broadcast_minus = broadcast_sub
broadcast_plus = broadcast_add
cast = Cast
concat = Concat
ctc_loss = CTCLoss
flatten = Flatten
identity = _copy
make_loss = MakeLoss
max_axis = max
min_axis = min
reshape = Reshape
split = SliceChannel
stop_gradient = BlockGrad
sum_axis = sum
swapaxes = SwapAxis
