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
  failed like this is asked last (`wanted_values`).

What many values brought at a time (a node catches up) is told over all links, and not pushed: the
neighbours catch up at the same moment, each with somebody else.

A value is known once it is on disk, or was kept out for good. Until then it may still be told, and
is asked of another one where it could not be stored.

Nothing is lost where nobody sends what was told: the comparisons by digest find it later, as they
find what was told to a node that could remember no more. What is due is done in pieces (`wake`), so
that a turn of the reactor is short however much was told.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from hyperbloom.digests import ID_BYTES, value_ids
from hyperbloom.replication.broadcast.wanted_values import TreeLink, Wanted, WantedValues
from hyperbloom.replication.limits import (
    GRAFT_SECONDS,
    MAX_KNOWN_IDS,
    PULL_SECONDS,
    TELL_SECONDS,
    WOKEN_IDS,
)
from hyperbloom.trust import Path
from hyperbloom.wire.extensions.broadcast_tree import LinkKind
from hyperbloom.wire.limits import MAX_TOLD_IDS

__all__ = ["BroadcastTree", "Command", "Place", "Pull", "Tell", "TreeLink", "ids_of"]

#: The numbers of the log between which a value of this id is, both included.
Place: TypeAlias = tuple[int, int, bytes]


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
    is_settled: it is on disk, or was kept out for good. low, high: see Place; 0 where unknown.
    """

    first: TreeLink | None = None
    is_caught_up: bool = False
    is_settled: bool = False
    holders: int = 0
    low: int = 0
    high: int = 0


class BroadcastTree:
    """The links of one feed; times are seconds of one clock.

    With fewer than two links nothing is remembered: there is nothing to choose.
    """

    def __init__(self) -> None:
        self._links: dict[int, TreeLink] = {}
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._wanted = WantedValues()
        self._tell_at = math.inf
        #: Links that are to be told something now, and links that are gone and have told something.
        self._telling: deque[TreeLink] = deque()
        self._leaving: deque[TreeLink] = deque()
        self._catching_up_until = -math.inf
        #: How many ids were looked at because a link had told them.
        self._work: Counter[TreeLink] = Counter()

    def __len__(self) -> int:
        return len(self._links)

    @property
    def is_used(self) -> bool:
        """Whether there is anything to choose."""
        return len(self._links) > 1

    @property
    def next_deadline(self) -> float | None:
        """When to call `wake` (it may be long past), None: nothing waits."""
        if self._telling or self._leaving:
            return 0.0
        at = min(self._tell_at, self._wanted.next_due)
        return None if at == math.inf else at

    # Peers come and go

    def join(self, path: Path) -> TreeLink:
        """A peer that speaks the extension is secure."""
        place = next(place for place in range(len(self._links) + 1) if place not in self._links)
        link = self._wanted.join(1 << place, path)
        for known in self._known.values():
            known.holders &= ~link.bit
        self._links[place] = link
        return link

    def leave(self, link: TreeLink) -> None:
        """It is gone: what it was asked for is asked of others, from the next `wake` on."""
        del self._links[link.bit.bit_length() - 1]
        self._wanted.leave(link)
        if link.told:
            self._leaving.append(link)
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
            wanted = self._wanted.get(value_id)
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
            self._forget_wanted(values)
            return
        ids = ids_of(values)
        spare = high - low + 1 - len(ids)
        for number, value_id in enumerate(ids, low):
            known = self._settle(value_id)
            known.low, known.high = number, number + spare

    def kept_out(self, values: Sequence[bytes]) -> None:
        """Values that came are not stored: they were there, or are not let in."""
        if not self.is_used:
            self._forget_wanted(values)
            return
        for value_id in ids_of(values):
            self._settle(value_id)

    def not_stored(self, values: Sequence[bytes], *, now: float) -> None:
        """Values that came could not be written: they are still wanted of others that told them."""
        ids = ids_of(values) if self._known else []
        for value_id in ids:
            known = self._known.get(value_id)
            if known is not None and not known.is_settled:
                del self._known[value_id]
        self._wanted.look_at(ids, now)

    def _settle(self, value_id: bytes) -> _Known:
        known = self._known.get(value_id) or self._remember(value_id)
        known.is_settled = True
        wanted = self._wanted.drop(value_id)
        if wanted is not None:
            for teller in wanted.tellers:
                if not teller.is_gone:
                    known.holders |= teller.bit
        return known

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
        lacking = []
        for value_id in ids:
            known = self._known.get(value_id)
            if known is not None:
                known.holders |= link.bit
            if known is None or not known.is_settled:
                lacking.append(value_id)
        self._wanted.take(
            link,
            lacking,
            now=now,
            due=now if at_once else now + GRAFT_SECONDS,
            is_offered=is_offered,
            is_caught_up=is_offered or (link.pushes and others),
        )

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

    def wake(self, *, now: float, most: int = WOKEN_IDS) -> list[Command]:
        """It is some time: what to tell, and what to ask for.

        It ends after about `most` ids, and `next_deadline` says whether there is more to do.
        """
        if self._tell_at <= now:
            self._tell_at = math.inf
            self._telling.extend(link for link in self._links.values() if link.untold)
        commands: list[Command] = []
        left = most
        while self._leaving and left > 0:
            gone = self._leaving[0]
            done = self._wanted.forget_tellings(gone, left, now=now)
            self._work[gone] += done
            left -= done
            if not gone.told:
                self._leaving.popleft()
        while self._telling and left > 0:
            link = self._telling.popleft()
            left -= len(link.untold)
            commands += self._tell(link)
        return commands + self._pull(now, left) if left > 0 else commands

    def take_work(self) -> Counter[TreeLink]:
        """How many ids were looked at since, by the link that had told them."""
        work, self._work = self._work, Counter()
        return work

    # Inside

    def _pull(self, now: float, most: int) -> list[Command]:
        pulls: defaultdict[tuple[TreeLink, LinkKind], list[bytes]] = defaultdict(list)
        for value_id, wanted in self._wanted.due(now, most):
            self._work[wanted.asked or wanted.tellers[0]] += 1
            link = self._ask(value_id, wanted, now)
            if link is not None:
                pulls[link, LinkKind.AS_BEFORE if wanted.is_offered else LinkKind.PUSH].append(
                    value_id
                )
        return [
            Pull(link, kind, some) for (link, kind), ids in pulls.items() for some in _parts(ids)
        ]

    def _ask(self, value_id: bytes, wanted: Wanted, now: float) -> TreeLink | None:
        """Whom to ask now, if anybody."""
        if value_id in self._known:  # it came, and is on its way to the disk
            self._wanted.put_off(value_id, wanted, now + PULL_SECONDS)
            return None
        until = self._catching_up_until if self.is_used else -math.inf
        link = self._wanted.ask(value_id, wanted, now=now, waits_until=until)
        if link is not None and not wanted.is_offered:
            link.pushes = True
        return link

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

    def _forget_wanted(self, values: Sequence[bytes]) -> None:
        if len(self._wanted):
            for value_id in ids_of(values):
                self._wanted.drop(value_id)

    def _remember(self, value_id: bytes) -> _Known:
        known = self._known[value_id] = _Known()
        if len(self._known) > MAX_KNOWN_IDS:
            self._known.popitem(last=False)
        return known


def ids_of(values: Sequence[bytes]) -> list[bytes]:
    """The ids of values, in their order."""
    ids = value_ids(values)
    return [ids[at : at + ID_BYTES] for at in range(0, len(ids), ID_BYTES)]


def _parts(ids: Sequence[bytes]) -> list[list[bytes]]:
    """In byte order, as many in each as a message has."""
    ordered = sorted(ids)
    return [ordered[at : at + MAX_TOLD_IDS] for at in range(0, len(ordered), MAX_TOLD_IDS)]
