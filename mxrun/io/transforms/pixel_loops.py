"""Loops that change float32 images [n, channels, height, width] in place."""

from __future__ import annotations

from typing import Any

import numpy as np

from mxrun.codegen.arguments import Arguments, Float32s, Float64s, Int64s, Integer
from mxrun.codegen.jit import inlined, native

# Columns of the factors of `color_loop`: brightness, contrast, saturation, then a matrix [3, 3].
FACTORS = 12
BRIGHTNESS, CONTRAST, SATURATION, MATRIX = range(4)
# Weights of red, green and blue in the brightness of a pixel, of ITU-R BT.601.
RED, GREEN, BLUE = np.float32(0.299), np.float32(0.587), np.float32(0.114)


class PixelChange(Arguments):
    """Chunk of images."""

    rows: Integer
    channels: Integer
    height: Integer
    width: Integer
    values: Float32s


class Normalizing(PixelChange):
    """Arguments of `normalize_loop`: [channels] each."""

    means: Float32s
    deviations: Float32s


class Erasing(PixelChange):
    """Arguments of `erase_loop`: top, left, bottom and right of a rectangle, [rows, 4]."""

    rectangles: Int64s


class Coloring(PixelChange):
    """Arguments of `color_loop`.

    factors: [rows, FACTORS]. sums: scratch memory, [width]. The others say which of the changes
    there are.
    """

    factors: Float32s
    sums: Float64s
    has_contrast: Integer
    has_saturation: Integer
    has_matrix: Integer


class Shifting(PixelChange):
    """Arguments of `shift_loop`: added to each channel, [rows, channels]."""

    shifts: Float32s


class Warping(PixelChange):
    """Arguments of `warp_loop`.

    matrices: [rows, 6], from the place (x, y) of a result to its source: a x + b y + c and
    d x + e y + f, from the centres of the images, in pixels. source: scratch memory for one image.
    """

    matrices: Float64s
    source: Float32s


@native
def normalize_loop(call: Normalizing) -> None:
    """Compute (value - mean) / deviation."""
    size = call.height * call.width
    for plane in range(call.rows * call.channels):
        mean = call.means[plane % call.channels]
        deviation = call.deviations[plane % call.channels]
        for i in range(plane * size, (plane + 1) * size):
            call.values[i] = (call.values[i] - mean) / deviation


@native
def erase_loop(call: Erasing) -> None:
    """Set rectangles to zero."""
    for plane in range(call.rows * call.channels):
        at = plane // call.channels * 4
        left, right = call.rectangles[at + 1], call.rectangles[at + 3]
        for y in range(call.rectangles[at], call.rectangles[at + 2]):
            line = (plane * call.height + y) * call.width
            for x in range(left, right):
                call.values[line + x] = 0.0


@inlined
def unit(value: Any) -> Any:
    """Return a float32 clipped to 0..1."""
    return min(max(value, np.float32(0.0)), np.float32(1.0))


@inlined
def mean_brightness(call: Coloring, first: int, size: int) -> Any:
    """Return the mean brightness of an image that begins at `first`, float32.

    Columns are summed first, then the row of sums, in float64.
    """
    for x in range(call.width):
        call.sums[x] = 0.0
    for y in range(call.height):
        line = first + y * call.width
        if call.channels == 3:
            for x in range(call.width):
                red, green = call.values[line + x], call.values[line + size + x]
                blue = call.values[line + 2 * size + x]
                call.sums[x] = call.sums[x] + (red * RED + green * GREEN + blue * BLUE)
        else:
            for x in range(call.width):
                call.sums[x] = call.sums[x] + call.values[line + x]
    total = 0.0
    for x in range(call.width):
        total += call.sums[x]
    return np.float32(total / size)


@native
def color_loop(call: Coloring) -> None:
    """Change brightness, contrast, saturation and hue."""
    size = call.height * call.width
    for row in range(call.rows):
        first, factor = row * call.channels * size, row * FACTORS
        brightness = call.factors[factor + BRIGHTNESS]
        for i in range(first, first + call.channels * size):
            call.values[i] = unit(call.values[i] * brightness)
        if call.has_contrast:
            mean, contrast = mean_brightness(call, first, size), call.factors[factor + CONTRAST]
            for i in range(first, first + call.channels * size):
                call.values[i] = unit((call.values[i] - mean) * contrast + mean)
        if call.has_saturation:
            saturation = call.factors[factor + SATURATION]
            for i in range(first, first + size):
                red, green = call.values[i], call.values[i + size]
                blue = call.values[i + 2 * size]
                grey = red * RED + green * GREEN + blue * BLUE
                call.values[i] = unit((red - grey) * saturation + grey)
                call.values[i + size] = unit((green - grey) * saturation + grey)
                call.values[i + 2 * size] = unit((blue - grey) * saturation + grey)
        if call.has_matrix:
            at = factor + MATRIX
            a, b, c = call.factors[at], call.factors[at + 1], call.factors[at + 2]
            d, e, f = call.factors[at + 3], call.factors[at + 4], call.factors[at + 5]
            g, h, k = call.factors[at + 6], call.factors[at + 7], call.factors[at + 8]
            for i in range(first, first + size):
                red, green = call.values[i], call.values[i + size]
                blue = call.values[i + 2 * size]
                call.values[i] = unit(red * a + green * b + blue * c)
                call.values[i + size] = unit(red * d + green * e + blue * f)
                call.values[i + 2 * size] = unit(red * g + green * h + blue * k)


@native
def shift_loop(call: Shifting) -> None:
    """Add a number to each channel."""
    size = call.height * call.width
    for plane in range(call.rows * call.channels):
        shift = call.shifts[plane]
        for i in range(plane * size, (plane + 1) * size):
            call.values[i] = call.values[i] + shift


@native
def warp_loop(call: Warping) -> None:
    """Move pixels by bilinear interpolation; what comes from outside of the image is zero."""
    size = call.height * call.width
    middle_x, middle_y = 0.5 * (call.width - 1), 0.5 * (call.height - 1)
    for row in range(call.rows):
        first, at = row * call.channels * size, 6 * row
        for i in range(call.channels * size):
            call.source[i] = call.values[first + i]
        a, b, c = call.matrices[at], call.matrices[at + 1], call.matrices[at + 2]
        d, e, f = call.matrices[at + 3], call.matrices[at + 4], call.matrices[at + 5]
        for y in range(call.height):
            for x in range(call.width):
                across, down = x - middle_x, y - middle_y
                source_x = a * across + b * down + c + middle_x
                source_y = d * across + e * down + f + middle_y
                target = first + y * call.width + x
                is_inside = -1.0 < source_x < call.width and -1.0 < source_y < call.height
                if not is_inside:
                    for channel in range(call.channels):
                        call.values[target + channel * size] = 0.0
                    continue
                # Rounded down also below zero.
                left, top = np.int64(source_x + 1.0) - 1, np.int64(source_y + 1.0) - 1
                right = np.float32(source_x - left)
                bottom = np.float32(source_y - top)
                for channel in range(call.channels):
                    total = np.float32(0.0)
                    for j in range(2):
                        for i in range(2):
                            if 0 <= left + i < call.width and 0 <= top + j < call.height:
                                wide = right if i == 1 else np.float32(1.0) - right
                                high = bottom if j == 1 else np.float32(1.0) - bottom
                                place = (top + j) * call.width + left + i
                                total += call.source[channel * size + place] * (wide * high)
                    call.values[target + channel * size] = total
