"""500 mutated configs: each loads, or every diagnostic names file, line and column."""

import random
import re
from pathlib import Path

import yaml

from mxrun.config import parse

CONFIGS = Path(__file__).parents[2] / "configs"
RESNET = Path(__file__).parent / "resnet50.yaml"
MUTATIONS = 500
VALUES = ["3", "-1", "1e-3", "true", "null", "no", "[1]", "{a: 1}", "''", ".nan", "'3'", "9" * 40]
GARBAGE = [b"\xff", b"\x00", b"\t", b"&a", b"*a", b"!!x", b"${", b"}", b"\xf0\x9f\x98\x80", b"? "]
TOKEN = re.compile(r"[A-Za-z0-9_.$/*+-]+")


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


def misspell(text: str, source: random.Random) -> str:
    token = source.choice([token for token in TOKEN.finditer(text) if len(token[0]) > 2])
    at = source.randrange(token.start(), token.end() - 1)
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


MUTATORS = [swap_tokens, delete_token, change_type, misspell, delete_line, indent_line]


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


def test_F9_mutated_configs_give_diagnostics_with_places(tmp_path: Path) -> None:
    sources = [path.read_bytes() for path in (*sorted(CONFIGS.glob("*.yaml")), RESNET)]
    assert len(sources) >= 4
    source = random.Random(20)
    path = tmp_path / "mutated.yaml"
    well_formed = accepted = 0
    for number in range(MUTATIONS):
        content = mutate(sources[number % len(sources)], source)
        path.write_bytes(content)
        well_formed += is_yaml(content)
        parsed = parse(path)
        accepted += parsed.config is not None
        assert (parsed.config is None) == bool(parsed.diagnostics)
        for problem in parsed.diagnostics:
            assert problem.place is not None, content
            assert problem.place.file == str(path)
            assert 1 <= problem.place.line <= content.count(b"\n") + 2, (content, problem)
            assert problem.place.column >= 1
            assert problem.problem
    assert well_formed >= MUTATIONS / 2
    assert 0 < accepted < MUTATIONS
