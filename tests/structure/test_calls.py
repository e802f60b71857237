"""Calls: arguments of one type are exchanged without a word, so more than three are named."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path

from structure.test_layers import MODULES
from syntax import syntax_tree

# Arguments of one type that a call may give by their places.
_MAX_ALIKE = 3
# Functions in the language of kernels, whose calls are compiled and have no names.
_OF_KERNELS = ("native", "inlined", "intrinsic")

# Parameters in their order: name and type, without None.
Parameters = list[tuple[str, str]]


def type_text(annotation: ast.expr | None) -> str:
    """Return an annotation without None as text, empty if it says nothing."""
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        sides = {type_text(annotation.left), type_text(annotation.right)} - {"None"}
        return " | ".join(sorted(sides))
    text = "" if annotation is None else ast.unparse(annotation)
    return "" if text == "Any" else text


def decorated(node: ast.FunctionDef | ast.ClassDef, *names: str) -> bool:
    return any(name in ast.unparse(each) for each in node.decorator_list for name in names)


def of_function(function: ast.FunctionDef, bound: int = 0) -> Parameters:
    given = [*function.args.posonlyargs, *function.args.args][bound:]
    return [(each.arg, type_text(each.annotation)) for each in given]


def of_class(node: ast.ClassDef) -> Parameters:
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            return of_function(each, bound=1)
    if any("kw_only=True" in ast.unparse(each) for each in node.decorator_list):
        return []
    fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
    return [(ast.unparse(each.target), type_text(each.annotation)) for each in fields]


def declared(tree: ast.Module) -> dict[str, Parameters]:
    """Return the parameters of the functions and classes of a module, by name."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not decorated(node, *_OF_KERNELS):
            found[node.name] = of_function(node)
        elif isinstance(node, ast.ClassDef):
            found[node.name] = of_class(node)
    return found


def own_methods(tree: ast.Module) -> dict[ast.Call, Parameters]:
    """Return the parameters of methods that are called on `self` and `cls` in their class."""
    found = {}
    for node in tree.body:
        if not isinstance(node, ast.ClassDef):
            continue
        methods = {
            each.name: of_function(each, bound=not decorated(each, "staticmethod"))
            for each in node.body
            if isinstance(each, ast.FunctionDef)
        }
        for call in ast.walk(node):
            match call:
                case ast.Call(ast.Attribute(ast.Name("self" | "cls"), name)) if name in methods:
                    found[call] = methods[name]
    return found


def calls(
    module: str,
    trees: Mapping[str, ast.Module],
    declarations: Mapping[str, Mapping[str, Parameters]],
) -> Iterator[tuple[ast.Call, Parameters]]:
    """Yield the calls of a module outside of kernels whose callee is known, with its parameters."""
    tree = trees[module]
    names = {name: (module, name) for name in declarations[module]}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                names[alias.asname or alias.name] = (node.module or "", alias.name)
    methods = own_methods(tree)
    kernels = {
        each
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and decorated(node, *_OF_KERNELS)
        for each in ast.walk(node)
    }
    for node in ast.walk(tree):
        if node in kernels:
            continue
        match node:
            case ast.Call() if node in methods:
                yield node, methods[node]
            case ast.Call(ast.Name(name)) if name in names:
                owner, own = names[name]
                yield node, declarations.get(owner, {}).get(own, [])
            case ast.Call(ast.Attribute(ast.Name(part), name)) if part in names:
                yield node, declarations.get(".".join(names[part]), {}).get(name, [])


def written_out(arguments: Sequence[ast.expr]) -> Iterator[ast.expr]:
    """Yield arguments, and the elements of a tuple or list that is written behind a star."""
    for each in arguments:
        match each:
            case ast.Starred(ast.Tuple(elements) | ast.List(elements)):
                yield from written_out(elements)
            case _:
                yield each


def unnamed(trees: Mapping[str, ast.Module]) -> Iterator[str]:
    """Yield the calls that give too many arguments of one type by their places."""
    declarations = {module: declared(tree) for module, tree in trees.items()}
    for module in trees:
        for call, parameters in calls(module, trees, declarations):
            given = takewhile(
                lambda each: not isinstance(each, ast.Starred), written_out(call.args)
            )
            kinds = Counter(kind for (_, kind), _ in zip(parameters, given, strict=False) if kind)
            for kind, count in kinds.items():
                if count > _MAX_ALIKE:
                    yield f"{module}:{call.lineno}: {ast.unparse(call.func)} ({count} of {kind})"


def test_arguments_of_one_type_are_named() -> None:
    trees = {module.removesuffix(".__init__"): syntax_tree(MODULES[module]) for module in MODULES}
    assert list(unnamed(trees)) == []


def test_an_unnamed_argument_is_found(tmp_path: Path) -> None:
    planted = {
        "other": "def move(x: int, y: int, *, z: int): ...\nclass Box:\n  a: str\n  b: str | None",
        "planted": """
from other import Box, move
from mxrun import other
class Line:
    def __init__(self, a: float, b: float, c: float, d: float): ...
    def part(self, w: str, x: str | None, y: str, z: str): self.part("", None, "", "")
move(1, 2, z=3)
Line(1, 2, 3, 4)
Line(*(1, 2), *(3, 4))
Line(1, 2, 3, d=4)
""",
    }
    trees = {name: ast.parse(text) for name, text in planted.items()}
    found = [each.partition(": ")[2] for each in unnamed(trees)]
    assert sorted(found) == ["Line (4 of float)", "Line (4 of float)", "self.part (4 of str)"]
