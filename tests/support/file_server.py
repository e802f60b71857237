"""HTTP server in a thread that answers as a script of faults says."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_RANGE = re.compile(r"bytes=(\d+)-")


@dataclass(frozen=True)
class Answer:
    """How one request is answered.

    sends: bytes after which the connection ends; None for all. stalls: whether it stays open until
    the server ends instead. drips: `headers` or `content`, which comes in single bytes without end.
    status: instead of a file. ranges: whether a Range is heeded.
    headers: replace those of the answer. location: of a redirection.
    """

    sends: int | None = None
    stalls: bool = False
    drips: str = ""
    status: int = 200
    ranges: bool = True
    headers: Mapping[str, str] = field(default_factory=dict)
    location: str = ""


class FileServer:
    """Files by path, answers in the order of the requests, and the requests that came."""

    def __init__(self, files: Mapping[str, bytes], answers: tuple[Answer, ...]) -> None:
        self.files, self.answers = dict(files), deque(answers)
        self.requests: list[tuple[str, str]] = []
        self.stalled, self.ended = threading.Event(), threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                return

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))
        self._thread.start()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        wanted = handler.headers.get("Range", "")
        self.requests.append((handler.path, wanted))
        answer = self.answers.popleft() if self.answers else Answer()
        content = self.files.get(handler.path)
        if answer.drips:
            self._drip(handler, answer.drips)
            return
        if answer.location:
            handler.send_response(302)
            handler.send_header("Location", answer.location)
            handler.end_headers()
            return
        if content is None or answer.status != 200:
            handler.send_error(404 if content is None else answer.status)
            return
        found = _RANGE.fullmatch(wanted) if answer.ranges else None
        start = int(found[1]) if found else 0
        if start >= len(content) and found:
            handler.send_error(416)
            return
        handler.send_response(206 if found else 200)
        headers = {"Content-Length": str(len(content) - start), **answer.headers}
        if found:
            headers.setdefault("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(content[start:][: answer.sends])
        handler.wfile.flush()
        if answer.stalls:
            self.stalled.set()
            self.ended.wait()

    def _drip(self, handler: BaseHTTPRequestHandler, what: str) -> None:
        handler.send_response(200)
        if what == "content":
            handler.end_headers()
        else:
            handler.flush_headers()
            handler.wfile.write(b"X-Long: ")
        with contextlib.suppress(OSError):
            while not self.ended.wait(0.02):
                handler.wfile.write(b"x")
        handler.close_connection = True

    def close(self) -> None:
        self.ended.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


@contextmanager
def serving(files: Mapping[str, bytes], *answers: Answer) -> Iterator[FileServer]:
    """Serve files; the answers are for the first requests, and the others are whole.

    Meanwhile no proxy of the environment stands between this machine and itself.
    """
    before = os.environ.get("no_proxy")
    os.environ["no_proxy"] = "127.0.0.1"
    server = FileServer(files, answers)
    try:
        yield server
    finally:
        server.close()
        del os.environ["no_proxy"]
        if before is not None:
            os.environ["no_proxy"] = before
