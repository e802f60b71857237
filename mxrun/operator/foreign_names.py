"""Operator names of PyTorch, Keras and MXNet, and their counterparts in mxrun."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from mxrun.base.near_names import folded


@dataclass(frozen=True)
class Counterpart:
    """mxrun operator, with example parameters, that corresponds to one of another framework.

    note: the rest of what replaces the other, as the end of a sentence.
    """

    operator: str
    parameters: str = ""
    note: str = ""

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


def elsewhere(name: str) -> str:
    """Return where a config says what the foreign `name`, which is no layer here, does; else
    empty.
    """
    return _ELSEWHERE.get(folded(name), "")


def foreign_parameter(name: str, known: Collection[str]) -> str:
    """Return a hint for another framework's `name` of a parameter of an operator that has the
    parameters `known`; empty if none of them does the same.
    """
    forms = _PARAMETERS.get(folded(name), ())
    form = next((each for each in forms if each.partition(":")[0] in known), None)
    return f"mxrun calls it {form}" if form else _NO_PARAMETERS.get(folded(name), "")


_LABEL = "label: label"
_NEURONS = Counterpart("FullyConnected", "num_hidden: 10")
_MAXIMUM = Counterpart("Pooling", "pool_type: max, kernel: 2, stride: 2")
_AVERAGE = Counterpart("Pooling", "pool_type: avg, kernel: 2, stride: 2")
_GLOBAL = Counterpart("Pooling", "pool_type: avg, global_pool: true")
_GLOBAL_MAXIMUM = Counterpart("Pooling", "pool_type: max, global_pool: true")
_CONVOLUTION = Counterpart("Convolution", "num_filter: 16, kernel: 3")
_TRANSPOSED = Counterpart("Deconvolution", "num_filter: 16, kernel: 2, stride: 2")
_DEPTHWISE = Counterpart(
    "Convolution", "num_filter: 16, kernel: 3, num_group: 16", ", one group for each channel"
)
_SEPARABLE = Counterpart(
    "Convolution",
    "num_filter: 16, kernel: 3, num_group: 16",
    ", then Convolution: {num_filter: 32, kernel: 1}",
)
_CLASSES = Counterpart("SoftmaxOutput", _LABEL, ", which contains the softmax")
_SQUARES = Counterpart("LinearRegressionOutput", _LABEL)
_ABSOLUTE = Counterpart("MAERegressionOutput", _LABEL)
_LOGISTIC = Counterpart("LogisticRegressionOutput", _LABEL, ", which contains the sigmoid")
_RECURRENT = "state_size: 200, num_layers: 1, layout: NTC, initial_state: zeros"
_CELL = ", which runs all steps; `recurrent:` runs layers of your own at each step"
_DIMENSIONS = ("1d", "2d", "3d")


def _with_dimensions(*stems: str) -> tuple[str, ...]:
    """Return the stems without and with a number of dimensions: maxpool, maxpool1d, ..."""
    return tuple(stem + suffix for stem in stems for suffix in ("", *_DIMENSIONS))


# Keys are folded names, see `folded`.
_COUNTERPARTS: Mapping[str, Counterpart] = {
    **dict.fromkeys(_with_dimensions("conv", "lazyconv"), _CONVOLUTION),
    "convolutionv1": _CONVOLUTION,
    **dict.fromkeys(
        (
            *_with_dimensions("convtranspose", "lazyconvtranspose"),
            *(f"conv{dimensions}transpose" for dimensions in _DIMENSIONS),
        ),
        _TRANSPOSED,
    ),
    **dict.fromkeys(_with_dimensions("depthwiseconv"), _DEPTHWISE),
    **dict.fromkeys(_with_dimensions("separableconv"), _SEPARABLE),
    **dict.fromkeys(("linear", "lazylinear", "dense", "innerproduct", "fc", "gemm"), _NEURONS),
    **{
        each: Counterpart("Activation", f"act_type: {each}")
        for each in ("relu", "sigmoid", "tanh", "softsign")
    },
    "softplus": Counterpart("Activation", "act_type: softrelu"),
    **{
        each: Counterpart("LeakyReLU", f"act_type: {each}")
        for each in ("prelu", "elu", "selu", "rrelu")
    },
    "gelu": Counterpart("gelu"),
    **dict.fromkeys(("gather", "indexselect"), Counterpart("take", "indices: ids")),
    "onehot": Counterpart("one_hot", "depth: 10"),
    **dict.fromkeys(("silu", "swish"), Counterpart("silu")),
    "relu6": Counterpart("clip", "a_min: 0, a_max: 6"),
    "hardtanh": Counterpart("clip", "a_min: -1, a_max: 1"),
    "clamp": Counterpart("clip", "a_min: 0, a_max: 1"),
    **dict.fromkeys((*_with_dimensions("maxpool", "maxpooling"), "poolingv1"), _MAXIMUM),
    **dict.fromkeys(_with_dimensions("avgpool", "averagepool", "averagepooling"), _AVERAGE),
    **dict.fromkeys(
        _with_dimensions(
            "globalavgpool", "globalaveragepool", "globalaveragepooling", "adaptiveavgpool"
        ),
        _GLOBAL,
    ),
    **dict.fromkeys(
        _with_dimensions("globalmaxpool", "globalmaxpooling", "adaptivemaxpool"), _GLOBAL_MAXIMUM
    ),
    **dict.fromkeys(
        (*_with_dimensions("batchnorm")[1:], "batchnormalization", "batchnormv1", "syncbatchnorm"),
        Counterpart("BatchNorm"),
    ),
    "localresponsenorm": Counterpart("LRN", "nsize: 5"),
    "layernormalization": Counterpart("LayerNorm"),
    "rmsnormalization": Counterpart("RMSNorm"),
    **dict.fromkeys(
        ("dropout1d", "dropout2d", "dropout3d", "spatialdropout1d", "spatialdropout2d"),
        Counterpart("Dropout", "p: 0.5", ", which drops single values"),
    ),
    **dict.fromkeys(
        (
            *("crossentropy", "crossentropyloss", "softmaxloss", "softmaxcrossentropyloss"),
            *("categoricalcrossentropy", "sparsecategoricalcrossentropy", "nllloss"),
        ),
        _CLASSES,
    ),
    **dict.fromkeys(("mse", "mseloss", "l2loss", "meansquarederror"), _SQUARES),
    **dict.fromkeys(("mae", "l1loss", "meanabsoluteerror"), _ABSOLUTE),
    **dict.fromkeys(
        (
            *("bce", "bceloss", "bcewithlogitsloss", "binarycrossentropy"),
            *("sigmoidbinarycrossentropyloss", "sigmoidbceloss"),
        ),
        _LOGISTIC,
    ),
    **dict.fromkeys(
        ("smoothl1loss", "huberloss", "huber"),
        Counterpart("smooth_l1", "scalar: 1", " of the difference, then MakeLoss"),
    ),
    **dict.fromkeys(("add", "plus"), Counterpart("elemwise_add", "lhs: a, rhs: b")),
    **dict.fromkeys(("subtract", "sub"), Counterpart("elemwise_sub", "lhs: a, rhs: b")),
    **dict.fromkeys(("multiply", "mul"), Counterpart("elemwise_mul", "lhs: a, rhs: b")),
    **dict.fromkeys(("divide", "div"), Counterpart("elemwise_div", "lhs: a, rhs: b")),
    "maximum": Counterpart("broadcast_maximum", "lhs: a, rhs: b"),
    "minimum": Counterpart("broadcast_minimum", "lhs: a, rhs: b"),
    **dict.fromkeys(("pow", "power"), Counterpart("broadcast_power", "lhs: a, rhs: b")),
    "neg": Counterpart("negative"),
    **{f"reduce{each}": Counterpart(each, "axis: 1") for each in ("mean", "sum", "max", "min")},
    **dict.fromkeys(("cat", "concatenate"), Counterpart("Concat", "inputs: [a, b]")),
    **dict.fromkeys(("chunk", "unbind"), Counterpart("SliceChannel", "num_outputs: 2")),
    **dict.fromkeys(("matmul", "mm"), Counterpart("dot", "lhs: a, rhs: b")),
    "bmm": Counterpart("batch_dot", "lhs: a, rhs: b"),
    "permute": Counterpart("transpose", "axes: [0, 2, 1]"),
    "glu": Counterpart("gated_activation", "act_type: sigmoid", ", whose first half is the gate"),
    **dict.fromkeys(("view", "unflatten"), Counterpart("Reshape", "shape: [0, -1]")),
    "unsqueeze": Counterpart("expand_dims", "axis: 1"),
    **{
        name: Counterpart("RNN", f"mode: {mode}, {_RECURRENT}", _CELL if "cell" in name else "")
        for names, mode in (
            (("lstm", "lstmcell"), "lstm"),
            (("gru", "grucell"), "gru"),
            (("rnncell", "simplernn"), "rnn_tanh"),
        )
        for name in names
    },
    "bidirectional": Counterpart("RNN", f"mode: lstm, {_RECURRENT}, bidirectional: true"),
    **dict.fromkeys(
        ("positionalencoding", "positionalembedding", "positionembedding"),
        Counterpart("position_embedding", "max_length: 64"),
    ),
    **dict.fromkeys(
        ("multiheadattention", "attention", "groupqueryattention"),
        Counterpart(
            "scaled_dot_product_attention",
            "num_heads: 4, packed: true",
            ", of queries, keys and values that a FullyConnected projects",
        ),
    ),
    "detach": Counterpart("BlockGrad"),
    **dict.fromkeys(("astype", "type"), Counterpart("Cast", "dtype: float32")),
}
# By folded name: what takes its place, the first one that an operator has as its parameter.
_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("units", "outfeatures", "hiddensize"), ("num_hidden", "state_size")),
    **dict.fromkeys(("filters", "outchannels", "channels"), ("num_filter",)),
    **dict.fromkeys(("dropout", "rate"), ("p",)),
    "padding": ("pad",),
    "dilation": ("dilate",),
    "groups": ("num_group",),
    "batchfirst": ("layout: NTC",),
    "projsize": ("projection_size",),
    "numembeddings": ("input_dim",),
    "embeddingdim": ("output_dim",),
    **dict.fromkeys(("nhead", "heads", "nheads"), ("num_heads",)),
    "iscausal": ("causal: true",),
}
# By folded name: what to do about a parameter that no operator needs.
_NO_PARAMETERS: Mapping[str, str] = {
    **dict.fromkeys(
        ("inchannels", "infeatures", "numfeatures", "inputshape", "inputsize", "inputdim"),
        "leave it out: it follows from the layer's input",
    ),
    **dict.fromkeys(
        ("inplace", "trackrunningstats", "device", "training"),
        "leave it out: mxrun decides it for the whole network",
    ),
    "affine": "fix_gamma: false trains the factors, too",
    "usebias": "no_bias: true leaves the bias out",
    "activation": "a layer of its own behind this one: Activation: {act_type: relu}",
    **dict.fromkeys(
        ("kernelregularizer", "weightdecay"),
        "the optimizer's wd: train.optimizer: {sgd: {wd: 1e-4}}",
    ),
    **dict.fromkeys(("kernelinitializer", "biasinitializer"), "network.variables.NAME.init"),
}
_MISSING: Mapping[str, str] = {
    "additiveattention": "additive attention",
    **dict.fromkeys(("convlstm1d", "convlstm2d", "convlstm3d"), "convolutional LSTMs"),
    **dict.fromkeys(("groupnorm", "groupnormalization"), "group normalization"),
    **dict.fromkeys(
        (*_with_dimensions("instancenorm"), "instancenormalization"), "instance normalization"
    ),
    **dict.fromkeys(("l2normalization", "unitnormalization"), "L2 normalization"),
    **dict.fromkeys(
        (
            *("transformer", "transformerencoder", "transformerdecoder"),
            *("transformerencoderlayer", "transformerdecoderlayer"),
        ),
        "transformer layers as one operator (the bundled config gpt_tiny composes them)",
    ),
    **dict.fromkeys(
        (*_with_dimensions("upsample", "upsampling"), "interpolate", "pixelshuffle"),
        "upsampling layers",
    ),
    **dict.fromkeys(
        (
            *_with_dimensions("zeropadding", "zeropad", "reflectionpad", "replicationpad"),
            *("pad", "constantpad2d"),
        ),
        "padding layers (Convolution and Pooling have pad)",
    ),
    **dict.fromkeys(
        (*_with_dimensions("cropping"), "crop", "slice", "sliceaxis", "slicelike", "narrow"),
        "layers that cut out a part (SliceChannel divides a tensor)",
    ),
    **dict.fromkeys(("mish", "hardswish"), "such activation function"),
    **dict.fromkeys(("stack", "tile", "repeatvector"), "repeating or stacking layers"),
    "gathernd": "gathering layers for several axes",
    **dict.fromkeys(("topk", "sort", "argsort"), "sorting layers"),
    "embeddingbag": "embedding bags",
    **dict.fromkeys(("kldivloss", "kldivergence"), "Kullback-Leibler divergence"),
    **dict.fromkeys(
        ("hingeloss", "svmoutput", "multimarginloss", "tripletmarginloss"), "margin losses"
    ),
    **dict.fromkeys(("roipooling", "roialign", "spatialtransformer"), "layers for regions"),
}
_ELSEWHERE: Mapping[str, str] = {
    **dict.fromkeys(
        ("input", "inputlayer", "placeholder", "variable"),
        "inputs are declared in network.inputs, variables in network.variables",
    ),
    **dict.fromkeys(
        ("sequential", "hybridsequential", "module", "modulelist", "model"),
        "layers are listed one after the other; `blocks:` gives a group of layers a name",
    ),
    **dict.fromkeys(
        ("custom", "lambda"), "operators of your own are Python files that `plugins:` lists"
    ),
    "timedistributed": "FullyConnected with flatten: false reads each step alone; `recurrent:` "
    "applies any layers to each",
    **dict.fromkeys(
        ("normalization", "rescaling", "randomflip", "randomcrop", "resizing"),
        "records are prepared by data.train.transforms",
    ),
}
