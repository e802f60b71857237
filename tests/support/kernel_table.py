"""Table of the registers of graphics cards' kernels, which this script writes."""

from __future__ import annotations

import sys
from pathlib import Path

from card_kernels import SPILLING, everything
from ptxas import Usage, assembled

TABLE = Path(__file__).parents[1] / "KERNELS.md"
# The oldest card of the text, and those of data centres after it.
CARDS = ("sm_75", "sm_80", "sm_90", "sm_100")
_HEAD = f"""# Registers of graphics cards' kernels

Registers of a thread by ptxas {{version}}, from one text for all cards; a second number is the
bytes of its stack. `python tests/support/kernel_table.py VERSION` writes this table, which
`tests/codegen/test_ptxas.py` checks.

| kernel | {" | ".join(CARDS)} | note |
|---|{"---|" * (len(CARDS) + 1)}
"""


def rows() -> dict[str, list[Usage]]:
    """Return the kernels of the table, with what they use on each of the cards."""
    found = {}
    for line in TABLE.read_text().splitlines():
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        if len(cells) == len(CARDS) + 1 and cells[0][:1].isdigit():
            numbers = ([*map(int, cell.split()), 0] for cell in cells[:-1])
            found[name] = [Usage(number[0], number[1]) for number in numbers]
    return found


def _text(usage: Usage) -> str:
    return f"{usage.registers} {usage.stack}" if usage.stack else f"{usage.registers}"


def main() -> None:
    """Write the table."""
    lines = []
    for name, each in sorted(everything().items()):
        ptx = each.gpu_kernel.ptx
        cells = [_text(assembled(ptx, card)) for card in CARDS]
        lines.append(
            " | ".join([f"| {name}", *cells, SPILLING.get(name.partition(" ")[0], "") + " |"])
        )
    TABLE.write_text(_HEAD.format(version=sys.argv[1]) + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
