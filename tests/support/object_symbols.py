"""Symbols of compiled objects."""

from __future__ import annotations

import struct

_SYMBOL_TABLE, _SYMBOL_BYTES = 2, 24


def undefined_symbols(code: bytes) -> set[str]:
    """Return the names that a 64-bit ELF object expects from elsewhere."""
    assert code[:5] == b"\x7fELF\x02"
    (start,) = struct.unpack_from("<Q", code, 40)
    size, count = struct.unpack_from("<HH", code, 58)
    # Name, type, flags, address, offset, size, link to the section of names, ...
    sections = [struct.unpack_from("<IIQQQQIIQQ", code, start + i * size) for i in range(count)]
    found = set()
    for table in sections:
        if table[1] != _SYMBOL_TABLE:
            continue
        names = sections[table[6]][4]
        for place in range(table[4], table[4] + table[5], _SYMBOL_BYTES):
            name, _, _, section = struct.unpack_from("<IBBH", code, place)
            if name and not section:
                end = code.index(b"\0", names + name)
                found.add(code[names + name : end].decode())
    return found
