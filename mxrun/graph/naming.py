"""Readable descriptions of the planner's generated names.

A generated name is a user's name with suffixes: `@` and the layout of a copy, `:` and the purpose
of a step or state, and a number that makes the name unique. A user's name has neither `@` nor `:`.
"""

from __future__ import annotations

import re

_MARK = re.compile(r"([@:])([^@:]*)")
_NUMBER = re.compile(r"\d+$")
# Suffixes after `:`, without their numbers; {} is the description of the name before the suffix.
_ROLES = {
    "backward": "backward of {}",
    "update": "update of {}",
    "reorder": "copy of {}",
    "again": "{} again",
    "anew": "{} recomputed",
    "grad": "summed gradient of {}",
    "grad_sum": "sum of the gradients of {}",
    "accumulate": "gradient of {} accumulated",
    "fold": "folding into {}",
    "mom": "momentum of {}",
    "mean": "mean gradient of {}",
    "var": "mean square gradient of {}",
    "n": "squared gradients of {}",
    "average": "average of {}",
    "evaluation": "{} in evaluation",
    "staged": "{} of a prefetched batch",
    "out": "output {}",
    "head_grad": "gradient given for {}",
    "": "{}",
}
_OWN = {
    "optimizer:schedule": "learning-rate schedule",
    "optimizer:gradient_scale": "gradient scale",
    "optimizer:clipped_scale": "clipped gradient scale",
    "random:state": "state of the random generator",
}
_LAYOUTS = {
    "onednn": "packed",
    "panels": "packed",
    "channels_last": "channels last",
    "plain": "row-major",
}


def in_words(name: str) -> str:
    """Describe a generated name; a user's name is returned unchanged.

    Examples: `conv1:backward` gives `backward of conv1`, and `fc1_weight@onednn:1518` gives
    `fc1_weight (packed)`.
    """
    if name in _OWN:
        return _OWN[name]
    first = _MARK.search(name)
    if first is None:
        return name
    words = name[: first.start()]
    for sign, mark in _MARK.findall(name[first.start() :]):
        role = _NUMBER.sub("", mark)
        if sign == "@":
            words += f" ({_LAYOUTS.get(mark, mark)})"
        elif role in _ROLES:
            words = _ROLES[role].format(words)
        else:
            words += f" ({mark})"
    return words
