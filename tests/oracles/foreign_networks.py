"""Networks as torchvision, timm and Keras define them, with their names, run by PyTorch.

Run in PyTorch's interpreter, which has no mxrun. Each network is a function of its input and of
the weights, which are drawn when they are first asked for by name.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812

Tensor = torch.Tensor
KERAS_PAD = (0, 1, 0, 1)


class Weights:
    """Random weights by name; keras: whether they have Keras' names and layouts."""

    def __init__(self, seed: int, keras: bool = False) -> None:
        self.arrays: dict[str, np.ndarray[Any, Any]] = {}
        self._keras = keras
        self._draws = np.random.default_rng(seed)

    def drawn(self, name: str, shape: Sequence[int], mean: float, std: float) -> Tensor:
        array = self._draws.standard_normal(shape, np.float32) * np.float32(std) + np.float32(mean)
        if name.endswith(("running_var", "moving_variance")):
            array = np.abs(array) + np.float32(0.1)
        self.arrays[name] = array
        return torch.from_numpy(array)

    def conv(
        self,
        name: str,
        x: Tensor,
        out: int,
        kernel: int | tuple[int, int] = 1,
        stride: int = 1,
        pad: int | tuple[int, int] = 0,
        groups: int = 1,
        bias: bool = False,
    ) -> Tensor:
        height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
        inner = x.shape[1] // groups
        std = (2 / (inner * height * width)) ** 0.5
        if not self._keras:
            weight = self.drawn(f"{name}.weight", (out, inner, height, width), 0, std)
        elif groups > 1:
            shape = height, width, groups, out // groups
            weight = self.drawn(f"{name}/depthwise_kernel", shape, 0, std).permute(2, 3, 0, 1)
            weight = weight.reshape(out, 1, height, width)
        else:
            shape = height, width, inner, out
            weight = self.drawn(f"{name}/kernel", shape, 0, std).permute(3, 2, 0, 1)
        end = "/bias" if self._keras else ".bias"
        offset = self.drawn(name + end, (out,), 0, 0.1) if bias else None
        return F.conv2d(x, weight, offset, stride, pad, groups=groups)

    def norm(self, name: str, x: Tensor, eps: float = 1e-5, scale: bool = True) -> Tensor:
        ends = (
            ("/moving_mean", "/moving_variance", "/gamma", "/beta")
            if self._keras
            else (".running_mean", ".running_var", ".weight", ".bias")
        )
        size = x.shape[1:2]
        mean = self.drawn(name + ends[0], size, 0, 0.1)
        variance = self.drawn(name + ends[1], size, 1, 0.1)
        gamma = self.drawn(name + ends[2], size, 1, 0.1) if scale else None
        beta = self.drawn(name + ends[3], size, 0, 0.1)
        if not self._keras:
            self.arrays[f"{name}.num_batches_tracked"] = np.array(7)
        return F.batch_norm(x, mean, variance, gamma, beta, eps=eps)

    def dense(self, name: str, x: Tensor, out: int) -> Tensor:
        std = x.shape[1] ** -0.5
        if self._keras:
            weight = self.drawn(f"{name}/kernel", (x.shape[1], out), 0, std).T
            return F.linear(x, weight, self.drawn(f"{name}/bias", (out,), 0, 0.1))
        weight = self.drawn(f"{name}.weight", (out, x.shape[1]), 0, std)
        return F.linear(x, weight, self.drawn(f"{name}.bias", (out,), 0, 0.1))


def mean_of(x: Tensor) -> Tensor:
    return x.mean((2, 3))


def resnet(w: Weights, x: Tensor, units: Sequence[int]) -> Tensor:
    """ResNet of bottlenecks, version 1.5: the stride is in the convolution of 3x3."""
    x = F.relu(w.norm("bn1", w.conv("conv1", x, 64, 7, 2, 3)))
    x = F.max_pool2d(x, 3, 2, 1)
    for stage, count in enumerate(units, 1):
        for unit in range(count):
            name, filters = f"layer{stage}.{unit}", 32 << stage
            stride = 2 if stage > 1 and unit == 0 else 1
            y = F.relu(w.norm(f"{name}.bn1", w.conv(f"{name}.conv1", x, filters)))
            y = w.conv(f"{name}.conv2", y, filters, 3, stride, 1)
            y = F.relu(w.norm(f"{name}.bn2", y))
            y = w.norm(f"{name}.bn3", w.conv(f"{name}.conv3", y, 4 * filters))
            if unit == 0:
                x = w.conv(f"{name}.downsample.0", x, 4 * filters, 1, stride)
                x = w.norm(f"{name}.downsample.1", x)
            x = F.relu(x + y)
    return w.dense("fc", mean_of(x), 1000)


def resnet20(w: Weights, x: Tensor) -> Tensor:
    x = F.relu(w.norm("bn1", w.conv("conv1", x, 16, 3, 1, 1)))
    for stage in (1, 2, 3):
        for unit in range(3):
            name, filters = f"layer{stage}.{unit}", 8 << stage
            stride = 2 if stage > 1 and unit == 0 else 1
            y = F.relu(w.norm(f"{name}.bn1", w.conv(f"{name}.conv1", x, filters, 3, stride, 1)))
            y = w.norm(f"{name}.bn2", w.conv(f"{name}.conv2", y, filters, 3, 1, 1))
            if stride == 2:
                x = w.norm(f"{name}.downsample.1", w.conv(f"{name}.downsample.0", x, filters, 1, 2))
            x = F.relu(x + y)
    return w.dense("fc", mean_of(x), 10)


INVERTED = (
    *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
    *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
)


def mobilenetv2(w: Weights, x: Tensor) -> Tensor:
    x = F.relu6(w.norm("features.0.1", w.conv("features.0.0", x, 32, 3, 2, 1)))
    number = 0
    for factor, filters, count, first_stride in INVERTED:
        for unit in range(count):
            number += 1
            name, at = f"features.{number}.conv", 0
            y, inner = x, factor * x.shape[1]
            if factor > 1:
                y = F.relu6(w.norm(f"{name}.0.1", w.conv(f"{name}.0.0", y, inner)))
                at = 1
            stride = first_stride if unit == 0 else 1
            y = w.conv(f"{name}.{at}.0", y, inner, 3, stride, 1, inner)
            y = F.relu6(w.norm(f"{name}.{at}.1", y))
            y = w.norm(f"{name}.{at + 2}", w.conv(f"{name}.{at + 1}", y, filters))
            x = x + y if unit else y
    x = F.relu6(w.norm("features.18.1", w.conv("features.18.0", x, 1280)))
    return w.dense("classifier.1", mean_of(x), 1000)


def timm_mobilenetv2(w: Weights, x: Tensor) -> Tensor:
    x = F.relu6(w.norm("bn1", w.conv("conv_stem", x, 32, 3, 2, 1)))
    for stage, (factor, filters, count, first_stride) in enumerate(INVERTED):
        for unit in range(count):
            name, stride = f"blocks.{stage}.{unit}", first_stride if unit == 0 else 1
            y, inner, n = x, factor * x.shape[1], 1
            if factor > 1:
                y = F.relu6(w.norm(f"{name}.bn1", w.conv(f"{name}.conv_pw", y, inner)))
                n = 2
            y = w.conv(f"{name}.conv_dw", y, inner, 3, stride, 1, inner)
            y = F.relu6(w.norm(f"{name}.bn{n}", y))
            last = "conv_pwl" if factor > 1 else "conv_pw"
            y = w.norm(f"{name}.bn{n + 1}", w.conv(f"{name}.{last}", y, filters))
            x = x + y if unit else y
    x = F.relu6(w.norm("bn2", w.conv("conv_head", x, 1280)))
    return w.dense("classifier", mean_of(x), 1000)


SEPARABLE = ((64, 1, 1), (128, 2, 2), (256, 2, 2), (512, 6, 2), (1024, 2, 2))


def timm_mobilenetv1(w: Weights, x: Tensor) -> Tensor:
    x = F.relu6(w.norm("bn1", w.conv("conv_stem", x, 32, 3, 2, 1)))
    for stage, (filters, count, first_stride) in enumerate(SEPARABLE):
        for unit in range(count):
            name, stride = f"blocks.{stage}.{unit}", first_stride if unit == 0 else 1
            y = w.conv(f"{name}.conv_dw", x, x.shape[1], 3, stride, 1, x.shape[1])
            y = F.relu6(w.norm(f"{name}.bn1", y))
            x = F.relu6(w.norm(f"{name}.bn2", w.conv(f"{name}.conv_pw", y, filters)))
    return w.dense("classifier", mean_of(x), 1000)


VGG = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)


def vgg_features(w: Weights, x: Tensor) -> Tensor:
    number = 0
    for filters in VGG:
        if filters:
            x = F.relu(w.conv(f"features.{number}", x, filters, 3, 1, 1, bias=True))
            number += 2
        else:
            x = F.max_pool2d(x, 2)
            number += 1
    return x


def vgg16(w: Weights, x: Tensor) -> Tensor:
    x = vgg_features(w, x).flatten(1)
    for name in ("classifier.0", "classifier.3"):
        x = F.relu(w.dense(name, x, 4096))
    return w.dense("classifier.6", x, 1000)


def timm_vgg16(w: Weights, x: Tensor) -> Tensor:
    x = vgg_features(w, x)
    x = F.relu(w.conv("pre_logits.fc1", x, 4096, x.shape[2], bias=True))
    x = F.relu(w.conv("pre_logits.fc2", x, 4096, bias=True))
    return w.dense("head.fc", mean_of(x), 1000)


def densenet121(w: Weights, x: Tensor, old: bool = False) -> Tensor:
    """DenseNet-121; old: with the names that files of old versions have."""
    dot = "." if old else ""
    x = F.relu(w.norm("features.norm0", w.conv("features.conv0", x, 64, 7, 2, 3)))
    x = F.max_pool2d(x, 3, 2, 1)
    for block, count in enumerate((6, 12, 24, 16), 1):
        for layer in range(1, count + 1):
            name = f"features.denseblock{block}.denselayer{layer}"
            y = F.relu(w.norm(f"{name}.norm{dot}1", x))
            y = F.relu(w.norm(f"{name}.norm{dot}2", w.conv(f"{name}.conv{dot}1", y, 128)))
            x = torch.cat([x, w.conv(f"{name}.conv{dot}2", y, 32, 3, 1, 1)], 1)
        if block < 4:
            name = f"features.transition{block}"
            x = w.conv(f"{name}.conv", F.relu(w.norm(f"{name}.norm", x)), x.shape[1] // 2)
            x = F.avg_pool2d(x, 2, 2)
    return w.dense("classifier", mean_of(F.relu(w.norm("features.norm5", x))), 1000)


Unit = Callable[..., Tensor]


def inception_trunk(unit: Unit, pooled: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Inception v3 up to its last mean; unit: convolution, batch norm and ReLU of a name."""
    x = unit("Conv2d_1a_3x3", x, 32, 3, 2)
    x = unit("Conv2d_2a_3x3", x, 32, 3)
    x = F.max_pool2d(unit("Conv2d_2b_3x3", x, 64, 3, 1, 1), 3, 2)
    x = unit("Conv2d_4a_3x3", unit("Conv2d_3b_1x1", x, 80), 192, 3)
    x = F.max_pool2d(x, 3, 2)
    for name, filters in (("Mixed_5b", 32), ("Mixed_5c", 64), ("Mixed_5d", 64)):
        a = unit(f"{name}.branch1x1", x, 64)
        b = unit(f"{name}.branch5x5_2", unit(f"{name}.branch5x5_1", x, 48), 64, 5, 1, 2)
        c = unit(f"{name}.branch3x3dbl_2", unit(f"{name}.branch3x3dbl_1", x, 64), 96, 3, 1, 1)
        c = unit(f"{name}.branch3x3dbl_3", c, 96, 3, 1, 1)
        x = torch.cat([a, b, c, unit(f"{name}.branch_pool", pooled(x), filters)], 1)
    a = unit("Mixed_6a.branch3x3", x, 384, 3, 2)
    b = unit("Mixed_6a.branch3x3dbl_2", unit("Mixed_6a.branch3x3dbl_1", x, 64), 96, 3, 1, 1)
    b = unit("Mixed_6a.branch3x3dbl_3", b, 96, 3, 2)
    x = torch.cat([a, b, F.max_pool2d(x, 3, 2)], 1)
    wide, high = {"kernel": (1, 7), "pad": (0, 3)}, {"kernel": (7, 1), "pad": (3, 0)}
    for name, inner in (("Mixed_6b", 128), ("Mixed_6c", 160), ("Mixed_6d", 160), ("Mixed_6e", 192)):
        a = unit(f"{name}.branch1x1", x, 192)
        b = unit(f"{name}.branch7x7_2", unit(f"{name}.branch7x7_1", x, inner), inner, **wide)
        b = unit(f"{name}.branch7x7_3", b, 192, **high)
        c = unit(f"{name}.branch7x7dbl_2", unit(f"{name}.branch7x7dbl_1", x, inner), inner, **high)
        c = unit(f"{name}.branch7x7dbl_3", c, inner, **wide)
        c = unit(f"{name}.branch7x7dbl_4", c, inner, **high)
        c = unit(f"{name}.branch7x7dbl_5", c, 192, **wide)
        x = torch.cat([a, b, c, unit(f"{name}.branch_pool", pooled(x), 192)], 1)
    a = unit("Mixed_7a.branch3x3_2", unit("Mixed_7a.branch3x3_1", x, 192), 320, 3, 2)
    b = unit("Mixed_7a.branch7x7x3_2", unit("Mixed_7a.branch7x7x3_1", x, 192), 192, **wide)
    b = unit("Mixed_7a.branch7x7x3_3", b, 192, **high)
    b = unit("Mixed_7a.branch7x7x3_4", b, 192, 3, 2)
    x = torch.cat([a, b, F.max_pool2d(x, 3, 2)], 1)
    wide, high = {"kernel": (1, 3), "pad": (0, 1)}, {"kernel": (3, 1), "pad": (1, 0)}
    for name in ("Mixed_7b", "Mixed_7c"):
        a = unit(f"{name}.branch1x1", x, 320)
        b = unit(f"{name}.branch3x3_1", x, 384)
        left, right = (
            unit(f"{name}.branch3x3_2a", b, 384, **wide),
            unit(f"{name}.branch3x3_2b", b, 384, **high),
        )
        c = unit(f"{name}.branch3x3dbl_2", unit(f"{name}.branch3x3dbl_1", x, 448), 384, 3, 1, 1)
        d, e = (
            unit(f"{name}.branch3x3dbl_3a", c, 384, **wide),
            unit(f"{name}.branch3x3dbl_3b", c, 384, **high),
        )
        x = torch.cat([a, left, right, d, e, unit(f"{name}.branch_pool", pooled(x), 192)], 1)
    return mean_of(x)


def inceptionv3(w: Weights, x: Tensor) -> Tensor:
    def unit(name: str, x: Tensor, out: int, kernel: Any = 1, stride: int = 1, pad: Any = 0) -> Any:
        x = w.conv(f"{name}.conv", x, out, kernel, stride, pad)
        return F.relu(w.norm(f"{name}.bn", x, 1e-3))

    pooled = partial(F.avg_pool2d, kernel_size=3, stride=1, padding=1)
    w.drawn("AuxLogits.fc.weight", (3, 4), 0, 1)
    return w.dense("fc", inception_trunk(unit, pooled, x), 1000)


def keras_inceptionv3(w: Weights, x: Tensor) -> Tensor:
    """Keras numbers its layers, has no scales, and its means leave the padding out."""
    number = 0

    def unit(_: str, x: Tensor, out: int, kernel: Any = 1, stride: int = 1, pad: Any = 0) -> Any:
        nonlocal number
        number += 1
        x = w.conv(f"conv2d_{number}", x, out, kernel, stride, pad)
        return F.relu(w.norm(f"batch_normalization_{number}", x, 1e-3, scale=False))

    pooled = partial(F.avg_pool2d, kernel_size=3, stride=1, padding=1, count_include_pad=False)
    return w.dense("predictions", inception_trunk(unit, pooled, x), 1000)


def keras_resnet50(w: Weights, x: Tensor) -> Tensor:
    """Version 1: biases, and the stride in the first convolution; images are blue first."""
    norm = partial(w.norm, eps=1.001e-5)
    x = F.relu(norm("conv1_bn", w.conv("conv1_conv", x.flip(1), 64, 7, 2, 3, bias=True)))
    x = F.max_pool2d(F.pad(x, (1, 1, 1, 1)), 3, 2)
    for stage, count in enumerate((3, 4, 6, 3), 2):
        for unit in range(1, count + 1):
            name, filters = f"conv{stage}_block{unit}", 16 << stage
            stride = 2 if stage > 2 and unit == 1 else 1
            shortcut = x
            if unit == 1:
                y = w.conv(f"{name}_0_conv", x, 4 * filters, 1, stride, bias=True)
                shortcut = norm(f"{name}_0_bn", y)
            y = w.conv(f"{name}_1_conv", x, filters, 1, stride, bias=True)
            y = F.relu(norm(f"{name}_1_bn", y))
            y = F.relu(
                norm(f"{name}_2_bn", w.conv(f"{name}_2_conv", y, filters, 3, 1, 1, bias=True))
            )
            y = norm(f"{name}_3_bn", w.conv(f"{name}_3_conv", y, 4 * filters, bias=True))
            x = F.relu(shortcut + y)
    return w.dense("predictions", mean_of(x), 1000)


def keras_vgg16(w: Weights, x: Tensor) -> Tensor:
    x = x.flip(1)
    stage = number = 1
    for filters in VGG:
        if filters:
            x = F.relu(w.conv(f"block{stage}_conv{number}", x, filters, 3, 1, 1, bias=True))
            number += 1
        else:
            x = F.max_pool2d(x, 2)
            stage, number = stage + 1, 1
    x = x.permute(0, 2, 3, 1).flatten(1)
    x = F.relu(w.dense("fc1", x, 4096))
    return w.dense("predictions", F.relu(w.dense("fc2", x, 4096)), 1000)


def keras_densenet121(w: Weights, x: Tensor) -> Tensor:
    norm = partial(w.norm, eps=1.001e-5)
    x = F.relu(norm("conv1_bn", w.conv("conv1_conv", x, 64, 7, 2, 3)))
    x = F.max_pool2d(F.pad(x, (1, 1, 1, 1)), 3, 2)
    for block, count in enumerate((6, 12, 24, 16), 2):
        for layer in range(1, count + 1):
            name = f"conv{block}_block{layer}"
            y = F.relu(norm(f"{name}_0_bn", x))
            y = F.relu(norm(f"{name}_1_bn", w.conv(f"{name}_1_conv", y, 128)))
            x = torch.cat([x, w.conv(f"{name}_2_conv", y, 32, 3, 1, 1)], 1)
        if block < 5:
            x = w.conv(f"pool{block}_conv", F.relu(norm(f"pool{block}_bn", x)), x.shape[1] // 2)
            x = F.avg_pool2d(x, 2, 2)
    return w.dense("predictions", mean_of(F.relu(norm("bn", x))), 1000)


def keras_mobilenetv1(w: Weights, x: Tensor, both_sides: bool) -> Tensor:
    """MobileNet; both_sides: padded at stride 2 as PyTorch pads, instead of as Keras does."""

    def windows(name: str, x: Tensor, out: int, stride: int, groups: int = 1) -> Tensor:
        pad = (1, 1, 1, 1) if stride == 1 or both_sides else KERAS_PAD
        x = w.conv(name, F.pad(x, pad), out, 3, stride, 0, groups)
        return F.relu6(w.norm(f"{name}_bn", x, 1e-3))

    x = windows("conv1", x, 32, 2)
    number = 0
    for filters, count, first_stride in SEPARABLE:
        for unit in range(count):
            number += 1
            stride = first_stride if unit == 0 else 1
            x = windows(f"conv_dw_{number}", x, x.shape[1], stride, x.shape[1])
            name = f"conv_pw_{number}"
            x = F.relu6(w.norm(f"{name}_bn", w.conv(name, x, filters), 1e-3))
    return w.conv("conv_preds", mean_of(x)[:, :, None, None], 1000, bias=True).flatten(1)


def keras_mobilenetv2(w: Weights, x: Tensor, both_sides: bool) -> Tensor:
    norm = partial(w.norm, eps=1e-3)

    def windows(name: str, x: Tensor, out: int, stride: int, groups: int = 1) -> Tensor:
        pad = (1, 1, 1, 1) if stride == 1 or both_sides else KERAS_PAD
        return w.conv(name, F.pad(x, pad), out, 3, stride, 0, groups)

    x = F.relu6(norm("bn_Conv1", windows("Conv1", x, 32, 2)))
    number = -1
    for factor, filters, count, first_stride in INVERTED:
        for unit in range(count):
            number += 1
            name = f"block_{number}" if number else "expanded_conv"
            y, inner = x, factor * x.shape[1]
            if number:
                y = F.relu6(norm(f"{name}_expand_BN", w.conv(f"{name}_expand", y, inner)))
            stride = first_stride if unit == 0 else 1
            y = windows(f"{name}_depthwise", y, inner, stride, inner)
            y = F.relu6(norm(f"{name}_depthwise_BN", y))
            y = norm(f"{name}_project_BN", w.conv(f"{name}_project", y, filters))
            x = x + y if unit else y
    x = F.relu6(norm("Conv_1_bn", w.conv("Conv_1", x, 1280)))
    return w.dense("predictions", mean_of(x), 1000)


NETWORKS: dict[str, Callable[[Weights, Tensor], Tensor]] = {
    "torchvision resnet50_imagenet": partial(resnet, units=(3, 4, 6, 3)),
    "torchvision resnet152_imagenet": partial(resnet, units=(3, 8, 36, 3)),
    "torchvision resnet20_cifar10": resnet20,
    "torchvision mobilenetv2_imagenet": mobilenetv2,
    "torchvision vgg16_imagenet": vgg16,
    "torchvision densenet121_imagenet": densenet121,
    "torchvision old densenet121_imagenet": partial(densenet121, old=True),
    "torchvision inceptionv3_imagenet": inceptionv3,
    "timm resnet50_imagenet": partial(resnet, units=(3, 4, 6, 3)),
    "timm mobilenetv1_imagenet": timm_mobilenetv1,
    "timm mobilenetv2_imagenet": timm_mobilenetv2,
    "timm vgg16_imagenet": timm_vgg16,
    "timm densenet121_imagenet": densenet121,
    "timm inceptionv3_imagenet": inceptionv3,
    "keras resnet50_imagenet": keras_resnet50,
    "keras vgg16_imagenet": keras_vgg16,
    "keras densenet121_imagenet": keras_densenet121,
    "keras inceptionv3_imagenet": keras_inceptionv3,
    "keras mobilenetv1_imagenet": partial(keras_mobilenetv1, both_sides=True),
    "keras mobilenetv2_imagenet": partial(keras_mobilenetv2, both_sides=True),
}


def answer(request: dict[str, Any]) -> str:
    """Write the weights, pixels of images of that side, and the logits; return the weights' file.

    The network reads (pixels / 255 - 0.5) / 0.25.
    """
    torch.manual_seed(0)
    torch.set_num_threads(2)
    weights = Weights(request["seed"], request["network"].startswith("keras"))
    side = request["side"]
    pixels = np.random.default_rng(1).integers(0, 256, (2, 3, side, side), np.uint8)
    data = (torch.from_numpy(pixels) / 255 - 0.5) / 0.25
    with torch.no_grad():
        logits = NETWORKS[request["network"]](weights, data)
    np.savez(request["file"], pixels=pixels, logits=logits.numpy())
    np.savez(request["weights"], **weights.arrays)
    return str(request["weights"])
