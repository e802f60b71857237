"""Kinds of processors for which tests generate code."""

from __future__ import annotations

import pytest

from mxrun.codegen.processor import KINDS, lacks

# Kinds with other instructions in the code that mxrun generates: the matrix unit is oneDNN's alone.
CODE_KINDS = ("x86-64", "avx2", "avx512")


def kinds(names: tuple[str, ...] = tuple(KINDS)) -> pytest.MarkDecorator:
    """Run a test with each kind of processor, where the machine has its instructions."""
    parameters = [
        pytest.param(
            name,
            marks=pytest.mark.skipif(
                bool(lacks(name)), reason=f"this processor lacks {', '.join(lacks(name))}"
            ),
        )
        for name in names
    ]
    return pytest.mark.parametrize("processor", parameters)
