"""Networks that `init` writes: layers that fit the records, as commented YAML."""

from __future__ import annotations

from collections.abc import Iterator

from mxrun.base.tensor import Shape
from mxrun.survey.survey import DataSurvey

# Images with a shorter side of fewer pixels get fully connected layers.
_MIN_CONVOLUTION_SIDE = 6
# From this side on, the last convolutions look at the entire image, wherever the object is, and
# with that many training images they are residual units: 240 images of shapes trained plain
# convolutions at least as well, in less time.
_LARGE_SIDE = 40
_MIN_RESIDUAL_RECORDS = 2000

# The filters of smaller images are half as many.
_MIN_WIDE_SIDE = 16
_MAXIMUM = "pool_type: max, kernel: [2, 2], stride: [2, 2]"

_CONVOLUTION_BLOCK = """\
blocks:
  # Convolution, batch norm and ReLU under one name; `filters` is given where the block is used.
  conv:
    parameters: {filters: null}
    layers:
      - Convolution:
          {name: conv, num_filter: "${filters}", kernel: [3, 3], pad: [1, 1], no_bias: true}
      - BatchNorm: {name: norm, fix_gamma: false}
      - Activation: {name: relu, act_type: relu}
"""
_RESIDUAL_BLOCK = """\
blocks:
  # A residual unit: two convolutions whose result is added to the unit's input, then pooling. The
  # convolution of 1x1 brings the input to as many filters.
  unit:
    parameters: {filters: null}
    layers:
      - Convolution:
          {name: conv1, num_filter: "${filters}", kernel: [3, 3], pad: [1, 1], no_bias: true}
      - BatchNorm: {name: norm1, fix_gamma: false}
      - Activation: {name: relu1, act_type: relu}
      - Convolution:
          {name: conv2, num_filter: "${filters}", kernel: [3, 3], pad: [1, 1], no_bias: true}
      - BatchNorm: {name: norm2, fix_gamma: false}
      - Convolution:
          name: shortcut
          inputs: ["${input}"]
          num_filter: ${filters}
          kernel: [1, 1]
          no_bias: true
      - elemwise_add: {name: sum, lhs: norm2, rhs: shortcut}
      - Activation: {name: relu2, act_type: relu}
      - Pooling: {name: pool, pool_type: max, kernel: [2, 2], stride: [2, 2]}
"""


def network_lines(survey: DataSurvey, shape: Shape) -> Iterator[str]:
    """Yield the sections `blocks` and `network`; shape: of one record in a batch."""
    label = "[]" if survey.classes or len(survey.label_shape) == 0 else str([*survey.label_shape])
    inputs = f"{{data: [{', '.join(map(str, shape))}], label: {label}}}"
    if _is_residual(survey, shape):
        yield from _RESIDUAL_BLOCK.splitlines()
    elif uses_batch_norm(shape):
        yield from _CONVOLUTION_BLOCK.splitlines()
    yield "network:"
    yield f"  inputs: {inputs}  # of one record, without the batch"
    yield "  layers:"
    if _is_residual(survey, shape):
        yield from _residual_layers(min(shape[1:]))
    elif uses_batch_norm(shape):
        yield from _convolution_layers(min(shape[1:]))
    else:
        yield from _dense_layers(survey)
    yield from _head(survey)


def _is_residual(survey: DataSurvey, shape: Shape) -> bool:
    is_large = uses_batch_norm(shape) and min(shape[1:]) >= _LARGE_SIDE
    return is_large and survey.train.records >= _MIN_RESIDUAL_RECORDS


def uses_batch_norm(shape: Shape) -> bool:
    """Return whether the network for records of `shape` has batch norm."""
    return len(shape) == 3 and min(shape[1:]) >= _MIN_CONVOLUTION_SIDE


def describe_network(survey: DataSurvey, shape: Shape) -> str:
    """Return the kind of network for records of `shape`."""
    if not uses_batch_norm(shape):
        return "a network of two hidden layers"
    kind = "a residual network" if _is_residual(survey, shape) else "a convolutional network"
    return f"{kind} for images of {'x'.join(map(str, shape))}"


def _residual_layers(side: int) -> Iterator[str]:
    yield "    # Each unit sees a wider part of the image with twice as many filters. For finer"
    yield "    # differences double the filters; for speed, halve them."
    yield "    - Convolution: {name: stem, num_filter: 16, kernel: [3, 3], pad: [1, 1]}"
    yield "    - BatchNorm: {name: stem_norm, fix_gamma: false}"
    yield "    - Activation: {name: stem_relu, act_type: relu}"
    yield f"    - Pooling: {{name: stem_pool, {_MAXIMUM}}}"
    for number in range(_stages(side) - 1):
        yield f"    - unit: {{name: unit{number + 1}, filters: {32 << number}}}"
    yield from _global_pooling()


def _stages(side: int) -> int:
    """Return how often an image is halved: to 4 to 8 pixels, but small ones only once or twice."""
    return 1 if side < 8 else 2 if side < 32 else min(5, side.bit_length() - 3)


def _global_pooling() -> Iterator[str]:
    yield "    - Pooling: {name: pool, pool_type: max, global_pool: true}  # at any place"
    yield "    - Dropout: {name: dropout, p: 0.2}  # more if evaluation is worse than training"


def _convolution_layers(side: int) -> Iterator[str]:
    first = 32 if _MIN_WIDE_SIDE <= side < _LARGE_SIDE else 16
    yield "    # Convolutions look for patterns, pooling halves height and width. For finer"
    yield "    # differences double the filters; for speed, halve them."
    for number in range(_stages(side)):
        yield f"    - conv: {{name: conv{number + 1}, filters: {first << number}}}"
        yield f"    - Pooling: {{name: pool{number + 1}, {_MAXIMUM}}}"
    if side >= _LARGE_SIDE:
        yield from _global_pooling()
        return
    yield f"    - FullyConnected: {{name: fc1, num_hidden: {4 * first}}}"
    yield "    - Activation: {name: relu1, act_type: relu}"
    yield "    - Dropout: {name: dropout, p: 0.3}  # more if evaluation is worse than training"


def _dense_layers(survey: DataSurvey) -> Iterator[str]:
    width = 64 if survey.train.records < 5000 else 128
    yield "    # Two hidden layers. Wider ones fit finer differences and need more records."
    yield from hidden_layers(width)


def hidden_layers(width: int) -> Iterator[str]:
    """Yield two dense layers of a width."""
    for number in (1, 2):
        yield f"    - FullyConnected: {{name: fc{number}, num_hidden: {width}}}"
        yield f"    - Activation: {{name: relu{number}, act_type: relu}}"


def _head(survey: DataSurvey) -> Iterator[str]:
    """Yield the last layer and the loss."""
    if survey.target is None and survey.label_shape:
        count = survey.label_shape[0]
        yield f"    - FullyConnected: {{name: fc, num_hidden: {count}}}  # one for each class"
        yield "    # A probability for each class: a record may have none or several."
        yield "    - LogisticRegressionOutput: {name: logistic, label: label}"
        return
    if survey.target is None:
        outputs = len(survey.classes)
        yield f"    - FullyConnected: {{name: fc, num_hidden: {outputs}}}  # one for each class"
        yield "    - SoftmaxOutput: {name: softmax, label: label}"
        return
    mean, std = survey.target
    outputs = survey.label_shape[0] if survey.label_shape else 1
    yield f"    - FullyConnected: {{name: fc, num_hidden: {outputs}}}"
    yield "    # The network learns numbers around 0 with a deviation of 1; these two layers bring"
    yield "    # them to mean and deviation of the training labels."
    yield f"    - _mul_scalar: {{name: scaled, scalar: {std!r}}}"
    yield f"    - _plus_scalar: {{name: prediction, scalar: {mean!r}}}"
    yield "    - LinearRegressionOutput: {name: regression, label: label}"
