"""The pool of one node: the store's objects, and the instances of a program's classes.

Everything that happens to an object is an offer to the store (`hyperbloom.store.OfferObjects`),
whether a program, the control socket or a peer makes it. What comes of it is decided in the write
transaction; once that is on disk, whoever subscribed is told, in the order of the decisions, and
then the one who offered is answered. No turn of the reactor is filled by that (TURN_SECONDS).

A program's instance is bound to the pool: an attribute that is set has its new value at once, and
a change is offered. If that change does not hold (another node's was later), the instance gets the
fields that do, once nothing of its own is under way any more.
"""

from __future__ import annotations

import json
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, DeferredList, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from hyperbloom.connections.workers import InThread
from hyperbloom.json_fields import hash_text
from hyperbloom.objects.classes.declarations import Declaration
from hyperbloom.objects.classes.types import ObjectType, Types, bind, binding_of
from hyperbloom.objects.limits import TURN_SECONDS
from hyperbloom.objects.peers.announcements import difference
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
from hyperbloom.store.objects.records import ObjectRecord, Outcome, Verdict
from hyperbloom.store.objects.rule import OfferObjects
from hyperbloom.store.records import ObjectFigures

__all__ = ["SLICE_OBJECTS", "ObjectPool", "Record", "Subscriber"]

T = TypeVar("T")

SLICE_OBJECTS = 512
"""Objects read in one short read transaction: some milliseconds."""

Subscriber = Callable[[Outcome, object], None]
"""Called with an outcome and its source: the peer that offered it, or None for this node."""

log = Logger()


#: Where the store keeps the types that programs declared: names, and fields with their types.
_TYPES_META = "objects.types"


class Record:
    """An object of no type that the program knows: its hash and its fields."""

    def __init__(self, pool: ObjectPool, record: ObjectRecord) -> None:
        self._pool = pool
        self.hash = record.hash
        self.type_name = record.type_name
        self.fields: Mapping[str, Any] = record.fields

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]

    def __repr__(self) -> str:
        return f"Record({self.hash}, {dict(self.fields)})"


class _Bound:
    """What an instance is to the pool: the version it shows, and what is under way.

    `shown` is the hash of its fields as they are; `kept` that of its version on disk.
    """

    __slots__ = ("__weakref__", "instance", "kept", "kind", "pool", "shown", "under_way")

    def __init__(self, pool: ObjectPool, kind: ObjectType, instance: Any, number: int) -> None:
        self.pool = pool
        self.kind = kind
        self.instance = weakref.ref(instance)
        self.kept: int | None = number
        self.shown = number
        self.under_way = 0

    def set_field(self, instance: Any, name: str, value: Any) -> None:
        self.pool.set(instance, **{name: value}).addErrback(self._told)

    def _told(self, failure: Any) -> None:
        log.info("A change of an object does not hold: {why}", why=failure.getErrorMessage())

    def show(self, record: ObjectRecord) -> None:
        """Give the instance the fields that hold."""
        instance = self.instance()
        self.shown = record.hash
        if instance is not None:
            for name in self.kind.fields:
                if name in record.fields:
                    object.__setattr__(instance, name, record.fields[name])


class ObjectPool:
    """The objects of a node. `now` is seconds since 1970, `most` the objects it takes.

    `clock` and `in_thread` are the reactor's: later calls, and calls beside it.
    """

    def __init__(
        self,
        store: Store,
        writer: Writer | WriterInline,
        *,
        types: Types,
        now: Callable[[], float],
        in_thread: InThread,
        clock: IReactorTime,
        most: int = 1_000_000,
    ) -> None:
        self.store = store
        self.types = types
        self.clashes = 0
        self._writer = writer
        self._now = now
        self._in_thread = in_thread
        self._most = most
        self._subscribers: list[Subscriber] = []
        self._bound: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._settling: set[Deferred[Any]] = set()
        self._clock = clock
        #: What is on disk and not told yet: one commit may answer for thousands of offers.
        self._untold: deque[tuple[Outcome | Deferred[Any], Any]] = deque()
        self._turn: IDelayedCall | None = None
        self._turn_began = 0.0
        self._telling = False
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

    def offer(self, offers: Sequence[Offer], source: object = None) -> Deferred[Sequence[Outcome]]:
        """Take what holds of the offers; fires when that is on disk and everyone was told."""
        settled: Deferred[Sequence[Outcome]] = Deferred()

        def done(outcomes: Sequence[Outcome] | BaseException) -> None:
            if isinstance(outcomes, BaseException):
                settled.errback(outcomes)
                return
            self._untold.extend((outcome, source) for outcome in outcomes)
            self._untold.append((settled, outcomes))
            self._tell_all()

        at = int(self._now() * 1_000_000)
        self._writer.submit(OfferObjects(offers, at, self._most), done)
        return settled

    def _tell_all(self) -> None:
        """Tell what is untold, in order, as much as a turn of the reactor has time for."""
        if self._telling:
            return
        now = self._clock.seconds()
        if self._turn is None:
            self._turn_began = now
            self._turn = self._clock.callLater(0, self._next_turn)
        self._telling = True
        try:
            while self._untold and now - self._turn_began <= TURN_SECONDS:
                told, about = self._untold.popleft()
                if isinstance(told, Outcome):
                    self._tell(told, about)
                else:
                    told.callback(about)
                now = self._clock.seconds()
        finally:
            self._telling = False

    def _next_turn(self) -> None:
        self._turn = None
        if self._untold:
            self._tell_all()

    def _tell(self, outcome: Outcome, source: object) -> None:
        if outcome.verdict is Verdict.CLASH:
            self.clashes += 1
            # The 1st, 2nd, 4th, 8th and so on: a peer must not fill the log.
            if not self.clashes & (self.clashes - 1):
                log.warn(
                    "An object is refused, for another one has its hash; until now: {count}",
                    count=self.clashes,
                )
            log.debug("A hash that clashes is {hash}", hash=hash_text(outcome.hash))
        self._update_instance(outcome)
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

        def added(outcomes: Sequence[Outcome]) -> ObjectRecord:
            return _added(outcomes[0], offer)

        return self.offer([offer]).addCallback(added)

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
        return self.offer([offer]).addCallback(lambda outcomes: _changed(outcomes[0]))

    def _stamp_after(self, record: ObjectRecord | None) -> int:
        """The stamp of what is done here to a version: a later one, whatever the clock says.

        One that is not later than an earlier end of the same hash would be about what was then.
        """
        now = self.milliseconds()
        return now if record is None else max(now, later_than(record.stamp))

    def remove_hash(self, number: int) -> Deferred[None]:
        """Remove an object. Fails with ObjectGone."""
        record = self.store.object(number)
        if record is None:
            raise ObjectGone(f"there is no object {hash_text(number)} in the pool")
        offer = OfferedRemoval(hash=number, stamp=self._stamp_after(record))
        return self.offer([offer]).addCallback(lambda outcomes: _removed(outcomes[0]))

    def figures(self) -> ObjectFigures:
        """How many objects there are, and their digest."""
        return self.store.object_figures()

    # Objects as instances of a program's classes

    def register(self, *classes: type) -> None:
        """Let the pool know persisted classes, so that objects of them come as instances."""
        for cls in classes:
            self.types.register(cls)

    def add(self, instance: T) -> Deferred[T]:
        """Add an instance of a persisted class; fires when it is on disk.

        From now on an attribute that is set is a change. Fails with ClashError if another object
        has its hash (at once, if that is an instance here), and the instance is a plain one again;
        TypeError and ObjectError, at once, if its class is not persisted or it is in a pool.
        """
        kind = self.types.register(type(instance))
        fields = kind.fields_of(instance)
        number = kind.hash_of(fields, self.types.rule)
        if binding_of(instance) is not None:
            raise ObjectError("this instance is in a pool already")
        if number in self._bound:
            raise _clash(number)

        def failed(failure: Any) -> Any:
            bind(instance, None)
            self._bound.pop(number, None)
            return failure

        def added(_: ObjectRecord) -> T:
            return instance

        self._bind(instance, kind, number)
        adding = self.put_fields(fields, kind.name)
        return self._under_way(adding.addCallbacks(added, failed))

    def set(self, instance: Any, **fields: Any) -> Deferred[None]:
        """Set attributes in one change; fires when it is on disk and holds.

        Fails with ObjectGone or ObjectError; the instance then gets back what holds.
        """
        bound: _Bound | None = binding_of(instance)
        if bound is None:
            raise ObjectError("the object is in no pool; add it first")
        if not fields.keys() <= set(bound.kind.fields):
            raise ValueError(f"{bound.kind.name} has no such field")
        whole = {**bound.kind.fields_of(instance), **fields}
        if not difference(bound.kind.fields_of(instance), fields):
            return succeed(None)
        check_fields(fields)
        offer = OfferedChange(
            old=bound.shown,
            hash=bound.kind.hash_of(whole, self.types.rule),
            stamp=self._stamp_after(self._kept(bound)),
            fields=fields,
        )
        # Nothing is refused at once from here on.
        bound.shown = offer.hash
        bound.under_way += 1
        for name, value in fields.items():
            object.__setattr__(instance, name, value)
        return self._under_way(self._change(offer).addBoth(self._set_done, bound))

    def _kept(self, bound: _Bound) -> ObjectRecord | None:
        return None if bound.kept is None else self.store.object(bound.kept)

    def _set_done(self, result: Any, bound: _Bound) -> Any:
        bound.under_way -= 1
        if not bound.under_way and bound.shown != bound.kept:
            record = self._kept(bound)
            if record is not None:
                bound.show(record)
        return None if isinstance(result, ObjectRecord) else result

    def remove(self, instance: Any) -> Deferred[None]:
        """Remove an instance's object; the instance stays, and is a plain one."""
        bound: _Bound | None = binding_of(instance)
        if bound is None or bound.kept is None:
            raise ObjectGone("the object is in the pool no more")
        offer = OfferedRemoval(hash=bound.shown, stamp=self._stamp_after(self._kept(bound)))
        removing = self.offer([offer]).addCallback(lambda outcomes: _removed(outcomes[0]))
        return self._under_way(removing)

    def instance(self, record: ObjectRecord) -> Any:
        """The instance for a record, the same one as long as somebody holds it; else a Record."""
        kind = self.types.type_of(record.type_name, record.fields)
        if kind is None or kind.declaration is not None:
            return Record(self, record)
        bound = self._bound.get(record.hash)
        known = None if bound is None else bound.instance()
        if known is not None:
            return known
        made = kind.make(record.fields)
        self._bind(made, kind, record.hash)
        return made

    def __len__(self) -> int:
        return self.figures().count

    def __iter__(self) -> Iterator[Any]:
        """Every object, slice by slice; in a large pool rather `async for`, or `find`."""
        after: int | None = None
        while found := self.store.objects_slice(after, limit=SLICE_OBJECTS):
            after = found[-1].hash
            for record in found:
                yield self.instance(record)

    async def __aiter__(self) -> AsyncIterator[Any]:
        async for record in self.records():
            yield self.instance(record)

    async def records(self) -> AsyncIterator[ObjectRecord]:
        """Every object's record; each slice is read in a thread."""
        after: int | None = None
        while found := await self._slice(after):
            after = found[-1].hash
            for record in found:
                yield record

    def _slice(self, after: int | None) -> Deferred[list[ObjectRecord]]:
        return self._in_thread(lambda: self.store.objects_slice(after, limit=SLICE_OBJECTS))

    def find(self, cls: type[T], **fields: Any) -> Deferred[list[T]]:
        """All objects of a class whose fields have these values."""
        kind = self.types.register(cls)
        return Deferred.fromCoroutine(self._find(kind, fields))

    async def _find(self, kind: ObjectType, fields: Mapping[str, Any]) -> list[Any]:
        found = []
        async for record in self.records():
            if self.types.type_of(record.type_name, record.fields) is kind and all(
                record.fields.get(name) == value for name, value in fields.items()
            ):
                found.append(self.instance(record))
        return found

    def on_created(
        self, callback: Callable[[Any], None], cls: type | None = None
    ) -> Callable[[], None]:
        """Call with each object that comes to be here, of a class or of any; returns how to end."""
        return self._on(Verdict.CREATED, cls, lambda o: callback(self.instance(_there(o.after))))

    def on_changed(
        self, callback: Callable[[Any], None], cls: type | None = None
    ) -> Callable[[], None]:
        """Call with each object that has changed, wherever that was; returns how to end."""
        return self._on(Verdict.CHANGED, cls, lambda o: callback(self.instance(_there(o.after))))

    def on_removed(
        self, callback: Callable[[Any], None], cls: type | None = None
    ) -> Callable[[], None]:
        """Call with what each removed object was, a plain instance; returns how to end."""

        def removed(outcome: Outcome) -> None:
            record = _there(outcome.before)
            kind = self.types.type_of(record.type_name, record.fields)
            known = kind is not None and kind.declaration is None
            callback(kind.make(record.fields) if kind and known else Record(self, record))

        ends = [self._on(verdict, cls, removed) for verdict in (Verdict.REMOVED, Verdict.MERGED)]

        def end_both() -> None:
            for end in ends:
                end()

        return end_both

    def _on(
        self, verdict: Verdict, cls: type | None, call: Callable[[Outcome], None]
    ) -> Callable[[], None]:
        kind = None if cls is None else self.types.register(cls)

        def told(outcome: Outcome, source: object) -> None:
            if outcome.verdict is verdict:
                record = _there(outcome.before if outcome.after is None else outcome.after)
                if kind in (None, self.types.type_of(record.type_name, record.fields)):
                    call(outcome)

        return self.subscribe(told)

    def settled(self) -> Deferred[None]:
        """Fires when everything that was asked for until now is on disk or refused."""
        waiting = [_after(deferred) for deferred in self._settling]
        return DeferredList(waiting).addCallback(lambda _: None)

    def _under_way(self, deferred: Deferred[T]) -> Deferred[T]:
        self._settling.add(deferred)

        def done(result: Any) -> Any:
            self._settling.discard(deferred)
            return result

        return deferred.addBoth(done)

    def _bind(self, instance: Any, kind: ObjectType, number: int) -> None:
        bound = _Bound(self, kind, instance, number)
        bind(instance, bound)
        self._bound[number] = bound

    def _update_instance(self, outcome: Outcome) -> None:
        before, after = outcome.before, outcome.after
        if before is None or outcome.verdict not in (
            Verdict.CHANGED,
            Verdict.REMOVED,
            Verdict.MERGED,
        ):
            return
        bound = self._bound.pop(before.hash, None)
        if bound is None:
            return
        if outcome.verdict is not Verdict.CHANGED or after is None:
            bound.kept = None
            instance = bound.instance()
            if instance is not None:
                bind(instance, None)
            return
        bound.kept = after.hash
        self._bound[after.hash] = bound
        if not bound.under_way:
            bound.show(after)


def _kept_types(store: Store) -> list[Declaration]:
    kept = json.loads(store.get_meta(_TYPES_META) or b"{}")
    return [Declaration.from_pairs(name, pairs) for name, pairs in kept.items()]


def _after(deferred: Deferred[Any]) -> Deferred[None]:
    """Fires when the other has its result, and leaves that to it."""
    after: Deferred[None] = Deferred()

    def passed(result: Any) -> Any:
        after.callback(None)
        return result

    deferred.addBoth(passed)
    return after


def _there(record: ObjectRecord | None) -> ObjectRecord:
    if record is None:
        raise ObjectError("an outcome tells of no object")
    return record


def _added(outcome: Outcome, offer: OfferedObject) -> ObjectRecord:
    if outcome.verdict is Verdict.FULL:
        raise PoolFull("the pool is full; raise [objects] objects, or remove some")
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
