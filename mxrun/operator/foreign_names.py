"""Operator names of PyTorch, Keras and MXNet, and their counterparts in mxrun."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mxrun.base.near_names import folded


@dataclass(frozen=True)
class Counterpart:
    """mxrun operator, with example parameters, that corresponds to one of another framework."""

    operator: str
    parameters: str = ""

    @property
    def layer(self) -> str:
        """YAML of the layer."""
        return f"{self.operator}: {{{self.parameters}}}" if self.parameters else self.operator


def counterpart(name: str) -> Counterpart | None:
    """Return the mxrun operator for another framework's `name`, or None; case does not matter."""
    return _COUNTERPARTS.get(folded(name))


def missing(name: str) -> str:
    """Return the feature, missing from mxrun, that the foreign `name` denotes; else empty."""
    return _MISSING.get(folded(name), "")


_LABEL = "label: label"
_NEURONS = Counterpart("FullyConnected", "num_hidden: 10")
_MAXIMUM = Counterpart("Pooling", "pool_type: max, kernel: [2, 2], stride: [2, 2]")
_AVERAGE = Counterpart("Pooling", "pool_type: avg, kernel: [2, 2], stride: [2, 2]")
_GLOBAL = Counterpart("Pooling", "pool_type: avg, global_pool: true")
_TRANSPOSED = Counterpart("Deconvolution", "num_filter: 16, kernel: [2, 2], stride: [2, 2]")
_CLASSES = Counterpart("SoftmaxOutput", _LABEL)
_SQUARES = Counterpart("LinearRegressionOutput", _LABEL)
_ABSOLUTE = Counterpart("MAERegressionOutput", _LABEL)
_LOGISTIC = Counterpart("LogisticRegressionOutput", _LABEL)

# Keys are folded names, see `folded`.
_COUNTERPARTS: Mapping[str, Counterpart] = {
    "conv1d": Counterpart("Convolution", "num_filter: 16, kernel: [3]"),
    "conv2d": Counterpart("Convolution", "num_filter: 16, kernel: [3, 3]"),
    "conv3d": Counterpart("Convolution", "num_filter: 16, kernel: [3, 3, 3]"),
    **dict.fromkeys(("convtranspose2d", "conv2dtranspose"), _TRANSPOSED),
    **dict.fromkeys(("linear", "dense", "innerproduct"), _NEURONS),
    **{
        each: Counterpart("Activation", f"act_type: {each}")
        for each in ("relu", "sigmoid", "tanh", "softsign")
    },
    "softplus": Counterpart("Activation", "act_type: softrelu"),
    **{
        each: Counterpart("LeakyReLU", f"act_type: {each}")
        for each in ("prelu", "elu", "selu", "gelu", "rrelu")
    },
    **dict.fromkeys(("maxpool", "maxpool2d", "maxpooling2d"), _MAXIMUM),
    **dict.fromkeys(("avgpool", "avgpool2d", "averagepooling2d"), _AVERAGE),
    **dict.fromkeys(
        ("globalavgpool", "globalavgpool2d", "globalaveragepooling2d", "adaptiveavgpool2d"), _GLOBAL
    ),
    **dict.fromkeys(
        ("batchnorm1d", "batchnorm2d", "batchnorm3d", "batchnormalization"),
        Counterpart("BatchNorm"),
    ),
    "localresponsenorm": Counterpart("LRN", "nsize: 5"),
    **dict.fromkeys(
        ("crossentropy", "crossentropyloss", "softmaxloss", "softmaxcrossentropyloss"), _CLASSES
    ),
    **dict.fromkeys(("mse", "mseloss", "l2loss"), _SQUARES),
    **dict.fromkeys(("mae", "l1loss"), _ABSOLUTE),
    **dict.fromkeys(("bceloss", "bcewithlogitsloss", "binarycrossentropy"), _LOGISTIC),
    **dict.fromkeys(("add", "plus"), Counterpart("elemwise_add", "lhs: a, rhs: b")),
    **dict.fromkeys(("multiply", "mul"), Counterpart("elemwise_mul", "lhs: a, rhs: b")),
    **dict.fromkeys(("cat", "concatenate"), Counterpart("Concat", "inputs: [a, b]")),
    **dict.fromkeys(("matmul", "mm"), Counterpart("dot", "lhs: a, rhs: b")),
    "bmm": Counterpart("batch_dot", "lhs: a, rhs: b"),
    "permute": Counterpart("transpose", "axes: [0, 2, 1]"),
    "view": Counterpart("Reshape", "shape: [0, -1]"),
    "unsqueeze": Counterpart("expand_dims", "axis: 1"),
    "detach": Counterpart("BlockGrad"),
}
_MISSING: Mapping[str, str] = {
    **dict.fromkeys(
        ("rnn", "lstm", "gru", "rnncell", "lstmcell", "grucell", "simplernn", "bidirectional"),
        "recurrent layers",
    ),
    **dict.fromkeys(("layernorm", "layernormalization"), "layer normalization"),
    **dict.fromkeys(("groupnorm", "groupnormalization"), "group normalization"),
    **dict.fromkeys(
        ("instancenorm", "instancenorm2d", "instancenormalization"), "instance normalization"
    ),
    **dict.fromkeys(
        ("multiheadattention", "attention", "transformer", "transformerencoder"), "attention layers"
    ),
    **dict.fromkeys(("upsample", "upsampling", "upsampling2d", "interpolate"), "upsampling layers"),
    "ctcloss": "connectionist temporal classification",
}
