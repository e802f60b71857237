"""Calls: arguments of one type are exchanged without a word, so more than three are named."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

import pytest
from structure.test_layers import MODULES
from syntax import nodes, syntax_tree

# Arguments of one type that a call may give by their places.
_MAX_ALIKE = 3
# Functions in the language of kernels, whose calls are compiled and have no names.
_OF_KERNELS = ("native", "compact", "inlined", "intrinsic")
# Methods that plugins override, in MXNet's order and with names of their own.
_OVERRIDDEN = ("backward_inplace_option",)

# Parameters in their order: name and type, without None.
Parameters = list[tuple[str, str]]
# Name of a module, of one of its classes (or none), and of a function.
Place = tuple[str, str, str]


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
    # Of fewer there are not too many.
    few = len(given) <= _MAX_ALIKE
    return [] if few else [(each.arg, type_text(each.annotation)) for each in given]


@dataclass
class Declarations:
    """Functions, classes and methods of all modules, by their places."""

    functions: dict[Place, Parameters] = field(default_factory=dict)
    bases: dict[Place, list[Place]] = field(default_factory=dict)
    fields: dict[Place, Parameters] = field(default_factory=dict)
    methods: defaultdict[str, list[Parameters]] = field(default_factory=lambda: defaultdict(list))

    def add(self, module: str, tree: ast.Module, names: Mapping[str, Place]) -> None:
        """Add what a module declares; names: what it defines and imports."""
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and not decorated(node, *_OF_KERNELS):
                self.functions[module, "", node.name] = of_function(node)
            elif isinstance(node, ast.ClassDef):
                self._add_class((module, node.name, ""), node, names)

    def _add_class(self, place: Place, node: ast.ClassDef, names: Mapping[str, Place]) -> None:
        bases = [each.value if isinstance(each, ast.Subscript) else each for each in node.bases]
        known = [
            names[each.id] for each in bases if isinstance(each, ast.Name) and each.id in names
        ]
        self.bases[place] = [(module, name, "") for module, _, name in known]
        is_named = any("kw_only=True" in ast.unparse(each) for each in node.decorator_list)
        self.fields[place] = [
            (ast.unparse(each.target), type_text(each.annotation))
            for each in node.body
            if isinstance(each, ast.AnnAssign) and not is_named
        ]
        for each in node.body:
            if isinstance(each, ast.FunctionDef):
                found = of_function(each, bound=not decorated(each, "staticmethod"))
                self.functions[place[0], node.name, each.name] = found
                self.methods[each.name].append(found)

    def lineage(self, place: Place) -> Iterator[Place]:
        """Yield a class and the classes from which it inherits."""
        yield place
        for base in self.bases.get(place, ()):
            yield from self.lineage(base)

    def method(self, place: Place, name: str) -> Parameters | None:
        """Return the parameters of a method of a class, None for a class without it."""
        places = [(*each[:2], name) for each in self.lineage(place)]
        return next((self.functions[each] for each in places if each in self.functions), None)

    def called(self, module: str, name: str) -> Parameters:
        """Return the parameters of a function or a class."""
        place = (module, name, "")
        if place not in self.bases:
            return self.functions.get((module, "", name), [])
        made = self.method(place, "__init__")
        if made is not None:
            return made
        inherited = [*self.lineage(place)][::-1]
        return [
            *{name: kind for each in inherited for name, kind in self.fields.get(each, ())}.items()
        ]


def names_of(module: str, tree: ast.Module) -> dict[str, Place]:
    """Return the places of what a module defines and imports, by name."""
    names = {
        each.name: (module, "", each.name)
        for each in tree.body
        if isinstance(each, ast.FunctionDef | ast.ClassDef)
    }
    for node in nodes(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                names[alias.asname or alias.name] = (node.module or "", "", alias.name)
    return names


def calls(
    module: str, tree: ast.Module, names: Mapping[str, Place], known: Declarations
) -> Iterator[tuple[ast.Call, list[Parameters]]]:
    """Yield the calls of a module outside of kernels with the parameters that the callee may have:
    those of every method of its name, if the object is not known.
    """
    owners, kernels = dict[ast.AST, str](), set[ast.AST]()
    for node in nodes(tree):
        if isinstance(node, ast.ClassDef):
            owners.update(dict.fromkeys(nodes(node), node.name))
        elif isinstance(node, ast.FunctionDef) and decorated(node, *_OF_KERNELS):
            kernels.update(nodes(node))
    for node in nodes(tree):
        if not isinstance(node, ast.Call) or not node.args or node in kernels:
            continue
        match node.func:
            case ast.Name("cls") if node in owners:
                yield node, [known.called(module, owners[node])]
            case ast.Name(name) if name in names:
                yield node, [known.called(names[name][0], names[name][2])]
            case ast.Attribute(ast.Name("self" | "cls"), name) if node in owners:
                found = known.method((module, owners[node], ""), name)
                yield node, known.methods[name] if found is None else [found]
            case ast.Attribute(ast.Name(part), name) if part in names:
                owner, _, own = names[part]
                found = known.method((owner, own, ""), name)
                if (owner, own, "") not in known.bases:
                    found = known.called(f"{owner}.{own}", name)
                yield node, [] if found is None else [found]
            case ast.Attribute(_, name) if name not in _OVERRIDDEN:
                yield node, known.methods[name]


def written_out(arguments: Sequence[ast.expr]) -> Iterator[ast.expr]:
    """Yield arguments, and the elements of a tuple or list that is written behind a star."""
    for each in arguments:
        match each:
            case ast.Starred(ast.Tuple(elements) | ast.List(elements)):
                yield from written_out(elements)
            case _:
                yield each


def alike(call: ast.Call, parameters: Parameters) -> Iterator[tuple[int, str]]:
    """Yield the types of which a call gives too many arguments by their places, and how many."""
    given = takewhile(lambda each: not isinstance(each, ast.Starred), written_out(call.args))
    kinds = Counter(kind for (_, kind), _ in zip(parameters, given, strict=False) if kind)
    yield from ((count, kind) for kind, count in kinds.items() if count > _MAX_ALIKE)


def unnamed(trees: Mapping[str, ast.Module]) -> Iterator[str]:
    """Yield the calls that give too many arguments of one type by their places."""
    known = Declarations()
    names = {module: names_of(module, tree) for module, tree in trees.items()}
    for module, tree in trees.items():
        known.add(module, tree, names[module])
    for module, tree in trees.items():
        for call, callees in calls(module, tree, names[module], known):
            found = [list(alike(call, parameters)) for parameters in callees]
            if found and all(found):
                for count, kind in found[0]:
                    called = ast.unparse(call.func)
                    yield f"{module}:{call.lineno}: {called} ({count} of {kind})"


def test_arguments_of_one_type_are_named() -> None:
    trees = {module.removesuffix(".__init__"): syntax_tree(MODULES[module]) for module in MODULES}
    assert list(unnamed(trees)) == []


PLANTED = """
from dataclasses import dataclass
from other import Box, move
from mxrun import other
class Line:
    def __init__(self, a: float, b: float, c: float, d: float): ...
    def part(self, w: str, x: str | None, y: str, z: str): self.part("", None, "", "")
    @classmethod
    def made(cls, a: float, b: float, c: float, d: float): return cls(a, b, c, d)
    @staticmethod
    def turned(a: float, b: float, c: float, d: float): ...
class Dash(Line): ...
@dataclass
class Parcel(Box):
    c: str
    d: str
@dataclass(kw_only=True)
class Post(Box):
    c: str
    d: str
"""


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ("move(1, 2, z=3)", []),
        ("Line(1, 2, 3, 4)", ["Line (4 of float)"]),
        ("Line(*(1, 2), *(3, 4))", ["Line (4 of float)"]),
        ("Line(1, 2, 3, d=4)", []),
        ("Dash(1, 2, 3, 4)", ["Dash (4 of float)"]),
        ("Line.made(1, 2, 3, 4)", ["Line.made (4 of float)"]),
        ("Line.turned(1, 2, 3, 4)", ["Line.turned (4 of float)"]),
        ("Dash.turned(1, 2, 3, 4)", ["Dash.turned (4 of float)"]),
        ("other.Box.of(1, 2, 3, 4)", ["other.Box.of (4 of int)"]),
        ("line().part('', '', '', '')", ["line().part (4 of str)"]),
        ("line().named(1, 2, 3, 4)", []),
        ("Parcel('', '', '', '')", ["Parcel (4 of str)"]),
        ("Post('', '', c='', d='')", []),
    ],
)
def test_an_unnamed_argument_is_found(call: str, found: list[str]) -> None:
    other = """
def move(x: int, y: int, *, z: int): ...
class Box:
    a: str
    b: str | None
    @classmethod
    def of(cls, a: int, b: int, c: int, d: int): ...
    def named(self, a: int, b: int, c: int, d: int): ...
class Other:
    def named(self, a: int, b: str, c: int, d: str): ...
"""
    texts = {"mxrun.other": other, "other": other, "planted": f"{PLANTED}{call}"}
    trees = {name: ast.parse(text) for name, text in texts.items()}
    always = ["cls (4 of float)", "self.part (4 of str)"]
    reported = [each.partition(": ")[2] for each in unnamed(trees)]
    assert sorted(reported) == sorted([*always, *found])
