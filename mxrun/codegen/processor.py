"""The processor for which code is generated: the host's, one that MXRUN_PROCESSOR names, or a card.

The variable selects a kind of processor with fewer instructions, for tests and to compute what
another machine computes. It is read whenever code is generated, and the processor's name and
features are part of every cache key. Nothing else decides which instructions are used.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from mxrun.base import flags
from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.codegen.target import is_card


@dataclass(frozen=True)
class Processor:
    """LLVM's name of a processor, and its features, separated by commas.

    A feature begins with + or, if the processor lacks it, with -.
    """

    name: str
    features: str

    def has(self, feature: str) -> bool:
        """Return whether the processor has a feature."""
        return f"+{feature}" in self.features.split(",")


_X86_64 = "+sse2"
_AVX2 = f"{_X86_64},+sse4.1,+sse4.2,+avx,+avx2,+fma,+f16c,+bmi,+bmi2"
_AVX512 = f"{_AVX2},+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl"
_AMX = f"{_AVX512},+avx512bf16,+amx-tile,+amx-bf16"
# Levels of the x86-64 ABI, and the first processor with a matrix unit.
_PROCESSORS = (
    Processor("x86-64", _X86_64),
    Processor("x86-64-v3", _AVX2),
    Processor("x86-64-v4", _AVX512),
    Processor("sapphirerapids", _AMX),
)
KINDS: Mapping[str, Processor] = dict(zip(flags.PROCESSOR_KINDS, _PROCESSORS, strict=True))
# The oldest card that runs everything, and the version of PTX: LLVM's names.
CARD = Processor("sm_75", "+ptx63")


@cache
def host() -> Processor:
    """Return this machine's processor."""
    import llvmlite.binding as llvm

    return Processor(str(llvm.get_host_cpu_name()), llvm.get_host_cpu_features().flatten())


def processor() -> Processor:
    """Return the processor for which code is generated.

    Raises UserError if MXRUN_PROCESSOR names no kind, or one with instructions that this machine
    lacks.
    """
    if is_card():
        return CARD
    name = flags.processor()
    if name is None:
        return host()
    lacking = lacks(name)
    if lacking:
        problem = f"MXRUN_PROCESSOR={name}: this processor lacks some of its instructions"
        raise UserError(Diagnostic(problem, got=f"no {', '.join(lacking)}"))
    return KINDS[name]


def kind() -> str:
    """Return the kind of processor for which code is generated, on which the bits of loops depend.

    Without a choice it is the last one whose instructions this machine has, or, where that is not
    an x86-64, its processor's name.
    """
    possible = [name for name in KINDS if not lacks(name)]
    return flags.processor() or (possible or [host().name])[-1]


@cache
def lacks(name: str) -> tuple[str, ...]:
    """Return the features of a kind of processor that this machine's lacks."""
    wanted = KINDS[name].features.split(",")
    return tuple(each.removeprefix("+") for each in wanted if not host().has(each[1:]))
