"""SequenceArguments of kernel parts that pass tensors to each other in scratch space."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from mxrun.base.dataclass import dataclass
from mxrun.base.once import cached_property
from mxrun.base.tensor import align
from mxrun.operator.kernel import Handles
from mxrun.operator.launch import Handle, Launch
from mxrun.operator.native_kernel import KernelPart, Slot, extra


def between(index: int) -> Slot:
    """Return the slot of the chain's scratch tensor `index`."""
    return extra(index)


@dataclass(frozen=True)
class ChainPart:
    """Sequence of parts with scratch tensors of `between_bytes`, whose slots `between` returns.

    Each part has scratch space of its own: what one leaves for another is one of the tensors.
    extra_count: number of the kernel's extra outputs, whose slots come before those of the scratch
    tensors.
    """

    parts: tuple[KernelPart, ...]
    between_bytes: tuple[int, ...]
    extra_count: int = 0

    @property
    def scratch_bytes(self) -> int:
        """Least size in which all tensors and scratch spaces have places for their lifetimes."""
        return self._places.nbytes

    def slots(self) -> Iterator[Slot]:
        """Yield the parts' slots, except those of the scratch tensors."""
        for part in self.parts:
            yield from (slot for slot in part.slots() if not self._is_between(slot))

    def launches(self, handles: Handles, scratch: Handle | None) -> tuple[Launch, ...]:
        """Return the parts' launches in order."""

        def at(offset: int) -> Handle | None:
            return None if scratch is None else scratch + offset

        extra = handles.extra_outputs[: self.extra_count]
        inside = replace(handles, extra_outputs=(*extra, *map(at, self._places.tensors)))
        return tuple(
            launch
            for part, offset in zip(self.parts, self._places.own, strict=True)
            for launch in part.launches(inside, at(offset))
        )

    def _is_between(self, slot: Slot) -> bool:
        return slot.group == "extra_outputs" and slot.index >= self.extra_count

    @cached_property
    def _places(self) -> _Places:
        """The places of the tensors, from their first to their last part, and of the scratch."""
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for number, part in enumerate(self.parts):
            for slot in filter(self._is_between, part.slots()):
                first.setdefault(slot.index - self.extra_count, number)
                last[slot.index - self.extra_count] = number
        lives = [
            _Life(first.get(index, 0), last.get(index, 0), align(nbytes))
            for index, nbytes in enumerate(self.between_bytes)
        ]
        lives += [
            _Life(number, number, align(part.scratch_bytes))
            for number, part in enumerate(self.parts)
        ]
        offsets = _offsets(lives)
        count = len(self.between_bytes)
        ends = (life.nbytes + offset for life, offset in zip(lives, offsets, strict=True))
        return _Places(offsets[:count], offsets[count:], max(ends, default=0))


@dataclass(frozen=True)
class _Places:
    """Offsets of the tensors and of the parts' own scratch space, and the size of all."""

    tensors: Sequence[int]
    own: Sequence[int]
    nbytes: int


@dataclass(frozen=True)
class _Life:
    """Bytes that are in use from one part to another, both included."""

    first: int
    last: int
    nbytes: int

    def meets(self, other: _Life) -> bool:
        return self.first <= other.last and other.first <= self.last


def _offsets(lives: Sequence[_Life]) -> list[int]:
    """Return an offset for each, the largest one first, at the lowest free place."""
    offsets: dict[int, int] = {}
    for number in sorted(range(len(lives)), key=lambda number: -lives[number].nbytes):
        life, offset = lives[number], 0
        taken = ((offsets[other], lives[other]) for other in offsets if lives[other].meets(life))
        for begin, other in sorted(taken, key=lambda place: place[0]):
            if begin - offset >= life.nbytes:
                break
            offset = max(offset, begin + other.nbytes)
        offsets[number] = offset
    return [offsets[number] for number in range(len(lives))]
