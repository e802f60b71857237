"""Layers of the expanded config, with the source locations of all their parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar

from mxrun.base.dataclass import dataclass
from mxrun.base.description import describe_value
from mxrun.base.errors import Diagnostic, Diagnostics, SourceLocation
from mxrun.base.keywords import AUTO, PREFERRED, RESERVED_KEYS
from mxrun.base.layer_options import LayerOptions
from mxrun.base.near_names import nearest
from mxrun.config.marked import SourceNode
from mxrun.config.names import is_reference, joined, scope_of

IMPLEMENTATIONS = (PREFERRED, AUTO, "numpy", "onednn")
PRECISIONS = ("float32", "bfloat16")
_NOT_YET = ("outputs",)


@dataclass(frozen=True)
class LayerConfig:
    """Layer: an operator's name, the layer's full name, and its parameters as written.

    `parameters` are the operator parameters and the tensor arguments given by name. `inputs` are
    the tensor arguments given by position; if empty, the previous layer is the input.
    `precision_place` is the location of that key, or the layer's if it has none.

    `chain` lists the blocks from which the layer was expanded, outermost first; every diagnostic
    about the layer includes it.
    """

    operator: str
    name: str
    parameters: Mapping[str, SourceNode]
    inputs: tuple[SourceNode, ...]
    options: LayerOptions
    place: SourceLocation = field(compare=False)
    name_place: SourceLocation = field(compare=False)
    precision_place: SourceLocation = field(compare=False)
    chain: tuple[str, ...] = field(default=(), compare=False)

    written: ClassVar[str] = "{Operator: {parameter: value}}"

    @property
    def scope(self) -> str:
        """Scope in which references of this layer are looked up first."""
        return scope_of(self.name)

    def place_of(self, key: str) -> SourceLocation:
        """Return the place of a parameter's value, or the layer's if it is not given."""
        return self.parameters[key].place if key in self.parameters else self.place

    def key_place_of(self, key: str) -> SourceLocation:
        """Return the place of a parameter's key, or the layer's if it is not given."""
        return self.parameters[key].start if key in self.parameters else self.place


def read_layer(
    item: SourceNode, chain: tuple[str, ...], diagnostics: Diagnostics, scope: str = ""
) -> LayerConfig:
    """Convert an expanded layer; problems are added to `diagnostics`.

    scope: that to which the layer's name is relative.
    """
    assert isinstance(item.value, Mapping)
    ((operator, body),) = item.value.items()
    assert isinstance(body.value, Mapping)
    entries = body.value
    for key in _NOT_YET:
        if key in entries:
            problem = f"{key!r} of a layer is not available yet"
            diagnostics.add(Diagnostic(problem, entries[key].start, chain=chain))
    return LayerConfig(
        operator=operator,
        name=joined(scope, str(entries["name"].value)),
        parameters={key: part for key, part in entries.items() if key not in RESERVED_KEYS},
        inputs=_inputs(entries.get("inputs"), chain, diagnostics),
        options=LayerOptions(
            _implementation(entries.get("implementation"), chain, diagnostics),
            _precision(entries.get("precision"), chain, diagnostics),
            _fused(entries.get("fused"), chain, diagnostics),
        ),
        place=body.start,
        name_place=entries["name"].place,
        precision_place=entries.get("precision", body).start,
        chain=chain,
    )


def _inputs(
    given: SourceNode | None, chain: tuple[str, ...], diagnostics: Diagnostics
) -> tuple[SourceNode, ...]:
    if given is None:
        return ()
    items = given.value if isinstance(given.value, tuple) else (given,)
    wrong = [item for item in items if not is_reference(item.value)]
    if not isinstance(given.value, tuple):
        wrong = [given]
    for item in wrong:
        expected = "a name" if item is not given else "a list of names"
        got = describe_value(item.value)
        diagnostics.add(
            Diagnostic(
                "inputs: must be a list of layers' names", item.place, expected, got, chain=chain
            )
        )
    return () if wrong else items


def _implementation(
    given: SourceNode | None, chain: tuple[str, ...], diagnostics: Diagnostics
) -> str | None:
    if given is None:
        return None
    if isinstance(given.value, str) and given.value in IMPLEMENTATIONS:
        return given.value
    if given.value == "cupy":
        problem, hint = "implementation: cupy is not available yet", ""
    else:
        problem, hint = "no such implementation", nearest(str(given.value), IMPLEMENTATIONS)
    expected, got = ", ".join(IMPLEMENTATIONS), describe_value(given.value)
    diagnostics.add(Diagnostic(problem, given.place, expected, got, hint=hint, chain=chain))
    return None


def _precision(
    given: SourceNode | None, chain: tuple[str, ...], diagnostics: Diagnostics
) -> str | None:
    if given is None:
        return None
    if isinstance(given.value, str) and given.value in PRECISIONS:
        return given.value
    hint, got = nearest(str(given.value), PRECISIONS), describe_value(given.value)
    expected = " or ".join(PRECISIONS)
    diagnostics.add(
        Diagnostic("no such precision", given.place, expected, got, hint=hint or "", chain=chain)
    )
    return None


def _fused(given: SourceNode | None, chain: tuple[str, ...], diagnostics: Diagnostics) -> bool:
    if given is None or isinstance(given.value, bool):
        return given is None or bool(given.value)
    got = describe_value(given.value)
    diagnostics.add(
        Diagnostic("fused: must be true or false", given.place, "true or false", got, chain=chain)
    )
    return True
