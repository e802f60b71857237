"""Emulated kernels: launches of a kernel's NVPTX module on the CPU."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from gpu_emulator.library import Fault, Launch, Range, library
from gpu_emulator.translation import ENTRY, entry, translate
from mxrun.codegen.gpu_kernel import GpuKernel

ORDERS = ("forward", "reverse", "random")


class EmulationError(AssertionError):
    """What a kernel does wrong, with the kernel, the instruction and the lanes."""


@dataclass(frozen=True)
class Emulated:
    """Kernel compiled for the CPU.

    name: of the kernel in messages. is_checked: whether every access to memory is checked, against
    the memory that a launch is given and against those of other threads.
    """

    kernel: GpuKernel
    name: str
    is_checked: bool
    engine: Any
    sites: Sequence[str]
    has_barriers: bool
    has_block_barriers: bool
    granule: int
    shared: Any
    constants: Sequence[tuple[int, int]]

    def run(
        self,
        slots: Sequence[int],
        tasks: int,
        memory: Sequence[tuple[int, int]] = (),
        order: str = "forward",
        seed: int = 0,
    ) -> None:
        """Run a launch of `tasks` tasks.

        slots: 64 bits of each parameter but the last one, the tasks. memory: begin and end of what
        the kernel may access. Raises EmulationError.
        """
        kernel = self.kernel
        ranges = [*memory, *self.constants]
        launch = Launch(
            entry=self.engine.get_function_address(ENTRY),
            slots=(ctypes.c_int64 * len(kernel.parameters))(*slots, tasks),
            grid=-(-tasks // kernel.tasks_per_block),
            threads=kernel.threads,
            order=ORDERS.index(order),
            seed=seed,
            has_barriers=self.has_barriers,
            has_block_barriers=self.has_block_barriers,
            granule=self.granule if self.is_checked else 0,
            shared=self.shared,
            shared_count=len(self.shared),
            ranges=(Range * len(ranges))(*ranges),
            range_count=len(ranges),
        )
        if not library().emulator_run(ctypes.byref(launch)):
            raise EmulationError(self._described(Fault.in_dll(library(), "emulator_fault")))

    def _described(self, fault: Fault) -> str:
        sites = [self.sites[each] for each in (fault.site, fault.other_site) if each >= 0]
        at = "".join(
            f"\n  {label}: {site}" for label, site in zip(("at", "and"), sites, strict=False)
        )
        return f"{self.name}: {fault.text.decode()}{at}"


@cache
def emulated(
    kernel: GpuKernel,
    is_checked: bool,
    change: Callable[[str], str] | None = None,
    name: str = "",
) -> Emulated:
    """Compile a kernel for the CPU, once.

    change: of the module's text, for mutants of kernels. name: in messages, by default its symbol.
    """
    module = kernel.module if change is None else change(kernel.module)
    found = translate(module, kernel.symbol, is_checked)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    for exported in library().exported:
        llvm.add_symbol(exported, library().address(exported))
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=1
    )
    parsed = llvm.parse_assembly(found.text)
    kinds = [str(each.type) for each in parsed.get_function(kernel.symbol).arguments]
    parsed.link_in(llvm.parse_assembly(entry(kernel.symbol, kinds)))
    parsed.verify()
    engine = llvm.create_mcjit_compiler(parsed, machine)
    engine.finalize_object()

    def places(names: Sequence[str]) -> list[tuple[int, int]]:
        begins = [engine.get_global_value_address(each) for each in names]
        sizes = [engine.get_global_value_address(f"{each}.bytes") for each in names]
        return [
            (begin, begin + ctypes.c_int64.from_address(size).value)
            for begin, size in zip(begins, sizes, strict=True)
        ]

    return Emulated(
        kernel=kernel,
        name=name or kernel.symbol,
        is_checked=is_checked,
        engine=engine,
        sites=found.sites,
        has_barriers=found.has_barriers,
        has_block_barriers=found.has_block_barriers,
        granule=found.granule,
        shared=(Range * len(found.shared))(*places(found.shared)),
        constants=places(found.constants),
    )
