"""Value types that several sections share."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, InstanceOf, StringConstraints, WithJsonSchema

from mxrun.base.description import Written
from mxrun.config.choice import Choice, read_choice
from mxrun.config.layers import LayerConfig
from mxrun.config.marked import SourceNode
from mxrun.config.names import LONGEST_NAME, REFERENCE, WORD

_NAME = f"a name of letters, digits, _ . and -, at most {LONGEST_NAME} characters"
Word = Annotated[
    str, StringConstraints(pattern=rf"^{WORD}$", max_length=LONGEST_NAME), Written(_NAME)
]
Reference = Annotated[
    str, StringConstraints(pattern=rf"^{REFERENCE}$", max_length=LONGEST_NAME), Written(_NAME)
]
Size = Annotated[int, Field(ge=1, lt=1 << 31)]
AnyLayer = Annotated[InstanceOf[LayerConfig], WithJsonSchema({"type": "object"})]
AnyOption = Annotated[InstanceOf[SourceNode], WithJsonSchema({})]
AnyChoice = Annotated[
    InstanceOf[Choice], BeforeValidator(read_choice), WithJsonSchema({"type": "object"})
]
Shape = tuple[Size, ...]
