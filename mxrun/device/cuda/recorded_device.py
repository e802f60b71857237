"""Cards that are not here, for which runs are planned."""

from __future__ import annotations

from mxrun.base.device import DeviceDescription
from mxrun.base.errors import Diagnostic, UserError
from mxrun.device.cuda.card import Card
from mxrun.device.cuda.cudnn import library as cudnn
from mxrun.device.cuda.device import CudaDevice
from mxrun.device.cuda.recorded_cards import recorded_card
from mxrun.device.interface import Device

# A machine of such cards.
_CARDS = 8


def device_of(source: str) -> type[Device]:
    """Return the kind of device whose cards are all the recorded one.

    source: the name of a card, or a JSON file of properties with cuDNN's keys. Raises UserError for
    another name or file.
    """
    properties = recorded_card(source)
    try:
        card = Card.recorded(properties)
    except (KeyError, TypeError, ValueError) as error:
        problem = f"{source} has no properties of a card: {error!r}"
        raise UserError(
            Diagnostic(problem, hint="`mxrun info --json` writes those of a card")
        ) from (error)

    class RecordedDevice(CudaDevice):
        """The card, which is planned for alone."""

        @classmethod
        def count(cls) -> int:
            """Return the number of cards."""
            return _CARDS

        @classmethod
        def model(cls, index: int) -> str:
            """Return the card's name."""
            return card.name

        @classmethod
        def missing(cls) -> str:
            """Return why cuDNN makes no plans; empty if it does."""
            return cudnn.reason()

        @classmethod
        def memory_bytes(cls, index: int) -> tuple[int, int]:
            """Return the bytes of the card's memory, as if all of them were free."""
            return card.memory_bytes, card.memory_bytes

        @classmethod
        def unusable(cls, index: int) -> str:
            """Return why the card is too old for the kernels; empty if it is not."""
            return card.too_old()

        @classmethod
        def describe(cls, index: int, threads: int) -> DeviceDescription:
            """Return the description of the card."""
            return card.description(index)

    return RecordedDevice
