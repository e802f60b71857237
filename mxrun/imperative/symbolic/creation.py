"""Functions that make symbols: variables, groups and files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mxrun.base.errors import Diagnostic, UserError
from mxrun.graph import symbol as graph
from mxrun.graph.attributes import in_scope, is_hidden, variable_attributes
from mxrun.graph.node import Node, NodeEntry
from mxrun.imperative.arrays.creation import dtype_name
from mxrun.imperative.symbolic.symbol import Symbol, load_json


def Variable(
    name: str,
    attr: Mapping[str, str] | None = None,
    shape: Iterable[int] | None = None,
    lr_mult: float | None = None,
    wd_mult: float | None = None,
    dtype: Any = None,
    init: Any = None,
    **attributes: str,
) -> Symbol:
    """Return a symbol for an input, parameter or state.

    attr: further attributes. shape, dtype: known ones, for inference; 0 is an unknown size.
    lr_mult, wd_mult: multipliers of learning rate and weight decay. init: initialiser, as text or
    as an object whose `dumps()` returns text. attributes: named with two underscores on each side.

    Raises UserError for another name, or for an unknown dtype.
    """
    wrong = [key for key in attributes if not is_hidden(key)]
    if wrong:
        raise UserError(
            Diagnostic(
                f"a variable cannot have the attribute {key!r}",
                expected="a name with two underscores on each side",
                hint=f"__{key}__",
            )
            for key in wrong
        )
    text = init if init is None or isinstance(init, str) else init.dumps()
    further = {"__lr_mult__": lr_mult, "__wd_mult__": wd_mult, "__init__": text, **attributes}
    known = variable_attributes(shape, None if dtype is None else dtype_name(dtype), further)
    return Symbol([NodeEntry(Node(name, attributes={**in_scope(attr), **known}))])


def Group(symbols: Iterable[graph.Symbol]) -> Symbol:
    """Return several symbols as one symbol with all their outputs. Raises UserError for none."""
    heads = graph.group(symbols).heads
    if not heads:
        raise UserError(Diagnostic("a group needs at least one symbol"))
    return Symbol(heads)


def load(fname: str | Path) -> Symbol:
    """Return the symbol in a file of MXNet's JSON. Raises UserError if it cannot be used."""
    try:
        text = Path(fname).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(Diagnostic(f"cannot read the symbol {fname}: {reason}")) from error
    return load_json(text)


var = Variable
