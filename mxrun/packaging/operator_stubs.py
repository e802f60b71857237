"""Type stubs of the functions that are generated from the registry, for editors and type checkers.

`STUBS` lists the files; each has a function that gives its text.
"""

from __future__ import annotations

import inspect
import re
import textwrap
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mxrun import library
from mxrun.base.dataclass import dataclass
from mxrun.base.docstrings import docstring
from mxrun.base.files import write_text
from mxrun.base.params import check
from mxrun.imperative import operators, symbolic
from mxrun.imperative.arrays.binary import BinaryOperation
from mxrun.imperative.arrays.fluent import COMPOSITES, METHODS
from mxrun.imperative.calls.functions import public_names, python_signature
from mxrun.imperative.symbolic import fluent as symbolic_fluent
from mxrun.imperative.symbolic import numbers
from mxrun.imperative.symbolic.functions import symbol_signature
from mxrun.operator.register import OPERATORS
from mxrun.operator.signature import OperatorSignature, signature_of

ROOT = Path(__file__).resolve().parents[2]
_WIDTH = 100

library.load()


@dataclass(frozen=True)
class StubStyle:
    """Types of a stub: of an input, of one result and of several; `more` follows the parameters.

    several: of an operator with several results; varying: where their number is not known. extra:
    further keyword parameters, as text. indent: columns before each function. signature: gives
    names, kinds and defaults of the parameters.
    """

    tensor: str
    result: str
    several: str
    varying: str
    extra: Mapping[str, str]
    indent: int = 0
    is_method: bool = False
    signature: Callable[[OperatorSignature], inspect.Signature] = python_signature


ARRAYS = StubStyle(
    tensor="NDArray",
    result="NDArray",
    several="list[NDArray]",
    varying="Any",
    extra={"out": "Any = None", "name": "str | None = None"},
)
METHOD = replace(
    ARRAYS, tensor="NDArrayBase", result="Self", several="list[Self]", indent=4, is_method=True
)
SYMBOLS = StubStyle(
    tensor="Symbol",
    result="Symbol",
    several="Symbol",
    varying="Symbol",
    extra={"name": "str | None = None", "attr": "Mapping[str, str] | None = None"},
    signature=symbol_signature,
)
SYMBOL_METHOD = replace(
    SYMBOLS,
    result="Self",
    several="Self",
    varying="Self",
    extra={"name": "str | None = None"},
    indent=4,
    is_method=True,
)


def function_stub(name: str, signature: OperatorSignature, style: StubStyle) -> str:
    """Return the declaration of one operator's function."""
    listed: list[str] = []
    tensors = {tensor.name: tensor for tensor in signature.tensors}
    is_named = False
    for parameter in style.signature(signature).parameters.values():
        if parameter.name in ("out", "name", "attr"):
            continue
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            listed.append(f"*{parameter.name}: {style.tensor}")
            is_named = True
            continue
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not is_named:
            listed.append("*")
            is_named = True
        if parameter.name in tensors:
            kind = style.tensor
            may_lack = tensors[parameter.name].is_optional or parameter.default is None
            kind += " | None" if may_lack else ""
        else:
            kind = parameter_type(parameter.name, signature.fields[parameter.name].annotation)
            if kind.startswith("Sequence[int]") and _takes_number(signature, parameter.name):
                kind = f"int | {kind}"
        default = parameter.default
        usual = "" if default is inspect.Parameter.empty else f" = {_literal(default)}"
        listed.append(f"{parameter.name}: {kind}{usual}")
    if style.is_method:
        listed[0] = "self"
    if style.extra and not is_named:
        listed.append("*")
    listed += [f"{extra}: {kind}" for extra, kind in style.extra.items()]
    result = {0: style.varying, 1: style.result}.get(signature.outputs, style.several)
    return _declaration(name, listed, result, _summary(signature), style.indent)


def parameter_type(name: str, annotation: Any) -> str:
    """Return the type of a parameter's values as a caller gives them."""
    if name == "dtype":
        return "DType"
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return parameter_type(name, parts[0])
    if origin is typing.Literal:
        return f"Literal[{', '.join(map(_literal, parts))}]"
    if origin in (typing.Union, types.UnionType):
        kinds = dict.fromkeys(parameter_type(name, part) for part in parts)
        return " | ".join(kinds)
    if origin is tuple:
        kinds = dict.fromkeys(parameter_type(name, p) for p in parts if p is not Ellipsis)
        return f"Sequence[{' | '.join(kinds)}]"
    return "None" if annotation is type(None) else str(annotation.__name__)


def _takes_number(signature: OperatorSignature, name: str) -> bool:
    """Return whether a parameter for several integers may be given as one."""
    kind = OPERATORS.get(signature.name).parameter_type
    example = {
        key: (field.examples or [])[0]
        for key, field in signature.fields.items()
        if field.is_required()
    }
    return check(kind, {**example, name: 1})[0] is not None


def _literal(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _summary(signature: OperatorSignature) -> str:
    text = " ".join(signature.document.partition("\n\n")[0].split())
    return re.split(r"(?<=\.)\s+(?=[A-Z])", text)[0]


def _declaration(name: str, listed: list[str], result: str, summary: str, indent: int) -> str:
    """Return a function's declaration, one parameter a line if it does not fit into one."""
    line = f"def {name}({', '.join(listed)}) -> {result}:"
    if indent + len(line) > _WIDTH:
        rows = "".join(f"    {each},\n" for each in listed)
        line = f"def {name}(\n{rows}) -> {result}:"
    lines = textwrap.wrap(summary.replace("\\", "\\\\"), _WIDTH - indent - 10)
    body = '"""' + "\n    ".join(lines) + ('\n    """' if len(lines) > 1 else '"""')
    return textwrap.indent(f"{line}\n    {body}", " " * indent)


def nd_stub() -> str:
    """Return the stub of `mxrun.nd`."""
    own = []
    for name in operators.__all__:
        value = getattr(operators, name)
        if isinstance(value, BinaryOperation):
            listed = ["lhs: NDArray | float", "rhs: NDArray | float", "out: Any = None"]
            summary = _summary(signature_of(value.broadcast))
            own.append(_declaration(name, listed, "NDArray", summary, 0))
        elif inspect.isfunction(value):
            own.append(_own_function(name, value))
    declared = "\n\n".join([*own, functions_stub(ARRAYS, frozenset(operators.__all__))])
    return _file(
        "mxrun.nd",
        [
            "from mxrun.base.context import Context",
            "from mxrun.imperative.arrays import sampling",
            "from mxrun.imperative.arrays.creation import DType, ShapeLike",
            "from mxrun.imperative.arrays.ndarray import NDArray as NDArray",
        ],
        f"__all__: list[str]\n\nrandom = sampling\n\n{declared}",
        used=("import os",),
    )


def _own_function(name: str, function: Callable[..., Any]) -> str:
    """Return the declaration of a function that is no operator; arrays are its results."""
    listed: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and "*" not in "".join(listed):
            listed.append("*")
        # Annotations are texts, which are shown in quotes.
        listed.append(str(parameter).replace("'", ""))
    listed = [each.replace("NDArrayBase", "NDArray") for each in listed]
    result = inspect.signature(function).return_annotation
    if result == "Any" and name != "load":
        result = "NDArray"
    return _declaration(name, listed, result, _first_paragraph(function), 0)


def _composite_method(name: str, function: Callable[..., Any]) -> str:
    """Return the declaration of a method that is no operator."""
    _, *parameters = inspect.signature(function).parameters.values()
    listed = ["self", *(str(each).replace("'", "") for each in parameters)]
    return _declaration(name, listed, "Self", _first_paragraph(function), METHOD.indent)


def _first_paragraph(function: Callable[..., Any]) -> str:
    return " ".join(docstring(function).partition("\n\n")[0].split())


def _file(title: str, imports: list[str], declared: str, used: tuple[str, ...] = ()) -> str:
    """Return the text of a stub; names of `typing` are imported if they are used."""
    names = [name for name in ("Any", "Literal") if re.search(rf"\b{name}\b", declared)]
    typed = [f"from typing import {', '.join(names)}"] if names else []
    kinds = [name for name in ("Callable", "Mapping", "Sequence") if re.search(name, declared)]
    first = [*used, f"from collections.abc import {', '.join(kinds)}", *typed]
    about = f'"""Declarations of {title}, written by the build."""'
    return "\n".join([about, "", *first, "", *imports, "", declared])


def functions_stub(style: StubStyle, leave_out: frozenset[str]) -> str:
    """Return the declarations of all operators of mxrun itself, and of their aliases."""
    parts = []
    for name in public_names():
        if name in leave_out:
            continue
        registered = OPERATORS.get(name).type_string
        if name == registered or registered in leave_out:
            parts.append(function_stub(name, signature_of(name), style) + "\n")
    parts += [
        f"{name} = {OPERATORS.get(name).type_string}"
        for name in public_names()
        if name not in leave_out and name != OPERATORS.get(name).type_string
    ]
    return "\n".join(parts) + "\n"


def fluent_stub() -> str:
    """Return the stub of the methods of arrays that call operators."""
    methods = [function_stub(name, signature_of(name), METHOD) for name in METHODS]
    methods += [_composite_method(name, each) for name, each in COMPOSITES.items()]
    declared = "\n".join(
        [
            "METHODS: tuple[str, ...]",
            "COMPOSITES: Mapping[str, Callable[..., Any]]",
            "",
            "class FluentMethods:",
            '    """Methods named in `METHODS` and `COMPOSITES`."""',
            "",
            "\n\n".join(methods),
            "",
        ]
    )
    imports = [
        "from typing_extensions import Self",
        "",
        "from mxrun.imperative.arrays.array import NDArrayBase",
        "from mxrun.imperative.arrays.creation import DType",
    ]
    return _file("methods of NDArray", imports, declared)


def sym_stub() -> str:
    """Return the stub of `mxrun.sym`."""
    own = []
    imports = ["from mxrun.imperative.arrays.creation import DType"]
    for name in symbolic.__all__:
        value = getattr(symbolic, name)
        if value.__module__ == numbers.__name__:
            listed = ["left: Symbol | float", "right: Symbol | float"]
            own.append(_declaration(name, listed, "Any", docstring(value), 0))
        elif value.__module__ == symbolic.__name__:
            own.append(_own_function(name, value))
        else:
            found = value.__name__
            imports.append(f"from {value.__module__} import {found} as {found}")
            if name != found:
                own.append(f"{name} = {found}")
    declared = "\n\n".join([*own, functions_stub(SYMBOLS, frozenset(symbolic.__all__))])
    imports.append("from mxrun.operator.signature import OperatorSignature")
    return _file("mxrun.sym", sorted({*imports}), f"__all__: list[str]\n\n{declared}")


def symbol_methods_stub() -> str:
    """Return the stub of the methods of symbols that apply operators."""
    names = symbolic_fluent.METHODS
    methods = [function_stub(name, signature_of(name), SYMBOL_METHOD) for name in names]
    head = [
        "METHODS: tuple[str, ...]",
        "",
        "class SymbolMethods:",
        '    """Methods named in `METHODS`."""',
        "",
    ]
    imports = ["from typing_extensions import Self", "", "from mxrun.graph.symbol import Symbol"]
    return _file("methods of Symbol", imports, "\n".join([*head, "\n\n".join(methods), ""]))


STUBS: Mapping[str, Callable[[], str]] = {
    "mxrun/imperative/operators.pyi": nd_stub,
    "mxrun/imperative/arrays/fluent.pyi": fluent_stub,
    "mxrun/imperative/symbolic/__init__.pyi": sym_stub,
    "mxrun/imperative/symbolic/fluent.pyi": symbol_methods_stub,
}


def write_stubs(root: Path = ROOT) -> None:
    """Write all stubs beside the modules that they describe, in a checkout or a copy of one."""
    for path, text in STUBS.items():
        write_text(root / path, text())
