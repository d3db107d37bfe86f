"""Commands that read files which others may have made or damaged do so in a child process.

LMDB maps its file and trusts it. A page that cannot be one is mostly an error, but sometimes the
end of the process (an assertion, SIGSEGV, SIGBUS). So the command starts itself again as a child,
which does all of the work and may die of it; what is left here waits, passes signals on, and makes
one sentence and an exit code of the child's death. The child ends when its parent does, has bounds
on the time and memory that it uses, and leaves no core file, which would hold values.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click

from hyperbloom.cli.app import Command
from hyperbloom.errors import ErrorKind, HyperbloomError

__all__ = ["GuardedCommand", "ReaderDied", "bound_reader", "ended_orderly"]

_CHILD: Final = "HYPERBLOOM_GUARDED"
"""In the child's environment: the descriptor of a pipe that ends when the parent does."""

_PASSED_ON: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_DAMAGE: Final = (signal.SIGABRT, signal.SIGBUS, signal.SIGSEGV, signal.SIGFPE, signal.SIGILL)

LEAST_CPU_SECONDS: Final = 60
SLOWEST_BYTES_PER_SECOND: Final = 500_000
"""A walk does some 15 MB a second; who needs thirty times that goes in circles."""
LEAST_DATA_BYTES: Final = 2 << 30
"""Memory beside the mapped file: interpreter, numpy's threads, and what a walk remembers."""


#: -P: no module is taken from the folder that the command runs in.
_COMMAND = [sys.executable, "-P", "-m", "hyperbloom.cli"]

_parents: Final[list[int]] = []
"""In the child, that pipe."""


class ReaderDied(HyperbloomError):
    """The child process died while it read the files."""

    kind = ErrorKind.STORE


class GuardedCommand(Command):
    """A command whose work is done in a child process. ``died`` may say more than a sentence.

    ``cure``: what to do where the files are damaged, as the end of a sentence.
    ``quiet``: what C code writes to standard error is dropped, such as LMDB's last words.
    """

    def __init__(
        self,
        *args: Any,
        cure: str = "use another snapshot",
        quiet: bool = True,
        died: Callable[[str], None] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._cure = cure
        self._quiet = quiet
        self._died = died

    def invoke(self, ctx: click.Context) -> Any:
        """Called by click: does the work if this is the child, else has a child do it."""
        # Without a process of its own there is no command line to repeat, as under a test.
        if not getattr(ctx.find_root().command, "is_process", False):
            return super().invoke(ctx)
        if _CHILD in os.environ:
            _begin_child(quiet=self._quiet)
            return super().invoke(ctx)
        code = _run_child()
        if code >= 0:
            raise click.exceptions.Exit(code)
        ended_by = signal.Signals(-code)
        if ended_by in _PASSED_ON:
            signal.signal(ended_by, signal.SIG_DFL)
            os.kill(os.getpid(), ended_by)
        sentence = _sentence(ended_by, self._cure)
        if self._died is None:
            raise ReaderDied(sentence)
        return self._died(sentence)


def _sentence(ended_by: signal.Signals, cure: str) -> str:
    if ended_by in _DAMAGE:
        return (
            f"what was read is damaged: LMDB ended the process that read it ({ended_by.name}); "
            f"nothing was changed, {cure}"
        )
    if ended_by == signal.SIGXCPU:
        return (
            "what was read is damaged: reading it went in circles and was ended; "
            f"nothing was changed, {cure}"
        )
    return (
        f"the process that read it was ended by {ended_by.name}: out of memory, or by somebody; "
        "nothing was changed"
    )


def _run_child() -> int:
    """Start this command line again and wait; its exit code, or minus the signal it died of."""
    reading, writing = os.pipe()
    command = [*_COMMAND, *sys.argv[1:]]
    sys.stdout.flush()
    try:
        # A process group of its own: what comes from the keyboard comes here, and is passed on
        # once.
        # It takes a Ctrl-C once it can answer it, and not while Python starts.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            child = subprocess.Popen(  # noqa: S603
                command,
                env={**os.environ, _CHILD: str(reading)},
                pass_fds=[reading],
                process_group=0,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        os.close(reading)
        before = {
            number: signal.signal(number, lambda n, _: child.send_signal(n))
            for number in _PASSED_ON
            if signal.getsignal(number) is not signal.SIG_IGN
        }
        try:
            return child.wait()
        finally:
            for number, action in before.items():
                signal.signal(number, action)
    finally:
        os.close(writing)


def _begin_child(*, quiet: bool) -> None:
    pipe = int(os.environ.pop(_CHILD))
    os.set_inheritable(pipe, False)
    _parents.append(pipe)
    threading.Thread(target=_end_with_parent, args=(pipe,), daemon=True).start()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    if quiet:
        stream = os.fdopen(os.dup(2), "w", buffering=1, errors="backslashreplace")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        sys.stderr = stream


def _end_with_parent(pipe: int) -> None:
    os.read(pipe, 1)
    os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def ended_orderly() -> Iterator[None]:
    """Have SIGTERM and SIGHUP leave the block as Ctrl-C does; the process then ends of them."""
    came: list[int] = []

    def leave(number: int, _: object) -> None:
        came.append(number)
        raise KeyboardInterrupt

    numbers = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) == signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, leave)
    try:
        yield
    except KeyboardInterrupt:
        # What is left to do is to end, and another one asks for the same.
        if not came:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
        for ended_by in came[:1]:
            os.kill(os.getpid(), ended_by)


def bound_reader(folder: Path) -> None:
    """Bound the time and memory of this process for reading the store or snapshot in a folder.

    Does nothing outside of a guarded command's child.
    """
    if not _parents:
        return
    try:
        found = (folder / "data.mdb").stat()
    except OSError:
        return
    size = min(found.st_size, found.st_blocks * 512)
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime) + LEAST_CPU_SECONDS
    _lower(resource.RLIMIT_CPU, seconds + size // SLOWEST_BYTES_PER_SECOND)
    _lower(resource.RLIMIT_DATA, LEAST_DATA_BYTES + size)


def _lower(which: int, limit: int) -> None:
    _, hard = resource.getrlimit(which)
    if hard == resource.RLIM_INFINITY or limit < hard:
        resource.setrlimit(which, (limit, hard))
