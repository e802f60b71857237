"""Entries of a config's reference that have to do with a word, if none has it as its name."""

from __future__ import annotations

import re
from collections import Counter

from mxrun.base.foreign_names import keys_for
from mxrun.base.near_names import folded
from mxrun.inspection.reference import LAYERS, ReferenceEntry, find
from mxrun.operator.register import OPERATORS

# Shorter words are parts of too many others.
_MIN_WORD = 3


def related(root: ReferenceEntry, word: str) -> list[ReferenceEntry]:
    """Return the entries that a word has to do with, the most relevant ones first; each once.

    First come the keys and the operator that do what the word says in other frameworks, then keys
    whose names contain it, then operators, then keys whose texts contain a word that begins so.
    """
    wanted = folded(word)
    if len(wanted) < _MIN_WORD:
        return []
    entries = [entry for entry in root.walk() if entry.path and entry.path == entry.shared]
    operators = [entry for entry in entries if entry.kind == "operator"]
    keys = [entry for entry in entries if entry.kind != "operator" and not _is_parameter(entry)]
    begins = re.compile(rf"\b{re.escape(word)}", re.IGNORECASE)
    known = [*keys_for(word), *OPERATORS.foreign_to(word)]
    found = [
        *(entry for key in known for entry in find(root, key)),
        *(entry for entry in keys if wanted in folded(entry.name)),
        *(entry for entry in operators if wanted in folded(entry.name)),
        *(entry for entry in keys if begins.search(f"{entry.description} {entry.accepts}")),
    ]
    return list({entry.shared: entry for entry in found}.values())


def related_to_words(root: ReferenceEntry, words: str) -> list[ReferenceEntry]:
    """Return the entries that most of several words name or have to do with; each once."""
    found: dict[tuple[str, ...], ReferenceEntry] = {}
    hits: Counter[tuple[str, ...]] = Counter()
    for word in words.split():
        own = {entry.shared: entry for entry in (*find(root, word), *related(root, word))}
        found = {**found, **own}
        hits.update(own.keys())
    most = max(hits.values(), default=0)
    return [entry for shared, entry in found.items() if hits[shared] == most]


def see_also(root: ReferenceEntry, operator: str) -> list[ReferenceEntry]:
    """Return the keys of which an operator's name is one of several words: `log_every` of log."""
    return [
        entry
        for entry in root.walk()
        if entry.path == entry.shared
        and entry.kind not in ("operator", "kind")
        and not _is_parameter(entry)
        and entry.name != operator
        and operator in entry.name.split("_")
    ]


def _is_parameter(entry: ReferenceEntry) -> bool:
    """Return whether an entry is the parameter of an operator."""
    return entry.path[: len(LAYERS)] == LAYERS and len(entry.path) > len(LAYERS) + 1
