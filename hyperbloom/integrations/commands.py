"""Runs a program by its list of arguments: with a time limit, in a session of its own, no shell.

A program runs in a thread that waits for it (`subprocess` starts it without copying the node's
memory). Where it does not end in time, it and what it has started are told to end, and then killed.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any, TypeVar, cast

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.python.threadpool import ThreadPool

from hyperbloom.errors import HyperbloomError
from hyperbloom.integrations.limits import (
    ENDING_SECONDS,
    MAX_COMMANDS,
    MAX_FILE_WORK,
    OUTPUT_TAIL_BYTES,
)

__all__ = ["CommandFailed", "Commands", "Ended"]

T = TypeVar("T")

#: Bytes read at once from what a program writes.
_READ_BYTES = 1 << 16
#: Reads behind its end: more than a pipe holds, and an end where somebody else goes on writing.
_LAST_READS = 32


class CommandFailed(HyperbloomError):
    """A program could not be started, ended with another code than 0, or took too long.

    The message says which and why, without what to do about it.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What a program that ended with 0 wrote to standard output: its last bytes."""

    output: bytes


class Commands:
    """Runs programs for a node, `MAX_COMMANDS` at a time; the others wait for their turn.

    What files of the node need has turns of its own, `MAX_FILE_WORK` at a time.
    """

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._threads = ThreadPool(0, MAX_COMMANDS, name="command")
        self._file_threads = ThreadPool(0, MAX_FILE_WORK, name="file")
        self._running: set[_Run] = set()

    def start(self) -> None:
        """Begin; nothing runs before."""
        self._threads.start()
        self._file_threads.start()

    def stop(self) -> Deferred[None]:
        """End what runs; fires when all of it has ended."""
        for run in list(self._running):
            run.end()
        pool = self._reactor.getThreadPool()

        def end() -> None:
            self._threads.stop()
            self._file_threads.stop()

        return cast("Deferred[None]", deferToThreadPool(self._reactor, pool, end))

    def run(
        self,
        arguments: Sequence[str],
        *,
        seconds: float,
        given: bytes = b"",
        environment: dict[str, str] | None = None,
        quiet: bool = False,
        for_file: bool = False,
    ) -> Deferred[Ended]:
        """Run a program, which reads `given` from standard input; fires when it has ended with 0.

        `environment` is added to the node's own. What it writes to standard error goes into the
        message of a failure; with `quiet` nothing of it does. Raises `CommandFailed`. A program
        that the node's stop ends has failed, too. Cancelling ends it. `for_file`: it writes a file
        of the node.
        """
        run = _Run(tuple(arguments), seconds, given, environment or {}, quiet=quiet)
        self._running.add(run)
        threads = self._file_threads if for_file else self._threads
        done = deferToThreadPool(self._reactor, threads, run)

        def over(outcome: object) -> object:
            self._running.discard(run)
            return outcome

        ended: Deferred[Ended] = Deferred(lambda _: run.end())
        done.addBoth(over)
        # Who cancelled it has heard so already.
        done.addBoth(lambda outcome: None if ended.called else ended.callback(outcome))
        return ended

    def in_thread(self, call: Callable[[], T]) -> Deferred[T]:
        """Do what waits for the disk of a file; fires with what it returns."""
        return cast("Deferred[T]", deferToThreadPool(self._reactor, self._file_threads, call))


class _Run:
    """One program: called in a thread, ended from the reactor's."""

    def __init__(
        self,
        arguments: tuple[str, ...],
        seconds: float,
        given: bytes,
        environment: dict[str, str],
        *,
        quiet: bool,
    ) -> None:
        self._arguments = arguments
        self._seconds = seconds
        self._given = given
        self._environment = environment
        self._quiet = quiet
        self._lock = threading.RLock()
        self._child: subprocess.Popen[bytes] | None = None
        self._why_ended: str | None = None

    def end(self, why: str = "it was ended with the node") -> None:
        """Have the program end, if it runs or is to run; it is killed where it does not."""
        with self._lock:
            self._why_ended = self._why_ended or why
            if self._child is None:
                return
            self._signal(signal.SIGTERM)
        killer = threading.Timer(ENDING_SECONDS, self._signal, (signal.SIGKILL,))
        killer.daemon = True
        killer.start()

    def __call__(self) -> Ended:
        name = os.path.basename(self._arguments[0])
        with self._lock:
            if self._why_ended is not None:
                raise CommandFailed(f"{name} did not run: {self._why_ended}")
            child = self._child = self._begin(name)
        timer = threading.Timer(
            self._seconds, self.end, (f"it took longer than {self._seconds:g} s",)
        )
        timer.daemon = True
        timer.start()
        try:
            output, errors = self._talk(child)
        except OSError as error:
            raise CommandFailed(f"{name} was stopped: {error.strerror}") from None
        finally:
            timer.cancel()
        if self._why_ended is not None:
            raise CommandFailed(f"{name} was stopped: {self._why_ended}")
        if child.returncode != 0:
            raise CommandFailed(_sentence(name, child.returncode, b"" if self._quiet else errors))
        return Ended(output=output)

    def _begin(self, name: str) -> subprocess.Popen[bytes]:
        try:
            with _held(self._given) as given:
                return subprocess.Popen(  # noqa: S603  the operator's own words, no shell
                    self._arguments,
                    stdin=given,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env={**os.environ, **self._environment},
                    start_new_session=True,
                )
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise CommandFailed(f"{name} cannot be started: {why}") from None

    def _talk(self, child: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
        """Keep the last of what it writes until it ends.

        Something that it has started may have left its session and hold the streams open for good.
        """
        streams = (cast("IO[bytes]", child.stdout), cast("IO[bytes]", child.stderr))
        tails = {stream.fileno(): b"" for stream in streams}
        try:
            _follow(child, tails)
        finally:
            with self._lock:
                # What it left behind ends with it. Until it is waited for its number is its own.
                self._signal(signal.SIGKILL)
                child.wait()
        for stream in streams:
            _read(stream.fileno(), tails, _LAST_READS)
            stream.close()
        output, errors = tails.values()
        return output, errors

    def _signal(self, number: signal.Signals) -> None:
        with self._lock:
            child = self._child
            if child is not None and child.returncode is None:
                # Its session: the program and what it has started.
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.pid, number)


def _follow(child: subprocess.Popen[bytes], tails: dict[int, bytes]) -> None:
    """Read what it writes until it ends."""
    with open(os.pidfd_open(child.pid), "rb") as end, selectors.DefaultSelector() as selector:
        for number in (*tails, end.fileno()):
            os.set_blocking(number, False)
            selector.register(number, selectors.EVENT_READ)
        ready: set[int] = set()
        while end.fileno() not in ready:
            ready = {key.fd for key, _ in selector.select()}
            for number in ready & tails.keys():
                if not _read(number, tails, 1):
                    selector.unregister(number)


def _read(number: int, tails: dict[int, bytes], most: int) -> bool:
    """Read from a pipe what is there, so many times at most; whether more may come."""
    for _ in range(most):
        try:
            some = os.read(number, _READ_BYTES)
        except BlockingIOError:
            return True
        if not some:
            return False
        tails[number] = (tails[number] + some)[-OUTPUT_TAIL_BYTES:]
    return True


def _held(given: bytes) -> IO[bytes]:
    """A file that is nowhere, at its beginning: so the end of the node cuts nothing off."""
    file = os.fdopen(os.memfd_create("given"), "w+b")
    file.write(given)
    file.seek(0)
    return file


def _sentence(name: str, code: int, errors: bytes) -> str:
    if code < 0:
        try:
            how = f"was ended by {signal.Signals(-code).name}"
        except ValueError:
            how = f"was ended by signal {-code}"
    else:
        how = f"ended with {code}"
    lines = errors.decode("utf-8", "replace").strip().splitlines()
    last = "".join(c if c.isprintable() else " " for c in lines[-1]) if lines else ""
    return f"{name} {how}: {last[:300]}" if last else f"{name} {how}"
