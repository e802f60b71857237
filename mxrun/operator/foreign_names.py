"""Names of PyTorch, Keras and MXNet for layers that mxrun lacks or has elsewhere, and for
parameters. Those of mxrun's operators stand at their registration.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from mxrun.base.near_names import folded


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


def in_dimensions(*stems: str) -> str:
    """Return the stems without and with a number of dimensions: maxpool maxpool1d ..."""
    return " ".join(stem + suffix for stem in stems for suffix in ("", "1d", "2d", "3d"))


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
        (*in_dimensions("instancenorm").split(), "instancenormalization"), "instance normalization"
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
        (*in_dimensions("upsample", "upsampling").split(), "interpolate", "pixelshuffle"),
        "upsampling layers (Deconvolution with kernel 2 and stride 2 doubles a size)",
    ),
    **dict.fromkeys(
        (
            *in_dimensions("zeropadding", "zeropad", "reflectionpad", "replicationpad").split(),
            *("pad", "constantpad2d"),
        ),
        "padding layers (Convolution and Pooling have pad)",
    ),
    **dict.fromkeys(
        (*in_dimensions("cropping").split(), "crop", "slice", "sliceaxis", "slicelike", "narrow"),
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
