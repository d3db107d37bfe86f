"""What one peer says about objects: offers to the store, and the answers where it was wrong.

While objects of the peer wait for the disk beyond `unwritten_bytes`, or those of all peers beyond
WAITING_BYTES_IN_ALL, no message is taken. One step of them at a time is at the writer, in the
peer's own row of its queue: what a step comes to is told before the next one begins.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from twisted.logger import Logger
from twisted.python.failure import Failure

from hyperbloom.connections.close_reason import CloseReason
from hyperbloom.objects.announcements import ANNOUNCED
from hyperbloom.objects.classes.hashes import record_hash
from hyperbloom.objects.limits import OFFERS_PER_STEP
from hyperbloom.objects.peers.foreign import Told
from hyperbloom.objects.peers.outgoing_objects import OutgoingObjects
from hyperbloom.objects.peers.port import PoolPort
from hyperbloom.objects.wire.errors import LocalProtocolError
from hyperbloom.objects.wire.messagepack import check_fields, pack
from hyperbloom.objects.wire.payloads import (
    Change,
    Creation,
    Fields,
    Initialize,
    PackedInitialize,
    Removal,
    Version,
)
from hyperbloom.objects.wire.session import Event
from hyperbloom.store.limits import MAX_OBJECT_BYTES, MAX_OBJECT_FIELDS, PIECE_BYTES
from hyperbloom.store.objects.offers import Offer, OfferedChange, OfferedObject, OfferedRemoval
from hyperbloom.store.objects.records import Outcome, Verdict

__all__ = ["IncomingObjects"]

log = Logger()


class IncomingObjects:
    """Of one connection, from its opening on; `outgoing` tells the answers."""

    def __init__(self, port: PoolPort, outgoing: OutgoingObjects) -> None:
        self._port = port
        self._outgoing = outgoing
        self._types = port.context.pool.types
        #: What waits for the disk, and whether each was in INITIALIZE.
        self._offers: deque[tuple[Offer, bool]] = deque()
        self._is_writing = False
        #: Of INITIALIZE, what no turn had room for yet.
        self._coming: Iterator[tuple[Fields, Version | None]] = iter(())
        #: Bytes that wait for the disk.
        self.unwritten = self._refused = 0
        if port.outgoing:
            # An operator named it under `peers`.
            self._origin = b"peer " + port.address.encode()
        else:
            self._origin = port.network.encode()

    @property
    def is_behind(self) -> bool:
        """Whether as much waits for the disk as may."""
        if self.unwritten > self._port.context.settings.unwritten_bytes:
            return True
        return self._port.memory.is_behind(self._port.network)

    def stop(self) -> None:
        """The connection is ending: what was not taken is dropped."""
        self._coming = iter(())

    def take(self, event: Event) -> None:
        """One message about objects."""
        self._port.counters.messages_in += 1
        match event:
            case Creation():
                version = Version(hash=event.h, stamp=event.t)
                self._collect(lambda: self._offered_object(event.d, version))
            case Change():
                self._collect(lambda: _offered_change(event))
            case Removal():
                self._collect(lambda: OfferedRemoval(hash=event.h, stamp=event.t))
            case Initialize() | PackedInitialize():
                self._take_initialize(event)

    def _take_initialize(self, event: Initialize | PackedInitialize) -> None:
        self._coming = event.pairs()
        self._outgoing.peer_initialized(unnamed=False)
        if event.respond:
            self._outgoing.begin_pool_sync()

    def take_next(self) -> bool:
        """Take an object of INITIALIZE; False when none waits. RemoteProtocolError for none."""
        found = next(self._coming, None)
        if found is None:
            return False
        fields, version = found
        if fields:
            self._collect(lambda: self._offered_object(fields, version), initial=True)
        else:
            self._outgoing.peer_initialized(unnamed=True)
        return True

    def _collect(self, make: Callable[[], Offer], *, initial: bool = False) -> None:
        """Have an offer wait for `submit`; one that this node cannot store is refused by itself.

        That is within the protocol: its bounds are wider than the store's.
        """
        try:
            offer = make()
        except (ValueError, TypeError, LocalProtocolError) as error:
            self._refused += 1
            # The 1st, 2nd, 4th, 8th and so on: a peer must not fill the log.
            if not self._refused & (self._refused - 1):
                what = f"{self._refused} objects refused, the latest: {error}"
                self._port.tell("objects-refused", what)
            return
        self._offers.append((offer, initial))
        self._count(offer.size)

    def _count(self, size: int) -> None:
        self.unwritten += size
        self._port.memory.waits(self._port.network, size)

    def _offered_object(self, fields: Fields, version: Version | None) -> OfferedObject:
        """An object by its version; one that nobody told the version of has no stamp."""
        # Before what takes as long as they are large.
        if len(fields) > MAX_OBJECT_FIELDS or len(pack(dict(fields))) > MAX_OBJECT_BYTES:
            raise LocalProtocolError("it has too many fields, or bytes")
        check_fields(fields)
        kind = self._types.fit(fields)
        name = None if kind is None else kind.name
        if version is None:
            self._port.counters.untyped += kind is None
            # It may have come before its type was declared here, as a record.
            earlier = () if kind is None else (record_hash(fields),)
            number = self._types.hash_of(name, fields)
            version = Version(hash=number, stamp=0, ancestors=earlier)
        return OfferedObject(
            hash=version.hash,
            stamp=version.stamp,
            fields=fields,
            type_name=name,
            ancestors=version.ancestors,
        )

    def submit(self) -> None:
        """Offer a step of what has come, unless one is being written; answered by `_offered`."""
        if self._is_writing or not self._offers:
            return
        self._is_writing = True
        step: list[Offer] = []
        room = PIECE_BYTES
        for offer, _ in islice(self._offers, OFFERS_PER_STEP):
            room -= offer.size
            if step and room < 0:
                break
            step.append(offer)
        pool = self._port.context.pool
        settled = pool.offer(step, self._port, origin=self._origin, is_parent=self._port.outgoing)
        settled.addBoth(self._offered)

    def _offered(self, result: Sequence[Outcome] | Failure) -> None:
        self._is_writing = False
        if isinstance(result, Failure):
            self._drop()
            address = self._port.address
            log.error("{peer}: nothing is stored: {why}", peer=address, why=result.value)
            self._port.close(CloseReason("store", "this node cannot store what it is sent"))
            return
        for outcome in result:
            offer, initial = self._offers.popleft()
            self._count(-offer.size)
            self._port.counters.news_in += outcome.verdict in ANNOUNCED
            self._port.counters.clashes += outcome.verdict is Verdict.CLASH
            if self._port.is_open:
                self._answer(offer, outcome, initial=initial)
        self.submit()
        self._port.look_again()

    def _drop(self) -> None:
        self._count(-self.unwritten)
        self._offers.clear()

    def _answer(self, offer: Offer, outcome: Outcome, *, initial: bool) -> None:
        """Tell the peer what holds, where that is not what it said."""
        kin = self._port.session.is_kin
        if outcome.verdict is Verdict.STALE:
            self._outgoing.send(self._outgoing.answer(outcome))
        elif initial and outcome.verdict in (Verdict.CHANGED, Verdict.MERGED):
            # It may have both versions now: it did not know that they are one object.
            self._outgoing.send(self._outgoing.announcement(outcome))
        elif kin and outcome.stamp > offer.stamp and outcome.after is not None:
            record = outcome.after
            creation = Creation(t=outcome.stamp, d=record.fields, h=record.hash)
            self._outgoing.send(Told([creation]))
        elif kin and outcome.stamp > offer.stamp and outcome.verdict is Verdict.REMOVED:
            self._outgoing.send(Told([Removal(t=outcome.stamp, h=offer.hash)]))


def _offered_change(change: Change) -> OfferedChange:
    check_fields(change.d)
    return OfferedChange(old=change.oh, hash=change.h, stamp=change.t, fields=change.d)
