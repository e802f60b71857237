"""Implementation of `docs`: the documentation that is installed with mxrun."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from mxrun.base.errors import Diagnostic, InternalError, UserError
from mxrun.base.near_names import folded, nearest

_SUFFIX = ".md"
# Pages in the order in which they are listed: from the first run to the inside. The pages of other
# folders follow, sorted.
_ORDER = (
    "first_network",
    "images",
    "tables",
    "text",
    "configs",
    "recurrences",
    "data",
    "datasets",
    "training",
    "evaluate",
    "inference",
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

    Raises UserError with the nearest names for an unknown page, and with the candidates for the
    last part of several names.
    """
    known = {each.name: each for each in pages()}
    wanted = folded(name.removesuffix(_SUFFIX))
    found = [each for each in known if folded(each) == wanted]
    found = found or [each for each in known if folded(each.rpartition("/")[2]) == wanted]
    if len(found) == 1:
        return known[found[0]]
    raise UserError(
        Diagnostic(
            f"there are several pages {name!r}" if found else f"there is no page {name!r}",
            expected=f"one of {', '.join(found or known)}",
            got=name,
            hint="" if found else nearest(name, known),
        )
    )


def _read(name: str, path: Path) -> DocsPage:
    text = path.read_text(encoding="utf-8")
    title = next((line[2:] for line in text.splitlines() if line.startswith("# ")), None)
    if title is None:
        raise InternalError(f"the page {path} has no title")
    return DocsPage(name, title, text)
