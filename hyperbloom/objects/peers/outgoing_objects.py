"""What one peer is told of objects: the whole pool once, and what happens from then on.

What waits for a peer that reads slowly is bounded by `queued_bytes`: beyond it the peer is kicked,
and has the whole pool sent when it comes back. A peer of another kind is told in its own way
(foreign_side.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable

from twisted.logger import Logger
from twisted.python.failure import Failure

from hyperbloom.connections.close_reason import CloseReason
from hyperbloom.objects.announcements import answers, messages
from hyperbloom.objects.limits import RESPOND_SECONDS
from hyperbloom.objects.peers.foreign import Made, Told
from hyperbloom.objects.peers.pool_sync import PoolSync
from hyperbloom.objects.peers.port import PoolPort
from hyperbloom.objects.wire.codec import compressed
from hyperbloom.objects.wire.payloads import Initialize, Payload
from hyperbloom.store.objects.records import Outcome, Verdict

__all__ = ["KinObjects", "OutgoingObjects"]

log = Logger()


class OutgoingObjects(ABC):
    """Of one connection, from its opening on."""

    #: Whether the peer was asked for its pool, and has not sent it.
    is_unanswered = False

    def __init__(self, port: PoolPort) -> None:
        self._port = port
        self._sync: PoolSync | None = None
        self._synced_at: float | None = None

    # In words that the peer understands

    @abstractmethod
    def announcement(self, outcome: Outcome) -> Told:
        """What the peer is told of something that happened."""

    @abstractmethod
    def answer(self, outcome: Outcome) -> Told:
        """What the peer is told that offered an older state than the one here."""

    @abstractmethod
    def say(self, made: Made) -> None:
        """Send messages, or have them wait until the peer reads."""

    @abstractmethod
    def go_on(self) -> None:
        """Send what waits, and of the pool's objects what there is room for."""

    def begin(self) -> None:
        """The connection is open: send the pool."""
        self.begin_pool_sync()

    @abstractmethod
    def peer_initialized(self, *, unnamed: bool) -> None:
        """INITIALIZE came; `unnamed`: with objects that have no fields."""

    @abstractmethod
    def pong_came(self) -> None:
        """The peer has read what was sent before the latest PING."""

    # Called by the connection and the network

    def announce(self, outcome: Outcome, made: Made) -> None:
        """Tell what happened; `made` is its announcement, compressed once for all peers."""
        if self._sync is not None and outcome.verdict is Verdict.CHANGED and outcome.after:
            self._sync.add(outcome.after.hash)
        self.say(made)

    def send(self, told: Told) -> None:
        """Tell this peer alone."""
        self.say(Made.of(told))

    def stop(self) -> None:
        """The connection is ending: drop what waits."""
        self._sync = None

    def begin_pool_sync(self) -> None:
        """Send the whole pool, unless that was done a moment ago or is being done."""
        context = self._port.context
        now = context.clock.seconds()
        if self._synced_at is not None and now - self._synced_at < RESPOND_SECONDS:
            return
        self._synced_at = now
        store = context.pool.store
        # Changes that are committed from here on are told, or in the list, or both.
        self._sync = sync = PoolSync(store.objects)

        def found(hashes: Iterable[int]) -> None:
            sync.put_first(hashes)
            self.go_on()

        context.in_thread(store.object_hashes).addCallback(found).addErrback(self._cannot_read)

    def _cannot_read(self, failure: Failure) -> None:
        """The pool cannot be read: what is left out would never come, so the connection ends."""
        log.failure("The pool cannot be sent to {peer}", failure, peer=self._port.address)
        self._port.close(CloseReason("failed", "this node could not send its pool"))

    def _check_queued(self, queued: int) -> None:
        if queued > self._port.context.settings.queued_bytes and self._port.is_open:
            self._port.close(
                CloseReason("slow", "it reads too slowly for what happens in the pool")
            )


class KinObjects(OutgoingObjects):
    """To a node of this kind: the pool by INITIALIZE in parts, a change as one CHANGE."""

    def __init__(self, port: PoolPort) -> None:
        super().__init__(port)
        self._queue: deque[tuple[type[Payload], bytes]] = deque()
        #: Bytes that wait.
        self.queued = 0

    def announcement(self, outcome: Outcome) -> Told:
        """The messages of announcements.py."""
        return Told(messages(outcome))

    def answer(self, outcome: Outcome) -> Told:
        """The answers of announcements.py."""
        return Told(answers(outcome))

    def say(self, made: Made) -> None:
        """Send at once while the peer reads; else they wait in the queue."""
        self._port.counters.messages_out += len(made.messages)
        for payload, data in made.messages:
            if self._port.may_write:
                self._port.send_compressed(type(payload), data)
            elif self._port.is_open:
                self._queue.append((type(payload), data))
                self.queued += len(data)
                self._check_queued(self.queued)

    def peer_initialized(self, *, unnamed: bool) -> None:
        """Nothing follows from it: it sends its pool by itself."""

    def pong_came(self) -> None:
        """Nothing waits for it."""

    def stop(self) -> None:
        """Drop the queue, too."""
        super().stop()
        self._queue.clear()
        self.queued = 0

    def go_on(self) -> None:
        """The queue, then one part of the pool; the next part goes in a later turn."""
        while self._queue and self._port.may_write:
            kind, data = self._queue.popleft()
            self.queued -= len(data)
            self._port.send_compressed(kind, data)
        sync = self._sync
        if sync is None or not self._port.may_write or not sync.ready:
            return
        try:
            part = sync.next_part(self._port.now())
            data = b"" if part is None else compressed(part)
        except Exception:
            self._cannot_read(Failure())
            return
        if part is None:
            self._sync = None
            return
        self._port.counters.messages_out += 1
        self._port.send_compressed(Initialize, data)
        self._port.later(0, self.go_on)
