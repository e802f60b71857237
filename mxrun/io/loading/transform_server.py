"""Process that transforms records for a run; it ends with the run, however that ends."""

from __future__ import annotations

import fcntl
import json
import os
import select
import socket
from collections.abc import Callable
from functools import lru_cache

from mxrun.base.errors import SourceLocation, UserError
from mxrun.base.threads import start_thread
from mxrun.io.loading.messages import Message, SharedArrays, error_to_json, receive, send
from mxrun.io.loading.python_transforms import transformed
from mxrun.io.transforms.base import TRANSFORMS
from mxrun.io.transforms.draws import Draws
from mxrun.io.transforms.pipeline import TransformStep


def serve(
    connection: socket.socket, arrays: SharedArrays, lifeline: int, prepare: Callable[[], None]
) -> None:
    """Transform the records of each request until the other side closes the connection.

    lifeline: a pipe; the process ends when its other side is closed. prepare: loads the transforms;
    its UserError is the answer to the first request.
    """
    _end_with(lifeline)
    try:
        try:
            prepare()
        except UserError as error:
            send(connection, {"error": error_to_json(error)})
            return
        send(connection, {"ready": True})
        while True:
            request = receive(connection)
            steps = [_step(json.dumps(content)) for content in request["steps"]]
            arrays.start(request["end"])
            for record, draws in zip(request["records"], request["draws"], strict=True):
                send(connection, _answer(steps, arrays, record, Draws(*draws)))
    except (EOFError, OSError):
        # The run has ended, or it has given up this process.
        return


def _end_with(lifeline: int) -> None:
    """End the process when the other side of a pipe is closed, even within a transform.

    One that holds the interpreter lock, such as a regular expression, stops all threads of Python.
    On Linux the signal of the pipe ends the process then.
    """
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_ASYNC)
    start_thread(_wait_for_end, lifeline)


def _wait_for_end(lifeline: int) -> None:
    closing = select.poll()
    closing.register(lifeline, select.POLLHUP)
    closing.poll()
    os._exit(0)


@lru_cache(maxsize=64)
def _step(text: str) -> TransformStep:
    """Return the step that JSON describes: as on threads, one transform for all records."""
    content = json.loads(text)
    transform = TRANSFORMS.get(content["name"]).model_validate(content["parameters"])
    place = content["place"]
    return TransformStep(
        content["position"], transform, None if place is None else SourceLocation(**place)
    )


def _answer(
    steps: list[TransformStep], arrays: SharedArrays, record: Message, draws: Draws
) -> Message:
    """Return where the transformed record is, or the error of the record."""
    result = transformed(steps, arrays.at(record), draws)
    if isinstance(result, UserError):
        return {"error": error_to_json(result)}
    return arrays.put(result)
