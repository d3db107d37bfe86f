"""What one peer says about objects: offers to the store, and the answers where it was wrong.

While objects of the peer wait for the disk beyond `unwritten_bytes`, no message is taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from twisted.logger import Logger
from twisted.python.failure import Failure

from hyperbloom.connections.close_reason import CloseReason
from hyperbloom.objects.announcements import ANNOUNCED
from hyperbloom.objects.classes.hashes import record_hash
from hyperbloom.objects.peers.foreign import Told
from hyperbloom.objects.peers.outgoing_objects import OutgoingObjects
from hyperbloom.objects.peers.port import PoolPort
from hyperbloom.objects.wire.errors import LocalProtocolError
from hyperbloom.objects.wire.messagepack import check_fields, pack
from hyperbloom.objects.wire.payloads import Change, Creation, Fields, Initialize, Removal, Version
from hyperbloom.objects.wire.session import Event
from hyperbloom.store.limits import MAX_OBJECT_BYTES, MAX_OBJECT_FIELDS
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
        self._offers: list[Offer] = []
        self._initializing: set[int] = set()
        #: Of INITIALIZE, what no turn had room for yet.
        self._coming: deque[tuple[Fields, Version | None]] = deque()
        self._unwritten = self._refused = 0

    @property
    def is_behind(self) -> bool:
        """Whether as much waits for the disk as may."""
        return self._unwritten > self._port.context.settings.unwritten_bytes

    def stop(self) -> None:
        """The connection is ending: what was not taken is dropped."""
        self._coming.clear()

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
            case Initialize():
                self._take_initialize(event)

    def _take_initialize(self, event: Initialize) -> None:
        versions = event.versions or (None,) * len(event.objects)
        self._coming.extend(zip(event.objects, versions, strict=True))
        self._outgoing.peer_initialized(unnamed=bool(event.unnamed))
        if event.respond:
            self._outgoing.begin_pool_sync()

    def take_next(self) -> bool:
        """Take an object of INITIALIZE; False when none waits."""
        if not self._coming:
            return False
        fields, version = self._coming.popleft()
        offer = self._collect(lambda: self._offered_object(fields, version))
        if offer is not None:
            self._initializing.add(id(offer))
        return True

    def _collect(self, make: Callable[[], Offer]) -> Offer | None:
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
            return None
        self._offers.append(offer)
        return offer

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
        """Offer together what has come; answered by `_offered` once it is on disk."""
        if not self._offers:
            return
        offers, self._offers = self._offers, []
        initializing, self._initializing = self._initializing, set()
        size = sum(offer.size for offer in offers)
        self._unwritten += size
        settled = self._port.context.pool.offer(offers, self._port)
        settled.addBoth(self._offered, offers, initializing, size)

    def _offered(
        self,
        result: Sequence[Outcome] | Failure,
        offers: Sequence[Offer],
        initializing: set[int],
        size: int,
    ) -> None:
        self._unwritten -= size
        if isinstance(result, Failure):
            address = self._port.address
            log.error("{peer}: nothing is stored: {why}", peer=address, why=result.value)
            self._port.close(CloseReason("store", "this node cannot store what it is sent"))
            return
        for offer, outcome in zip(offers, result, strict=True):
            self._port.counters.news_in += outcome.verdict in ANNOUNCED
            self._port.counters.clashes += outcome.verdict is Verdict.CLASH
            if self._port.is_open:
                self._answer(offer, outcome, initial=id(offer) in initializing)
        self._port.look_again()

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
