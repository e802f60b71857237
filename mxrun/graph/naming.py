"""What the planner's names mean, in words.

A name of our own is a user's name with marks behind it: `@` and the layout that a copy has, `:` and
what a step or state is for, or a number where nothing else tells two apart. A user's name has
neither `@` nor `:`.
"""

from __future__ import annotations

import re

_MARK = re.compile(r"([@:])([^@:]*)")
_NUMBER = re.compile(r"\d+$")
# Marks behind `:`, without the number that tells them apart; {} is what they stand behind.
_ROLES = {
    "backward": "backward of {}",
    "update": "update of {}",
    "reorder": "copy of {}",
    "again": "{} again",
    "anew": "{} made anew",
    "grad": "summed gradient of {}",
    "grad_sum": "gradients of {} added",
    "accumulate": "gradient of {} accumulated",
    "fold": "folding into {}",
    "mom": "momentum of {}",
    "mean": "mean gradient of {}",
    "var": "mean square gradient of {}",
    "n": "squared gradients of {}",
    "average": "average of {}",
    "staged": "{} of a batch made ahead",
    "": "{}",
}
_OWN = {
    "optimizer:schedule": "the schedule's numbers",
    "random:state": "state of the random generator",
}
_LAYOUTS = {"onednn": "packed", "channels_last": "channels last", "plain": "row-major"}


def in_words(name: str) -> str:
    """A name as a person would say it; a user's stays as it is.

    `conv1:backward` is `backward of conv1`, `fc1_weight@onednn:1518` is `fc1_weight (packed)`.
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
