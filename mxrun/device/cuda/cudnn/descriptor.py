"""Descriptors of cuDNN's graph API: objects with typed attributes, immutable once finalised."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Mapping, Sequence
from ctypes import c_bool, c_char, c_float, c_int, c_int64, c_void_p
from typing import Any, TypeAlias

from mxrun.base.errors import InternalError
from mxrun.device.cuda.cudnn.constants import Attribute, AttributeType, DescriptorKind
from mxrun.device.cuda.cudnn.library import SUCCESS, require
from mxrun.operator.constraints import Unsupported

# Types of C; enumerations are integers.
ELEMENTS: Mapping[AttributeType, Any] = {
    AttributeType.BOOLEAN: c_bool,
    AttributeType.INT64: c_int64,
    AttributeType.FLOAT: c_float,
    AttributeType.VOID_PTR: c_void_p,
    AttributeType.BACKEND_DESCRIPTOR: c_void_p,
    AttributeType.CHAR: c_char,
}
# The first status that says that a valid descriptor is not supported, and the first beyond.
_NOT_SUPPORTED = range(3000, 4000)


class Descriptor:
    """Descriptor of cuDNN, destroyed when it is garbage-collected.

    references: the descriptors that its attributes refer to.
    """

    def __init__(self, kind: DescriptorKind) -> None:
        library, result = require(), c_void_p()
        library.call("cudnnBackendCreateDescriptor", kind, ctypes.byref(result))
        self.kind, self.handle = kind, result.value or 0
        self.references: list[Descriptor] = []
        destroy = weakref.finalize(
            self, library.status, "cudnnBackendDestroyDescriptor", self.handle
        )
        # Not at interpreter exit: the operating system is faster, and the library may be gone.
        destroy.atexit = False

    def set(self, attribute: Attribute, value: Value) -> None:
        """Set an attribute to one element or to several."""
        several = isinstance(value, Sequence)
        given: Sequence[Any] = value if isinstance(value, Sequence) else [value]
        if isinstance(value, bytes):
            elements: Any = ctypes.create_string_buffer(value, len(value))
        else:
            self.references += [each for each in given if isinstance(each, Descriptor)]
            raw = [each.handle if isinstance(each, Descriptor) else each for each in given]
            elements = (ELEMENTS.get(attribute.type, c_int) * len(raw))(*raw)
        status = require().status(
            "cudnnBackendSetAttribute",
            *(self.handle, attribute.number, attribute.type, len(given), elements),
        )
        if status != SUCCESS:
            shown = value if several or not isinstance(value, Descriptor) else value.kind.name
            self._fail(f"{attribute.name} = {shown!r}"[:200], status)

    def finalise(self) -> None:
        """Complete the descriptor; raises Unsupported if cuDNN does not support what it says."""
        status = require().status("cudnnBackendFinalize", self.handle)
        if status != SUCCESS:
            self._fail("finalise", status)

    def numbers(self, attribute: Attribute, most: int = 1) -> list[int]:
        """Return the elements of an attribute of integers, of which there are `most` or fewer."""
        elements = (ELEMENTS.get(attribute.type, c_int) * most)()
        return list(elements[: min(self._get(attribute, most, elements), most)])

    def text(self, attribute: Attribute) -> bytes:
        """Return an attribute of characters."""
        buffer = ctypes.create_string_buffer(self._get(attribute, 0, None))
        self._get(attribute, len(buffer), buffer)
        return buffer.raw

    def descriptors(
        self, attribute: Attribute, kind: DescriptorKind, most: int
    ) -> list[Descriptor]:
        """Return the descriptors of an attribute, `most` or fewer, of one kind."""
        found = [Descriptor(kind) for _ in range(most)]
        handles = (c_void_p * most)(*(each.handle for each in found))
        count = self._get(attribute, most, handles)
        for each in found:
            # What is asked of a result concerns the descriptor that it came from.
            each.references.append(self)
        return found[:count]

    def _get(self, attribute: Attribute, most: int, elements: Any) -> int:
        """Read an attribute into an array and return how many elements it has."""
        count = c_int64()
        status = require().status(
            "cudnnBackendGetAttribute",
            *(self.handle, attribute.number, attribute.type, most, ctypes.byref(count), elements),
        )
        if status != SUCCESS:
            self._fail(attribute.name, status)
        return count.value

    def _fail(self, what: str, status: int) -> None:
        """Raise Unsupported or, for a fault of ours, InternalError."""
        error = Unsupported if status in _NOT_SUPPORTED else InternalError
        raise error(f"cuDNN's {self.kind.name}, {what}: {require().message(status)}")


Value: TypeAlias = int | float | bool | bytes | Descriptor | Sequence[int] | Sequence[Descriptor]


def describe(kind: DescriptorKind, attributes: Mapping[Attribute, Value]) -> Descriptor:
    """Return the finalised descriptor of a kind; raises Unsupported or InternalError."""
    descriptor = Descriptor(kind)
    for attribute, value in attributes.items():
        descriptor.set(attribute, value)
    descriptor.finalise()
    return descriptor
