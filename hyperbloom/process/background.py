"""A node that goes into the background, and the command that waits for how its start ends.

twistd can do this, too, but then the command prints the first hundred bytes of an exception and
ends with code 1, whatever the reason. Here it prints the whole sentence and ends with the node's
own exit code. The background process is in a session of its own, with /dev/null as its terminal
(W. R. Stevens, Advanced Programming in the Unix Environment, 13.3).
"""

from __future__ import annotations

import os
import sys
from typing import Any

from twisted.internet.interfaces import IReactorDaemonize

from hyperbloom.exit_codes import ExitCode

__all__ = ["MAX_SENTENCE_BYTES", "Starting", "go_to_background"]

MAX_SENTENCE_BYTES = 4_096
"""Of a sentence that is told; more might not go into the pipe at once (PIPE_BUF)."""


class Starting:
    """The node's side: it tells the command that waits how the start ended."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    def tell(self, code: ExitCode, sentence: str = "") -> None:
        """Have the command print a sentence, if there is one, and end with `code`."""
        told = bytes([code]) + sentence.encode()[: MAX_SENTENCE_BYTES - 1]
        try:
            os.write(self._pipe, told)
        except BrokenPipeError:
            pass  # nobody waits any more
        finally:
            os.close(self._pipe)


def go_to_background(reactor: Any, *, log_name: str) -> Starting:
    """Fork; returns in the background process only.

    This process waits until `Starting.tell` is called there, or until that process ends, and exits.
    `log_name` is where a node that ended without a word says why.
    """
    hooks = reactor if IReactorDaemonize.providedBy(reactor) else None
    if hooks is not None:
        hooks.beforeDaemonize()
    sys.stdout.flush()
    reading, writing = os.pipe()
    if os.fork():
        os.close(writing)
        _wait(reading, log_name)
    os.close(reading)
    os.setsid()
    if os.fork():  # who leads a session could get a terminal again
        os._exit(0)
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    if null > 2:
        os.close(null)
    if hooks is not None:
        hooks.afterDaemonize()
    return Starting(writing)


def _wait(pipe: int, log_name: str) -> None:
    """End this process as the background process says."""
    code, sentence = int(ExitCode.INTERRUPTED), "interrupted; the node goes on starting"
    try:
        told = os.read(pipe, MAX_SENTENCE_BYTES)
    except KeyboardInterrupt:
        pass
    else:
        code = told[0] if told else int(ExitCode.UNEXPECTED)
        sentence = told[1:].decode(errors="replace")
        if not told:
            sentence = f"the node ended before it served; the end of {log_name} says why"
    if sentence:
        stream = sys.__stderr__ or sys.stderr
        stream.write(f"hyperbloom: {sentence}\n")
        stream.flush()
    # The background process has the rest of this program to itself: nothing is cleaned up here.
    os._exit(code)
