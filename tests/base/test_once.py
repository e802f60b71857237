"""Caches that several threads fill at once."""

from __future__ import annotations

import threading

from mxrun.base.once import once


def test_threads_that_ask_at_once_get_one_object() -> None:
    is_called, may_return, again = threading.Event(), threading.Event(), threading.Event()
    found: list[object] = []

    @once
    def made(name: str) -> object:
        (again if is_called.is_set() else is_called).set()
        assert may_return.wait(60)
        return object()

    def ask() -> None:
        found.append(made("one"))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    threads[0].start()
    assert is_called.wait(60)
    threads[1].start()
    # A second call of the function would come at once; there is none, however long one waits.
    assert not again.wait(0.1)
    may_return.set()
    for thread in threads:
        thread.join(60)
    assert found == [made("one")] * 2
    assert made("other") is not made("one")
