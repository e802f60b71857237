"""The `memory` section: limits on the arena of a run."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field, InstanceOf, WithJsonSchema

from mxrun.base.dataclass import dataclass
from mxrun.base.sizes import SIZE_FORM, parse_size
from mxrun.base.validation import custom_error
from mxrun.config.section import Section

_SHARE = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?) ?%", re.ASCII)


@dataclass(frozen=True)
class MemoryBudget:
    """Limit on the arena, as a size or as a share; exactly one of the two is set.

    nbytes: bytes of the entire arena. share: fraction, above 0 and at most 1, of the reusable bytes
    that training needs without a budget.
    """

    nbytes: int | None = None
    share: float | None = None

    written: ClassVar[str] = f"{SIZE_FORM}; or a percentage up to 100%"


def read_budget(given: object) -> object:
    """Convert a size or a percentage to a MemoryBudget; raises PydanticCustomError otherwise."""
    if isinstance(given, MemoryBudget):
        return given
    text = "" if isinstance(given, (bool, float)) else str(given).strip()
    match = _SHARE.fullmatch(text)
    if match is not None and 0 < float(match[1]) <= 100:
        return MemoryBudget(share=float(match[1]) / 100)
    size = parse_size(text)
    if not size:
        raise custom_error("budget", MemoryBudget.written)
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
    """Memory that a run may use."""

    budget: AnyBudget | None = Field(
        default=None,
        description="Limit of the arena: a size, such as 512 MiB, or a percentage of the reusable "
        "bytes that training needs without a budget. To stay within it, backward recomputes "
        "results of forward instead of storing them; default: no limit, all are stored.",
        examples=["512 MiB", "50%"],
    )
    micro_batches: bool = Field(
        default=False,
        description="Whether each training batch may be computed in equal parts whose gradients "
        "are summed, to fit into the budget; done if it is predicted to be faster than more "
        "recomputation. Not available with layers that mix a batch's samples, such as BatchNorm.",
    )
