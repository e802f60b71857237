"""Parts of text files by bytes, and their content as decoded pieces of a few megabytes.

A text may be larger than memory holds as characters of four bytes, so nothing here reads a file at
once.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.io.encodings import HEAD_BYTES, refuse_text
from mxrun.io.formats.byte_file import ByteFile

_CHUNK = 1 << 22
# Bytes in which a blank is searched for, at which a text can be cut without cutting a word.
_REACH = 1 << 10
_BLANKS = b" \n\t\r"


@dataclass(frozen=True)
class TextSpan:
    """Bytes start .. stop - 1 of a file."""

    path: Path
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


def divided(
    paths: Sequence[Path], held_out: float, at_words: bool
) -> tuple[tuple[TextSpan, ...], tuple[TextSpan, ...]]:
    """Return the first part of some files, taken as one text, and the last one, `held_out` of it.

    held_out: a fraction of the bytes. The text is cut between two characters, and with `at_words`
    before a blank or at a file's end, if one is in the next kilobyte. Raises UserError for files
    that cannot be read.
    """
    files = [ByteFile(path, stays_open=False) for path in paths]
    total = sum(file.size for file in files)
    # Rounded, because 1 - 0.9 is a little less than 0.1.
    position = int(round(total * (1 - held_out), 3))
    first: list[TextSpan] = []
    last: list[TextSpan] = []
    for file in files:
        cut = min(max(position, 0), file.size)
        if 0 < cut < file.size:
            cut = _boundary(file, cut, at_words)
        if cut:
            first.append(TextSpan(file.path, 0, cut))
        if cut < file.size:
            last.append(TextSpan(file.path, cut, file.size))
        position -= file.size
    return tuple(first), tuple(last)


def _boundary(file: ByteFile, cut: int, at_words: bool) -> int:
    """Return the first position from `cut` on at which a text can be cut."""
    content = file.read(cut - 1, min(_REACH, file.size - cut) + 1)
    after = content[1:]
    if at_words:
        found = [place for blank in _BLANKS if (place := after.find(blank)) >= 0]
        if not found and content[0] not in _BLANKS and cut + len(after) == file.size:
            return file.size
        if found:
            cut, content = cut + min(found), content[min(found) :]
    # Bytes 10xxxxxx continue a character, and a line feed a line end of two bytes.
    step = 0
    while 0x80 <= (content[1 + step : 2 + step] or b"a")[0] < 0xC0 and step < 3:
        step += 1
    if content[step : step + 2] == b"\r\n":
        step += 1
    return cut + step


def byte_chunks(spans: Iterable[TextSpan]) -> Iterator[tuple[TextSpan, bytes]]:
    """Yield the bytes of parts of files, piece by piece, each with its place."""
    for span in spans:
        file = ByteFile(span.path)
        for start in range(span.start, span.stop, _CHUNK):
            stop = min(start + _CHUNK, span.stop)
            yield TextSpan(span.path, start, stop), file.read(start, stop - start)
        file.close()


def text_chunks(span: TextSpan) -> Iterator[str]:
    """Yield the text of a part of a file, piece by piece; a CRLF is not cut.

    A byte order mark at the beginning of the file is left out. Raises UserError naming the byte
    at which the file is not UTF-8.
    """
    pending, carriage = b"", ""
    for place, content in byte_chunks([span]):
        joined = pending + content
        position = place.stop - len(joined)
        if position == 0 and joined.startswith(codecs.BOM_UTF8):
            joined, position = joined[len(codecs.BOM_UTF8) :], len(codecs.BOM_UTF8)
        is_last = place.stop == span.stop
        try:
            text, consumed = codecs.utf_8_decode(joined, "strict", is_last)
        except UnicodeDecodeError as error:
            _refuse(span.path, position + error.start, joined[error.start])
        pending = joined[consumed:]
        text = carriage + text
        carriage = "\r" if text.endswith("\r") and not is_last else ""
        text = text[: len(text) - len(carriage)]
        if text:
            yield text


def _refuse(path: Path, offset: int, byte: int) -> NoReturn:
    file = ByteFile(path, stays_open=False)
    head = file.read(0, min(HEAD_BYTES, file.size))
    refuse_text(path, offset, byte, head, "; or write tokens: bytes, which reads any file")


def word_chunks(span: TextSpan) -> Iterator[str]:
    """Yield the text of a part of a file in pieces that begin with a blank, so that no word is cut.

    Only a text without blanks comes in one piece.
    """
    waiting: list[str] = []
    for text in text_chunks(span):
        # The last blank before which something else stands: a run of blanks stays together.
        end = len(text.rstrip())
        cut = max(text.rfind(blank, 0, end) for blank in " \n\t")
        while cut > 0 and text[cut - 1].isspace():
            cut -= 1
        if cut <= 0:
            waiting.append(text)
            continue
        yield "".join([*waiting, text[:cut]])
        waiting = [text[cut:]]
    if rest := "".join(waiting):
        yield rest


def require_text(paths: Sequence[Path], is_decoded: bool) -> None:
    """Raise UserError if all files are empty or, where they are decoded, byte order marks."""
    mark = codecs.BOM_UTF8 if is_decoded else b""
    got = "an empty file"
    for file in (ByteFile(path, stays_open=False) for path in paths):
        if file.size > len(mark) or file.read(0, file.size) not in (b"", mark):
            return
        if file.size:
            got = "a byte order mark alone"
    problem = f"{', '.join(map(str, paths))}: holds no text"
    raise UserError(Diagnostic(problem, None, "UTF-8 text", got))
