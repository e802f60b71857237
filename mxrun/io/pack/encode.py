"""Encoding of a data set's records for a pack: the content of each image, and its label."""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import LazyField
from mxrun.io.dataset.pixels import WHITE
from mxrun.io.dataset.records import decoded_record, undecoded_record
from mxrun.io.images.decode import MAXIMUM_PIXELS
from mxrun.io.images.encoded import EncodedImage
from mxrun.io.images.kinds import image_kind
from mxrun.io.loading.batch import is_label
from mxrun.io.pack.options import PackEncoding, PackSettings
from mxrun.io.transforms.base import RecordShape

DATA = "data"
_PNG_COMPRESSION = 6
# Longest row or column that JPEG files hold.
_MAX_SIDE = 65_500


@dataclass(frozen=True)
class EncodedRecord:
    """Content of a packed image, the extension of its kind, and its label.

    label: one number or several, float32; empty without a label. class_name: empty if the label is
    no class with a name.
    """

    content: bytes
    extension: str
    label: tuple[float, ...]
    class_name: str = ""


class RecordEncoder:
    """Encoder of the records of a data set; stateless and therefore thread-safe."""

    def __init__(self, dataset: Dataset, options: PackSettings) -> None:
        """Raises UserError for records that are no images, and for files to keep that are none."""
        self._dataset, self._options = dataset, options
        check_images(dataset)
        if options.encoding == "keep" and DATA not in dataset.lazy:
            problem = f"the records of {dataset.name} are arrays, not image files to keep"
            raise UserError(Diagnostic(problem, None, "--encoding png, jpeg or raw"))
        labels = [name for name in dataset.fields if is_label(name)]
        self._label = labels[0] if labels else None

    def encode(self, index: int) -> EncodedRecord:
        """Return a record; raises UserError naming it if its image cannot be read."""
        content, extension = self._image(index)
        label, name = self._labels(index)
        return EncodedRecord(content, extension, label, name)

    def _image(self, index: int) -> tuple[bytes, str]:
        dataset = self._dataset
        stored = undecoded_record(dataset, DATA, index)
        pixels = decoded_record(dataset, DATA, stored)
        if not isinstance(stored, EncodedImage):
            white = dataset.whites[DATA]
            if white != WHITE:
                pixels = np.rint(pixels * (WHITE / white)).astype(np.uint8)
            return self._encoded(pixels)
        # Files to keep are decoded too: a damaged one must not get into the pack.
        if self._options.encoding == "keep":
            kind = image_kind(stored.content)
            assert kind is not None, "the image was decoded"
            return bytes(stored.content), kind.suffixes[0].removeprefix(".")
        return self._encoded(pixels, f"{stored.source}: ")

    def _encoded(self, pixels: NDArray[np.uint8], where: str = "") -> tuple[bytes, str]:
        """Return an image, uint8 [channels, height, width], in the encoding of the pack.

        where: beginning of messages.
        """
        from PIL import Image

        encoding, size = self._options.encoding, self._options.resize
        if encoding in ("keep", "raw") and size is None:
            return _raw(pixels), "npy"
        flat = pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)
        image = Image.fromarray(np.ascontiguousarray(flat))
        if size is not None:
            sides = _sides(image.width, image.height, size)
            _check_sides(sides, where)
            image = image.resize(sides, _filter())
        if encoding == "raw":
            resized = np.asarray(image)
            planes = resized[np.newaxis] if resized.ndim == 2 else resized.transpose(2, 0, 1)
            return _raw(planes), "npy"
        stream = io.BytesIO()
        if encoding == "jpeg":
            image.save(stream, "JPEG", quality=self._options.jpeg_quality)
            return stream.getvalue(), "jpg"
        image.save(stream, "PNG", compress_level=_PNG_COMPRESSION)
        return stream.getvalue(), "png"

    def _labels(self, index: int) -> tuple[tuple[float, ...], str]:
        """Return the numbers of a record's label, and the name of its class if it has one."""
        if self._label is None:
            return (), ""
        column = self._dataset.fields[self._label].records
        label = column[index]
        if label.ndim == 0:
            classes = self._dataset.classes
            is_class = bool(classes) and self._label == self._dataset.class_field
            return (float(label),), classes[int(label)] if is_class else ""
        if label.ndim == 2:
            # Boxes in MXNet's form: the length of this header, the numbers of each box, the boxes.
            boxes = label[label[:, 0] >= 0]
            return (2.0, float(label.shape[1]), *map(float, boxes.ravel())), ""
        return tuple(map(float, label.ravel())), ""


def check_images(dataset: Dataset) -> None:
    """Raise UserError unless the field `data` of a data set has images of bytes."""
    shape: RecordShape
    column = dataset.lazy.get(DATA) or dataset.fields.get(DATA)
    if isinstance(column, LazyField):
        shape, dtype = column.shape, column.dtype
    elif column is not None:
        shape, dtype = column.records.shape[1:], column.records.dtype.name
    else:
        names = ", ".join([*dataset.lazy, *dataset.fields])
        problem = f"the data set {dataset.name} has no field {DATA!r}"
        raise UserError(Diagnostic(problem, None, DATA, names))
    if len(shape) != 3 or shape[0] not in (1, 3) or dtype != "uint8":
        problem = f"the records of {dataset.name} are not images"
        got = f"{dtype}{[*shape]}".replace("None", "any")
        raise UserError(Diagnostic(problem, None, "uint8 [1 or 3, height, width]", got))
    if column.white is None:
        problem = f"the records of {dataset.name} are numbers: a pack of images would scale them"
        hint = "declare the arrays as images in the data section: images: {data: 255}"
        raise UserError(Diagnostic(problem, None, "images", "numbers", hint=hint))


def default_encoding(dataset: Dataset, options: PackSettings) -> PackEncoding:
    """Return the encoding that loses nothing: `keep` for files, `png` for arrays.

    Files that are resized, or for which a quality is given, are written as JPEG.
    """
    if options.quality is not None:
        return "jpeg"
    if DATA not in dataset.lazy:
        return "png"
    return "keep" if options.resize is None else "jpeg"


def _sides(width: int, height: int, shorter: int) -> tuple[int, int]:
    """Return width and height for a shorter side, by the rule of the transform `resize`."""
    if height <= width:
        return max(shorter * width // height, shorter), shorter
    return shorter, max(shorter * height // width, shorter)


def _check_sides(sides: tuple[int, int], where: str) -> None:
    """Raise UserError for a size that is not decoded again, as of a strip that is enlarged."""
    if sides[0] * sides[1] > MAXIMUM_PIXELS or max(sides) > _MAX_SIDE:
        problem = f"{where}the resized image is too large"
        expected = f"at most {MAXIMUM_PIXELS} pixels, and {_MAX_SIDE} in a row or column"
        raise UserError(Diagnostic(problem, None, expected, f"{sides[0]} x {sides[1]}"))


def _filter() -> int:
    from PIL import Image

    return Image.Resampling.BILINEAR


def _raw(pixels: NDArray[np.uint8]) -> bytes:
    """Return an array in NumPy's format."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.ascontiguousarray(pixels), (1, 0), allow_pickle=False)
    return stream.getvalue()
