"""Computations cut into tasks, each of which is a primitive on parts of the tensors.

The parts follow from the shapes alone, so that no result depends on the number of threads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import TypeAlias

import numpy as np

from mxrun.base.dataclass import dataclass
from mxrun.base.device import ONE_THREAD, Cut
from mxrun.base.dtype import item_size
from mxrun.base.tensor import Shape, TensorSpec, align, strides_of
from mxrun.codegen.arguments import Arguments, Float32s, Int64s, Integer, Table
from mxrun.codegen.intrinsics import call_address, current_task, integer, share, worker
from mxrun.codegen.jit import native
from mxrun.device.cpu.call import ALONE_WORKER, Failure, NativeCall, TaskThreads, loop_call
from mxrun.device.cpu.onednn.library import SUCCESS, require
from mxrun.device.cpu.onednn.primitive import Argument, Primitive

Specs = Mapping[Argument, TensorSpec]

# Elements of a total that stay in the nearest cache while all partial sums are added.
_NEAR = 2048


class PartCalls(Arguments):
    """Arguments of `execute_part`, for each task an entry of the tables.

    primitives, arguments: of a primitive, and the address of its `count` arguments. scratchpads:
    memory objects, placed at the worker's part of `scratch`; 0 without scratch space. failed [1]:
    set to 1 if a primitive fails.
    """

    execute: Integer
    place: Integer
    stream: Integer
    count: Integer
    primitives: Table
    arguments: Table
    scratchpads: Table
    scratch: Integer
    bytes_per_worker: Integer
    failed: Int64s


@native
def execute_part(call: PartCalls) -> None:
    """Execute the task's primitive."""
    task, _ = current_task()
    scratchpad = integer(call.scratchpads, task)
    if scratchpad != 0:
        scratch = call.scratch + worker() * call.bytes_per_worker
        call_address(call.place, scratchpad, scratch, 0, 0, 0, 0)
    primitive, arguments = integer(call.primitives, task), integer(call.arguments, task)
    status = call_address(call.execute, primitive, call.stream, call.count, arguments, 0, 0)
    if status & 0xFFFFFFFF != SUCCESS:
        call.failed[0] = 1


class Fold(Arguments):
    """Arguments of `fold_loop`: total [elements], and `count` partial sums, `pitch` apart."""

    elements: Integer
    count: Integer
    total: Float32s
    partials: Float32s
    pitch: Integer


@native
def fold_loop(call: Fold) -> None:
    """Add the partial sums to the total, in their order."""
    begin, end = share(call.elements)
    for first in range(begin, end, _NEAR):
        beyond = min(first + _NEAR, end)
        for partial in range(call.count):
            at = partial * call.pitch
            for i in range(first, beyond):
                call.total[i] += call.partials[at + i]


@dataclass(frozen=True)
class Part:
    """Primitive of one task, and where its part of each tensor begins, in bytes; 0 if not given."""

    primitive: Primitive
    offsets: Mapping[Argument, int]


@dataclass(frozen=True)
class CutComputation:
    """Computation of several tasks.

    specs: of the whole tensors. summed: float32 output that every part computes a term of; the
    first one writes it, the others partial sums in scratch space, which are added in order.
    """

    parts: tuple[Part, ...]
    specs: Mapping[int, TensorSpec]
    workers: int
    summed: Argument | None = None

    @property
    def implementation(self) -> str:
        """Name of the first part's implementation."""
        return self.parts[0].primitive.implementation

    @property
    def is_reference(self) -> bool:
        """Return whether any part is reference code."""
        return any(part.primitive.is_reference for part in self.parts)

    def alternatives(self) -> tuple[str, ...]:
        """Return the names of the first part's alternatives."""
        return self.parts[0].primitive.alternatives()

    @property
    def scratchpad_bytes(self) -> int:
        """Partial sums, then the scratch space of all threads."""
        return self._partial_bytes * (len(self.parts) - 1) + self.workers * self._bytes_per_worker

    @property
    def _partial_bytes(self) -> int:
        return 0 if self.summed is None else align(self.specs[self.summed].nbytes)

    @property
    def _bytes_per_worker(self) -> int:
        return align(max(part.primitive.scratchpad_bytes for part in self.parts))

    def bind(
        self, addresses: Mapping[int, int], scratchpad: int = 0, workers: TaskThreads = ALONE_WORKER
    ) -> tuple[NativeCall, ...]:
        """Return the call that runs all parts, after a call for each moving address of a part.

        A call that adds the partial sums follows, if there are any.
        """
        library = require()
        pads = scratchpad + self._partial_bytes * (len(self.parts) - 1)
        bound = [
            part.primitive.bound(self._places(number, addresses, scratchpad), pads)
            for number, part in enumerate(self.parts)
        ]
        failed: Failure = np.zeros(1, np.int64)
        execution = PartCalls(
            execute=library.execute,
            place=library.place,
            stream=library.stream,
            count=len(bound[0].entries),
            primitives=tuple(part.primitive.handle for part in self.parts),
            arguments=tuple(ctypes.addressof(each.entries) for each in bound),
            scratchpads=tuple(each.scratchpad for each in bound),
            scratch=pads,
            bytes_per_worker=self._bytes_per_worker,
            failed=failed,
        )
        made = loop_call(execute_part, execution, len(self.parts), workers.at_most(self.workers))
        placing = [call for each in bound for call in each.placing]
        made = replace(made, owner=(made.owner, self, bound), failed=(failed,))
        if self.summed is None:
            return (*placing, made)
        elements = self.specs[self.summed].nbytes // 4
        fold = Fold(
            elements=elements,
            count=len(self.parts) - 1,
            total=addresses[self.summed],
            partials=scratchpad,
            pitch=self._partial_bytes // 4,
        )
        tasks = ONE_THREAD.tasks_for_elements(elements * len(self.parts))
        return (*placing, made, loop_call(fold_loop, fold, tasks, workers))

    def _places(self, number: int, addresses: Mapping[int, int], scratchpad: int) -> dict[int, int]:
        """Return the addresses of a part's arguments."""
        offsets = self.parts[number].offsets
        places = {
            argument: address + offsets.get(Argument(argument), 0)
            for argument, address in addresses.items()
        }
        if self.summed is not None and number:
            places[self.summed] = scratchpad + (number - 1) * self._partial_bytes
        return places


# Computation of one task or several.
Cuttable: TypeAlias = Primitive | CutComputation

# Begin and end of each argument that is cut, along the axis that is cut.
Slice: TypeAlias = Mapping[Argument, tuple[int, int]]


def by_images(
    specs: Specs,
    batched: Sequence[Argument],
    prepare: Callable[[Specs], Primitive],
    cut: Cut,
    scratch_bytes: int | None = None,
    summed: Argument | None = None,
) -> Cuttable:
    """Return the computation cut along the first axis of the arguments `batched`."""
    return along_axes(specs, dict.fromkeys(batched, 0), prepare, cut, scratch_bytes, summed)


def along_axes(
    specs: Specs,
    axes: Mapping[Argument, int],
    prepare: Callable[[Specs], Primitive],
    cut: Cut,
    scratch_bytes: int | None = None,
    summed: Argument | None = None,
) -> Cuttable:
    """Return the computation cut along an axis of some arguments, which has one size in all.

    prepare: makes the primitive of given specs; raises Unsupported. summed: see `CutComputation`. A
    computation whose parts need more than `scratch_bytes` is one primitive.
    """
    first, axis = next(iter(axes.items()))
    size = specs[first].shape[axis]
    if size == 1 or cut.tasks == 1:
        return prepare(specs)
    made, ends = dict[int, Primitive](), [0, *accumulate(_sizes(size, cut.tasks))]

    def prepared(part: Specs, number: int) -> Primitive:
        own = part[first].shape[axis]
        return made.get(own) or made.setdefault(own, prepare(part))

    slices = [dict.fromkeys(axes, each) for each in pairwise(ends)]
    found = in_slices(specs, axes, slices, prepared, cut.threads, scratch_bytes, summed)
    return found or prepare(specs)


def in_slices(
    specs: Specs,
    axes: Mapping[Argument, int],
    slices: Sequence[Slice],
    prepare: Callable[[Specs, int], Primitive],
    threads: int,
    scratch_bytes: int | None = None,
    summed: Argument | None = None,
) -> CutComputation | None:
    """Return the computation of slices along an axis of each argument that is cut.

    It is None if the parts need more than `scratch_bytes`.

    prepare: makes the primitive of a slice's specs and number; where the axis is not the outermost
    one in memory, it sees to the gaps. The first one's layouts of the arguments that are not cut
    hold for all.
    """
    whole, parts, workspace_bytes = dict(specs), list[Part](), 0
    workspaces = dict[int, TensorSpec]()
    for number, ranges in enumerate(slices):
        part = {
            argument: replace(spec, shape=_with_size(spec.shape, axes[argument], *ranges[argument]))
            if argument in ranges
            else spec
            for argument, spec in whole.items()
        }
        primitive = prepare(part, number)
        own = primitive.specs
        whole = {each: spec if each in ranges else own[each] for each, spec in whole.items()}
        offsets = {
            argument: begin * _step_bytes(specs[argument], axes[argument])
            for argument, (begin, _) in ranges.items()
        }
        workspace = own.get(Argument.WORKSPACE)
        if workspace is not None:
            offsets[Argument.WORKSPACE] = workspace_bytes
            workspace_bytes += align(workspace.nbytes)
            workspaces[Argument.WORKSPACE] = replace(workspace, shape=(workspace_bytes,))
        parts.append(Part(primitive, offsets))
    given = {int(argument): spec for argument, spec in whole.items()}
    found = CutComputation(tuple(parts), given | workspaces, min(threads, len(parts)), summed)
    return found if scratch_bytes is None or found.scratchpad_bytes <= scratch_bytes else None


def _step_bytes(spec: TensorSpec, axis: int) -> int:
    """Return the bytes between neighbours along an axis."""
    return item_size(spec.dtype) * strides_of(spec.shape, spec.layout)[axis]


def _with_size(shape: Shape, axis: int, begin: int, end: int) -> Shape:
    return (*shape[:axis], end - begin, *shape[axis + 1 :])


def _sizes(count: int, tasks: int) -> list[int]:
    """Divide `count` into at most `tasks` equal parts, of which the last may be less."""
    size = -(-count // min(tasks, count))
    return [min(size, count - begin) for begin in range(0, count, size)]
