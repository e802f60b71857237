"""Declarations of mxrun.sym, written by `python tests/support/operator_stubs.py`."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from mxrun.graph.attributes import AttrScope as AttrScope
from mxrun.graph.naming_scopes import NameManager as NameManager
from mxrun.graph.naming_scopes import Prefix as Prefix
from mxrun.imperative.arrays.creation import DType
from mxrun.imperative.symbolic.creation import Group as Group
from mxrun.imperative.symbolic.creation import Variable as Variable
from mxrun.imperative.symbolic.creation import load as load
from mxrun.imperative.symbolic.creator import OperatorCreator as OperatorCreator
from mxrun.imperative.symbolic.executor import Executor as Executor
from mxrun.imperative.symbolic.symbol import Symbol as Symbol
from mxrun.imperative.symbolic.symbol import load_json as load_json
from mxrun.operator.signature import OperatorSignature

__all__: list[str]

Operator = OperatorCreator

def describe_operator(name: str) -> OperatorSignature:
    """Return an operator's tensors, parameters and documentation, by name or alias."""

def hypot(left: Symbol | float, right: Symbol | float) -> Any:
    """Return hypot(left, right); each operand is a symbol or a number."""

def list_operators() -> list[str]:
    """Return the names of all operators, without aliases, sorted."""

def maximum(left: Symbol | float, right: Symbol | float) -> Any:
    """Return maximum(left, right); each operand is a symbol or a number."""

def minimum(left: Symbol | float, right: Symbol | float) -> Any:
    """Return minimum(left, right); each operand is a symbol or a number."""

def pow(left: Symbol | float, right: Symbol | float) -> Any:
    """Return pow(left, right); each operand is a symbol or a number."""

def power(left: Symbol | float, right: Symbol | float) -> Any:
    """Return pow(left, right); each operand is a symbol or a number."""

var = Variable

def Activation(
    data: Symbol | None = None,
    *,
    act_type: Literal["relu", "sigmoid", "softrelu", "softsign", "tanh"],
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = f(data), elementwise, with f = relu, sigmoid, softrelu, softsign or tanh."""

def BatchNorm(
    data: Symbol | None = None,
    gamma: Symbol | None = None,
    beta: Symbol | None = None,
    moving_mean: Symbol | None = None,
    moving_var: Symbol | None = None,
    *,
    eps: float = 0.001,
    momentum: float = 0.9,
    fix_gamma: bool = True,
    use_global_stats: bool = False,
    output_mean_var: bool = False,
    axis: int = 1,
    cudnn_off: bool = False,
    min_calib_range: float | None = None,
    max_calib_range: float | None = None,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = gamma * (data - mean) / sqrt(var + eps) + beta, channel by channel."""

def BlockGrad(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = data; data's gradient is zero, whatever the output's gradient is."""

def CTCLoss(
    data: Symbol | None = None,
    label: Symbol | None = None,
    data_lengths: Symbol | None = None,
    label_lengths: Symbol | None = None,
    *,
    use_data_lengths: bool = False,
    use_label_lengths: bool = False,
    blank_label: Literal["first", "last"] = "first",
    layout: Literal["TNC", "NTC"] = "TNC",
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output[n] = -log(probability of label[n] by the softmax of data[:, n]), over all
    alignments.
    """

def Cast(
    data: Symbol | None = None,
    *,
    dtype: DType,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = data converted to `dtype`, of any shape."""

def Concat(
    *data: Symbol,
    dim: int = 1,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = concatenation of arg0, arg1, ... along the axis `dim`; all other axes are equal."""

def Convolution(
    data: Symbol | None = None,
    weight: Symbol | None = None,
    bias: Symbol | None = None,
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
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output[n, o, y] = bias[o] + sum over c, k of weight[o, c, k] * data[n, c, y*stride +
    k*dilate - pad].
    """

def Deconvolution(
    data: Symbol | None = None,
    weight: Symbol | None = None,
    bias: Symbol | None = None,
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
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output[n, o, y*stride + k*dilate - pad] = sum of weight[c, o, k] * data[n, c, y] over y, k
    and the channels c of o's group, plus bias[o].
    """

def Dropout(
    data: Symbol | None = None,
    *,
    p: float = 0.5,
    mode: Literal["training", "always"] = "training",
    axes: Sequence[int] = (),
    cudnn_off: bool | None = False,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = data * mask; mask is 1 / (1 - p) with probability 1 - p, else 0."""

def Embedding(
    data: Symbol | None = None,
    weight: Symbol | None = None,
    *,
    input_dim: int,
    output_dim: int,
    dtype: DType = "float32",
    sparse_grad: bool = False,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output[..., :] = weight[id, :] for every id in data."""

def Flatten(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output[n, :] = data[n] in row-major order; data [N, ...], output [N, product of the other
    axes].
    """

def FullyConnected(
    data: Symbol | None = None,
    weight: Symbol | None = None,
    bias: Symbol | None = None,
    *,
    num_hidden: int,
    no_bias: bool = False,
    flatten: bool = True,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = data x weight^T + bias."""

def LRN(
    data: Symbol | None = None,
    *,
    nsize: int,
    alpha: float = 0.0001,
    beta: float = 0.75,
    knorm: float = 2.0,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output[n, c] = data[n, c] * tmp_norm[n, c]^(-beta), with tmp_norm[n, c] = knorm + alpha /
    nsize * the sum of data[n, k]^2 over the channels k with |k - c| <= (nsize - 1) // 2.
    """

def LayerNorm(
    data: Symbol | None = None,
    gamma: Symbol | None = None,
    beta: Symbol | None = None,
    *,
    axis: int = -1,
    eps: float = 1e-05,
    output_mean_var: bool = False,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = gamma * (data - mean) / std + beta, std = sqrt(var + eps), along `axis`."""

def LeakyReLU(
    data: Symbol | None = None,
    gamma: Symbol | None = None,
    *,
    act_type: Literal["rrelu", "leaky", "prelu", "elu", "selu", "gelu"] = "leaky",
    slope: float = 0.25,
    lower_bound: float = 0.125,
    upper_bound: float = 0.334,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = data where data > 0, elsewhere a function of data given by act_type."""

def LinearRegressionOutput(
    data: Symbol | None = None,
    label: Symbol | None = None,
    sample_weight: Symbol | None = None,
    *,
    grad_scale: float = 1.0,
    use_sample_weight: bool = False,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = data; loss = sum over samples of mean(0.5 * (data - label)^2)."""

def LogisticRegressionOutput(
    data: Symbol | None = None,
    label: Symbol | None = None,
    sample_weight: Symbol | None = None,
    *,
    grad_scale: float = 1.0,
    use_sample_weight: bool = False,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = 1 / (1 + exp(-data)); loss = sum over samples of mean(-label * log(output) - (1 -
    label) * log(1 - output)).
    """

def MAERegressionOutput(
    data: Symbol | None = None,
    label: Symbol | None = None,
    sample_weight: Symbol | None = None,
    *,
    grad_scale: float = 1.0,
    use_sample_weight: bool = False,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = data; loss = sum over samples of mean(|data - label|)."""

def MakeLoss(
    data: Symbol | None = None,
    sample_weight: Symbol | None = None,
    *,
    grad_scale: float = 1.0,
    valid_thresh: float = 0.0,
    normalization: Literal["null", "batch", "valid"] = "null",
    use_sample_weight: bool = False,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = data; data's gradient is grad_scale / divisor everywhere, whatever the output's
    gradient is.
    """

def Pooling(
    data: Symbol | None = None,
    *,
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
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output[n, c, y] = max, average, sum or p-norm (sum of x^p)^(1/p) of data's window at y."""

def RMSNorm(
    data: Symbol | None = None,
    gamma: Symbol | None = None,
    *,
    axis: int = -1,
    eps: float = 1e-05,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = gamma * data / rms, rms = sqrt(mean of data^2 + eps), along `axis`."""

def RNN(
    data: Symbol | None = None,
    parameters: Symbol | None = None,
    state: Symbol | None = None,
    state_cell: Symbol | None = None,
    sequence_length: Symbol | None = None,
    carried_state: Symbol | None = None,
    carried_state_cell: Symbol | None = None,
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
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output[t] = h[t] of the last layer, where each layer reads the one below it at step t."""

def Reshape(
    data: Symbol | None = None,
    *,
    shape: Sequence[int] = (),
    reverse: bool = False,
    target_shape: Sequence[int] = (),
    keep_highest: bool = False,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = data in row-major order with the shape `shape`, which has as many elements."""

def SequenceLast(
    data: Symbol | None = None,
    sequence_length: Symbol | None = None,
    *,
    use_sequence_length: bool = False,
    axis: int = 0,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = data's step length - 1 of each sequence, or the last step."""

def SequenceMask(
    data: Symbol | None = None,
    sequence_length: Symbol | None = None,
    *,
    use_sequence_length: bool = False,
    axis: int = 0,
    value: float = 0.0,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = data where step < length, else value."""

def SequenceReverse(
    data: Symbol | None = None,
    sequence_length: Symbol | None = None,
    *,
    use_sequence_length: bool = False,
    axis: int = 0,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = data with the first `length` steps of each sequence in reverse order."""

def SliceChannel(
    data: Symbol | None = None,
    *,
    num_outputs: int,
    axis: int = 1,
    squeeze_axis: bool = False,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output0, output1, ... = consecutive slices of equal size of data along `axis`."""

def SoftmaxOutput(
    data: Symbol | None = None,
    label: Symbol | None = None,
    sample_weight: Symbol | None = None,
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
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = exp(data - max) / sum exp(data - max); loss = sum of -log(output[label])."""

def SwapAxis(
    data: Symbol | None = None,
    *,
    dim1: int = 0,
    dim2: int = 0,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = data with two axes exchanged."""

def _contrib_interleaved_matmul_encdec_qk(
    queries: Symbol | None = None,
    keys_values: Symbol | None = None,
    *,
    heads: int,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = query x key^T / sqrt(D) of each head."""

def _contrib_interleaved_matmul_encdec_valatt(
    keys_values: Symbol | None = None,
    attention: Symbol | None = None,
    *,
    heads: int,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = attention x value of each head."""

def _contrib_interleaved_matmul_selfatt_qk(
    queries_keys_values: Symbol | None = None,
    *,
    heads: int,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = query x key^T / sqrt(D) of each head."""

def _contrib_interleaved_matmul_selfatt_valatt(
    queries_keys_values: Symbol | None = None,
    attention: Symbol | None = None,
    *,
    heads: int,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = attention x value of each head."""

def _copy(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = data, elementwise."""

def _div_scalar(
    data: Symbol | None = None,
    *,
    scalar: float = 1.0,
    is_int: bool = True,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = data / scalar."""

def _equal(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = 1 where lhs = rhs, else 0, all of one shape."""

def _equal_scalar(
    data: Symbol | None = None,
    *,
    scalar: float = 1.0,
    is_int: bool = True,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = 1 where data = scalar, else 0."""

def _greater(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = 1 where lhs > rhs, else 0, all of one shape."""

def _greater_equal(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = 1 where lhs >= rhs, else 0, all of one shape."""

def _greater_equal_scalar(
    data: Symbol | None = None,
    *,
    scalar: float = 1.0,
    is_int: bool = True,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = 1 where data >= scalar, else 0."""

def _greater_scalar(
    data: Symbol | None = None,
    *,
    scalar: float = 1.0,
    is_int: bool = True,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = 1 where data > scalar, else 0."""

def _hypot(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = sqrt(lhs^2 + rhs^2), all of one shape."""

def _hypot_scalar(
    data: Symbol | None = None,
    *,
    scalar: float = 1.0,
    is_int: bool = True,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = sqrt(data^2 + scalar^2)."""

def _lesser(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = 1 where lhs < rhs, else 0, all of one shape."""

def _lesser_equal(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = 1 where lhs <= rhs, else 0, all of one shape."""

def _lesser_equal_scalar(
    data: Symbol | None = None,
    *,
    scalar: float = 1.0,
    is_int: bool = True,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = 1 where data <= scalar, else 0."""

def _lesser_scalar(
    data: Symbol | None = None,
    *,
    scalar: float = 1.0,
    is_int: bool = True,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = 1 where data < scalar, else 0."""

def _logical_and(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = 1 where neither lhs nor rhs is 0, else 0, all of one shape."""

def _logical_and_scalar(
    data: Symbol | None = None,
    *,
    scalar: float = 1.0,
    is_int: bool = True,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = 1 where neither data nor scalar is 0, else 0."""

def _logical_or(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = 1 where lhs or rhs is not 0, else 0, all of one shape."""

def _logical_or_scalar(
    data: Symbol | None = None,
    *,
    scalar: float = 1.0,
    is_int: bool = True,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = 1 where data or scalar is not 0, else 0."""

def _logical_xor(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = 1 where exactly one of lhs and rhs is 0, else 0, all of one shape."""

def _logical_xor_scalar(
    data: Symbol | None = None,
    *,
    scalar: float = 1.0,
    is_int: bool = True,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = 1 where exactly one of data and scalar is 0, else 0."""

def _maximum(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = max(lhs, rhs), all of one shape."""

def _maximum_scalar(
    data: Symbol | None = None,
    *,
    scalar: float = 1.0,
    is_int: bool = True,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = max(data, scalar)."""

def _minimum(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = min(lhs, rhs), all of one shape."""

def _minimum_scalar(
    data: Symbol | None = None,
    *,
    scalar: float = 1.0,
    is_int: bool = True,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = min(data, scalar)."""

def _minus_scalar(
    data: Symbol | None = None,
    *,
    scalar: float = 1.0,
    is_int: bool = True,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = data - scalar."""

def _mod(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = lhs - floor(lhs / rhs) * rhs, and 0 where rhs is 0, all of one shape."""

def _mod_scalar(
    data: Symbol | None = None,
    *,
    scalar: float = 1.0,
    is_int: bool = True,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = data - floor(data / scalar) * scalar, and 0 where scalar is 0."""

def _mul_scalar(
    data: Symbol | None = None,
    *,
    scalar: float = 1.0,
    is_int: bool = True,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = data * scalar."""

def _not_equal(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = 1 where lhs != rhs, else 0, all of one shape."""

def _not_equal_scalar(
    data: Symbol | None = None,
    *,
    scalar: float = 1.0,
    is_int: bool = True,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = 1 where data != scalar, else 0."""

def _plus_scalar(
    data: Symbol | None = None,
    *,
    scalar: float = 1.0,
    is_int: bool = True,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = data + scalar."""

def _power(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = lhs ^ rhs, all of one shape."""

def _power_scalar(
    data: Symbol | None = None,
    *,
    scalar: float = 1.0,
    is_int: bool = True,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = data ^ scalar."""

def _rdiv_scalar(
    data: Symbol | None = None,
    *,
    scalar: float = 1.0,
    is_int: bool = True,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = scalar / data."""

def _rminus_scalar(
    data: Symbol | None = None,
    *,
    scalar: float = 1.0,
    is_int: bool = True,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = scalar - data."""

def _rmod_scalar(
    data: Symbol | None = None,
    *,
    scalar: float = 1.0,
    is_int: bool = True,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = scalar - floor(scalar / data) * data, and 0 where data is 0."""

def _rpower_scalar(
    data: Symbol | None = None,
    *,
    scalar: float = 1.0,
    is_int: bool = True,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = scalar ^ data."""

def abs(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = |data|, whose gradient at 0 is 0, elementwise."""

def adagrad_update(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    history: Symbol | None = None,
    gradient_scale: Symbol | None = None,
    schedule: Symbol | None = None,
    *,
    lr: float,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    scheduled: bool = False,
    scaled: bool = False,
    epsilon: float = 1e-07,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = weight - lr * (g / sqrt(history_output + epsilon) + wd * weight), history_output
    = history + g^2, g = clip(rescale_grad * grad).
    """

def adam_update(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    mean: Symbol | None = None,
    var: Symbol | None = None,
    gradient_scale: Symbol | None = None,
    schedule: Symbol | None = None,
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
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = weight - lr * mean_output / (sqrt(var_output) + epsilon), mean_output = beta1 *
    mean + (1 - beta1) * g, var_output = beta2 * var + (1 - beta2) * g^2, g =
    clip(rescale_grad * grad + wd * weight).
    """

def adamw_update(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    mean: Symbol | None = None,
    var: Symbol | None = None,
    gradient_scale: Symbol | None = None,
    schedule: Symbol | None = None,
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
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = weight - eta * (lr * mean_output / (sqrt(var_output) + epsilon) + wd * weight),
    mean_output = beta1 * mean + (1 - beta1) * g, var_output = beta2 * var + (1 - beta2) *
    g^2, g = clip(rescale_grad * grad).
    """

def add_n(*data: Symbol, name: str | None = None, attr: Mapping[str, str] | None = None) -> Symbol:
    """output = arg0 + arg1 + ..., added from left to right."""

def arccos(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = arccos(data); NaN outside of [-1, 1], elementwise."""

def arccosh(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = arccosh(data); NaN below 1, elementwise."""

def arcsin(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = arcsin(data); NaN outside of [-1, 1], elementwise."""

def arcsinh(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = arcsinh(data), elementwise."""

def arctan(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = arctan(data), elementwise."""

def arctanh(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = arctanh(data); NaN outside of [-1, 1], elementwise."""

def argmax(
    data: Symbol | None = None,
    *,
    axis: int | None = None,
    keepdims: bool = False,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = index of the first maximum along the axis."""

def argmax_channel(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = index of the first maximum along axis 1."""

def argmin(
    data: Symbol | None = None,
    *,
    axis: int | None = None,
    keepdims: bool = False,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = index of the first minimum along the axis."""

def batch_dot(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output[b] = lhs[b] x rhs[b] for every index b of the leading axes."""

def broadcast_add(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = lhs + rhs, with broadcasting."""

def broadcast_div(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = lhs / rhs, with broadcasting."""

def broadcast_equal(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = 1 where lhs = rhs, else 0, with broadcasting."""

def broadcast_greater(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = 1 where lhs > rhs, else 0, with broadcasting."""

def broadcast_greater_equal(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = 1 where lhs >= rhs, else 0, with broadcasting."""

def broadcast_hypot(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = sqrt(lhs^2 + rhs^2), with broadcasting."""

def broadcast_lesser(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = 1 where lhs < rhs, else 0, with broadcasting."""

def broadcast_lesser_equal(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = 1 where lhs <= rhs, else 0, with broadcasting."""

def broadcast_logical_and(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = 1 where neither lhs nor rhs is 0, else 0, with broadcasting."""

def broadcast_logical_or(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = 1 where lhs or rhs is not 0, else 0, with broadcasting."""

def broadcast_logical_xor(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = 1 where exactly one of lhs and rhs is 0, else 0, with broadcasting."""

def broadcast_maximum(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = max(lhs, rhs), with broadcasting."""

def broadcast_minimum(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = min(lhs, rhs), with broadcasting."""

def broadcast_mod(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = lhs - floor(lhs / rhs) * rhs, and 0 where rhs is 0, with broadcasting."""

def broadcast_mul(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = lhs * rhs, with broadcasting."""

def broadcast_not_equal(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = 1 where lhs != rhs, else 0, with broadcasting."""

def broadcast_power(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = lhs ^ rhs, with broadcasting."""

def broadcast_sub(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = lhs - rhs, with broadcasting."""

def carry(
    data: Symbol | None = None,
    state: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = data of the previous run; zero in the first run of an epoch or an evaluation."""

def cbrt(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = the real cube root of data, elementwise."""

def ceil(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = the smallest integer >= data, elementwise."""

def clip(
    data: Symbol | None = None,
    *,
    a_min: float,
    a_max: float,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = a_max where data > a_max, a_min where data < a_min, else data."""

def cos(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = cos(data), data in radians, elementwise."""

def cosh(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = cosh(data), elementwise."""

def cumsum(
    a: Symbol | None = None,
    *,
    axis: int | None = None,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output[.., i, ..] = sum of a[.., j, ..] over j <= i along the axis; without an axis, the
    output is the cumulative sum over all elements, a vector.
    """

def degrees(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = data * 180 / pi, elementwise."""

def dot(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output[i, j] = sum over k of lhs[i, k] * rhs[k, j]; i and j stand for any number of axes."""

def elemwise_add(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = lhs + rhs, all of one shape."""

def elemwise_div(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = lhs / rhs, all of one shape."""

def elemwise_mul(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = lhs * rhs, all of one shape."""

def elemwise_sub(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = lhs - rhs, all of one shape."""

def erf(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = the error function, 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to data,
    elementwise.
    """

def erfinv(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = the inverse of erf; NaN outside of [-1, 1], elementwise."""

def exp(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = e^data, elementwise."""

def expand_dims(
    data: Symbol | None = None,
    *,
    axis: int,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = data with an inserted axis of size 1."""

def expm1(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = e^data - 1, exact near 0, elementwise."""

def fix(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = data rounded towards 0, elementwise."""

def floor(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = the largest integer <= data, elementwise."""

def ftrl_update(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    z: Symbol | None = None,
    n: Symbol | None = None,
    gradient_scale: Symbol | None = None,
    schedule: Symbol | None = None,
    *,
    lr: float,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    scheduled: bool = False,
    scaled: bool = False,
    lamda1: float = 0.01,
    beta: float = 1.0,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = (sign(z_output) * lamda1 - z_output) / ((beta + sqrt(n_output)) / lr + wd) where
    |z_output| > lamda1, else 0; z_output = z + g - (sqrt(n_output) - sqrt(n)) * weight / lr,
    n_output = n + g^2, g = clip(rescale_grad * grad).
    """

def gamma(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = the gamma function of data; NaN at -1, -2, ..., elementwise."""

def gammaln(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = log |gamma(data)|; infinite at 0, -1, -2, ..., elementwise."""

def gated_activation(
    data: Symbol | None = None,
    *,
    act_type: Literal["gelu", "silu", "sigmoid"] = "gelu",
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = act(data[..., :C]) * data[..., C:]."""

def gelu(
    data: Symbol | None = None,
    *,
    approximate: Literal["none", "tanh"] = "none",
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = data * P(a normal variable <= data), elementwise."""

def hard_sigmoid(
    data: Symbol | None = None,
    *,
    alpha: float = 0.2,
    beta: float = 0.5,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = max(0, min(1, alpha * data + beta))."""

def lamb_update(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    mean: Symbol | None = None,
    var: Symbol | None = None,
    gradient_scale: Symbol | None = None,
    schedule: Symbol | None = None,
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
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = weight - lr * ratio * move, move = mean_output / (sqrt(var_output) + epsilon) +
    wd * weight, ratio = |weight| / |move|, mean_output = beta1 * mean + (1 - beta1) * g,
    var_output = beta2 * var + (1 - beta2) * g^2, g = clip(rescale_grad * grad).
    """

def log(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = the natural logarithm of data, elementwise."""

def log10(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = log10(data), elementwise."""

def log1p(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = log(1 + data), exact near 0, elementwise."""

def log2(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = log2(data), elementwise."""

def log_softmax(
    data: Symbol | None = None,
    *,
    axis: int = -1,
    temperature: float | None = None,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = x - max x - log(sum of exp(x - max x)) along the axis, x = data / temperature."""

def logical_not(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = 1 where data is 0, else 0, elementwise."""

def max(
    data: Symbol | None = None,
    *,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    exclude: bool = False,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = maximum of data over the axes."""

def mean(
    data: Symbol | None = None,
    *,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    exclude: bool = False,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = mean of data over the axes."""

def min(
    data: Symbol | None = None,
    *,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    exclude: bool = False,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = minimum of data over the axes."""

def moments(
    data: Symbol | None = None,
    *,
    axes: int | Sequence[int] | None = None,
    keepdims: bool = False,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """mean = mean of data over the n elements along the axes; var = mean of (data - mean)^2."""

def nag_mom_update(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    mom: Symbol | None = None,
    gradient_scale: Symbol | None = None,
    schedule: Symbol | None = None,
    *,
    lr: float,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    scheduled: bool = False,
    scaled: bool = False,
    momentum: float = 0.0,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """mom_output = momentum * mom - lr * gradient, output = weight + momentum * mom_output - lr
    * gradient, gradient = clip(rescale_grad * grad) + wd * weight.
    """

def nanprod(
    data: Symbol | None = None,
    *,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    exclude: bool = False,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = product of data over the axes without NaN elements."""

def nansum(
    data: Symbol | None = None,
    *,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    exclude: bool = False,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = sum of data over the axes without NaN elements."""

def negative(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = -data, elementwise."""

def norm(
    data: Symbol | None = None,
    *,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    ord: int = 2,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = sum of |data| (ord 1) or square root of the sum of data^2 (ord 2) over the axes."""

def one_hot(
    indices: Symbol | None = None,
    *,
    depth: int,
    on_value: float = 1.0,
    off_value: float = 0.0,
    dtype: DType = "float32",
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output[..., c] = on_value where c = indices[...], else off_value."""

def ones_like(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = 1, elementwise."""

def pick(
    data: Symbol | None = None,
    index: Symbol | None = None,
    *,
    axis: int = -1,
    keepdims: bool = False,
    mode: Literal["clip", "wrap"] = "clip",
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = the element of data at an index along `axis`, for every place on the other axes."""

def position_embedding(
    data: Symbol | None = None,
    weight: Symbol | None = None,
    *,
    max_length: int,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output[n, t, :] = data[n, t, :] + weight[t, :]."""

def prod(
    data: Symbol | None = None,
    *,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    exclude: bool = False,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = product of data over the axes."""

def radians(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = data * pi / 180, elementwise."""

def rcbrt(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = 1 / cbrt(data), elementwise."""

def reciprocal(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = 1 / data, elementwise."""

def relu(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = max(data, 0), elementwise."""

def rint(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = data rounded to the nearest integer, halves down, elementwise."""

def rmsprop_update(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    n: Symbol | None = None,
    gradient_scale: Symbol | None = None,
    schedule: Symbol | None = None,
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
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = clip_weights(weight - lr * g / sqrt(n_output + epsilon)), n_output = gamma1 * n +
    (1 - gamma1) * g^2, g = clip(rescale_grad * grad + wd * weight).
    """

def rmspropalex_update(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    n: Symbol | None = None,
    g: Symbol | None = None,
    delta: Symbol | None = None,
    gradient_scale: Symbol | None = None,
    schedule: Symbol | None = None,
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
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = clip_weights(weight + delta_output), delta_output = gamma2 * delta - lr *
    gradient / sqrt(max(n_output - g_output^2, 0) + epsilon), n_output = gamma1 * n + (1 -
    gamma1) * gradient^2, g_output = gamma1 * g + (1 - gamma1) * gradient, gradient =
    clip(rescale_grad * grad + wd * weight).
    """

def rotary_embedding(
    data: Symbol | None = None,
    *,
    num_heads: int,
    rotated_heads: int | None = None,
    base: float = 10000.0,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """Rotation of the pair (i, i + D / 2) of each head at position t by t * base^(-2 i / D)."""

def round(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = data rounded to the nearest integer, halves away from 0, elementwise."""

def rsqrt(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = data^(-1/2); NaN below 0, elementwise."""

def scaled_dot_product_attention(
    data: Symbol | None = None,
    query: Symbol | None = None,
    key: Symbol | None = None,
    value: Symbol | None = None,
    lengths: Symbol | None = None,
    mask: Symbol | None = None,
    *,
    num_heads: int,
    num_kv_heads: int | None = None,
    causal: bool = False,
    scale: float | None = None,
    packed: bool = False,
    use_mask: bool = False,
    use_lengths: bool = False,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = softmax(scale * query x key^T + mask) x value, for each head."""

def sgd_mom_update(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    mom: Symbol | None = None,
    gradient_scale: Symbol | None = None,
    schedule: Symbol | None = None,
    *,
    lr: float,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    scheduled: bool = False,
    scaled: bool = False,
    lazy_update: bool = True,
    momentum: float = 0.0,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """mom_output = momentum * mom - lr * gradient, output = weight + mom_output, gradient =
    clip(rescale_grad * grad) + wd * weight.
    """

def sgd_update(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    gradient_scale: Symbol | None = None,
    schedule: Symbol | None = None,
    *,
    lr: float,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    scheduled: bool = False,
    scaled: bool = False,
    lazy_update: bool = True,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = weight - lr * gradient, gradient = clip(rescale_grad * grad) + wd * weight."""

def sigmoid(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = 1 / (1 + exp(-data)), elementwise."""

def sign(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = -1, 0 or 1 with the sign of data; 0 of NaN, elementwise."""

def signsgd_update(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    gradient_scale: Symbol | None = None,
    schedule: Symbol | None = None,
    *,
    lr: float,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    scheduled: bool = False,
    scaled: bool = False,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = (1 - lr * wd) * weight - lr * sign(rescale_grad * grad)."""

def signum_update(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    mom: Symbol | None = None,
    gradient_scale: Symbol | None = None,
    schedule: Symbol | None = None,
    *,
    lr: float,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    scheduled: bool = False,
    scaled: bool = False,
    momentum: float = 0.0,
    wd_lh: float = 0.0,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """mom_output = momentum * mom - (1 - momentum) * gradient, output = (1 - lr * wd_lh) *
    weight + lr * sign(mom_output), gradient = clip(rescale_grad * grad) + wd * weight.
    """

def silu(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = data / (1 + exp(-data)), elementwise; also called swish."""

def sin(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = sin(data), data in radians, elementwise."""

def sinh(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = sinh(data), elementwise."""

def smooth_l1(
    data: Symbol | None = None,
    *,
    scalar: float = 1.0,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = (scalar data)^2 / 2 where |data| <= 1 / scalar^2, else |data| - 1 / (2 scalar^2)."""

def softmax(
    data: Symbol | None = None,
    *,
    axis: int = -1,
    temperature: float | None = None,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = exp(x - max x) / sum of exp(x - max x) along the axis, x = data / temperature."""

def softmax_cross_entropy(
    data: Symbol | None = None,
    label: Symbol | None = None,
    sample_weight: Symbol | None = None,
    *,
    grad_scale: float = 1.0,
    use_ignore: bool = False,
    ignore_label: float = -1.0,
    use_sample_weight: bool = False,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = sum over rows of weight * -log(max(p[label], 1e-8)), p = softmax of data's rows."""

def softsign(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = data / (1 + |data|), elementwise."""

def sqrt(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = data^(1/2); NaN below 0, elementwise."""

def square(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = data^2, elementwise."""

def squeeze(
    data: Symbol | None = None,
    *,
    axis: int | Sequence[int] | None = None,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = data without its axes of size 1; at least one axis remains."""

def sum(
    data: Symbol | None = None,
    *,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    exclude: bool = False,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = sum of data over the axes."""

def take(
    a: Symbol | None = None,
    indices: Symbol | None = None,
    *,
    axis: int = 0,
    mode: Literal["clip", "wrap", "raise"] = "clip",
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = a at the indices along `axis`, which the axes of indices replace."""

def tan(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = tan(data), data in radians, elementwise."""

def tanh(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = tanh(data), elementwise."""

def transpose(
    data: Symbol | None = None,
    *,
    axes: Sequence[int] = (),
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = data with its axes permuted: axis i of the output is axis `axes[i]` of data."""

def trunc(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = data rounded towards 0, elementwise."""

def where(
    condition: Symbol | None = None,
    x: Symbol | None = None,
    y: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
    """output = x where condition is not 0, else y; NaN counts as not 0."""

def zeros_like(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Symbol:
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
