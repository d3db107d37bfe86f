"""Which version of an object holds: the rule by which all nodes come to the same pool.

An object is a chain of versions, each known by its hash alone: a change names the hash before and
the hash after. Two nodes may change the same version at the same time, a removal may cross a
change, and over a ring of nodes everything arrives twice, the second time after newer things. The
text of PPPP 2 has the receiver ignore a change whose old hash it no longer has; two nodes that
ignored each other's change would differ for ever. So:

1. Every version has a *stamp*, the time in milliseconds of the change that made it. A node that
   changes a version gives the change a stamp greater than that version's, whatever its clock says.
2. A node remembers the versions that have ended: their fields, when they ended, and what they
   became (bounded, the oldest are forgotten). A change or removal of such a version therefore finds
   the object it is about.
3. Of two versions of one object the one with the greater (stamp, hash) holds, on every node, in
   whatever order they come; a removal holds against versions with a smaller stamp.
4. A change of the version that is in the pool, to one that was never seen, holds whatever its time
   says (the clocks of other implementations are only clocks); its stamp is then made to be greater.
5. A stamp that is far ahead of this node's clock (MAX_AHEAD_MS) is none: what it says holds as if
   it was said now, and a version that is here gets no later stamp by it. Stored ones, from before
   there was this rule, count as the time when they came (`credible_stamp`). Else a removal with the
   greatest stamp would keep an object out for ever.

What came of an offer tells who must hear of it (`Verdict`): a new state is forwarded with the stamp
it has here; who offered an older one, or got another stamp than it said, is told what holds. A
state is forwarded only when it is new or its stamp has grown, and stamps of one version grow at
most to the greatest that somebody gave it, so every message ends.

A version that is created anew after it ended is a new object. A change that leads to what is in the
pool already ends the old version, for both are now the same object. Where the hash is the same and
the fields are not, hashCode fails to tell two objects apart: a clash, refused and not passed on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hyperbloom.store.limits import (
    MAX_AHEAD_MS,
    MAX_OBJECT_BYTES,
    OBJECT_STEP_BYTES,
)
from hyperbloom.store.lmdb.transaction import WriteTransaction
from hyperbloom.store.objects.offers import (
    Offer,
    OfferedChange,
    OfferedObject,
    OfferedRemoval,
    later_than,
)
from hyperbloom.store.objects.records import (
    ObjectRecord,
    Outcome,
    PastVersion,
    Verdict,
    pack_fields,
    unpack_fields,
)
from hyperbloom.store.objects.table import (
    DEFAULT_BOUNDS,
    ChainTooLong,
    DiskBounds,
    ObjectTable,
    owner_of,
)
from hyperbloom.store.operations import OVERHEAD_BYTES, check_time

__all__ = ["OfferObjects"]


@dataclass(frozen=True, slots=True)
class OfferObjects:
    """Take what holds of these offers, in their order. Result: an Outcome for each.

    Or for the first of them, perhaps for none, where more would hold the writer for too long: what
    others send is cut, and whatever follows long chains. The rest is to be offered again, and is
    then nearer to its end.

    `at` is the time in µs. `origin` tells whom they are from, nothing: from this node. A pool takes
    no new object beyond `most`, and no larger one beyond `bounds`.
    """

    offers: Sequence[Offer]
    at: int
    most: int
    origin: bytes = b""
    bounds: DiskBounds = DEFAULT_BOUNDS

    def __post_init__(self) -> None:
        check_time("at", self.at)
        object.__setattr__(self, "offers", tuple(self.offers))
        if not all(isinstance(offer, Offer) for offer in self.offers):
            raise TypeError("offers are objects, changes and removals")

    @property
    def size(self) -> int:
        return OVERHEAD_BYTES + sum(offer.size for offer in self.offers)

    def apply(self, transaction: WriteTransaction) -> tuple[Outcome, ...]:
        owner = owner_of(self.origin)
        table = ObjectTable(transaction, self.at, owner=owner, bounds=self.bounds)
        settlement = _Settlement(table, self.most)
        outcomes: list[Outcome] = []
        for offer in self.offers:
            if outcomes and owner and table.work > OBJECT_STEP_BYTES:
                break
            try:
                outcomes.append(settlement.settle(offer))
            except ChainTooLong:
                break
        table.close()
        return tuple(outcomes)


def _holds(stamp: int, number: int, other: ObjectRecord) -> bool:
    return (stamp, number) > (other.stamp, other.hash)


class _Settlement:
    """One transaction's offers against the table."""

    def __init__(self, table: ObjectTable, most: int) -> None:
        self.table = table
        self._most = most
        #: The stamp that the offer counts by, and whether it is the one that it came with.
        self._stamp, self._is_credible = 0, True

    def settle(self, offer: Offer) -> Outcome:
        now = self.table.at // 1_000
        self._is_credible = not self.table.owner or offer.stamp <= now + MAX_AHEAD_MS
        self._stamp = offer.stamp if self._is_credible else now
        match offer:
            case OfferedObject():
                return self._object(offer)
            case OfferedChange():
                return self._change(offer)
            case OfferedRemoval():
                return self._removal(offer)

    # Whole objects

    def _object(self, offer: OfferedObject) -> Outcome:
        live = self.table.live(offer.hash)
        if live is not None:
            return self._again(offer, live)
        for ancestor in offer.ancestors:
            found = self._of_ancestor(offer, ancestor)
            if found is not None:
                return found
        past = self.table.past(offer.hash)
        if past is None:
            return self._create(offer, self._stamp)
        if offer.local:
            return self._create(offer, max(self._stamp, later_than(past.ended)), ended=past.ended)
        if self._stamp > past.ended:
            return self._create(offer, self._stamp, ended=past.ended)
        return self._stale(offer.hash, past.packed)

    def _again(self, offer: OfferedObject, live: ObjectRecord) -> Outcome:
        names = {offer.type_name, live.type_name} - {None}
        if not _same_fields(offer.packed, live.packed) or len(names) > 1:
            return Outcome(verdict=Verdict.CLASH, hash=offer.hash, before=live)
        if self._is_later(live.stamp) and not offer.local:
            return self._restamp(live)
        return Outcome(verdict=Verdict.KNOWN, hash=offer.hash, stamp=live.stamp, after=live)

    def _of_ancestor(self, offer: OfferedObject, ancestor: int) -> Outcome | None:
        """The offer as a later version of an object that is known here; None if it is not."""
        live: ObjectRecord | None = self.table.live(ancestor)
        if live is None and self.table.past(ancestor) is None:
            return None
        number, last = ancestor, None
        if live is None:
            live, number, last = self.table.successor(ancestor)
        if live is not None:
            if live.fields.keys() != unpack_fields(offer.packed).keys():
                return None
            return self._against(live, offer.hash, offer.packed)
        if last is None:
            return None
        return self._against_removal(number, last, offer.hash, offer.packed)

    def _create(self, offer: OfferedObject, stamp: int, ended: int = 0) -> Outcome:
        record = ObjectRecord(
            hash=offer.hash,
            packed=offer.packed,
            type_name=offer.type_name,
            created=self.table.at,
            changed=self.table.at,
            stamp=stamp,
            ended=ended,
            ancestors=offer.ancestors,
            owner=self.table.owner,
        )
        return self._put_new(record)

    def _put_new(self, record: ObjectRecord) -> Outcome:
        if not self._takes_one(record):
            return Outcome(verdict=Verdict.FULL, hash=record.hash)
        self.table.put(record)
        return Outcome(verdict=Verdict.CREATED, hash=record.hash, stamp=record.stamp, after=record)

    def _takes_one(self, record: ObjectRecord) -> bool:
        return self.table.counts.count < self._most and self.table.has_room(record)

    # Changes

    def _change(self, offer: OfferedChange) -> Outcome:
        old, new = self.table.live(offer.old), self.table.live(offer.hash)
        if new is not None:
            return self._change_to_present(offer, old, new)
        if old is not None:
            return self._change_of_present(offer, old)
        past = self.table.past(offer.old)
        if past is None:
            return Outcome(verdict=Verdict.UNKNOWN, hash=offer.hash)
        packed = _changed(past.packed, offer.packed)
        if packed is None:
            return Outcome(verdict=Verdict.UNFIT, hash=offer.hash)
        live, number, last = self.table.successor(offer.old)
        if live is not None:
            return self._against(live, offer.hash, packed)
        if last is None:
            return Outcome(verdict=Verdict.UNKNOWN, hash=offer.hash)
        return self._against_removal(number, last, offer.hash, packed)

    def _change_to_present(
        self, offer: OfferedChange, old: ObjectRecord | None, new: ObjectRecord
    ) -> Outcome:
        if old is not None and old.hash != new.hash and self._stamp > old.ended:
            changed = _changed(old.packed, offer.packed)
            if changed is None or not _same_fields(changed, new.packed):
                return Outcome(verdict=Verdict.CLASH, hash=offer.hash, before=new)
            stamp = max(self._stamp, later_than(old.stamp))
            self.table.end(old, stamp, new.hash)
            return Outcome(
                verdict=Verdict.MERGED, hash=new.hash, stamp=stamp, before=old, after=new
            )
        if self._is_later(new.stamp) and self._leads_to(offer.old, new.hash):
            return self._restamp(new)
        return Outcome(verdict=Verdict.KNOWN, hash=new.hash, stamp=new.stamp, after=new)

    def _leads_to(self, number: int, target: int) -> bool:
        past = self.table.past(number)
        return past is not None and self.table.successor(number)[1] == target

    def _change_of_present(self, offer: OfferedChange, old: ObjectRecord) -> Outcome:
        packed = _changed(old.packed, offer.packed)
        if packed is None:
            return Outcome(verdict=Verdict.UNFIT, hash=offer.hash, before=old)
        # One that is not later than an earlier end of this hash is about what was then.
        if self._stamp <= old.ended or self._leads_to(offer.hash, old.hash):
            return self._against(old, offer.hash, packed)
        return self._follow(old, offer.hash, max(self._stamp, later_than(old.stamp)), packed)

    def _against(self, live: ObjectRecord, number: int, packed: bytes) -> Outcome:
        """A version against the one of the same object that holds until now."""
        if _holds(self._stamp, number, live):
            return self._follow(live, number, self._stamp, packed)
        if self.table.past(number) is None:
            self.table.remember(number, packed, live.stamp, live.hash)
        return Outcome(
            verdict=Verdict.STALE, hash=number, stamp=live.stamp, after=live, offered=packed
        )

    def _follow(self, before: ObjectRecord, number: int, stamp: int, packed: bytes) -> Outcome:
        past = self.table.past(number)
        after = self.table.owned(
            replace(
                before,
                hash=number,
                packed=packed,
                changed=self.table.at,
                stamp=stamp,
                ended=0 if past is None else past.ended,
                ancestors=self.table.lineage(before),
            ),
            before,
        )
        if not self.table.has_room(after, before):
            return Outcome(verdict=Verdict.FULL, hash=number, before=before)
        self.table.end(before, stamp, number)
        self.table.put(after)
        return Outcome(
            verdict=Verdict.CHANGED, hash=number, stamp=stamp, before=before, after=after
        )

    def _against_removal(self, last: int, past: PastVersion, number: int, packed: bytes) -> Outcome:
        """A version of an object that was removed at `past.ended`, as the version `last`."""
        if self._stamp < past.ended:
            if self.table.past(number) is None:
                self.table.remember(number, packed, past.ended, None)
            return Outcome(verdict=Verdict.STALE, hash=number, stamp=past.ended, offered=packed)
        record = ObjectRecord(
            hash=number,
            packed=packed,
            type_name=None,
            created=self.table.at,
            changed=self.table.at,
            stamp=self._stamp,
            ended=past.ended if last == number else 0,
            ancestors=(last,) if last != number else (),
            owner=self.table.owner,
        )
        if last != number and self._takes_one(record):
            self.table.follow(last, past, number, self._stamp)
        return self._put_new(record)

    # Removals

    def _removal(self, offer: OfferedRemoval) -> Outcome:
        live = self.table.live(offer.hash)
        if live is not None:
            if self._stamp <= live.ended:
                return Outcome(verdict=Verdict.KNOWN, hash=offer.hash, stamp=live.stamp)
            return self._remove(live, max(self._stamp, later_than(live.stamp)), offer.hash)
        if self.table.past(offer.hash) is None:
            return Outcome(verdict=Verdict.UNKNOWN, hash=offer.hash)
        live, number, last = self.table.successor(offer.hash)
        if live is not None:
            if self._stamp > live.stamp:
                return self._remove(live, self._stamp, offer.hash)
            return Outcome(verdict=Verdict.STALE, hash=offer.hash, stamp=live.stamp, after=live)
        if last is None or not self._is_later(last.ended):
            return Outcome(verdict=Verdict.KNOWN, hash=offer.hash, stamp=self._stamp)
        self.table.follow(number, last, None, self._stamp)
        return Outcome(verdict=Verdict.RESTAMPED, hash=offer.hash, stamp=self._stamp)

    def _remove(self, live: ObjectRecord, stamp: int, number: int) -> Outcome:
        self.table.end(live, stamp, None)
        return Outcome(verdict=Verdict.REMOVED, hash=number, stamp=stamp, before=live)

    # What both need

    def _is_later(self, stamp: int) -> bool:
        """Whether the offer gives what is known here a later stamp.

        One that is not credible does not: where two nodes were far ahead, or one were whose word
        came around a ring, they would tell each other of `now` again and again.
        """
        return self._is_credible and self._stamp > stamp

    def _restamp(self, live: ObjectRecord) -> Outcome:
        later = self.table.restamp(live, self._stamp)
        return Outcome(verdict=Verdict.RESTAMPED, hash=live.hash, stamp=self._stamp, after=later)

    def _stale(self, number: int, packed: bytes) -> Outcome:
        live, _, last = self.table.successor(number)
        if live is None and last is None:
            return Outcome(verdict=Verdict.UNKNOWN, hash=number)
        stamp = live.stamp if live is not None else last.ended if last is not None else 0
        return Outcome(verdict=Verdict.STALE, hash=number, stamp=stamp, after=live, offered=packed)


def _same_fields(packed: bytes, other: bytes) -> bool:
    """Whether two objects are equal; a field that is NaN is, though not to Python."""
    if packed == other:
        return True
    fields, others = unpack_fields(packed), unpack_fields(other)
    if fields.keys() != others.keys():
        return False
    return fields == others or all(
        pack_fields({name: value}) == pack_fields({name: others[name]})
        for name, value in fields.items()
        if value != others[name]
    )


def _changed(packed: bytes, part: bytes) -> bytes | None:
    """Fields with some changed; None if it is no object of these fields, or becomes too large."""
    fields, changes = unpack_fields(packed), unpack_fields(part)
    if not changes.keys() <= fields.keys():
        return None
    changed = pack_fields({**fields, **changes})
    return changed if len(changed) <= MAX_OBJECT_BYTES else None
