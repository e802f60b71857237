"""Launches of prepared kernels on guarded memory, with detection of illegal writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from mxrun.base.dataclass import dataclass
from mxrun.base.device import CPU
from mxrun.base.errors import InternalError
from mxrun.base.tensor import PLAIN, TensorSpec
from mxrun.contract.memory import GUARD, Array, GuardedMemory, PitchedMemory
from mxrun.contract.problem import NO_CHANGE, Breach, Violation
from mxrun.device.interface import Device, ProgramStep
from mxrun.device.layouts import is_row_major, logical, reordered
from mxrun.device.registry import device_kind, open_device
from mxrun.operator.kernel import Handles, Kernel
from mxrun.operator.launch import Handle, Launch, Memory, runs_python


@cache
def opened(threads: int = 1, kind: str = CPU, index: int = 0) -> Device:
    """Return a device of a kind, on which `threads` may compute."""
    return open_device(device_kind(kind).describe(index, threads), kind)


def memory_of(spec: TensorSpec, value: Array) -> GuardedMemory:
    """Return memory that holds a value in the layout of `spec`."""
    target = GuardedMemory(spec)
    if is_row_major(spec):
        target.store(value)
    else:
        elements = np.array(value, order="C")
        target.elements()[:] = reordered(opened(), elements, spec.with_layout(PLAIN), spec)
    return target


def load(memory: GuardedMemory) -> Array:
    """Return a copy of the logical value of a tensor in any layout."""
    return np.array(logical(opened(), memory.elements(), memory.spec), order="C")


def run(
    launches: Sequence[Launch], whose: str = "the kernel", device: Device | None = None
) -> None:
    """Run launches in order, by default on the CPU with one thread.

    whose: their name in messages. Raises Breach if a native call reports an error.
    """
    program = (device or opened()).bind([ProgramStep(whose, tuple(launches))])
    try:
        program.run()
    except InternalError as error:
        if any(map(runs_python, launches)):
            raise
        raise Breach(Violation(str(error))) from error


@dataclass(frozen=True)
class Named:
    """Tensor memory with its name in messages; None if the tensor is absent."""

    name: str
    memory: GuardedMemory | None


def handles_of(
    inputs: Sequence[GuardedMemory | None],
    outputs: Sequence[GuardedMemory],
    extra: Sequence[GuardedMemory] = (),
    workspace: GuardedMemory | None = None,
) -> Handles:
    """Return the handles of everything a kernel accesses."""
    return Handles(
        tuple(None if memory is None else memory.handle for memory in inputs),
        tuple(memory.handle for memory in outputs),
        tuple(memory.handle for memory in extra),
        None if workspace is None else workspace.handle,
    )


@dataclass(frozen=True)
class Trial:
    """One call on a device with all its memory.

    workspace: None if the kernel needs none. shared: the inputs whose memory an output takes.
    """

    whose: str
    device: Device
    kernel: Kernel
    inputs: Sequence[Named]
    outputs: Sequence[Named]
    extra: Sequence[GuardedMemory]
    workspace: GuardedMemory | None
    shared: set[int]

    def run(self) -> tuple[Launch, ...]:
        """Bind, run and return the launches.

        Raises Breach on a write outside the tensors or to an input.
        """
        saved = [
            (named.name, named.memory, named.memory.bytes.tobytes())
            for index, named in enumerate(self.inputs)
            if named.memory is not None and index not in self.shared
        ]
        sources = [named.memory for named in self.inputs]
        targets = [named.memory for named in self.outputs if named.memory is not None]
        handles = handles_of(sources, targets, self.extra, self.workspace)
        if self.device.has_host_memory:
            launches = self.kernel.bind(handles)
            run(launches, self.whose, self.device)
        else:
            launches = self._run_on_copies(handles)
        extra = [Named(f"extra output {index}", memory) for index, memory in enumerate(self.extra)]
        workspace = Named("its workspace", self.workspace)
        _stays_within(self.whose, [*self.inputs, *self.outputs, *extra, workspace])
        for name, memory, content in saved:
            if memory.bytes.tobytes() != content:
                raise Breach(_changed(self.whose, name, memory, content))
        return launches

    def _run_on_copies(self, handles: Handles) -> tuple[Launch, ...]:
        """Run on a device that the host cannot access, on copies of the memory and its guards."""
        named = (each.memory for each in (*self.inputs, *self.outputs))
        memories = [each for each in (*named, *self.extra, self.workspace) if each is not None]
        # Tensors in the memory of others share their copy.
        copies = {id(each.handle.memory): (each, self._copied(each)) for each in memories}

        def placed(handle: Handle) -> Handle:
            _, copy = copies[id(handle.memory)]
            return replace(handle, memory=copy, offset=handle.offset + GUARD)

        launches = self.kernel.bind(handles.moved(placed))
        run(launches, self.whose, self.device)
        for memory, copy in copies.values():
            guarded = memory.with_guards
            guarded[:] = self.device.read(Handle(copy, 0), TensorSpec(guarded.shape, "uint8"))
        return launches

    def _copied(self, memory: GuardedMemory) -> Memory:
        copy = self.device.allocate(memory.with_guards.nbytes)
        self.device.write(Handle(copy, 0), memory.with_guards)
        return copy

    def with_pitched_memory(self) -> Trial:
        """Return the call on pitched memory wherever the kernel accepts slices of larger tensors.

        Its outputs are not computed yet.
        """
        inputs = list(self.inputs)
        for index, width in self.kernel.pitched_inputs.items():
            name, memory = inputs[index].name, inputs[index].memory
            if memory is not None:
                inputs[index] = Named(name, PitchedMemory(memory.spec, width, memory.elements()))
        outputs = []
        for index, each in enumerate(self.outputs):
            assert each.memory is not None
            spec, width = each.memory.spec, self.kernel.pitched_outputs.get(index, 0)
            outputs.append(
                Named(each.name, PitchedMemory(spec, width) if width else GuardedMemory(spec))
            )
        extra = [GuardedMemory(memory.spec) for memory in self.extra]
        return replace(self, inputs=inputs, outputs=outputs, extra=extra)

    def with_scratch_in_place(self, outputs: Sequence[GuardedMemory]) -> Trial:
        """Return the call with its scratch tensors in copies of inputs, and with other outputs."""
        inputs, extra, shared = list(self.inputs), list(self.extra), set(self.shared)
        for index, number in self.kernel.in_place:
            name, memory = inputs[index].name, inputs[index].memory
            if memory is not None:
                copy = GuardedMemory(memory.spec)
                copy.bytes[:] = memory.bytes
                inputs[index] = Named(name, copy)
                extra[number] = copy.under(extra[number].spec)
                shared.add(index)
        named = [
            Named(each.name, memory) for each, memory in zip(self.outputs, outputs, strict=True)
        ]
        return replace(self, inputs=inputs, outputs=named, extra=extra, shared=shared)


def _stays_within(whose: str, tensors: Sequence[Named]) -> None:
    for named in tensors:
        overrun = "" if named.memory is None else named.memory.overrun()
        if overrun:
            raise Breach(
                Violation(
                    f"{whose} writes outside {named.name}, {overrun}",
                    hint="write only the tensor's own elements: other tensors are stored beside it",
                )
            )


def _changed(whose: str, name: str, memory: GuardedMemory, content: bytes) -> Violation:
    """Return the violation for an input that the call has changed."""
    now = np.frombuffer(memory.bytes.tobytes(), memory.spec.dtype)
    then = np.frombuffer(content, memory.spec.dtype)
    first = int(np.argmax(now.view(np.uint8) != then.view(np.uint8))) // now.itemsize
    index = None
    if memory.spec.layout == PLAIN:
        index = tuple(int(i) for i in np.unravel_index(first, memory.spec.shape))
    return Violation(
        f"{whose} changes its input {name}",
        str(then[first].item()),
        str(now[first].item()),
        hint=NO_CHANGE,
        index=index,
    )
