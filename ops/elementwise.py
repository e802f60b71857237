"""Binary operators of two tensors of one shape."""

from __future__ import annotations

from mxrun.operator.simple import register_entry
from mxrun.ops.binary import BINARY

# MXNet's arithmetic operators have further names besides `_name` and `_Name`.
_NAMES = {
    "add": ("elemwise_add", "_plus", "_Plus", "_add"),
    "sub": ("elemwise_sub", "_minus", "_Minus", "_sub"),
    "mul": ("elemwise_mul", "_mul", "_Mul"),
    "div": ("elemwise_div", "_div", "_Div"),
}
# In other frameworks.
_FOREIGN = {"add": "add plus", "sub": "subtract sub", "mul": "multiply mul", "div": "divide div"}

for _name, _map in BINARY.items():
    _names = _NAMES.get(_name, (f"_{_name}", f"_{_name.title()}"))
    register_entry(
        *_names,
        entry=_map.entry,
        description=_map.describe(_map.entry, "lhs", "rhs", ", all of one shape"),
        foreign={f"{_names[0]}: {{lhs: a, rhs: b}}": _FOREIGN.get(_name, "")},
    )
