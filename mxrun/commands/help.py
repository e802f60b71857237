"""Implementation of `help`: what a key of a config or a name in it means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import folded, nearest
from mxrun.commands import docs, ops
from mxrun.config.translate import key_elsewhere
from mxrun.inspection.reference import LAYERS, ReferenceEntry, config_reference, find
from mxrun.inspection.reference_search import related, related_to_words, see_also
from mxrun.operator.foreign_names import elsewhere, missing
from mxrun.operator.register import OPERATORS

Report = dict[str, Any]
# Names of what there is to choose from, and the keys that take it.
TOPICS: Mapping[str, str] = {
    "transforms": "data.train.transforms",
    "datasets": "data.train.dataset",
    "optimizers": "train.optimizer",
    "schedules": "train.schedule",
    "initializers": "train.initializer",
    "metrics": "train.metrics",
    "layers": ".".join(LAYERS),
}


def overview() -> Report:
    """Return the settings and sections of a config, and what else can be looked up."""
    root = config_reference()
    entries = {".".join(entry.path): entry for entry in root.walk()}
    topics = [
        {"name": name, "about": entries[key].summary, "kinds": _names(entries[key])}
        for name, key in TOPICS.items()
    ]
    operators = [each.name for each in entries[TOPICS["layers"]].entries if _is_operator(each)]
    topics.append({"name": "operators", "about": "What layers compute.", "kinds": operators})
    return {
        "sections": [_row(entry) for entry in root.entries if entry.kind == "section"],
        "settings": [_row(entry) for entry in root.entries if entry.kind != "section"],
        "topics": topics,
    }


def explain(key: str, commands: Mapping[str, str]) -> Report:
    """Return what a key names: an entry of a config, an operator, a command, or several of these.

    commands: what each command does, by name. The report has one of the keys `entry`, `operator`,
    `operators`, `candidates` (of the name) and `related` (to the word, if none has it as its name);
    `commands` are those with the name, `others` further entries. Raises UserError with the nearest
    names for an unknown key.
    """
    root = config_reference()
    named = {name: about for name, about in commands.items() if folded(name) == folded(key)}
    if folded(key) in ("operator", "operators"):
        return {"operators": ops.operators(), "commands": named}
    found = find(root, TOPICS.get(key, key))
    if named:
        # A command takes precedence over a key that only resembles its name.
        found = [entry for entry in found if entry.name == key.rpartition(".")[2]]
    operators = [entry.name for entry in found if _is_operator(entry)]
    if not found and key in OPERATORS and not OPERATORS.get(key).is_internal:
        operators = [key]
    if len(operators) == 1 and len(found) < 2:
        others = [_row(entry) for entry in see_also(root, operators[0])]
        return {"operator": ops.operator(operators[0]), "others": others, "commands": named}
    if len(found) == 1:
        others = [_row(entry) for entry in _namesakes(root, found[0])]
        return {"entry": entry_report(found[0]), "others": others, "commands": named}
    if not found and not named:
        if to_show := related(root, key) or related_to_words(root, key):
            return {"related": [_row(entry) for entry in to_show], "commands": {}}
        raise UserError(_unknown(root, key, commands))
    return {"candidates": [_row(entry) for entry in found], "commands": named}


def entry_report(entry: ReferenceEntry) -> Report:
    """Return an entry with a row for each entry directly below it."""
    return {
        **_row(entry),
        "description": entry.description,
        "example": entry.example,
        "entries": [_row(below) for below in entry.entries if not _is_operator(below)],
        "operators": [below.name for below in entry.entries if _is_operator(below)],
    }


def setting_hint(option: str) -> str:
    """Return the end of a message about an unknown option that is a key of configs; else empty."""
    hint = key_elsewhere(option.lstrip("-").replace("-", "_"))
    return f". Keys of the config are written KEY=VALUE, without --: {hint}" if hint else ""


def _row(entry: ReferenceEntry) -> Report:
    return {
        "key": ".".join(entry.path),
        "name": entry.name,
        "kind": entry.kind,
        "accepts": entry.accepts,
        "required": entry.is_required,
        "default": entry.default,
        "about": entry.summary,
    }


def _namesakes(root: ReferenceEntry, entry: ReferenceEntry) -> list[ReferenceEntry]:
    """Return the other entries with the same last key, without those of the same content."""
    same = {each.shared: each for each in root.walk() if each.path and each.name == entry.name}
    return [each for shared, each in same.items() if shared != entry.shared]


def _names(choice: ReferenceEntry) -> list[str]:
    return [kind.name for kind in choice.entries if not _is_operator(kind)]


def _is_operator(entry: ReferenceEntry) -> bool:
    return entry.kind == "operator"


def _unknown(root: ReferenceEntry, key: str, commands: Mapping[str, str]) -> Diagnostic:
    """Return the diagnostic for a key that names nothing: what its beginning names has no such
    key, or nothing has its name.
    """
    before, _, last = key.rpartition(".")
    inside = find(root, before) if before else []
    if len(inside) == 1 and inside[0].entries:
        known = [entry.name for entry in inside[0].entries]
        hint = nearest(last, known) or f"known: {', '.join(known[:20])}"
        return Diagnostic(f"{'.'.join(inside[0].path)} has no key {last!r}", got=key, hint=hint)
    names = {entry.name for entry in root.walk() if entry.path}
    lacking = missing(key) and f"mxrun has no {missing(key)} yet"
    hint = lacking or elsewhere(key)
    hint = hint or nearest(last, [*names, *TOPICS, *commands, *OPERATORS.names()])
    hint = hint or docs.pages_about(key, docs.pages()) or "`mxrun help` lists what there is"
    return Diagnostic(f"there is no key {key!r}", got=key, hint=hint)
