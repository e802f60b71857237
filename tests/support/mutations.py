"""Config files with typical user errors: misspelt, misplaced, mistyped, cut, garbled."""

from __future__ import annotations

import random
import re

import yaml

VALUES = ["3", "-1", "1e-3", "true", "null", "no", "[1]", "{a: 1}", "''", ".nan", "'3'", "9" * 40]
EXTREMES = ["1e39", "4000000000", ".nan", ".inf", "-.inf", "-1", "0", "1e12", "1e-400", "-0.0"]
EXTREMES += [str(2**31), str(2**63), f"[{', '.join(['7'] * 1000)}]", "[4000000000, 4000000000]"]
GARBAGE = [b"\xff", b"\x00", b"\t", b"&a", b"*a", b"!!x", b"${", b"}", b"\xf0\x9f\x98\x80", b"? "]
TOKEN = re.compile(r"[A-Za-z0-9_.$/*+-]+")
# A tensor that a layer takes by its name.
REFERENCE = re.compile(r"\b(?:data|label|lhs|rhs): ([a-z]\w+)")
NUMBER = re.compile(r"(?<![\w.])-?[0-9][0-9.e-]*(?![\w.])")


def swap_tokens(text: str, source: random.Random) -> str:
    tokens = list(TOKEN.finditer(text))
    first, second = sorted(source.sample(tokens, 2), key=lambda token: token.start())
    between = text[first.end() : second.start()]
    return text[: first.start()] + second[0] + between + first[0] + text[second.end() :]


def delete_token(text: str, source: random.Random) -> str:
    token = source.choice(list(TOKEN.finditer(text)))
    return text[: token.start()] + text[token.end() :]


def change_type(text: str, source: random.Random) -> str:
    token = source.choice(list(TOKEN.finditer(text)))
    return text[: token.start()] + source.choice(VALUES) + text[token.end() :]


def make_extreme(text: str, source: random.Random) -> str:
    numbers = list(NUMBER.finditer(text))
    if not numbers:
        return text
    number = source.choice(numbers)
    return text[: number.start()] + source.choice(EXTREMES) + text[number.end() :]


def misspell(text: str, source: random.Random) -> str:
    tokens = [token.span() for token in TOKEN.finditer(text) if len(token[0]) > 2]
    return swap_letters(text, *source.choice(tokens), source)


def misspell_reference(text: str, source: random.Random) -> str:
    references = [match.span(1) for match in REFERENCE.finditer(text)]
    return swap_letters(text, *source.choice(references), source) if references else text


def swap_letters(text: str, start: int, stop: int, source: random.Random) -> str:
    at = source.randrange(start, stop - 1)
    return text[:at] + text[at + 1] + text[at] + text[at + 2 :]


def delete_line(text: str, source: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    del lines[source.randrange(len(lines))]
    return "".join(lines)


def indent_line(text: str, source: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    at = source.randrange(len(lines))
    lines[at] = " " * source.randint(1, 5) + lines[at].lstrip(" ")
    return "".join(lines)


MUTATORS = [
    swap_tokens,
    delete_token,
    change_type,
    make_extreme,
    misspell,
    misspell_reference,
    delete_line,
    indent_line,
]


def mutate(content: bytes, source: random.Random) -> bytes:
    if source.random() < 0.15:
        at = source.randrange(len(content))
        return content[:at] + source.choice(GARBAGE) + content[at:]
    text = content.decode()
    for _ in range(source.randint(1, 3)):
        text = source.choice(MUTATORS)(text, source)
    return text.encode()


def is_yaml(content: bytes) -> bool:
    try:
        yaml.compose(content.decode())
    except (yaml.YAMLError, ValueError):
        return False
    return True
