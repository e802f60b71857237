"""Conversion between tensor specs and oneDNN memory descriptors.

A descriptor describes a spec through a `DescriptorView`: the same elements with the axes that the
primitive expects. A layout that is neither plain nor channels-last becomes `Layout(name, nbytes)`.
The name encodes view, sizes, strides and inner blocks, so that equal names mean equal bytes; it is
also the key of the descriptor.
"""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_int64, c_void_p

from mxrun.base.blocked import Blocked
from mxrun.base.dataclass import dataclass
from mxrun.base.errors import InternalError
from mxrun.base.once import once
from mxrun.base.tensor import CHANNELS_LAST, PLAIN, Layout, Shape, TensorSpec, strides_of
from mxrun.device.cpu.onednn.library import OwnedObject, require

# Lets a primitive choose the layout of an argument.
ANY = Layout("any")

MAX_RANK = 12
_DESTROYER = "dnnl_memory_desc_destroy"
_ANY_TAG = 1
_BLOCKED = 2
_DATA_TYPES = {"float16": 1, "bfloat16": 2, "float32": 3, "int32": 4, "int8": 5, "uint8": 6}
_QUERY_STRIDES = 14
_QUERY_RANK = 256
_QUERY_DIMENSIONS = 257
_QUERY_FORMAT_KIND = 262
_QUERY_BLOCK_COUNT = 263
_QUERY_BLOCK_SIZES = 264
_QUERY_BLOCK_AXES = 265


@dataclass(frozen=True)
class DescriptorView:
    """Axes of a tensor as a primitive sees them.

    groups: axis 0 is split into (groups, axis 0 / groups), oneDNN's form of grouped weights.
    transposed: the last two axes, those of a matrix, are exchanged.
    rank: leading axes of size 1 are added up to that rank (a bias beside a matrix).
    row: the last axis becomes the only row of a plane, because oneDNN has faster code for two
        spatial axes than for one.
    within: shape of the tensor of which this is a part; not given for a part without gaps.
    """

    groups: int = 1
    transposed: bool = False
    rank: int = 0
    row: bool = False
    within: Shape = ()

    def __str__(self) -> str:
        text = f"g{self.groups}" if self.groups > 1 else ""
        text += "t" if self.transposed else ""
        text += "w" if self.row else ""
        return text + (f"r{self.rank}" if self.rank else "")

    def apply(self, sizes: Shape, strides: Shape) -> tuple[Shape, Shape]:
        """Return sizes and element strides as the primitive sees them."""
        if self.groups > 1:
            inner = sizes[0] // self.groups
            sizes = (self.groups, inner, *sizes[1:])
            strides = (inner * strides[0], *strides)
        if self.row:
            plane = sizes[-1] * strides[-1]
            sizes, strides = (*sizes[:-1], 1, sizes[-1]), (*strides[:-1], plane, strides[-1])
        if self.transposed:
            sizes = (*sizes[:-2], *sizes[:-3:-1])
            strides = (*strides[:-2], *strides[:-3:-1])
        while len(sizes) < self.rank:
            sizes, strides = (1, *sizes), (sizes[0] * strides[0], *strides)
        return sizes, strides


IDENTITY = DescriptorView()


# Packed layouts of this process by name. They are never freed, because a plan may refer to them at
# any time.
_packed: dict[str, tuple[OwnedObject, DescriptorView]] = {}


def dimensions(values: tuple[int, ...]) -> ctypes.Array[c_int64]:
    """Return the values as a dnnl_dims_t."""
    return (c_int64 * MAX_RANK)(*values)


def describe(spec: TensorSpec, view: DescriptorView = IDENTITY) -> OwnedObject:
    """Return the memory descriptor of `spec` seen through `view`.

    Raises InternalError for a packed layout that was made for another view.
    """
    if spec.layout.nbytes is not None:
        descriptor, packed_view = _packed[spec.layout.name]
        if packed_view != view:
            raise InternalError(f"layout {spec.layout} does not suit the view {view!r}")
        return descriptor
    return _describe(spec, view)


def view_of(spec: TensorSpec) -> DescriptorView:
    """Return the view a packed layout was made for; the identity for any other layout."""
    return _packed[spec.layout.name][1] if spec.layout.nbytes is not None else IDENTITY


def blocked(spec: TensorSpec) -> Blocked:
    """Return the strides and blocks of a packed layout."""
    return _blocked(_packed[spec.layout.name][0].value)


def spec_of(
    handle: int, requested: TensorSpec, view: DescriptorView = IDENTITY
) -> TensorSpec | None:
    """Return `requested` with the layout of a descriptor that a primitive reports for it.

    None for a layout that does not consist of strides and blocks.
    """
    library = require()
    layouts = (
        (CHANNELS_LAST, PLAIN) if requested.layout == CHANNELS_LAST else (PLAIN, CHANNELS_LAST)
    )
    for layout in layouts:
        candidate = requested.with_layout(layout)
        if (layout == PLAIN or len(requested.shape) > 2) and library.same_memory(
            handle, describe(candidate, view).value
        ):
            return candidate
    if _query_integer(handle, _QUERY_FORMAT_KIND) != _BLOCKED:
        return None
    name = _name(handle, requested, view)
    if name not in _packed:
        copy = OwnedObject(library, _DESTROYER, library.create("dnnl_memory_desc_clone", handle))
        # Another thread may have been faster, whose descriptor is then in use.
        _packed.setdefault(name, (copy, view))
    return requested.with_layout(Layout(name, library.memory_size(handle)))


@once
def _describe(spec: TensorSpec, view: DescriptorView) -> OwnedObject:
    library = require()
    layout = PLAIN if spec.layout == ANY else spec.layout
    sizes, strides = view.apply(spec.shape, strides_of(view.within or spec.shape, layout))
    head = (len(sizes), dimensions(sizes), _DATA_TYPES[spec.dtype])
    if spec.layout == ANY:
        handle = library.create("dnnl_memory_desc_create_with_tag", *head, _ANY_TAG)
    else:
        name = "dnnl_memory_desc_create_with_strides"
        handle = library.create(name, *head, dimensions(strides))
    return OwnedObject(library, _DESTROYER, handle)


def _blocked(handle: int) -> Blocked:
    rank = _query_integer(handle, _QUERY_RANK)
    count = _query_integer(handle, _QUERY_BLOCK_COUNT)
    sizes = _query_dimensions(handle, _QUERY_BLOCK_SIZES, count)
    axes = _query_dimensions(handle, _QUERY_BLOCK_AXES, count)
    return Blocked(
        _query_dimensions(handle, _QUERY_DIMENSIONS, rank),
        _query_dimensions(handle, _QUERY_STRIDES, rank),
        tuple(zip(sizes, axes, strict=True)),
    )


def _name(handle: int, requested: TensorSpec, view: DescriptorView) -> str:
    found = _blocked(handle)
    blocks = "".join(f"{size}{chr(ord('a') + axis)}" for size, axis in found.blocks)
    sizes, strides = "x".join(map(str, found.sizes)), "/".join(map(str, found.strides))
    text = [sizes, strides, blocks, str(view)]
    return f"onednn:{requested.dtype}:" + ":".join(part for part in text if part)


def _query_integer(handle: int, query: int) -> int:
    result = c_int()
    require().call("dnnl_memory_desc_query", handle, query, ctypes.byref(result))
    return result.value


def _query_dimensions(handle: int, query: int, count: int) -> tuple[int, ...]:
    result = c_void_p()
    require().call("dnnl_memory_desc_query", handle, query, ctypes.byref(result))
    return tuple((c_int64 * count).from_address(result.value)) if result.value and count else ()
