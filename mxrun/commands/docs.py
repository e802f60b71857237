"""Implementation of `docs`: the documentation that is installed with mxrun."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, InternalError, UserError
from mxrun.base.near_names import folded, nearest

_SUFFIX = ".md"
_MAX_ABOUT = 4
# Pages in the order in which they are listed: from the first run to the inside. The pages of other
# folders follow, sorted.
_ORDER = (
    "first_network",
    "images",
    "phone_photos",
    "weights",
    "tables",
    "exports",
    "sensors",
    "series",
    "text",
    "configs",
    "recurrences",
    "data",
    "datasets",
    "training",
    "losses",
    "players",
    "evaluate",
    "inference",
    "loops",
    "generation",
    "runs",
    "memory",
    "speed",
    "engine",
    "pictures",
    "python",
    "programs",
    "arrays",
    "symbols",
    "kvstore",
    "operators",
    "from_pytorch_and_keras",
    "from_mxnet",
    "questions",
    "architecture",
    "contributing",
    "promises",
    "changes",
)


@dataclass(frozen=True)
class DocsPage:
    """Page of the documentation: its name, its title, and its text in Markdown."""

    name: str
    title: str
    text: str

    def to_json(self) -> dict[str, Any]:
        """Return the page as JSON."""
        return asdict(self)


def pages() -> tuple[DocsPage, ...]:
    """Return all pages in reading order."""
    folder = Path(str(files("mxrun") / "docs"))
    paths = {
        path.relative_to(folder).with_suffix("").as_posix(): path
        for path in sorted(folder.rglob(f"*{_SUFFIX}"))
    }
    order = {name: position for position, name in enumerate(_ORDER)}
    names = sorted(paths, key=lambda name: (order.get(name, len(order)), name))
    return tuple(_read(name, paths[name]) for name in names)


def page(name: str) -> DocsPage:
    """Return a page by its name, in any spelling, or by the last part of its name.

    Raises UserError with the nearest names for an unknown page or else with the pages that mention
    it, and with the candidates for the last part of several names.
    """
    known = {each.name: each for each in pages()}
    wanted = folded(name.removesuffix(_SUFFIX))
    found = [each for each in known if folded(each) == wanted]
    found = found or [each for each in known if folded(each.rpartition("/")[2]) == wanted]
    if len(found) == 1:
        return known[found[0]]
    if found:
        problem, expected, hint = "there are several pages", f"one of {', '.join(found)}", ""
    else:
        problem, hint = "there is no page", nearest(name, known) or pages_about(name, pages())
        expected = "" if hint else f"one of {', '.join(known)}"
    raise UserError(Diagnostic(f"{problem} {name!r}", expected=expected, got=name, hint=hint))


def pages_about(word: str, known: Iterable[DocsPage]) -> str:
    """Return a hint naming the written pages that mention a word, at most 4; empty if none does.

    Pages that have it in a heading come first, then those that have it more often.
    """
    begins = re.compile(rf"\b{re.escape(word)}", re.IGNORECASE)
    headings = re.compile(rf"^##? .*\b{re.escape(word)}", re.IGNORECASE | re.MULTILINE)
    ranked = [
        (not headings.search(page.text), -count, page.name)
        for page in known
        if page.name != "changes" and "/" not in page.name
        if word and (count := len(begins.findall(page.text)))
    ]
    names = [name for _, _, name in sorted(ranked)[:_MAX_ABOUT]]
    return f"`mxrun docs PAGE` has it on: {', '.join(names)}" if names else ""


def _read(name: str, path: Path) -> DocsPage:
    text = path.read_text(encoding="utf-8")
    title = next((line[2:] for line in text.splitlines() if line.startswith("# ")), None)
    if title is None:
        raise InternalError(f"the page {path} has no title")
    return DocsPage(name, title, text)
