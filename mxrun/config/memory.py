"""The `memory` section: what the arena of a run may have."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import BeforeValidator, Field, InstanceOf, WithJsonSchema
from pydantic_core import PydanticCustomError

from mxrun.base.sizes import SIZE_FORM, parse_size
from mxrun.config.section import Section

_SHARE = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?) ?%", re.ASCII)


@dataclass(frozen=True)
class MemoryBudget:
    """Bytes of the whole arena, or a share, above 0 and at most 1, of the reusable bytes that
    training needs without a budget; the other is None.
    """

    nbytes: int | None = None
    share: float | None = None


def read_budget(given: object) -> object:
    """A size or a percentage; raises PydanticCustomError for anything else."""
    if isinstance(given, MemoryBudget):
        return given
    text = "" if isinstance(given, (bool, float)) else str(given).strip()
    match = _SHARE.fullmatch(text)
    if match is not None and 0 < float(match[1]) <= 100:
        return MemoryBudget(share=float(match[1]) / 100)
    size = parse_size(text)
    if not size:
        raise PydanticCustomError("budget", f"{SIZE_FORM}; or a percentage up to 100%")
    return MemoryBudget(nbytes=size)


AnyBudget = Annotated[
    InstanceOf[MemoryBudget],
    BeforeValidator(read_budget),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1},
                {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)? ?(%|B|[KMGT]iB)?$"},
            ]
        }
    ),
]


class MemorySection(Section):
    """What memory a run may take."""

    budget: AnyBudget | None = Field(
        default=None,
        description="What the arena may have: a size, such as 512 MiB, or a percentage of the "
        "reusable bytes that training needs without a budget. Where that is too little, backward "
        "computes again what forward did not keep; default: all is kept.",
    )
    micro_batches: bool = Field(
        default=False,
        description="Whether each batch of training may be computed in equal parts whose gradients "
        "are summed, so that it fits into the budget: where that is predicted to be faster than to "
        "compute more again. Not with layers that couple a batch's samples, such as BatchNorm.",
    )
