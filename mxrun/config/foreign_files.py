"""Recognition of files of other formats given as a config, with advice for each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, SourceLocation

_CONFIG = "a config: YAML text in UTF-8"


@dataclass(frozen=True)
class _FileFormat:
    """File format recognised by its first bytes and, if formats share these, by its suffix."""

    what: str
    beginning: re.Pattern[bytes]
    hint: str
    endings: tuple[str, ...] = ()

    def fits(self, content: bytes, name: str) -> bool:
        """Return whether a file that begins with `content` has this format."""
        has_ending = not self.endings or name.lower().endswith(self.endings)
        return has_ending and self.beginning.match(content) is not None


def _kind(what: str, beginning: bytes, hint: str, *endings: str) -> _FileFormat:
    return _FileFormat(what, re.compile(beginning, re.DOTALL), hint, endings)


_AS_DATA = "data belong in a config's data section, or are given to `mxrun infer RUN FILE`"
_NOT_READ = (
    "mxrun cannot read networks of other programs yet: write its layers as a config, or take a "
    "bundled one; train.start_from: {weights: FILE} reads its weights (`mxrun docs weights`), "
    "mxrun.load(CONFIG).parameters[NAME] = ARRAY sets its weights, and the model's save(FOLDER) "
    "makes a folder for infer, evaluate, convert and train.start_from"
)
# By suffix, what holds weights of other programs.
_WEIGHTS = {
    **dict.fromkeys((".pt", ".pth", ".ckpt", ".torchscript"), "a PyTorch file"),
    **dict.fromkeys((".h5", ".hdf5", ".keras"), "a Keras file"),
    **dict.fromkeys((".tflite", ".pb"), "a TensorFlow file"),
    ".safetensors": "a safetensors file",
    ".params": "a file of MXNet parameters",
    ".onnx": "an ONNX model",
}
# The first match is used: of formats with equal first bytes, those with a suffix are first.
_KINDS = (
    _kind(
        "an ONNX model",
        rb"\x08[\x01-\x7f][\x12:B\x1a]",
        f"{_NOT_READ}; it writes ONNX: mxrun convert CONFIG|RUN -o FILE.onnx",
    ),
    _kind(
        "a safetensors file",
        rb".{6}\x00\x00\{\s*\"",
        "give the run's folder to use its parameters: mxrun infer RUN, or train.start_from in a "
        "config; those of other programs: train.start_from: {weights: FILE} (`mxrun docs weights`)",
    ),
    _kind("a NumPy archive (.npz)", rb"PK\x03\x04", _AS_DATA, ".npz"),
    _kind("a PyTorch file", rb"PK\x03\x04", _NOT_READ, ".pt", ".pth"),
    _kind("a Keras file", rb"PK\x03\x04", _NOT_READ, ".keras"),
    _kind("a ZIP archive", rb"PK\x03\x04", "unpack it, and name the config within"),
    _kind("a NumPy array (.npy)", rb"\x93NUMPY", _AS_DATA),
    _kind("a PNG image", rb"\x89PNG", _AS_DATA),
    _kind("a JPEG image", rb"\xff\xd8\xff", _AS_DATA),
    _kind("a GIF image", rb"GIF8", _AS_DATA),
    _kind("a gzip archive", rb"\x1f\x8b", "unpack it, and name the config within"),
    _kind("an HDF5 file", rb"\x89HDF\r\n", _NOT_READ),
    _kind("a file of MXNet parameters", rb"\x12\x01\x00{6}", _NOT_READ),
    _kind(
        "a pickled Python object",
        rb"\x80[\x02-\x05]",
        "mxrun does not read pickles, as they can run code",
    ),
)
# Keys of every symbol file that MXNet writes.
_SYMBOL_KEYS = frozenset({"nodes", "arg_nodes", "heads"})


def foreign_weights(name: str | PurePath) -> tuple[str, str]:
    """Return the kind of file that the suffix of a path promises, if it is one of weights of
    another program, and what to do with them; else empty texts.
    """
    what = _WEIGHTS.get(PurePath(name).suffix.lower(), "")
    return what, what and _NOT_READ


def foreign_file(content: bytes, shown: str) -> Diagnostic | None:
    """Return a diagnostic if a file that begins with `content` has a known other format, else None.

    `shown` is the file's name in places.
    """
    found = next((kind for kind in _KINDS if kind.fits(content, shown)), None)
    if found is None:
        return None
    problem = f"this is {found.what}, not a config"
    return Diagnostic(problem, SourceLocation(shown, 1, 1), _CONFIG, hint=found.hint)


def mxnet_symbol(entries: Mapping[str, object], place: SourceLocation) -> Diagnostic | None:
    """Return a diagnostic if a mapping is MXNet's JSON of a symbol, else None."""
    if not entries.keys() >= _SYMBOL_KEYS:
        return None
    return Diagnostic(
        "this is an MXNet symbol file, not a config",
        place,
        _CONFIG,
        hint="no command reads this format yet: write its layers as a config, in which operators "
        "have MXNet's names and parameters",
    )
