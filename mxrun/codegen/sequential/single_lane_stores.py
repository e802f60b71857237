"""Scalar stores in place of masked stores of one lane.

For processors with AVX-512, LLVM 22 compiles a masked store of truncated integers whose constant
mask has a single lane to a store of that lane before its truncation, which overwrites the elements
behind it (llvm/llvm-project#179489). A mask may be constant only after loops were unrolled, so that
such stores are found in optimized code.
"""

from __future__ import annotations

import re
from typing import Any

import llvmlite.binding as llvm

# A masked store of integers with a constant mask. Groups: the vector with its type, the type of an
# element, the address, and the mask.
_STORE = re.compile(
    r"(?:tail )?call void @llvm\.masked\.store\.[^(]*"
    r"\((?P<vector><\d+ x (?P<element>i\d+)> .+?), ptr [^%@]*?align \d+ (?P<address>.+), "
    r"<\d+ x i1> <(?P<mask>i1 [^<>]+)>\).*"
)


def with_scalar_stores(module: Any) -> Any:
    """Return an optimized LLVM module in which no masked store of integers is of a single lane."""
    text = str(module)
    rewritten = _STORE.sub(_scalar_store, text)
    return module if rewritten == text else llvm.parse_assembly(rewritten)


def _scalar_store(store: re.Match[str]) -> str:
    """Return a masked store, replaced if its mask is a single lane."""
    lanes = [lane for lane, bit in enumerate(store["mask"].split(", ")) if bit == "i1 true"]
    if len(lanes) != 1:
        return store[0]
    # The place in the module makes the names unique.
    lane, name, element = lanes[0], f"%single_lane.{store.start()}", store["element"]
    return (
        f"{name} = extractelement {store['vector']}, i64 {lane}\n"
        f"  {name}.address = getelementptr {element}, ptr {store['address']}, i64 {lane}\n"
        f"  store {element} {name}, ptr {name}.address, align 1"
    )
