"""Transfer of one file over HTTP, continued where it stopped.

A server that supports ranges (RFC 9110, section 14) is asked for the missing bytes alone. What
arrives is limited to the size that is expected, and redirections lead to HTTP and HTTPS only.
"""

from __future__ import annotations

import re
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse
from io import BufferedReader, RawIOBase
from typing import Any, BinaryIO
from urllib import request as urllib_request
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError

_CHUNK = 1 << 16
# Answers after which the same request may succeed later: too slow, too many requests, overload.
_TEMPORARY = frozenset({408, 425, 429, 500, 502, 503, 504})
_PARTIAL_CONTENT, _RANGE_NOT_SATISFIABLE = 206, 416
_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")
# An attempt that brings this much makes the number of failures start anew.
_GAIN = 1 << 16

Progress = Callable[[int], None]


@dataclass(frozen=True)
class TransferPolicy:
    """Patience with a server.

    timeout_s: seconds without any byte after which an attempt ends. window_s: seconds in which an
    attempt must bring `min_rate` bytes per second. attempts: the number of attempts in sequence
    that bring nothing. wait_s: pause before the second attempt, which doubles with each further
    one.
    """

    timeout_s: float = 30.0
    window_s: float = 60.0
    min_rate: int = 1024
    attempts: int = 4
    wait_s: float = 1.0


class _TemporaryFailure(Exception):
    """End of an attempt that may be repeated."""


def check_url(url: str) -> None:
    """Raise UserError for an address that is not of HTTP or HTTPS."""
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        is_address = False
    if not is_address:
        expected = "http://... or https://..., or a folder"
        raise UserError(Diagnostic(f"{url}: not an address to fetch from", None, expected))


def download(
    url: str, file: BinaryIO, size: int, policy: TransferPolicy, progress: Progress
) -> None:
    """Append to `file` what it lacks of the `size` bytes at `url`.

    What the file holds is taken for the beginning; a server that cannot continue sends everything
    anew. progress: receives the number of bytes that are there. Raises UserError if the server does
    not have such a file or cannot be reached, and OSError if the file cannot be written.
    """
    check_url(url)
    failures = 0
    while (start := file.seek(0, 2)) < size:
        progress(start)
        try:
            _receive(url, file, start, size, policy, progress)
        except _TemporaryFailure as failure:
            gained = file.seek(0, 2) - start
            failures = 1 if gained >= _GAIN else failures + 1
            if failures >= policy.attempts:
                hint = "check the network; the same command continues where it stopped"
                tried = f"{failures} attempt{'' if failures == 1 else 's'}"
                raise UserError(Diagnostic(f"{url}: {failure} ({tried})", hint=hint)) from failure
            time.sleep(policy.wait_s * 2 ** (failures - 1))
    progress(size)


def _receive(
    url: str, file: BinaryIO, start: int, size: int, policy: TransferPolicy, progress: Progress
) -> None:
    """Make one request for the bytes from `start` on; raises _TemporaryFailure and UserError."""
    with closing(_open(url, file, start, policy)) as response:
        position = _first_byte(url, response, start, size)
        file.seek(position)
        file.truncate()
        while position < size:
            try:
                # What has arrived: `read` would lose it when the rest does not come.
                chunk = response.read1(_CHUNK)
            except (OSError, HTTPException) as error:
                raise _TemporaryFailure(_reason(error, policy.timeout_s)) from error
            if not chunk:
                raise _TemporaryFailure(f"the connection ended after {position:,} bytes")
            if position + len(chunk) > size:
                problem = f"{url}: the file there is longer than it should be"
                raise UserError(Diagnostic(problem, None, f"{size:,} bytes"))
            write_all(file, chunk)
            position += len(chunk)
            progress(position)


def write_all(file: BinaryIO, content: bytes) -> None:
    """Write all bytes to an unbuffered file, whose `write` may stop earlier."""
    view = memoryview(content)
    while view:
        view = view[file.write(view) :]


def _open(url: str, file: BinaryIO, start: int, policy: TransferPolicy) -> HTTPResponse:
    """Return the answer to a request; raises _TemporaryFailure and UserError."""
    headers = {"User-Agent": "mxrun", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    request = urllib_request.Request(url, headers=headers)
    try:
        response: HTTPResponse = _opener(url, policy).open(request, timeout=policy.timeout_s)
    except HTTPError as error:
        with closing(error):
            if error.code == _RANGE_NOT_SATISFIABLE and start:
                file.truncate(0)
                raise _TemporaryFailure("the server could not continue") from error
            if error.code in _TEMPORARY:
                raise _TemporaryFailure(f"{error.code} {error.reason}") from error
            hint = "give another address with --from URL" if error.code < 500 else ""
            problem = f"{url}: the server answers {error.code} {_line(error.reason)}"
            raise UserError(Diagnostic(problem, hint=hint)) from error
    except (OSError, HTTPException) as error:
        cause = error.reason if isinstance(error, URLError) else error
        reason = _reason(cause, policy.timeout_s)
        if isinstance(cause, (socket.gaierror, ssl.SSLCertVerificationError)):
            hint = "check the network, or give a folder that holds the files with --from FOLDER"
            raise UserError(Diagnostic(f"{url}: {reason}", hint=hint)) from error
        raise _TemporaryFailure(reason) from error
    except (ValueError, OverflowError) as error:
        # Python's parsers of addresses and host names raise them.
        problem = f"{url}: the server redirects to an address that cannot be parsed"
        raise UserError(Diagnostic(problem, got=_line(error))) from error
    return response


def _first_byte(url: str, response: HTTPResponse, start: int, size: int) -> int:
    """Return the position in the file at which an answer begins.

    Raises UserError for the wrong size and for an encoded answer, and _TemporaryFailure for another
    range than the one asked for, which makes the caller start anew.
    """
    encoding = response.headers.get("Content-Encoding", "identity")
    if encoding.lower() != "identity":
        raise UserError(
            Diagnostic(f"{url}: the server encodes the file", None, "identity", encoding)
        )
    total: int | None = None
    position = 0
    if response.status == _PARTIAL_CONTENT:
        found = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", "").strip())
        if found is None or int(found[1]) != start:
            raise UserError(f"{url}: the server sends another range than the one asked for")
        position = start
        total = None if found[2] == "*" else int(found[2])
    elif response.length is not None:
        total = response.length
    if total is not None and total != size:
        problem = f"{url}: the file there has the wrong size"
        raise UserError(Diagnostic(problem, None, f"{size:,} bytes", f"{total:,} bytes"))
    return position


def _reason(error: object, timeout_s: float) -> str:
    """Return why a connection failed, in words."""
    if isinstance(error, TimeoutError):
        return f"no answer for {timeout_s:g} s"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[0].lower() + error.strerror[1:]
    return _line(str(error)) or type(error).__name__


def _line(text: object) -> str:
    """Return the first line of a text that a server or a library wrote."""
    return str(text).strip().partition("\n")[0].strip()[:200]


def _opener(url: str, policy: TransferPolicy) -> urllib_request.OpenerDirector:
    """Return an opener for HTTP and HTTPS alone, through the proxies of the environment."""
    opener = urllib_request.OpenerDirector()
    for handler in (
        urllib_request.ProxyHandler(),
        urllib_request.UnknownHandler(),
        *_steady_handlers(policy),
        urllib_request.HTTPDefaultErrorHandler(),
        SafeRedirections(url),
        urllib_request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener


def _steady_handlers(policy: TransferPolicy) -> list[urllib_request.BaseHandler]:
    """Return the handlers of HTTP and HTTPS, whose answers must come at the least rate."""

    def connect(kind: Callable[..., HTTPConnection], host: str, **options: Any) -> HTTPConnection:
        connection = kind(host, **options)
        connection.response_class = partial(_SteadyResponse, policy)  # type: ignore[assignment]
        return connection

    class Http(urllib_request.HTTPHandler):
        def do_open(self, http_class: Any, req: Any, **options: Any) -> Any:
            return super().do_open(partial(connect, http_class), req, **options)

    class Https(urllib_request.HTTPSHandler):
        def do_open(self, http_class: Any, req: Any, **options: Any) -> Any:
            return super().do_open(partial(connect, http_class), req, **options)

    return [Http(), Https()]


class _SteadyResponse(HTTPResponse):
    """Answer whose headers and content are read through a `_SteadyReader`."""

    def __init__(self, policy: TransferPolicy, connection: socket.socket, **options: Any) -> None:
        super().__init__(connection, **options)
        self.fp = BufferedReader(_SteadyReader(self.fp.detach(), policy))


class _SteadyReader(RawIOBase):
    """Stream that raises OSError when too few bytes arrive, however regularly they do."""

    def __init__(self, stream: Any, policy: TransferPolicy) -> None:
        self._stream, self._policy = stream, policy
        self._since, self._bytes = time.monotonic(), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read what has arrived."""
        count: int | None = self._stream.readinto(buffer)
        now, policy = time.monotonic(), self._policy
        self._bytes += count or 0
        if now - self._since >= policy.window_s:
            if count and self._bytes < policy.min_rate * policy.window_s:
                raise OSError(f"less than {policy.min_rate:,} bytes/s for {policy.window_s:g} s")
            self._since, self._bytes = now, 0
        return count

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()
        super().close()


class SafeRedirections(urllib_request.HTTPRedirectHandler):
    """Redirections that lead to HTTP and HTTPS, and never from HTTPS to HTTP."""

    def __init__(self, url: str) -> None:
        self._url = url

    def redirect_request(
        self,
        req: urllib_request.Request,
        fp: object,
        code: int,
        msg: str,
        headers: object,
        newurl: str,
    ) -> urllib_request.Request | None:
        """Return the request for the new address; raises UserError if it is not allowed."""
        allowed = ("https",) if req.type == "https" else ("http", "https")
        if urlsplit(newurl).scheme not in allowed:
            problem = f"{self._url}: the server redirects to an address that is not allowed"
            raise UserError(Diagnostic(problem, None, " or ".join(allowed), newurl))
        return super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]
