"""Dataclasses with deferred methods behave like Python's own."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field, replace
from typing import Any, ClassVar

import pytest

from mxrun.base.dataclass import dataclass

DECORATORS = (dataclass, dataclasses.dataclass)


def classes(decorate: Any) -> dict[str, Any]:
    @decorate(frozen=True)
    class Point:
        """Point with a name."""

        x: int
        y: float = 2.5
        names: list[str] = field(default_factory=list, hash=False)
        hidden: int = field(default=3, repr=False, compare=False)
        kind: ClassVar[str] = "point"

    @decorate(frozen=True, kw_only=True)
    class Named(Point):
        z: int
        made: dict[str, int] = field(default_factory=dict, init=False, compare=False)
        form: str = field(init=False, repr=False)
        fixed: int = field(default=4, init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "form", f"{self.x} {self.z}")

    @decorate(frozen=True, eq=False)
    class Alone:
        x: int

        def __repr__(self) -> str:
            return "alone"

    @decorate(frozen=True)
    class Own:
        x: int

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

    @decorate(frozen=True)
    class Empty:
        pass

    class Further(Point):
        def __init__(self, x: int) -> None:
            super().__init__(x)
            self.added = x + 1

    @decorate
    class Changeable:
        x: int

    return {key: kind for key, kind in locals().items() if isinstance(kind, type)}


def raised(function: Callable[[], object]) -> tuple[type[BaseException], str]:
    with pytest.raises((TypeError, FrozenInstanceError)) as caught:
        function()
    # Python names functions of its own.
    return caught.type, str(caught.value).replace("__create_fn__.<locals>.", "")


def observed(decorate: Any) -> list[object]:
    """Return what objects of the classes do, and what they refuse."""
    kinds = classes(decorate)
    point, named, further = kinds["Point"], kinds["Named"], kinds["Further"]
    one, other = point(1, names=["a"]), point(1, 2.5, ["b"], hidden=9)
    many = named(x=1, z=5)
    looped = point(1)
    looped.names.append(looped)
    return [
        repr(one),
        repr(many),
        repr(looped),
        repr(kinds["Alone"](1)),
        one == point(1, 2.5, ["a"]),
        one == other,
        one != other,
        one == many,
        point(1) == further(1),
        point.__eq__(one, 3) is NotImplemented,
        hash(one) == hash(other) == hash((1, 2.5)),
        hash(many) == hash((1, 2.5, 5, many.form, 4)),
        hash(kinds["Own"](1)),
        kinds["Own"](1) == 3,
        kinds["Alone"](1) == kinds["Alone"](1),
        kinds["Empty"]() == kinds["Empty"](),
        hash(kinds["Empty"]()) == hash(()),
        (many.form, many.made, many.fixed, further(4).added),
        point(1).names is not point(1).names,
        repr(replace(one, x=4)),
        dataclasses.asdict(many),
        [each.name for each in dataclasses.fields(many)],
        (point.__match_args__, named.__match_args__),
        [*inspect.signature(named).parameters],
        [str(each.kind) for each in inspect.signature(named).parameters.values()],
        (point.__doc__, point.__init__.__qualname__.endswith("Point.__init__")),
        copy.deepcopy(many) == many,
        raised(lambda: point()),
        raised(lambda: point(1, b=2)),
        raised(lambda: named(1, 2, [], 3, 4)),
        raised(lambda: setattr(one, "x", 2)),
        raised(lambda: setattr(one, "strange", 2)),
        raised(lambda: delattr(one, "x")),
        raised(lambda: setattr(further(1), "x", 2)),
        raised(lambda: hash(kinds["Changeable"](1))),
    ]


def test_objects_are_those_of_pythons_own_dataclasses() -> None:
    ours, pythons = map(observed, DECORATORS)
    assert ours == pythons


@dataclass(frozen=True)
class Sent:
    x: int


def test_objects_are_pickled() -> None:
    assert pickle.loads(pickle.dumps(Sent(3))) == Sent(3)


def test_methods_are_compiled_when_they_are_first_called() -> None:
    point = classes(dataclass)["Point"]
    deferred = {name: type(vars(point)[name]).__name__ for name in ("__init__", "__eq__")}
    assert deferred == {"__init__": "_Deferred", "__eq__": "_Deferred"}
    point(1)
    assert inspect.isfunction(vars(point)["__init__"])
    assert type(vars(point)["__eq__"]).__name__ == "_Deferred"
