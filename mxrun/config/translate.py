"""Translation of Pydantic's errors to diagnostics with source locations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from mxrun.base.errors import Diagnostic, SourceLocation
from mxrun.base.near_names import nearest
from mxrun.config.marked import Path, SourceNode, describe, dotted
from mxrun.config.scalar import resolve
from mxrun.config.section import Section, describe_field, section_at

_KINDS = {
    "int_type": "an integer",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "model_type": "a mapping",
    "finite_number": "a finite number",
}
_EXAMPLES = "{f1: {average: macro}}, {sgd: {lr: 0.1}}"
_RANGES = {
    "greater_than": ("gt", "greater than {}"),
    "greater_than_equal": ("ge", "{} or more"),
    "less_than": ("lt", "less than {}"),
    "less_than_equal": ("le", "{} or less"),
}


def translate(
    error: ValidationError, tree: SourceNode, model: type[Section], leaving_out: Iterable[Path] = ()
) -> list[Diagnostic]:
    """Return a diagnostic for each validation error of `tree` as `model` not at `leaving_out`."""
    known = set(leaving_out)
    errors = error.errors(include_url=False)
    return [_translate(found, tree, model) for found in errors if found["loc"] not in known]


def _translate(details: ErrorDetails, tree: SourceNode, model: type[Section]) -> Diagnostic:
    path: Path = details["loc"]
    if path[-1:] == ("[key]",):
        path = path[:-1]
        expected = "letters, digits, _ . -, at most 200 characters"
        return Diagnostic(f"not a name: {path[-1]!r}", tree.find(*path).start, expected)
    found = tree.find(*path)
    kind = details["type"]
    if kind == "extra_forbidden":
        return _unknown_key(path, found.start, model)
    if kind == "missing":
        return _missing(path, tree, model)
    where, got = dotted(path) or "the config", describe(found.value)
    if kind == "literal_error" and _is_not_yet(path, found.value, model):
        return Diagnostic(f"{where}: {found.value} is not available yet", found.place)
    expected = _expected(details, path, model)
    return Diagnostic(
        f"{where} cannot be used", found.place, expected, got, _hint(kind, expected, found)
    )


def _expected(details: ErrorDetails, path: Path, model: type[Section]) -> str:
    kind, context = details["type"], details.get("ctx", {})
    if kind in _KINDS:
        return _KINDS[kind]
    if kind in _RANGES:
        key, text = _RANGES[kind]
        return text.format(context[key])
    if kind == "literal_error":
        return str(context["expected"])
    if kind in ("too_short", "too_long"):
        bound, count = ("min", "at least") if kind == "too_short" else ("max", "at most")
        return f"{count} {context[f'{bound}_length']} items"
    if kind in ("string_pattern_mismatch", "string_too_long", "string_too_short"):
        return "a name of letters, digits, _ . and -"
    return details["msg"]


def _hint(kind: str, expected: str, found: SourceNode) -> str:
    value = found.value
    if kind == "choice" and isinstance(value, Mapping) and value:
        name = next(iter(value))
        if len(value) == 1:
            return f"name the parameter: {{{name}: {{NAME: VALUE}}}}, as in {_EXAMPLES}"
        return f"write one kind in each, with its parameters as its value, as in {_EXAMPLES}"
    if kind == "literal_error" and isinstance(value, str):
        return nearest(value, [word.strip("' ") for word in expected.replace("or", ",").split(",")])
    if kind == "int_type" and isinstance(value, float) and value.is_integer():
        return f"write {int(value)}"
    if isinstance(value, str) and kind in ("int_type", "float_type", "bool_type"):
        if not isinstance(resolve(value[:100]), str):
            return f"remove the quotes: {value}"
        if kind == "bool_type" and value.lower() in ("yes", "on", "no", "off", "y", "n"):
            return "write true" if value.lower() in ("yes", "on", "y") else "write false"
    if kind == "string_type" and not isinstance(value, (tuple, Mapping)) and value is not None:
        return "write it in quotes"
    return ""


def _unknown_key(path: Path, place: SourceLocation, model: type[Section]) -> Diagnostic:
    *parents, key = path
    section = section_at(tuple(parents), model)
    if section is not None and key in section.not_yet:
        return Diagnostic(f"{dotted(path)} is not available yet", place, hint="leave it out")
    known = tuple(section.model_fields) if section else ()
    if section is model:
        known = (*known, "extends", "blocks")
    inside = f" in {dotted(tuple(parents))}" if parents else ""
    hint = nearest(str(key), known) or f"known keys: {', '.join(known)}"
    return Diagnostic(f"unknown key {key!r}{inside}", place, hint=hint)


def _missing(path: Path, tree: SourceNode, model: type[Section]) -> Diagnostic:
    *parents, key = path
    section = section_at(tuple(parents), model)
    field = section.model_fields.get(str(key)) if section else None
    if isinstance(key, int):
        return Diagnostic(f"{dotted(tuple(parents))} has too few items", tree.find(*parents).place)
    place = tree.find(*parents).start
    expected, hint = (describe_field(field), field.description or "") if field else ("", "")
    return Diagnostic(f"{dotted(path)} is missing", place, expected, "nothing", hint)


def _is_not_yet(path: Path, value: object, model: type[Section]) -> bool:
    section = section_at(path[:-1], model)
    if section is None or not isinstance(value, str):
        return False
    return f"{path[-1]}: {value.partition(':')[0]}" in section.not_yet
