"""Process that transforms records for a run; it ends with the run, however that ends."""

from __future__ import annotations

import json
import os
import select
import socket
import threading
from collections.abc import Callable
from functools import lru_cache

from mxrun.base.errors import SourceLocation, UserError
from mxrun.io.loading.messages import Message, SharedArrays, error_to_json, receive, send
from mxrun.io.loading.python_transforms import transformed
from mxrun.io.transforms.base import TRANSFORMS
from mxrun.io.transforms.draws import Draws
from mxrun.io.transforms.pipeline import TransformStep


def serve(connection: socket.socket, arrays: SharedArrays, prepare: Callable[[], None]) -> None:
    """Transform the records of each request until the other side closes the connection.

    prepare: loads the transforms; its UserError is the answer to the first request.
    """
    threading.Thread(target=_end_with, args=(connection.fileno(),), daemon=True).start()
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


def _end_with(connection: int) -> None:
    """End the process when the other side closes the connection, even within a transform."""
    closing = select.poll()
    closing.register(connection, getattr(select, "POLLRDHUP", select.POLLHUP))
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
