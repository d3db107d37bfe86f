"""Along which links values go at once, and along which their ids are told: no I/O, no clock.

Nodes with several neighbours would receive each value from all of them. Here a node pushes what it
stores along some of its links, and tells the ids of it over the others (the extension
`broadcast-tree`, in wire/extensions). The idea is that of Plumtree (Leitão, Pereira, Rodrigues,
"Epidemic Broadcast Trees", SRDS 2007):

- A link begins as one that pushes. Who is pushed a value that another pushing link brought first
  has the second link tell from then on, and tells over it, too. What is left is a tree.
- Who is told of a value that it lacks waits for it for `GRAFT_SECONDS`, then asks who told, and
  both push along their link from then on: so the tree mends where a node is gone. It does not wait
  where no other link pushes, nor where the link that told is one that pushes.
- Who is asked and does not send for `PULL_SECONDS` is followed by the next one that told; one that
  failed like this is asked last.

What many values brought at a time (a node catches up) is told over all links, and not pushed: the
neighbours catch up at the same moment, each with somebody else.

Nothing is lost where nobody sends what was told: the comparisons by digest find it later, as they
find what was told to a node that could remember no more.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from hyperbloom.digests import ID_BYTES, value_ids
from hyperbloom.replication.limits import (
    CATCH_UP_FIRST,
    GRAFT_SECONDS,
    LONGEST_PULL_SECONDS,
    MAX_KNOWN_IDS,
    MAX_TOLD_BY_PEER,
    PULL_SECONDS,
    TELL_SECONDS,
)
from hyperbloom.wire.extensions.broadcast_tree import LinkKind
from hyperbloom.wire.limits import MAX_TOLD_IDS

__all__ = ["BroadcastTree", "Command", "Place", "Pull", "Tell", "TreeLink", "ids_of"]

#: A peer that did not send what it had told is asked last for so long, in seconds.
MISSED_SECONDS = 60.0

#: The numbers of the log between which a value of this id is, both included.
Place: TypeAlias = tuple[int, int, bytes]


class TreeLink:
    """One peer that speaks the extension. `pushes`: values go along it at once, both ways."""

    __slots__ = ("bit", "heard_at", "is_gone", "missed_at", "pushes", "told", "untold")

    def __init__(self, bit: int) -> None:
        #: Its place in the masks of `_Known`.
        self.bit = bit
        self.pushes = True
        self.is_gone = False
        #: How many of the wanted ids it has told; the ids that are to be told to it.
        self.told = 0
        self.untold: dict[bytes, None] = {}
        #: When it last sent values, and when it last did not send what it was asked for.
        self.heard_at = self.missed_at = -math.inf

    def has_missed(self, now: float) -> bool:
        """Whether it did not send what it was asked for, not long ago."""
        return now - self.missed_at < MISSED_SECONDS


@dataclass(frozen=True, slots=True)
class Tell:
    """Tell the peer of the link these ids, in byte order; at most MAX_TOLD_IDS."""

    link: TreeLink
    ids: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Pull:
    """Ask the peer of the link for these, in byte order; at most MAX_TOLD_IDS, or none."""

    link: TreeLink
    kind: LinkKind
    ids: Sequence[bytes]


Command: TypeAlias = Tell | Pull


@dataclass(slots=True)
class _Known:
    """A value that came or was put here. `holders`: the bits of links whose peers hold it.

    first: the link along which it was pushed first. is_caught_up: it came with many others.
    low, high: see Place; 0 while it is not on disk.
    """

    first: TreeLink | None = None
    is_caught_up: bool = False
    holders: int = 0
    low: int = 0
    high: int = 0


@dataclass(slots=True)
class _Wanted:
    """A value that was told and has not come.

    is_offered: it was told while the two were compared. is_caught_up: then, or by who could have
    pushed it, and did not because it came to it with many others.
    """

    due: float
    told_at: float
    is_offered: bool
    is_caught_up: bool
    tellers: list[TreeLink] = field(default_factory=list)
    asked: TreeLink | None = None
    asked_at: float = 0.0


class BroadcastTree:
    """The links of one feed; times are seconds of one clock.

    With fewer than two links nothing is remembered: there is nothing to choose.
    """

    def __init__(self) -> None:
        self._links: dict[int, TreeLink] = {}
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._wanted: dict[bytes, _Wanted] = {}
        self._due: list[tuple[float, bytes]] = []
        self._tell_at = math.inf
        self._catching_up_until = -math.inf

    def __len__(self) -> int:
        return len(self._links)

    @property
    def is_used(self) -> bool:
        """Whether there is anything to choose."""
        return len(self._links) > 1

    @property
    def next_deadline(self) -> float | None:
        """When to call `wake`, None: nothing waits."""
        while self._due and not self._is_due(*self._due[0]):
            heapq.heappop(self._due)
        at = min(self._tell_at, self._due[0][0] if self._due else math.inf)
        return None if at == math.inf else at

    # Peers come and go

    def join(self) -> TreeLink:
        """A peer that speaks the extension is secure."""
        place = next(place for place in range(len(self._links) + 1) if place not in self._links)
        link = TreeLink(1 << place)
        for known in self._known.values():
            known.holders &= ~link.bit
        self._links[place] = link
        return link

    def leave(self, link: TreeLink, *, now: float) -> None:
        """It is gone: what it was asked for is asked of others at once."""
        link.is_gone = True
        del self._links[link.bit.bit_length() - 1]
        link.untold.clear()
        for wanted_id, wanted in self._wanted.items():
            if wanted.asked is link:
                self._put_off(wanted_id, wanted, now)
        if len(self._links) < 2:
            self._known.clear()

    def catches_up(self, *, until: float) -> None:
        """Many values are on their way: what is told meanwhile may be among them.

        It is waited for no longer than CATCH_UP_FIRST, for who sends them may never end.
        """
        self._catching_up_until = max(self._catching_up_until, until)

    # Values

    def received(
        self, link: TreeLink | None, values: Sequence[bytes], *, now: float, is_answer: bool
    ) -> Pull | None:
        """A peer sent values (None: one without the extension). What to say to it, if anything.

        is_answer: it was asked for what differs, so that they tell nothing of the tree.
        """
        if link is not None:
            link.heard_at = now
        if not self.is_used:
            self._forget_wanted(values)
            return None
        is_second = False
        for value_id in ids_of(values):
            wanted = self._drop(value_id)
            known = self._known.get(value_id)
            if known is None:
                known = self._remember(value_id)
                known.is_caught_up = is_answer or (wanted is not None and wanted.is_caught_up)
                if not is_answer and (wanted is None or wanted.asked is not link):
                    known.first = link
            elif known.first not in (None, link) and not is_answer:
                is_second |= known.first.pushes and not known.first.is_gone
            if link is not None:
                known.holders |= link.bit
        if link is None or not is_second or not link.pushes:
            return None
        link.pushes = False
        return Pull(link, LinkKind.TELL, ())

    def stored(self, values: Sequence[bytes], *, low: int, high: int) -> None:
        """Values are on disk, numbered between these in ascending order."""
        if not self.is_used:
            return
        ids = ids_of(values)
        spare = high - low + 1 - len(ids)
        for number, value_id in enumerate(ids, low):
            known = self._known.get(value_id) or self._remember(value_id)
            known.low, known.high = number, number + spare
            self._drop(value_id)

    def pushes(self, link: TreeLink, ids: Sequence[bytes], *, now: float) -> bool:
        """Whether to send the peer these values; else their ids are told, where it lacks any."""
        known = [self._known.get(value_id) for value_id in ids]
        if all(one is not None and one.holders & link.bit for one in known):
            return False
        if link.pushes and not any(one is not None and one.is_caught_up for one in known):
            return True
        self._tell_later(link, ids, now)
        return False

    # What peers say

    def told(
        self, link: TreeLink, ids: Iterable[bytes], *, now: float, is_offered: bool = False
    ) -> None:
        """The peer holds these; is_offered: that was found while the two were compared."""
        others = any(other.pushes for other in self._links.values() if other is not link)
        at_once = is_offered or link.pushes or not others
        for value_id in ids:
            known = self._known.get(value_id)
            if known is not None:
                known.holders |= link.bit
                continue
            wanted = self._wanted.get(value_id)
            if link.told >= MAX_TOLD_BY_PEER or (wanted is not None and link in wanted.tellers):
                continue
            if wanted is None:
                wanted = self._wanted[value_id] = _Wanted(
                    math.inf, now, is_offered, is_offered or (link.pushes and others)
                )
            wanted.tellers.append(link)
            link.told += 1
            asked = wanted.asked
            if asked is None:
                due = now if at_once else now + GRAFT_SECONDS
                self._put_off(value_id, wanted, min(wanted.due, due))
            elif asked.has_missed(now):
                self._put_off(value_id, wanted, now)

    def pulled(
        self, link: TreeLink, kind: LinkKind, ids: Sequence[bytes]
    ) -> tuple[list[Place], list[bytes]]:
        """The peer asks: where the values are, and the ids of which that is not known."""
        if kind is not LinkKind.AS_BEFORE:
            link.pushes = kind is LinkKind.PUSH
        places, others = [], []
        for value_id in ids:
            link.untold.pop(value_id, None)
            known = self._known.get(value_id)
            if known is None or not known.low:
                others.append(value_id)
            else:
                places.append((known.low, known.high, value_id))
        return places, others

    def wake(self, *, now: float) -> list[Command]:
        """It is some time: what to tell, and what to ask for."""
        commands: list[Command] = []
        if self._tell_at <= now:
            self._tell_at = math.inf
            for link in self._links.values():
                commands += self._tell(link)
        pulls: defaultdict[tuple[TreeLink, LinkKind], list[bytes]] = defaultdict(list)
        while self._due and self._due[0][0] <= now:
            due, value_id = heapq.heappop(self._due)
            if self._is_due(due, value_id):
                found = self._ask(value_id, self._wanted[value_id], now)
                if found is not None:
                    pulls[found].append(value_id)
        for (link, kind), ids in pulls.items():
            commands += [Pull(link, kind, some) for some in _parts(ids)]
        return commands

    # Inside

    def _tell(self, link: TreeLink) -> list[Command]:
        ids = [
            value_id
            for value_id in link.untold
            if (known := self._known.get(value_id)) is None or not known.holders & link.bit
        ]
        link.untold.clear()
        return [Tell(link, some) for some in _parts(ids)]

    def _tell_later(self, link: TreeLink, ids: Sequence[bytes], now: float) -> None:
        link.untold.update(dict.fromkeys(ids))
        is_full = len(link.untold) >= MAX_TOLD_IDS
        self._tell_at = min(self._tell_at, now if is_full else now + TELL_SECONDS)

    def _ask(
        self, value_id: bytes, wanted: _Wanted, now: float
    ) -> tuple[TreeLink, LinkKind] | None:
        """Whom to ask now, if anybody."""
        until = self._waits_until(wanted, now)
        if until is not None:
            self._put_off(value_id, wanted, until)
            return None
        asked = wanted.asked
        if asked is not None:
            asked.missed_at = now
            asked.told -= 1
            wanted.tellers.remove(asked)
        tellers = [teller for teller in wanted.tellers if not teller.is_gone]
        if not tellers:
            self._drop(value_id)
            return None
        link = max(tellers, key=lambda one: not one.has_missed(now))
        wanted.asked, wanted.asked_at = link, now
        self._put_off(value_id, wanted, now + PULL_SECONDS)
        if wanted.is_offered:
            return link, LinkKind.AS_BEFORE
        link.pushes = True
        return link, LinkKind.PUSH

    def _waits_until(self, wanted: _Wanted, now: float) -> float | None:
        """Until when it may still come by itself, or from who was asked; None: it does not."""
        asked = wanted.asked
        if asked is None:
            until = min(self._catching_up_until, wanted.told_at + CATCH_UP_FIRST)
            return until if self.is_used and now < until else None
        until = asked.heard_at + PULL_SECONDS
        is_sending = now < until and now < wanted.asked_at + LONGEST_PULL_SECONDS
        return until if is_sending and not asked.is_gone and not asked.has_missed(now) else None

    def _forget_wanted(self, values: Sequence[bytes]) -> None:
        if self._wanted:
            for value_id in ids_of(values):
                self._drop(value_id)

    def _drop(self, value_id: bytes) -> _Wanted | None:
        """Want it no more; what was known of it."""
        wanted = self._wanted.pop(value_id, None)
        for teller in () if wanted is None else wanted.tellers:
            teller.told -= 1
        return wanted

    def _remember(self, value_id: bytes) -> _Known:
        known = self._known[value_id] = _Known()
        if len(self._known) > MAX_KNOWN_IDS:
            self._known.popitem(last=False)
        return known

    def _put_off(self, value_id: bytes, wanted: _Wanted, due: float) -> None:
        if due != wanted.due:
            wanted.due = due
            heapq.heappush(self._due, (due, value_id))

    def _is_due(self, due: float, value_id: bytes) -> bool:
        wanted = self._wanted.get(value_id)
        return wanted is not None and wanted.due == due


def ids_of(values: Sequence[bytes]) -> list[bytes]:
    """The ids of values, in their order."""
    ids = value_ids(values)
    return [ids[at : at + ID_BYTES] for at in range(0, len(ids), ID_BYTES)]


def _parts(ids: Sequence[bytes]) -> list[list[bytes]]:
    """In byte order, as many in each as a message has."""
    ordered = sorted(ids)
    return [ordered[at : at + MAX_TOLD_IDS] for at in range(0, len(ordered), MAX_TOLD_IDS)]
