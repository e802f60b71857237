"""Reusable memory of executors."""

from __future__ import annotations

from mxrun.imperative.arrays.chunk import Chunk


class Region:
    """Reusable memory of executors that share it.

    holder: token of the forward pass in training that has left there what its backward pass reads;
    None after any other pass.
    """

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self.holder: object = None
