"""Representations of arrays: text as MXNet's, and HTML for notebooks."""

from __future__ import annotations

import html

from mxrun.imperative.arrays.array import NDArrayBase


def caption(array: NDArrayBase) -> str:
    """Return the shape and the context: `<NDArray 2x3 @cpu:0>`."""
    shape = "x".join(map(str, array.shape))
    return f"<{type(array).__name__} {shape} @{array.context}>"


def text(array: NDArrayBase) -> str:
    """Return the values, after waiting for them, and the caption."""
    return f"\n{array.asnumpy()}\n{caption(array)}"


def html_text(array: NDArrayBase) -> str:
    """Return the values and the caption as HTML."""
    values, about = html.escape(str(array.asnumpy())), html.escape(caption(array))
    about = f"{about} {html.escape(array.dtype)}"
    return f"<div><pre>{values}</pre><div><code>{about}</code></div></div>"
