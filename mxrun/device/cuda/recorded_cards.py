"""Properties of cards that are not there, as JSON with cuDNN's keys, from public data sheets.

Each file of `cards/` says where its figures are from. A card that is there is described by cuDNN
itself (`cudnn.plan.properties_of_card`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import listed

_FOLDER = Path(__file__).with_name("cards")


def recorded_cards() -> list[str]:
    """Return the names of the cards that are recorded."""
    return sorted(path.stem for path in _FOLDER.glob("*.json"))


@dataclass(frozen=True)
class RecordedCard:
    """Properties of a card as JSON, and its peaks as `peaks_of` takes them."""

    properties: str
    peaks: Mapping[str, float]


def recorded_card(name: str) -> RecordedCard:
    """Return a card.

    name: of a card, or of a file like those of `cards/`, which needs no peaks. Raises UserError for
    another one.
    """
    path = _FOLDER / f"{name}.json" if name in recorded_cards() else Path(name)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        peaks = {str(key): float(value) for key, value in content.get("peaks", {}).items()}
        return RecordedCard(json.dumps(content["properties"], sort_keys=True), peaks)
    except (OSError, AttributeError, KeyError, TypeError, ValueError) as error:
        problem = f"no properties of the card {name!r} are recorded"
        expected = f"one of {listed(recorded_cards())}, or a JSON file with the key `properties`"
        raise UserError(Diagnostic(problem, expected=expected)) from error
