"""Signals while others work for this process: they reach the waiting, never a talk with them.

An exception in the middle of a talk with Java leaves half an answer in the connection, and one in
the middle of an ending leaves what was to be ended. So work is done in a thread of its own, which
no signal reaches, and endings are not interrupted.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

__all__ = ["deferred", "uninterrupted", "waited_for"]

_POLL_SECONDS: Final = 0.1

_NUMBERS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Result = TypeVar("Result")
Handler = Callable[[int, Any], Any]


def waited_for(
    work: Callable[[], Result],
    *,
    end: Callable[[], None] = lambda: None,
    meanwhile: Callable[[], None] = lambda: None,
) -> Result:
    """Do the work in a thread; what it returns or raises.

    ``meanwhile`` is called again and again. On KeyboardInterrupt, or another exception from there,
    ``end`` is to bring the work to its end, which is awaited before the exception goes on.
    """
    outcome: list[Result] = []
    failures: list[BaseException] = []
    # Not Thread.join: in Python before 3.13 one that is interrupted takes the thread for ended.
    over = threading.Event()

    def run() -> None:
        try:
            outcome.append(work())
        except BaseException as error:
            failures.append(error)
        over.set()

    thread = threading.Thread(target=run, daemon=True)
    try:
        with deferred():
            thread.start()
        while not over.wait(_POLL_SECONDS):
            meanwhile()
        meanwhile()
    except BaseException:
        with uninterrupted():
            end()
            if thread.ident is not None:
                over.wait()
        raise
    if failures:
        raise failures[0]
    return outcome[0]


@contextmanager
def deferred() -> Iterator[None]:
    """A short block that no signal strikes: what its handler raises is raised at the end."""
    came: list[int] = []
    with _handled_by(lambda number, _: came.append(number)) as before:
        yield
    for number in came[:1]:
        before[number](number, None)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """No signal ends the block. One that comes is dropped: it asks for what is under way."""
    with _handled_by(lambda number, _: None):
        yield


@contextmanager
def _handled_by(handler: Handler) -> Iterator[dict[int, Handler]]:
    """Have a handler in the place of others of Python's; those of before."""
    before: dict[int, Handler] = {}
    # Python's handlers are called in the main thread, and only there they may be set.
    if threading.current_thread() is threading.main_thread():
        for number in _NUMBERS:
            found = signal.getsignal(number)
            # A signal that is left to the system, or is ignored, stays so.
            if callable(found):
                before[number] = found
                signal.signal(number, handler)
    try:
        yield before
    finally:
        for known, found in before.items():
            signal.signal(known, found)
