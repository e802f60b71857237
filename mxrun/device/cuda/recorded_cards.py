"""Properties of cards that are not there, as JSON with cuDNN's keys, from public data sheets.

Each file of `cards/` says where its figures are from. A card that is there is described by cuDNN
itself (`cudnn.plan.properties_of_card`).
"""

from __future__ import annotations

import json
from pathlib import Path

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import listed

_FOLDER = Path(__file__).with_name("cards")


def recorded_cards() -> list[str]:
    """Return the names of the cards that are recorded."""
    return sorted(path.stem for path in _FOLDER.glob("*.json"))


def recorded_card(name: str) -> str:
    """Return the properties of a card as JSON.

    name: of a card, or of a file like those of `cards/`. Raises UserError for another one.
    """
    path = _FOLDER / f"{name}.json" if name in recorded_cards() else Path(name)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return json.dumps(content["properties"], sort_keys=True)
    except (OSError, KeyError, TypeError, ValueError) as error:
        problem = f"no properties of the card {name!r} are recorded"
        expected = f"one of {listed(recorded_cards())}, or a JSON file with the key `properties`"
        raise UserError(Diagnostic(problem, expected=expected)) from error
