"""Damage of files as by disks and networks: flipped bits, lost, added or doubled bytes."""

from __future__ import annotations

import random


def damage(data: bytes, draw: random.Random) -> bytes:
    result = bytearray(data)
    kind = draw.choice(("flip", "head", "cut", "insert", "repeat"))
    if kind == "flip":
        for _ in range(draw.randint(1, 4)):
            result[draw.randrange(len(result))] ^= 1 << draw.randrange(8)
    elif kind == "head":
        result[draw.randrange(min(20, len(result)))] = draw.randrange(256)
    elif kind == "cut":
        del result[draw.randrange(len(result)) :]
    elif kind == "insert":
        at = draw.randrange(len(result) + 1)
        result[at:at] = draw.randbytes(draw.randint(1, 9))
    else:
        result *= 2
    return bytes(result)
