"""What the jobs of a peer, and the driver of its schedule, need of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from twisted.internet.defer import Deferred

from hyperbloom.connections.shares import Share
from hyperbloom.replication.context import FeedContext
from hyperbloom.replication.counters import Counters
from hyperbloom.replication.feed.feed import Feed
from hyperbloom.replication.sync.peer_output import Connection, PeerOutput
from hyperbloom.replication.sync.reply import Answer
from hyperbloom.replication.sync.send_scheduler import SendScheduler
from hyperbloom.wire import Request, Sync
from hyperbloom.wire.events import RemotePeer

__all__ = ["PeerPort"]

T = TypeVar("T")


class PeerPort(Protocol):
    """A secure peer (`peer.Peering`), as far as its jobs and its schedule use it."""

    @property
    def remote_key(self) -> bytes: ...

    @property
    def connection(self) -> Connection: ...
    @property
    def feed(self) -> Feed: ...
    @property
    def context(self) -> FeedContext: ...
    @property
    def remote(self) -> RemotePeer: ...
    @property
    def share(self) -> Share: ...
    @property
    def counters(self) -> Counters: ...
    @property
    def scheduler(self) -> SendScheduler: ...
    @property
    def output(self) -> PeerOutput: ...

    # How it stands

    @property
    def is_receiving(self) -> bool: ...
    @property
    def is_sending(self) -> bool: ...
    @property
    def awaits_reply(self) -> bool: ...
    @property
    def owes_answers(self) -> bool: ...

    # What is done for it

    def work(self, call: Callable[[], T]) -> Deferred[T]: ...
    def ask(self, question: Sync | Request, wanted: int | None = None) -> None: ...
    def reply_limit(self) -> int | None: ...
    def answered(self, tested: int) -> float: ...
    def answer(self, reply: Answer) -> None: ...
    def answer_done(self, reply: Answer) -> None: ...
