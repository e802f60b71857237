"""Tables of the names that torchvision, timm and Keras give the weights of bundled networks.

A table has a pattern for each layer; where patterns of several layers match a name, that of a layer
which the network has is taken. It also has what belongs to the weights besides their names: how
images were normalised for them, and in what the network must differ from the bundled one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache

from mxrun.base.dataclass import dataclass
from mxrun.preparation.weight_names import NamePattern

TORCHVISION, TIMM, KERAS = FRAMEWORKS = ("torchvision", "timm", "keras")
_Means = tuple[float, float, float]
_HALF: _Means = (0.5, 0.5, 0.5)


@dataclass(frozen=True)
class Normalisation:
    """Means and deviations of the channels red, green, blue of images from 0 to 1."""

    mean: _Means = (0.485, 0.456, 0.406)
    std: _Means = (0.229, 0.224, 0.225)


_IMAGENET = Normalisation()
_SIGNED = Normalisation(_HALF, _HALF)
# Pixels up to 255 minus means, which Keras took over from Caffe.
_CAFFE = Normalisation((123.68 / 255, 116.779 / 255, 103.939 / 255), (1 / 255, 1 / 255, 1 / 255))


@dataclass(frozen=True)
class Form:
    """Difference of the network that the weights are of from the bundled one.

    layer, parameter, value: a layer that shows whether a network has it; without a parameter,
    `value` is its operator. edits: what gives a config that extends the bundled one this form.
    """

    problem: str
    layer: str
    parameter: str
    value: object
    edits: str


Pairs = Sequence[tuple[str, str]]


@dataclass(frozen=True, eq=False)
class WeightTable:
    """Names of the weights of one kind of network in one framework.

    networks: the bundled configs that they are for, separated by ` or `. layers: patterns there and
    here. blue_first: the layer whose input channels are blue, green, red there. channels_last:
    fully connected layers by the channels of the images that they read, which are last there.
    epsilon: of batch normalisation there. caveat: a difference that no config removes.
    """

    framework: str
    networks: str
    layers: Pairs
    normalisation: Normalisation = _IMAGENET
    blue_first: str = ""
    channels_last: Mapping[str, int] = field(default_factory=dict)
    epsilon: float | None = None
    forms: tuple[Form, ...] = ()
    caveat: str = ""

    @property
    def patterns(self) -> tuple[NamePattern, ...]:
        """The patterns of the layers' names."""
        return tuple(NamePattern(*pair) for pair in self.layers)


def _within(there: str, here: str, parts: Mapping[str, str]) -> Pairs:
    """Return the pairs of the parts of a unit, with the unit's names before them."""
    return [(there + part, here + name) for part, name in parts.items()]


# Names of the layers in a unit of each network.
_BOTTLENECK = {
    "conv1": "narrow/norm/conv",
    "bn1": "narrow/norm/bn",
    "conv2": "window/norm/conv",
    "bn2": "window/norm/bn",
    "conv3": "wide/conv",
    "bn3": "wide/bn",
}
_TWO_WINDOWS = {
    "conv1": "first/conv",
    "bn1": "first/bn",
    "conv2": "second/conv",
    "bn2": "second/bn",
}
_INVERTED = {
    "expand": "expand/norm/conv",
    "expand_BN": "expand/norm/bn",
    "depthwise": "depthwise/norm/conv",
    "depthwise_BN": "depthwise/norm/bn",
    "project": "project/conv",
    "project_BN": "project/bn",
}
_DENSE_UNIT = {
    "norm1": "before1/bn",
    "conv1": "narrow/conv",
    "norm2": "before2/bn",
    "conv2": "window/conv",
}
_RESNETS = "resnet50_imagenet or resnet152_imagenet"
# Units of the stages of MobileNet and MobileNetV2, without the first layers of the latter.
_SEPARABLE_STAGES = (1, 2, 2, 6, 2)
_INVERTED_STAGES = (2, 3, 4, 3, 3, 1)


def _renamed(parts: Mapping[str, str], *names: str) -> dict[str, str]:
    """Return the parts of a unit under other names there, in the same order."""
    return dict(zip(names, parts.values(), strict=True))


def _numbered(stages: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield number from 0, stage and unit from 1 of each unit."""
    places = [(stage, unit + 1) for stage, units in enumerate(stages, 1) for unit in range(units)]
    for number, (stage, unit) in enumerate(places):
        yield number, stage, unit


def _inverted(there: str, first: int, parts: Mapping[str, str]) -> Pairs:
    """Return the pairs of MobileNetV2's units, numbered from `first` there; `@` is the number."""
    return [
        pair
        for number, stage, unit in _numbered(_INVERTED_STAGES)
        for pair in _within(
            there.replace("@", str(first + number)),
            f"stage{stage}/unit{unit}/" + "branch/" * (unit > 1),
            parts,
        )
    ]


_TORCH_RESNET: Pairs = [
    *_within("", "stem/norm/", {"conv1": "conv", "bn1": "bn"}),
    *_within("layer{s}.0.", "stage{s}/branch/", _BOTTLENECK),
    *_within("layer{s}.{u}.", "stage{s}/unit{u + 1}/branch/", _BOTTLENECK),
    *_within("layer{s}.0.downsample.", "stage{s}/skip/", {"0": "conv", "1": "bn"}),
    ("fc", "fc"),
]
_TORCH_RESNET20: Pairs = [
    *_within("", "stem/", {"conv1": "conv", "bn1": "bn"}),
    *_within("layer{s}.{u}.", "stage{s}/unit{u + 1}/branch/", _TWO_WINDOWS),
    *_within("layer{s}.0.downsample.", "stage{s}/unit1/shortcut/", {"0": "conv", "1": "bn"}),
    ("fc", "fc"),
]
# A convolution and ReLU have two numbers, and the pooling after each stage has one.
_TORCH_VGG_FEATURES: Pairs = [
    (f"features.{2 * number + stage - 1}", f"stage{stage}/conv{unit}")
    for number, stage, unit in _numbered((2, 2, 3, 3, 3))
]
_TORCH_DENSENET: Pairs = [
    *[("features.conv0", "stem/conv"), ("features.norm0", "stem/bn")],
    *_within("features.denseblock{b}.denselayer{n}.", "stage{b}/unit{n}/", _DENSE_UNIT),
    # As files of old versions have them.
    *_within(
        "features.denseblock{b}.denselayer{n}.",
        "stage{b}/unit{n}/",
        _renamed(_DENSE_UNIT, "norm.1", "conv.1", "norm.2", "conv.2"),
    ),
    ("features.transition{b}.norm", "transition{b}/before/bn"),
    ("features.transition{b}.conv", "transition{b}/narrow/conv"),
    *[("features.norm5", "last/bn"), ("classifier", "fc")],
]
# Layers of the units of Inception v3, in the order in which they are computed.
_BLOCK35 = ("a", "b1", "b2", "c1", "c2", "c3", "d/conv")
_BLOCK17 = ("a", "b1", "b2", "b3", "c1", "c2", "c3", "c4", "c5", "d/conv")
_BLOCK8 = ("a", "b1", "b2", "b3", "c1", "c2", "c3", "c4", "d/conv")
_INCEPTION_UNITS = (
    *[("Mixed_5b", _BLOCK35), ("Mixed_5c", _BLOCK35), ("Mixed_5d", _BLOCK35)],
    ("Mixed_6a", ("a", "b1", "b2", "b3")),
    *[(f"Mixed_6{letter}", _BLOCK17) for letter in "bcde"],
    ("Mixed_7a", ("a1", "a2", "b1", "b2", "b3", "b4")),
    *[("Mixed_7b", _BLOCK8), ("Mixed_7c", _BLOCK8)],
)
_INCEPTION_BRANCHES = {
    _BLOCK35: (
        *("branch1x1", "branch5x5_1", "branch5x5_2"),
        *("branch3x3dbl_1", "branch3x3dbl_2", "branch3x3dbl_3", "branch_pool"),
    ),
    ("a", "b1", "b2", "b3"): ("branch3x3", "branch3x3dbl_1", "branch3x3dbl_2", "branch3x3dbl_3"),
    _BLOCK17: (
        *("branch1x1", "branch7x7_1", "branch7x7_2", "branch7x7_3"),
        *(f"branch7x7dbl_{number}" for number in range(1, 6)),
        "branch_pool",
    ),
    ("a1", "a2", "b1", "b2", "b3", "b4"): (
        *("branch3x3_1", "branch3x3_2"),
        *(f"branch7x7x3_{number}" for number in range(1, 5)),
    ),
    _BLOCK8: (
        *("branch1x1", "branch3x3_1", "branch3x3_2a", "branch3x3_2b", "branch3x3dbl_1"),
        *("branch3x3dbl_2", "branch3x3dbl_3a", "branch3x3dbl_3b", "branch_pool"),
    ),
}
_INCEPTION_STEM = ("1a_3x3", "2a_3x3", "2b_3x3", "3b_1x1", "4a_3x3")


def _torch_inception() -> Pairs:
    stem = [(f"Conv2d_{name}", f"stem{number}") for number, name in enumerate(_INCEPTION_STEM, 1)]
    units = [
        (f"{there}.{branch}", f"mixed{number}/{layer}")
        for number, (there, layers) in enumerate(_INCEPTION_UNITS, 1)
        for branch, layer in zip(_INCEPTION_BRANCHES[layers], layers, strict=True)
    ]
    parts = ("conv", "bn")
    return [
        *((f"{there}.{part}", f"{here}/{part}") for there, here in stem + units for part in parts),
        ("fc", "fc"),
    ]


def _keras_inception(first: int) -> Pairs:
    """Return the pairs for layers numbered in the order of computation, the first as `first`."""
    names = [f"stem{number}" for number in range(1, 6)] + [
        f"mixed{number}/{layer}"
        for number, (_, layers) in enumerate(_INCEPTION_UNITS, 1)
        for layer in layers
    ]
    kinds = {"conv2d": "conv", "batch_normalization": "bn"}
    numbered = [(f"_{number}" if number else "", name) for number, name in enumerate(names, first)]
    return [
        *((kind + end, f"{name}/{kinds[kind]}") for end, name in numbered for kind in kinds),
        ("predictions", "fc"),
    ]


_RELU6 = "replace: {relu: {clip: {a_min: 0, a_max: 6}}}"
_PADS_ONE_SIDE = (
    "at stride 2 Keras pads images on the right and below alone, where this network pads all "
    "sides: its outputs are not the same before fine-tuning"
)


def _mobilenet_form(edits: str, layer: str, problem: str) -> Form:
    block = f"blocks: {{conv_bn_relu: {{layers: {{{edits}}}}}}}"
    return Form(problem=problem, layer=layer, parameter="", value="clip", edits=block)


def _torchvision() -> Iterator[WeightTable]:
    yield WeightTable(TORCHVISION, _RESNETS, _TORCH_RESNET)
    cifar = Normalisation((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
    yield WeightTable(TORCHVISION, "resnet20_cifar10", _TORCH_RESNET20, cifar)
    yield WeightTable(
        TORCHVISION,
        "mobilenetv2_imagenet",
        [
            *_within("features.0.", "stem/norm/", {"0": "conv", "1": "bn"}),
            *_within("features.1.conv.0.", "first/depthwise/norm/", {"0": "conv", "1": "bn"}),
            *_within("features.1.conv.", "first/project/", {"1": "conv", "2": "bn"}),
            *_inverted(
                "features.@.conv.",
                2,
                _renamed(_INVERTED, "0.0", "0.1", "1.0", "1.1", "2", "3"),
            ),
            *_within("features.18.", "last/norm/", {"0": "conv", "1": "bn"}),
            ("classifier.1", "fc"),
        ],
    )
    yield WeightTable(
        TORCHVISION,
        "vgg16_imagenet",
        [
            *_TORCH_VGG_FEATURES,
            *_within("classifier.", "", {"0": "dense1/fc", "3": "dense2/fc", "6": "fc"}),
        ],
    )
    yield WeightTable(TORCHVISION, "densenet121_imagenet", _TORCH_DENSENET)
    # Its weights come from TensorFlow: the network itself turns ImageNet's means into these.
    yield WeightTable(TORCHVISION, "inceptionv3_imagenet", _torch_inception(), _SIGNED)


def _timm() -> Iterator[WeightTable]:
    yield WeightTable(TIMM, _RESNETS, _TORCH_RESNET)
    blocks = [
        pair
        for number, stage, unit in _numbered(_SEPARABLE_STAGES)
        for pair in _within(
            f"blocks.{stage - 1}.{unit - 1}.",
            f"unit{number + 1}/",
            {
                "conv_dw": "depthwise/conv",
                "bn1": "depthwise/bn",
                "conv_pw": "pointwise/conv",
                "bn2": "pointwise/bn",
            },
        )
    ]
    stem = {"conv_stem": "conv", "bn1": "bn"}
    yield WeightTable(
        TIMM,
        "mobilenetv1_imagenet",
        [*_within("", "stem/", stem), *blocks, ("classifier", "fc")],
        _SIGNED,
        epsilon=1e-5,
        forms=(
            _mobilenet_form(
                f"change: {{bn: {{eps: 1e-5}}}}, {_RELU6}",
                "stem/relu",
                "timm's MobileNet ends its ReLU at 6 and has an epsilon of 1e-5",
            ),
        ),
    )
    first = {
        "conv_dw": "depthwise/norm/conv",
        "bn1": "depthwise/norm/bn",
        "conv_pw": "project/conv",
        "bn2": "project/bn",
    }
    parts = _renamed(_INVERTED, "conv_pw", "bn1", "conv_dw", "bn2", "conv_pwl", "bn3")
    yield WeightTable(
        TIMM,
        "mobilenetv2_imagenet",
        [
            *_within("", "stem/norm/", stem),
            *_within("blocks.0.0.", "first/", first),
            *_within("blocks.{s}.{u}.", "stage{s}/unit{u + 1}/", parts),
            *_within("blocks.{s}.{u}.", "stage{s}/unit{u + 1}/branch/", parts),
            *_within("", "last/norm/", {"conv_head": "conv", "bn2": "bn"}),
            ("classifier", "fc"),
        ],
    )
    dense = {"pre_logits.fc1": "dense1/fc", "pre_logits.fc2": "dense2/fc", "head.fc": "fc"}
    yield WeightTable(TIMM, "vgg16_imagenet", [*_TORCH_VGG_FEATURES, *dense.items()])
    yield WeightTable(TIMM, "densenet121_imagenet", _TORCH_DENSENET)
    yield WeightTable(TIMM, "inceptionv3_imagenet", _torch_inception(), _SIGNED)


def _keras() -> Iterator[WeightTable]:
    yield from _keras_resnets()
    yield from _keras_mobilenets()
    yield from _keras_other()


def _keras_resnets() -> Iterator[WeightTable]:
    parts = _renamed(_BOTTLENECK, "1_conv", "1_bn", "2_conv", "2_bn", "3_conv", "3_bn")
    yield WeightTable(
        KERAS,
        _RESNETS,
        [
            *_within("conv1_", "stem/norm/", {"conv": "conv", "bn": "bn"}),
            *_within("conv{s}_block1_", "stage{s - 1}/branch/", parts),
            *_within("conv{s}_block{u}_", "stage{s - 1}/unit{u}/branch/", parts),
            *_within("conv{s}_block1_0_", "stage{s - 1}/skip/", {"conv": "conv", "bn": "bn"}),
            ("predictions", "fc"),
        ],
        _CAFFE,
        blue_first="stem/norm/conv",
        epsilon=1.001e-5,
        forms=(
            Form(
                problem="Keras' ResNet has the stride of a stage in its first convolution",
                layer="stage2/branch/narrow/norm/conv",
                parameter="stride",
                value=(2, 2),
                edits="blocks: {branch: {layers: {change: {narrow: {stride: '${stride}'}, "
                "window: {stride: 1}}}}}",
            ),
        ),
    )


def _keras_mobilenets() -> Iterator[WeightTable]:
    kinds = {"": "conv", "_bn": "bn"}
    yield WeightTable(
        KERAS,
        "mobilenetv1_imagenet",
        [
            *_within("conv1", "stem/", kinds),
            *_within("conv_dw_{n}", "unit{n}/depthwise/", kinds),
            *_within("conv_pw_{n}", "unit{n}/pointwise/", kinds),
            *[("conv_preds", "fc"), ("predictions", "fc")],
        ],
        _SIGNED,
        epsilon=1e-3,
        forms=(_mobilenet_form(_RELU6, "stem/relu", "Keras' MobileNet ends its ReLU at 6"),),
        caveat=_PADS_ONE_SIDE,
    )
    yield WeightTable(
        KERAS,
        "mobilenetv2_imagenet",
        [
            *_within("", "stem/norm/", {"Conv1": "conv", "bn_Conv1": "bn"}),
            *_within("expanded_conv_", "first/", _INVERTED),
            *_inverted("block_@_", 1, _INVERTED),
            *_within("Conv_1", "last/norm/", kinds),
            ("predictions", "fc"),
        ],
        _SIGNED,
        epsilon=1e-3,
        caveat=_PADS_ONE_SIDE,
    )


def _keras_other() -> Iterator[WeightTable]:
    yield WeightTable(
        KERAS,
        "vgg16_imagenet",
        [
            ("block{s}_conv{n}", "stage{s}/conv{n}"),
            *[("fc1", "dense1/fc"), ("fc2", "dense2/fc"), ("predictions", "fc")],
        ],
        _CAFFE,
        blue_first="stage1/conv1",
        channels_last={"dense1/fc": 512},
    )
    unit = _renamed(_DENSE_UNIT, "0_bn", "1_conv", "1_bn", "2_conv")
    yield WeightTable(
        KERAS,
        "densenet121_imagenet",
        [
            # Versions 2 and 3 of Keras.
            *_within("conv1/", "stem/", {"conv": "conv", "bn": "bn"}),
            *_within("conv1_", "stem/", {"conv": "conv", "bn": "bn"}),
            *_within("conv{s}_block{n}_", "stage{s - 1}/unit{n}/", unit),
            ("pool{s}_bn", "transition{s - 1}/before/bn"),
            ("pool{s}_conv", "transition{s - 1}/narrow/conv"),
            *[("bn", "last/bn"), ("predictions", "fc")],
        ],
        epsilon=1.001e-5,
    )
    for start in (0, 1):
        yield WeightTable(
            KERAS,
            "inceptionv3_imagenet",
            _keras_inception(start),
            _SIGNED,
            epsilon=1e-3,
            forms=(
                Form(
                    problem="Keras' mean pooling leaves the padding out",
                    layer="mixed1/d/mean",
                    parameter="count_include_pad",
                    value=False,
                    edits="blocks: {pooled: {layers: {change: {mean: "
                    "{count_include_pad: false}}}}}",
                ),
            ),
        )


@cache
def tables(framework: str) -> tuple[WeightTable, ...]:
    """Return the tables of a framework, torchvision, timm or keras."""
    return tuple({TORCHVISION: _torchvision, TIMM: _timm, KERAS: _keras}[framework]())


def table_for(framework: str, network: str) -> WeightTable | None:
    """Return the framework's table for a bundled network, or None if there is none."""
    found = (table for table in tables(framework) if network in table.networks.split(" or "))
    return next(found, None)
