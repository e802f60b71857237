"""Native functions from Python source: loops compiled to machine code, called by address.

A native function takes one argument block (64-bit slots, declared by a class of `Arguments`) and
does not use the interpreter, so a device can call it without the lock. Its work may be cut into
tasks, which several threads call with one block; `share` is the part of the task that is called:

    class Scaling(Arguments):
        count: Integer
        factor: Real
        source: Float32s
        target: Float32s

    @native
    def scale_loop(call: Scaling) -> None:
        for i in elements_of_task(call.count):
            call.target[i] = call.factor * call.source[i]

    run = HostLoop(scale_loop, Scaling(count=9, factor=0.5, source=array, target=other))

The body is sequential code: numbers, assignments, conditions, loops over `range`, `each` and
inlined functions that yield (`loops`), tuples and classes of NamedTuple, which exist only in the
source, and calls of inlined functions and of intrinsics. The intrinsics are declared in
`intrinsics`, `vectors` and `products`, as signatures without bodies: `sequential` generates their
code when the function is first compiled. Compiled code is cached in the user's cache folder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Protocol, get_type_hints

from mxrun.base.dataclass import dataclass
from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.errors import InternalError
from mxrun.base.locks import FIRST_TIME
from mxrun.base.once import cached_property
from mxrun.codegen import blocks, intrinsics, object_cache, products, vectors
from mxrun.codegen.arguments import FLOATS, Arguments
from mxrun.codegen.code_identity import InlinedBody, identity_of
from mxrun.codegen.compilation import compilation
from mxrun.codegen.declaration import only_native
from mxrun.codegen.function_source import FunctionSource
from mxrun.codegen.gpu_kernel import GpuKernel, cached_kernel
from mxrun.codegen.map_loop import MapLoop
from mxrun.codegen.object_cache import CompiledObject

# Modules that declare the intrinsics.
_VOCABULARY_MODULES = frozenset(each.__name__ for each in (blocks, intrinsics, products, vectors))


# Task, number of tasks and worker of a call that is one task.
ALONE = (0, 1, 0)


class NativeCode(Protocol):
    """Machine code `void f(int64_t *block, int64_t task, int64_t tasks, int64_t worker)`.

    block: the arguments, the same for all tasks of a call. task: number of the task among the
    `tasks` of the call. worker: number of the calling thread among those that may work on it. The
    code may be compiled on demand.
    """

    @property
    def address(self) -> int:
        """Address of the code."""

    @property
    def gpu_kernel(self) -> GpuKernel:
        """The code as a kernel of graphics cards, of which half a warp is a worker."""


@dataclass(frozen=True)
class NativeFunction:
    """Body that is compiled when its address is first requested.

    floats: dtype of the elements of arguments declared as `Floats`. constants: names and values of
    integer arguments that are known when the function is compiled. is_compact: see `compact`. maps:
    those that `run_map` runs, by their numbers.
    """

    body: Callable[[Any], None]
    floats: str = FLOAT32
    constants: tuple[tuple[str, int], ...] = ()
    is_compact: bool = False
    maps: tuple[MapLoop, ...] = ()

    @cached_property
    def bfloat16(self) -> NativeFunction:
        """The same function of bfloat16 elements where arguments are declared as `Floats`."""
        return _same(replace(self, floats=BFLOAT16))

    def with_constants(self, **constants: int) -> NativeFunction:
        """Return the function for these values of integer arguments, without code for others."""
        return _same(replace(self, constants=tuple(sorted(constants.items()))))

    def with_maps(self, *maps: MapLoop) -> NativeFunction:
        """Return the function with the code of these maps."""
        return _same(replace(self, maps=maps))

    @cached_property
    def declared(self) -> type[Arguments]:
        """Class of the arguments.

        Raises InternalError if the body's argument is not annotated with a class of Arguments.
        """
        hints = get_type_hints(self.body)
        annotation = next((hint for name, hint in hints.items() if name != "return"), None)
        if not (isinstance(annotation, type) and issubclass(annotation, Arguments)):
            raise InternalError(f"{self.body.__qualname__} does not declare a class of Arguments")
        return annotation

    @cached_property
    def arguments(self) -> Mapping[str, str]:
        """Kinds of the arguments by name."""
        floats = f"pointer to {self.floats}"
        kinds = self.declared.kinds()
        return {name: floats if kind == FLOATS else kind for name, kind in kinds.items()}

    @cached_property
    def address(self) -> int:
        """Address of the compiled function, of the form of `NativeCode`."""
        key = self.key
        compiled = None if key is None else object_cache.find(key)
        if compiled is None:
            with FIRST_TIME:
                compiled = self._compile()
            if key is not None:
                object_cache.store(key, compiled)
        return object_cache.link(compiled)

    @cached_property
    def gpu_kernel(self) -> GpuKernel:
        """The function as a kernel of graphics cards."""
        return cached_kernel(self._text, self.compile_kernel)

    @cached_property
    def key(self) -> str | None:
        """Key of the machine code in the object cache, a digest of everything it depends on.

        None if that cannot be determined: every process then compiles the function.
        """
        return None if self._text is None else object_cache.key_of(self._text)

    @cached_property
    def _text(self) -> str | None:
        """Everything that the code depends on, besides the target; None if that is not known."""
        identity = identity_of(self.body, _VOCABULARY_MODULES)
        name = f"{self.body.__module__}.{self.body.__qualname__}"
        maps = "\n".join(each.text for each in self.maps)
        options = f"{self.arguments}\n{self._options}\n{maps}"
        return None if identity is None else f"{name}\n{options}\n{identity}"

    @property
    def _options(self) -> tuple[object, ...]:
        return self.constants, self.is_compact

    @property
    def source(self) -> FunctionSource:
        """Body and options, from which the compiler of a target makes code."""
        constants = dict(self.constants)
        return FunctionSource(self.body, self.arguments, constants, self.is_compact, self.maps)

    def compile_kernel(self, symbol: str) -> GpuKernel:
        """Compile the function to the kernel `symbol` of graphics cards."""
        from mxrun.codegen.sequential.compiler import compile_kernel

        return compile_kernel(symbol, self.source)

    def _compile(self) -> CompiledObject:
        # The compiler is imported only when it is needed: its import takes some 50 ms.
        from mxrun.codegen.sequential.compiler import compile_function

        # Two functions of one name must not share a symbol, even if different processes compiled
        # them.
        name = re.sub(r"\W", "_", self.body.__qualname__, flags=re.ASCII)
        symbol = f"{name}_{self.key or id(self)}"
        with compilation():
            return compile_function(symbol, self.source)


@cache
def _same(function: NativeFunction) -> NativeFunction:
    """Return the first one of equal functions, so that each is compiled once."""
    return function


class InlinedFunction(InlinedBody):
    """Body that native functions call and inline, compiled with their globals."""

    def __call__(self, *arguments: Any) -> Any:
        """Raise TypeError: an inlined function can only be called by native code."""
        raise only_native(self.body)


def inlined(body: Callable[..., Any]) -> InlinedFunction:
    """Decorator that makes a body usable by several native functions of one file."""
    return InlinedFunction(body)


def native(body: Callable[[Any], None]) -> NativeFunction:
    """Decorator that makes a native function of a body written with this module's intrinsics."""
    return NativeFunction(body)


def compact(body: Callable[[Any], None]) -> NativeFunction:
    """Decorator that makes a native function whose loops are left as they are written.

    They are not unrolled, and their addresses not replaced by sums (LLVM's reduction of strength).
    For loops over vectors that are as fast without: the code is half as large and takes half the
    time to compile.
    """
    return NativeFunction(body, is_compact=True)


def require_arguments(function: NativeCode, arguments: object) -> None:
    """Raise TypeError if arguments are not of the class that a native function declares.

    Likewise if one differs from the value that the function knows.
    """
    if not isinstance(function, NativeFunction):
        return
    name = function.body.__qualname__
    if not isinstance(arguments, function.declared):
        raise TypeError(
            f"{name} takes {function.declared.__name__}, not {type(arguments).__name__}"
        )
    for argument, known in function.constants:
        if getattr(arguments, argument) != known:
            raise TypeError(f"{name} is compiled for {argument} = {known}")
