"""One DHT node for the time of a command, on a reactor of the command's own."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.error import CannotListenError
from twisted.internet.selectreactor import SelectReactor
from twisted.python.failure import Failure

from hyperbloom.discovery.dht.settings import DhtSettings
from hyperbloom.discovery.dht_node import DhtNode
from hyperbloom.errors import ErrorKind, HyperbloomError

__all__ = [
    "DhtTimeout",
    "NoNodeAnswered",
    "PortTaken",
    "Session",
    "StateUnusable",
    "Work",
    "run_session",
    "save_state",
]

T = TypeVar("T")


class NoNodeAnswered(HyperbloomError):
    """None of the nodes that were asked first is there."""

    kind = ErrorKind.UNREACHABLE


class PortTaken(HyperbloomError):
    """The node cannot listen where it was told to; the message says why."""

    kind = ErrorKind.BUSY


class StateUnusable(HyperbloomError):
    """The file of a node's state cannot be read or written; the message says why."""

    kind = ErrorKind.BAD_CONFIG


class DhtTimeout(HyperbloomError):
    """What was asked for did not come in time."""

    kind = ErrorKind.TIMEOUT


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Where a command's node listens, and for how long it may work; None: until it is done.

    state: the file in which the node's id and table are kept from one start to the next, or None.
    """

    settings: DhtSettings
    port: int = 0
    interface: str = ""
    timeout: float | None = None
    state: Path | None = None


Work = Callable[[DhtNode, Any], Coroutine[Deferred[Any], Any, T]]
"""What is done with the node; the second argument is the reactor."""


def run_session(session: Session, work: Work[T]) -> T:
    """Start a node, do the work, stop the node; the work's result.

    Raises what the work raises, DhtTimeout, `KeyboardInterrupt` for Ctrl-C, and `SystemExit` for
    SIGTERM, in each case after the node has stopped.
    """
    reactor = SelectReactor()
    node = DhtNode(reactor, session.settings, random_bytes=os.urandom, state=_read(session.state))
    outcome: list[Any] = []

    def begin() -> None:
        done = Deferred.fromCoroutine(_listen_and_work(session, node, work, reactor))
        if session.timeout is not None:
            done.addTimeout(session.timeout, reactor)
        done.addBoth(outcome.append)
        done.addCallback(lambda _: node.stop())
        done.addBoth(lambda _: reactor.stop())

    reactor.callWhenRunning(begin)
    with _signals(lambda error: _interrupt(reactor, outcome, error)):
        reactor.run(installSignalHandlers=False)
    save_state(session.state, node)
    result: T = _result(outcome[0], session)
    return result


async def _listen_and_work(session: Session, node: DhtNode, work: Work[T], reactor: Any) -> T:
    try:
        node.listen(session.port, session.interface)
    except CannotListenError as error:
        reason = getattr(error.socketError, "strerror", None) or error.socketError
        raise PortTaken(
            f"cannot listen on UDP port {error.port}: {reason}; stop what uses it, or give "
            "another --port or --interface"
        ) from error
    return await work(node, reactor)


def _result(outcome: Any, session: Session) -> Any:
    if not isinstance(outcome, Failure):
        return outcome
    if outcome.check(DeferredTimeout):
        raise DhtTimeout(f"the network gave no answer within {session.timeout:g} s")
    outcome.raiseException()
    return None


def _interrupt(reactor: Any, outcome: list[Any], error: BaseException) -> None:
    def stop() -> None:
        outcome.insert(0, Failure(error))
        if reactor.running:
            reactor.stop()

    reactor.callFromThread(stop)


@contextmanager
def _signals(interrupt: Callable[[BaseException], None]) -> Iterator[None]:
    """Turn Ctrl-C and SIGTERM into an end in good order. Only a main thread gets signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    errors = {signal.SIGINT: KeyboardInterrupt(), signal.SIGTERM: SystemExit(0)}
    before = {
        number: signal.signal(number, lambda *_, error=error: interrupt(error))
        for number, error in errors.items()
    }
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def _read(path: Path | None) -> bytes:
    """A saved state; nothing if there is none yet."""
    if path is None:
        return b""
    if not path.parent.is_dir():
        # Said now, and not when the first state is to be written.
        raise StateUnusable(f"there is no folder {path.parent} to keep {path.name} in; make it")
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise StateUnusable(f"cannot read {path} ({error.strerror})") from error


def save_state(path: Path | None, node: DhtNode) -> None:
    """Replace a saved state, whole or not at all; nothing where none is kept."""
    if path is None:
        return
    new = path.with_name(path.name + ".new")
    try:
        new.write_bytes(node.save())
        os.replace(new, path)
    except OSError as error:
        raise StateUnusable(f"cannot write {path} ({error.strerror})") from error
