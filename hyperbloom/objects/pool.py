"""The pool of one node: the store's objects, and what happens to them.

Everything that happens to an object is an offer to the store (`hyperbloom.store.OfferObjects`),
whether a program, the control socket or a peer makes it. What comes of it is decided in the write
transaction; once that is on disk, whoever subscribed is told, in the order of the decisions, and
then the one who offered is answered. No turn of the reactor is filled by that (`ReactorBudget`).
A program's instances of its classes are in `hyperbloom.client.remote_pool`.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from hyperbloom.connections.reactor_budget import ReactorBudget
from hyperbloom.json_fields import hash_text
from hyperbloom.objects.announcements import difference
from hyperbloom.objects.classes.declarations import Declaration
from hyperbloom.objects.classes.types import Types
from hyperbloom.objects.limits import PIECES_PER_TURN, TURN_SECONDS
from hyperbloom.objects.wire.errors import ClashError, ObjectError, ObjectGone, PoolFull
from hyperbloom.objects.wire.messagepack import check_fields
from hyperbloom.store import (
    PutMeta,
    Store,
    Writer,
    WriterInline,
)
from hyperbloom.store.objects.offers import (
    Offer,
    OfferedChange,
    OfferedObject,
    OfferedRemoval,
    later_than,
)
from hyperbloom.store.objects.records import ObjectRecord, Outcome, Verdict, credible_stamp
from hyperbloom.store.objects.rule import OfferObjects
from hyperbloom.store.objects.table import DEFAULT_BOUNDS, DiskBounds
from hyperbloom.store.records import ObjectFigures
from hyperbloom.store.write_queue import OWN

__all__ = ["ObjectPool", "Subscriber"]

Subscriber = Callable[[Outcome, object], None]
"""Called with an outcome and its source: the peer that offered it, or None for this node."""

log = Logger()

_FULL: Final = (
    "the pool, or what a peer may bring to it, is full; raise objects, disk_bytes or "
    "peer_disk_bytes of [objects]"
)
#: Where the store keeps the types that programs declared: names, and fields with their types.
_TYPES_META = "objects.types"


class ObjectPool:
    """The objects of a node. `now` is seconds since 1970, `most` the objects it takes.

    `bounds` is what they may take on disk. `clock` is the reactor's.
    """

    def __init__(
        self,
        store: Store,
        writer: Writer | WriterInline,
        *,
        types: Types,
        now: Callable[[], float],
        clock: IReactorTime,
        most: int = 1_000_000,
        bounds: DiskBounds = DEFAULT_BOUNDS,
    ) -> None:
        self.store = store
        self.types = types
        #: Objects that were refused: another has their hash, or there was no room.
        self.clashes = self.full = 0
        self._writer = writer
        self._now = now
        self._most = most
        self._bounds = bounds
        self._bounds_of_parents = DiskBounds(bounds.disk_bytes, bounds.disk_bytes)
        self._subscribers: list[Subscriber] = []
        #: What is on disk and not told yet: one commit may answer for thousands of offers.
        self._untold: deque[tuple[Outcome | Deferred[Any], Any]] = deque()
        self._telling = self._awaits_turn = False
        #: What telling may use of a turn of the reactor.
        self._reactor_budget = ReactorBudget(clock, most=PIECES_PER_TURN, seconds=TURN_SECONDS)
        for declaration in _kept_types(store):
            try:
                types.declare(declaration)
            except ObjectError as error:
                log.warn("A type that was declared here is not used: {why}", why=error)

    # Types

    def declare(self, declaration: Declaration) -> Deferred[None]:
        """Know a type from now on, and after a start; fires when it is on disk.

        Fails with ObjectError, at once, where the configuration or a class has another type of the
        name. Objects keep the hashes they have.
        """
        self.types.declare(declaration)
        return self._keep_types()

    def undeclare(self, name: str) -> Deferred[None]:
        """Know a declared type no more; fires when that is on disk.

        Fails with ObjectError, at once, if it stands in the configuration; ObjectGone if it is
        none.
        """
        if name not in (declaration.name for declaration in self.types.declarations()):
            raise ObjectGone(f"there is no declared type {name}")
        self.types.forget(name)
        return self._keep_types()

    def _keep_types(self) -> Deferred[None]:
        kept = {
            declaration.name: declaration.pairs()
            for declaration in self.types.declarations()
            if declaration.name not in self.types.configured
        }
        written: Deferred[None] = Deferred()

        def done(result: object) -> None:
            if isinstance(result, BaseException):
                written.errback(result)
            else:
                written.callback(None)

        self._writer.submit(PutMeta(name=_TYPES_META, value=json.dumps(kept).encode()), done)
        return written

    # Offers

    def milliseconds(self) -> int:
        """The time as payloads have it."""
        return int(self._now() * 1_000)

    def offer(
        self,
        offers: Sequence[Offer],
        source: object = None,
        *,
        origin: bytes = b"",
        is_parent: bool = False,
    ) -> Deferred[Sequence[Outcome]]:
        """Take what holds of the offers; fires when that is on disk and everyone was told.

        There may be fewer outcomes than offers (`OfferObjects`): whoever offers goes on with the
        rest. What others send has its `origin`, which is a row of the writer's queue, and a part of
        the disk; what a parent sends, which an operator named, may be all of the pool.
        """
        settled: Deferred[Sequence[Outcome]] = Deferred()

        def done(outcomes: Sequence[Outcome] | BaseException) -> None:
            if isinstance(outcomes, BaseException):
                settled.errback(outcomes)
                return
            self._untold.extend((outcome, source) for outcome in outcomes)
            self._untold.append((settled, outcomes))
            self._tell_all()

        at = int(self._now() * 1_000_000)
        bounds = self._bounds_of_parents if is_parent else self._bounds
        operation = OfferObjects(offers, at, self._most, origin, bounds)
        self._writer.submit(operation, done, origin=(origin,) if origin else OWN)
        return settled

    def _offer_own(self, offer: Offer) -> Deferred[Outcome]:
        """What came of one offer of this node's own, in as many transactions as it takes."""

        def settled(outcomes: Sequence[Outcome]) -> Outcome | Deferred[Outcome]:
            return outcomes[0] if outcomes else self._offer_own(offer)

        return self.offer([offer]).addCallback(settled)

    def _tell_all(self) -> None:
        """Tell what is untold, in order, as much as a turn of the reactor has time for."""
        if self._telling or self._awaits_turn:
            return
        self._telling = True
        try:
            while self._untold:
                if not self._reactor_budget.take((self,)):
                    self._awaits_turn = True
                    self._reactor_budget.wait((self,), self._next_turn)
                    return
                told, about = self._untold.popleft()
                if isinstance(told, Outcome):
                    self._tell(told, about)
                else:
                    told.callback(about)
        finally:
            self._telling = False

    def _next_turn(self) -> None:
        self._awaits_turn = False
        self._tell_all()

    def _tell(self, outcome: Outcome, source: object) -> None:
        if outcome.verdict is Verdict.CLASH:
            self.clashes += 1
            _warn("An object is refused, for another one has its hash", self.clashes)
            log.debug("A hash that clashes is {hash}", hash=hash_text(outcome.hash))
        elif outcome.verdict is Verdict.FULL and source is not None:
            self.full += 1
            _warn(f"An object of a peer is refused: {_FULL}", self.full)
        for subscriber in list(self._subscribers):
            try:
                subscriber(outcome, source)
            except Exception:
                # A program's mistake must not keep the change from its peers.
                log.failure("A subscriber of the pool failed")

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Have every outcome told, in order; call what is returned to end that."""
        self._subscribers.append(subscriber)

        def end() -> None:
            if subscriber in self._subscribers:
                self._subscribers.remove(subscriber)

        return end

    # Objects as fields

    def put_fields(
        self, fields: Mapping[str, Any], type_name: str | None = None, *, number: int | None = None
    ) -> Deferred[ObjectRecord]:
        """Add an object; fires with its record. Fails with ClashError, PoolFull, StoreError.

        `number` is its hash, for types whose hashCode only the caller knows. LocalProtocolError or
        ValueError, at once, for fields that no object may have.
        """
        check_fields(fields)
        kind = self.types.type_of(type_name, fields)
        name = type_name if kind is None else kind.name
        offer = OfferedObject(
            hash=self.types.hash_of(name, fields) if number is None else number,
            stamp=self.milliseconds(),
            fields=fields,
            type_name=name,
            local=True,
        )

        return self._offer_own(offer).addCallback(_added, offer)

    def change_fields(
        self, number: int, fields: Mapping[str, Any], *, changed: int | None = None
    ) -> Deferred[ObjectRecord]:
        """Change fields of an object; fires with its record. Fails with ObjectGone, ObjectError.

        `changed` is its hash afterwards, for types whose hashCode only the caller knows.
        """
        record = self.store.object(number)
        if record is None:
            raise ObjectGone(f"there is no object {hash_text(number)} in the pool")
        if not fields.keys() <= record.fields.keys():
            odd = ", ".join(sorted(fields.keys() - record.fields.keys()))
            raise ValueError(f"the object has no field {odd}; it has {', '.join(record.fields)}")
        if not difference(record.fields, fields):
            return succeed(record)
        if changed is None:
            whole = {**record.fields, **fields}
            changed = self.types.changed_hash(number, record.type_name, whole, record.fields)
        check_fields(fields)
        stamp = self._stamp_after(record)
        return self._change(OfferedChange(old=number, hash=changed, stamp=stamp, fields=fields))

    def _change(self, offer: OfferedChange) -> Deferred[ObjectRecord]:
        return self._offer_own(offer).addCallback(_changed)

    def _stamp_after(self, record: ObjectRecord | None) -> int:
        """The stamp of what is done here to a version: a later one, whatever the clock says.

        One that is not later than an earlier end of the same hash would be about what was then.
        """
        now = self._now()
        stamp = int(now * 1_000)
        if record is None:
            return stamp
        known = credible_stamp(record.stamp, record.changed, int(now * 1_000_000))
        return max(stamp, later_than(known))

    def remove_hash(self, number: int) -> Deferred[None]:
        """Remove an object. Fails with ObjectGone."""
        record = self.store.object(number)
        if record is None:
            raise ObjectGone(f"there is no object {hash_text(number)} in the pool")
        offer = OfferedRemoval(hash=number, stamp=self._stamp_after(record))
        return self._offer_own(offer).addCallback(_removed)

    def figures(self) -> ObjectFigures:
        """How many objects there are, and their digest."""
        return self.store.object_figures()


def _warn(what: str, count: int) -> None:
    """Say it the 1st, 2nd, 4th, 8th time and so on: a peer must not fill the log."""
    if not count & (count - 1):
        log.warn("{what}; until now: {count}", what=what, count=count)


def _kept_types(store: Store) -> list[Declaration]:
    kept = json.loads(store.get_meta(_TYPES_META) or b"{}")
    return [Declaration.from_pairs(name, pairs) for name, pairs in kept.items()]


def _there(record: ObjectRecord | None) -> ObjectRecord:
    if record is None:
        raise ObjectError("an outcome tells of no object")
    return record


def _added(outcome: Outcome, offer: OfferedObject) -> ObjectRecord:
    if outcome.verdict is Verdict.FULL:
        raise PoolFull(f"{_FULL}, or remove some")
    after = outcome.after
    if after is None:
        raise _clash(offer.hash)
    return after


def _clash(number: int) -> ClashError:
    return ClashError(
        f"another object has the hash {hash_text(number)} already; give the type a hashCode of its "
        "own that tells them apart"
    )


def _changed(outcome: Outcome) -> ObjectRecord:
    if outcome.verdict in (Verdict.CHANGED, Verdict.MERGED, Verdict.CREATED, Verdict.KNOWN):
        return _there(outcome.after)
    if outcome.verdict is Verdict.FULL:
        raise PoolFull(f"{_FULL}, or remove some")
    if outcome.verdict is Verdict.UNFIT:
        raise ObjectError("the object would be too large, or has no such field")
    if outcome.verdict is Verdict.CLASH:
        raise _clash(outcome.hash)
    if outcome.verdict is Verdict.STALE:
        raise ObjectGone("another change of the object, or its removal, was later and holds")
    raise ObjectGone("the object is in the pool no more")


def _removed(outcome: Outcome) -> None:
    if outcome.verdict is not Verdict.REMOVED:
        raise ObjectGone("the object is in the pool no more, or has changed since")
