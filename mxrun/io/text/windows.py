"""Windows over token ids as records: the ids of a window, and for each the id that follows."""

from __future__ import annotations

from typing import Any

from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from mxrun.base.errors import Diagnostic, UserError
from mxrun.io.dataset.fields import Field


def window_fields(tokens: NDArray[Any], length: int, stride: int) -> dict[str, Field]:
    """Return the fields `data` and `label`, int32 [length]: ids, and the ids one place later.

    tokens [count]. Window i begins at token i * stride; both fields are views of the tokens. Raises
    UserError if there are too few tokens for one window.
    """
    if len(tokens) <= length:
        problem = "the text is too short for one window and the token that follows it"
        expected, got = f"at least {length + 1} tokens", f"{len(tokens)}"
        hint = "give more text, or write a smaller length"
        raise UserError(Diagnostic(problem, None, expected, got, hint=hint))
    starts = {"data": tokens[:-1], "label": tokens[1:]}
    return {
        name: Field(sliding_window_view(part, length)[::stride], dtype="int32")
        for name, part in starts.items()
    }
