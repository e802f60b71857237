"""Colours of drawings, the same in SVG, DOT and the terminal.

The hues begin with those of Okabe and Ito ("Color Universal Design", 2008) and are visible on white
and on black. In normal sight and for protanopes and deuteranopes any two colours of a table differ.
"""

from __future__ import annotations

from collections.abc import Mapping

from mxrun.graph.graph import MemoryClass

# Text, small text, background, and lines that belong to no class, on white and on black.
INK, INK_ON_BLACK = "#1f2328", "#e6edf3"
FAINT, FAINT_ON_BLACK = "#656d76", "#9da7b3"
PAPER, PAPER_ON_BLACK = "#ffffff", "#0d1117"
LINE, LINE_ON_BLACK = "#8c959f", "#768390"

# By the name of an operator's family (`OperatorFamily`), in the order of legends.
FAMILY_COLOURS: Mapping[str, str] = {
    "convolution": "#0072b2",
    "dense": "#cc79a7",
    "normalisation": "#e69f00",
    "activation": "#009e73",
    "pooling": "#d55e00",
    "elementwise": "#56b4e9",
    "shape": "#7a5c3a",
    "reduction": "#c0b060",
    "random": "#7048e8",
    "loss": "#c00030",
    "other": "#757b82",
}
MEMORY_COLOURS: Mapping[str, str] = {
    MemoryClass.PARAMETERS.value: "#0072b2",
    MemoryClass.GRADIENTS.value: "#d55e00",
    MemoryClass.OPTIMIZER.value: "#009e73",
    MemoryClass.AUXILIARY.value: "#cc79a7",
    MemoryClass.CARRIED.value: "#1ca3a3",
    MemoryClass.CONSTANTS.value: "#b8860b",
    MemoryClass.ACTIVATIONS.value: "#56b4e9",
    MemoryClass.ACTIVATION_GRADIENTS.value: "#8a6fd1",
    MemoryClass.WORKSPACE.value: "#7f7f7f",
    MemoryClass.IO.value: "#c0504d",
}
# Runs that are drawn together, and the two parts of a single one; more runs repeat them.
CURVE_COLOURS = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9"),
    *("#8a6fd1", "#7f7f7f", "#c0504d", "#6b8e23", "#1ca3a3", "#a0522d"),
)
