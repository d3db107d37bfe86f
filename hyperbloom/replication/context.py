"""What the feeds and connections of a node share: everything that is not pure comes in here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from hyperbloom.keys import Identity
from hyperbloom.replication.denied import DenyList
from hyperbloom.replication.limits import Limits
from hyperbloom.replication.settings import SyncSettings
from hyperbloom.store import Operation, Store, Writer, WriterInline

__all__ = ["FeedContext", "InThread"]

T = TypeVar("T")


class InThread(Protocol):
    """Runs a blocking call beside the reactor."""

    def __call__(self, call: Callable[[], T], /) -> Deferred[T]: ...


@dataclass(slots=True, kw_only=True)
class FeedContext:
    """What the feeds of a node share; everything that is not pure comes in here.

    now: seconds since 1970. random_bytes: unpredictable bytes. in_thread: runs a blocking call
    and answers with a Deferred. peer_id: this process's id in handshakes. denied: the keys that the
    operator denies, which a node takes from its store. limits and sync may be replaced while the
    node runs (`Node.use_settings`): they are read anew wherever they count.
    """

    identity: Identity
    store: Store
    writer: Writer | WriterInline
    limits: Limits
    sync: SyncSettings
    clock: IReactorTime
    now: Callable[[], float]
    random_bytes: Callable[[int], bytes]
    in_thread: InThread
    peer_id: bytes
    leeway: float = 0.0
    denied: DenyList = field(default_factory=DenyList)

    @property
    def own_keys(self) -> frozenset[bytes]:
        """Every key that this node proves itself with anywhere. No peer can have one of them."""
        return frozenset({self.identity.public_key})

    def written(self, op: Operation) -> Deferred[Any]:
        """Hand an operation to the writer; fires with its result once that is on disk."""
        result: Deferred[Any] = Deferred()

        def done(outcome: object) -> None:
            if isinstance(outcome, BaseException):
                result.errback(outcome)
            else:
                result.callback(outcome)

        self.writer.submit(op, done)
        return result

    def jittered(self, seconds: float) -> float:
        """`seconds` varied at random by the setting `[sync] jitter`, so that nodes spread out."""
        fraction = int.from_bytes(self.random_bytes(4), "big") / 2**32
        return seconds * (1 + self.sync.jitter * (2 * fraction - 1))
