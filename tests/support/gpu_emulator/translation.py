"""The optimised NVPTX module of a kernel as a module for the CPU.

Only what a CPU lacks is replaced: special registers are read from `emulator_registers`, barriers
and shuffles are calls of `threads.c`, address spaces are one. With `is_checked` a call of
`emulator_access` stands before every access to memory.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

ENTRY = "emulator_entry"

_REGISTERS = ("tid", "ntid", "ctaid", "nctaid")
_REGISTER = re.compile(
    r"(?:tail |notail )?call [^@\n]*i32 @llvm\.nvvm\.read\.ptx\.sreg\.(\w+)\.x\(\)"
)
_MEETING = re.compile(
    r"call (?P<result>[^@\n]*?)@llvm\.nvvm\."
    r"(?P<name>bar\.warp\.sync|barrier\.cta\.sync\.aligned\.all|barrier0|shfl\.sync\.\w+\.\w+)"
    r"\((?P<arguments>[^\n]*?)\)(?= #| *$|,)",
    re.MULTILINE,
)
_DECLARATION = re.compile(r"^declare [^\n]*@llvm\.nvvm\.[^\n]*\n", re.MULTILINE)
_ATTRIBUTES = re.compile(r"^(attributes #\d+ = )\{.*\}$", re.MULTILINE)
_HEADER = re.compile(r"^(?:target |source_filename|; ModuleID)[^\n]*\n", re.MULTILINE)
_GLOBAL = re.compile(
    r"^(?P<name>@[\w.$\"-]+) = (?P<words>[^\n]*?)(?P<kind>global|constant) "
    r"(?P<type>\[[^\n]*?\]|[\w.]+) ",
    re.MULTILINE,
)
_LOAD = re.compile(
    r"^  \S+ = (?:tail )?load (?:volatile )?(?P<type><[^>]+>|\w+), (?P<at>ptr[^\n]*?), "
    r"align (?P<align>\d+)",
    re.MULTILINE,
)
_STORE = re.compile(
    r"^  store (?:volatile )?(?P<type><[^>]+>|\w+) [^\n]*?, (?P<at>ptr (?:addrspace\(\d\) )?"
    r"(?:%[\w.]+|@[\w.]+|getelementptr [^\n]*?\)|inttoptr [^\n]*?\))), align (?P<align>\d+)",
    re.MULTILINE,
)
# Accesses that are not reported, so that a module with one is refused.
_UNKNOWN = re.compile(
    r"\b(?:atomicrmw|cmpxchg)\b|(?:load|store) atomic|@llvm\.(?:masked|memcpy|memset|memmove)"
)
_FUNCTIONS = """
@emulator_registers = external global [4 x i32]
declare void @emulator_access(ptr, i64, i64, i32, i64)
declare void @emulator_sync(i32, i64)
declare void @emulator_barrier(i32, i64)
""" + "".join(
    f"declare {kind} @emulator_{mode}_{suffix}(i32, {kind}, i32, i32, i64)\n"
    for mode in ("bfly", "idx", "up", "down")
    for kind, suffix in (("i32", "i32"), ("float", "f32"))
)
_BYTES = {"float": 4, "double": 8, "ptr": 8, "half": 2}


@dataclass
class Translation:
    """Module for the CPU, with the kernel as a function.

    sites: the instructions that calls name by their numbers. shared: names of the arrays of a
    block; constants: of the module's constants. `sizes` are their bytes, by name.
    """

    text: str
    sites: list[str] = field(default_factory=list)
    shared: list[str] = field(default_factory=list)
    constants: list[str] = field(default_factory=list)
    has_barriers: bool = False
    has_block_barriers: bool = False
    granule: int = 16

    def site(self, text: str) -> int:
        """Return the number of an instruction."""
        self.sites.append(" ".join(text.split()))
        return len(self.sites) - 1


def translate(module: str, symbol: str, is_checked: bool) -> Translation:
    """Translate a module; raises ValueError if it has what the emulator does not know."""
    found = Translation(_HEADER.sub("", module))
    if is_checked:
        if unknown := _UNKNOWN.search(found.text):
            raise ValueError(f"{symbol}: the emulator does not know {unknown[0]}")
        found.text = _LOAD.sub(lambda match: _reported(found, match, 0), found.text)
        found.text = _STORE.sub(lambda match: _reported(found, match, 1), found.text)
    found.text = _REGISTER.sub(_register, found.text)
    found.text = _MEETING.sub(lambda match: _meeting(found, match), found.text)
    found.text = _GLOBAL.sub(lambda match: _visible(found, match), found.text)
    # The calls that replace intrinsics promise less than these.
    found.text = _ATTRIBUTES.sub(r"\1{ nounwind }", _DECLARATION.sub("", found.text))
    found.text = re.sub(r" addrspace\(\d\)", "", found.text).replace("ptx_kernel ", "")
    found.text = found.text.replace("addrspacecast (ptr", "bitcast (ptr")
    found.text = found.text.replace("addrspacecast ptr", "bitcast ptr")
    found.text = _FUNCTIONS + found.text
    if left := re.search(r"llvm\.nvvm\.[\w.]+", found.text):
        raise ValueError(f"{symbol}: the emulator does not know {left[0]}")
    return found


def _register(match: re.Match[str]) -> str:
    index = _REGISTERS.index(match[1])
    return f"load i32, ptr getelementptr ([4 x i32], ptr @emulator_registers, i64 0, i64 {index})"


def _meeting(found: Translation, match: re.Match[str]) -> str:
    name, arguments = match["name"], match["arguments"] or "i32 0"
    found.has_barriers = True
    if name.startswith("barrier"):
        found.has_block_barriers = True
        callee = "emulator_barrier"
    elif name == "bar.warp.sync":
        callee = "emulator_sync"
    else:
        callee = f"emulator_{'_'.join(name.split('.')[2:])}"
    site = found.site(match[0])
    result = re.sub(r"range\([^)]*\)|noundef", "", match["result"])
    return f"call {result}@{callee}({arguments}, i64 {site})"


def _visible(found: Translation, match: re.Match[str]) -> str:
    """Return the beginning of a global's line with a linkage by which its address is found."""
    is_shared = "addrspace(3)" in match["words"]
    (found.shared if is_shared else found.constants).append(match["name"][1:].strip('"'))
    size = f"{match['name']}.bytes = constant i64 ptrtoint (ptr getelementptr ({match['type']}, "
    size += "ptr null, i64 1) to i64)\n"
    return f"{size}{match['name']} = {match['kind']} {match['type']} "


def _reported(found: Translation, match: re.Match[str], kind: int) -> str:
    size = _size(match["type"])
    found.granule = min(found.granule, _size(re.sub(r"<\d+ x (\w+)>", r"\1", match["type"])))
    at, site = match["at"], found.site(match[0])
    if cast := re.match(r"ptr addrspace\(\d\) (.*)", at):
        at = f"ptr {cast[1]}"
    return (
        f"  call void @emulator_access({at}, i64 {size}, i64 {match['align']}, i32 {kind}, "
        f"i64 {site})\n{match[0]}"
    )


def _size(kind: str) -> int:
    """Return the bytes of an LLVM type."""
    if vector := re.fullmatch(r"<(\d+) x (\w+)>", kind):
        return int(vector[1]) * _size(vector[2])
    return _BYTES[kind] if kind in _BYTES else -(-int(kind[1:]) // 8)


def entry(symbol: str, kinds: Sequence[str]) -> str:
    """Return a module with the function that calls a kernel with parameters from 64-bit slots.

    kinds: LLVM's types of the parameters.
    """
    lines = [f"declare void @{symbol}({', '.join(kinds)})", f"define void @{ENTRY}(ptr %slots) {{"]
    for number, kind in enumerate(kinds):
        lines.append(f"  %place{number} = getelementptr i64, ptr %slots, i64 {number}")
        lines.append(f"  %value{number} = load {kind}, ptr %place{number}")
    given = ", ".join(f"{kind} %value{number}" for number, kind in enumerate(kinds))
    return "\n".join([*lines, f"  call void @{symbol}({given})", "  ret void", "}", ""])
