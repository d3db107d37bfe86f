"""A worker process of the local engine: calls in, answers out, and an end with its parent.

It is a new program and no fork: an environment of LMDB must not be in two processes by forking, and
a fork would take the parent's threads' locks along. What comes through standard input are calls
(pickled by the process that started this one), what goes out is a line for each.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import IO, Any

__all__ = ["Call", "main"]

Call = tuple[Callable[..., str], tuple[Any, ...]]
"""A function of a module, and its arguments; it returns one line of JSON."""


def main() -> None:
    """Called in the new process: does calls until standard input ends."""
    # Ctrl-C reaches all of a terminal's processes; the parent alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    calls: SimpleQueue[Call] = SimpleQueue()
    threading.Thread(target=_take_in, args=(sys.stdin.buffer, calls), daemon=True).start()
    # Whatever else is printed must not stand among the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    while True:
        function, arguments = calls.get()
        try:
            line = function(*arguments)
        except Exception as error:
            told = f"a task failed, the tables are as they were: {type(error).__name__}: {error}"
            line = json.dumps({"failure": "ExportError", "sentence": " ".join(told.split())})
        answers.write(f"{line}\n")
        answers.flush()


def _take_in(stream: IO[bytes], calls: SimpleQueue[Call]) -> None:
    while True:
        try:
            calls.put(pickle.load(stream))  # noqa: S301  # of the process that started this one
        except (EOFError, pickle.UnpicklingError):
            # The parent has ended or is done: no file of a task under way will be named any more.
            os._exit(0)
