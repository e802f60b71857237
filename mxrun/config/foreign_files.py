"""Files that are given as a config and are something else: what they are, and what to do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from mxrun.base.errors import Diagnostic, SourceLocation

_CONFIG = "a config: YAML text in UTF-8"


@dataclass(frozen=True)
class _Kind:
    """A kind of file, told by its first bytes and, where these are shared, by its ending."""

    what: str
    beginning: re.Pattern[bytes]
    hint: str
    endings: tuple[str, ...] = ()

    def fits(self, content: bytes, name: str) -> bool:
        """Whether a file that begins with `content` is of this kind."""
        has_ending = not self.endings or name.lower().endswith(self.endings)
        return has_ending and self.beginning.match(content) is not None


def _kind(what: str, beginning: bytes, hint: str, *endings: str) -> _Kind:
    return _Kind(what, re.compile(beginning, re.DOTALL), hint, endings)


_AS_DATA = "data are named in a config's data section, or given to `mxrun infer RUN FILE`"
_NOT_READ = "mxrun reads no networks of other programs yet: write its layers as a config"
# The first that fits: those that an ending tells apart come before those without.
_KINDS = (
    _kind(
        "an ONNX model",
        rb"\x08[\x01-\x7f][\x12:B\x1a]",
        f"{_NOT_READ}; it writes ONNX: mxrun convert CONFIG|RUN -o FILE.onnx",
    ),
    _kind(
        "a safetensors file",
        rb".{6}\x00\x00\{\s*\"",
        "a run's parameters are used by its "
        "folder: mxrun infer RUN, or train.start_from in a config",
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
    _kind("a file of MXNet parameters", rb"\x12\x01\x00{6}", "no command reads one yet"),
    _kind("a pickled Python object", rb"\x80[\x02-\x05]", "nothing reads one: it could run code"),
)
# Keys of every symbol that MXNet saved.
_SYMBOL_KEYS = frozenset({"nodes", "arg_nodes", "heads"})


def foreign_file(content: bytes, shown: str) -> Diagnostic | None:
    """What is wrong with a file that begins with `content`, if that is known to be no config.

    `shown` is the file's name in places.
    """
    found = next((kind for kind in _KINDS if kind.fits(content, shown)), None)
    if found is None:
        return None
    problem = f"this is {found.what}, not a config"
    return Diagnostic(problem, SourceLocation(shown, 1, 1), _CONFIG, hint=found.hint)


def mxnet_symbol(entries: Mapping[str, object], place: SourceLocation) -> Diagnostic | None:
    """What is wrong with a mapping that is MXNet's JSON of a symbol, if it is that."""
    if not entries.keys() >= _SYMBOL_KEYS:
        return None
    return Diagnostic(
        "this is an MXNet symbol file, not a config",
        place,
        _CONFIG,
        hint="no command reads one yet: write its layers as a config, where operators have "
        "MXNet's names and parameters",
    )
