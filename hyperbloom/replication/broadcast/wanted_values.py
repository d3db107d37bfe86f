"""The values of which peers have told the ids and which have not come: whom to ask, and when.

No I/O, no clock. A telling is an id and a peer that told it; there is room for so many in all. What
is free is shared out by branch: a path may have as many tellings as are left beside all the others,
and within it each key as many as are left of that, and so on down. So a branch alone has half of
the room, however many keys it has, and there is always some left for another one.

Of one id some tellers are remembered, of as many branches as there are. Who is asked and does not
send has missed, and so has its branch: those of others are asked before it.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import count

from hyperbloom.replication.limits import (
    CATCH_UP_FIRST,
    LONGEST_PULL_SECONDS,
    MAX_LEFT_BRANCHES,
    MAX_TELLERS,
    MAX_TOLD,
    PULL_SECONDS,
)
from hyperbloom.trust import Path
from hyperbloom.trust.path_memory import PathAccounts

__all__ = ["TreeLink", "Wanted", "WantedValues"]

#: A peer that did not send what it had told, and its branch, is asked last for so long, in seconds.
MISSED_SECONDS = 60.0

#: Ids in the queue that are wanted no more, or at another time, beside as many as are wanted.
SPARE_DUES = 1_024

#: More than a path has keys: a miss of its branch weighs more than those of all keys below.
_BRANCH_WEIGHT = 1 << 16


class _Account:
    """What those of one path have told, and when one of them last did not send it."""

    __slots__ = ("missed_at", "told")

    def __init__(self, _: Path) -> None:
        self.told = 0
        self.missed_at = -math.inf

    def has_missed(self) -> bool:
        """Whether it ever has."""
        return self.missed_at > -math.inf


class TreeLink:
    """One peer that speaks the extension. `pushes`: values go along it at once, both ways."""

    __slots__ = (
        "accounts", "bit", "heard_at", "is_gone", "path", "pushes", "steps", "told", "untold"
    )  # fmt: skip

    def __init__(self, bit: int, path: Path, accounts: tuple[_Account, ...]) -> None:
        #: Its place in the masks of holders.
        self.bit = bit
        self.path, self.accounts = path, accounts
        #: Its path, with an end that is no key's: one path may go on where another ends.
        self.steps = (*path, b"")
        self.pushes = True
        self.is_gone = False
        #: Which wanted ids it has told; the ids that are to be told to it.
        self.told: dict[bytes, None] = {}
        self.untold: dict[bytes, None] = {}
        #: When it last sent values.
        self.heard_at = -math.inf

    def has_missed(self, now: float) -> bool:
        """Whether its key did not send what it was asked for, not long ago."""
        return now - self.accounts[-1].missed_at < MISSED_SECONDS

    def misses(self, now: float) -> int:
        """0: none of its path has missed of late; who has more is asked later."""
        weight, sum_ = _BRANCH_WEIGHT, 0
        for account in self.accounts:
            if now - account.missed_at < MISSED_SECONDS:
                sum_ += weight
            weight >>= 1
        return sum_


class Wanted:
    """A value that was told and has not come.

    due: when it is looked at. is_offered: it was told while the two were compared. is_caught_up:
    then, or by who could have pushed it, and did not because it came to it with many others.
    """

    __slots__ = ("asked", "asked_at", "due", "is_caught_up", "is_offered", "tellers", "told_at")

    def __init__(
        self, due: float, told_at: float, is_offered: bool, is_caught_up: bool, teller: TreeLink
    ) -> None:
        self.due, self.told_at = due, told_at
        self.is_offered, self.is_caught_up = is_offered, is_caught_up
        self.tellers = [teller]
        self.asked: TreeLink | None = None
        self.asked_at = 0.0


class WantedValues:
    """What is wanted of the peers of one feed; times are seconds of one clock."""

    def __init__(self) -> None:
        self.told = 0
        self._wanted: dict[bytes, Wanted] = {}
        self._accounts: PathAccounts[_Account] = PathAccounts(
            _Account, is_owed=_Account.has_missed, most=MAX_LEFT_BRANCHES
        )
        #: A heap of moments with the ids that are due then, and how many there are in all.
        self._due: list[tuple[float, int, list[bytes]]] = []
        self._dues = 0
        self._order = count()
        #: What is to be put into the heap, by its moment.
        self._later: defaultdict[float, list[bytes]] = defaultdict(list)

    def __len__(self) -> int:
        return len(self._wanted)

    def get(self, value_id: bytes) -> Wanted | None:
        """What is known of a value that is wanted."""
        return self._wanted.get(value_id)

    def join(self, bit: int, path: Path) -> TreeLink:
        """A peer comes by this path."""
        return TreeLink(bit, path, self._accounts.join(path))

    def leave(self, link: TreeLink) -> None:
        """It is gone; `forget_tellings` has to be called until there are none."""
        link.is_gone = True
        link.untold.clear()
        self._accounts.leave(link.path)

    def room_for(self, link: TreeLink) -> int:
        """How many ids it may tell now."""
        free = MAX_TOLD - self.told - sum(account.told for account in link.accounts)
        # One more counts at each step.
        return free // (1 + len(link.accounts))

    # Tellings

    def take(
        self,
        link: TreeLink,
        ids: Iterable[bytes],
        *,
        now: float,
        due: float,
        is_offered: bool,
        is_caught_up: bool,
    ) -> None:
        """A peer has told these; of more than it has room for, the rest is dropped."""
        room = self.room_for(link)
        taken: list[bytes] = []
        told, wanted_ids = link.told, self._wanted
        for value_id in ids:
            if len(taken) >= room:
                break
            wanted = wanted_ids.get(value_id)
            if wanted is None:
                wanted_ids[value_id] = Wanted(math.inf, now, is_offered, is_caught_up, link)
                self.put_off(value_id, wanted_ids[value_id], due)
            elif value_id in told or not self._has_place(value_id, wanted, link):
                continue
            else:
                wanted.tellers.append(link)
                asked = wanted.asked
                if asked is None:
                    self.put_off(value_id, wanted, min(wanted.due, due))
                elif asked.misses(now) > link.misses(now):
                    self.put_off(value_id, wanted, now)
            told[value_id] = None
            taken.append(value_id)
        self._count(link, len(taken))
        self._queue()

    def _count(self, link: TreeLink, by: int) -> None:
        self.told += by
        for account in link.accounts:
            account.told += by

    def _has_place(self, value_id: bytes, wanted: Wanted, link: TreeLink) -> bool:
        """Whether it may be one more teller; a crowded branch makes room for another one."""
        among = wanted.tellers
        if len(among) < MAX_TELLERS:
            return True
        for depth, step in enumerate(link.steps):
            counts: dict[bytes, int] = {}
            for other in among:
                counts[other.steps[depth]] = counts.get(other.steps[depth], 0) + 1
            own = counts.pop(step, 0)
            crowded = max(counts, key=counts.__getitem__, default=b"")
            if counts and counts[crowded] > own + 1:
                crowd = [one for one in among if one.steps[depth] == crowded]
                givers = [one for one in crowd if one is not wanted.asked]
                self._take_back(value_id, wanted, givers[-1])
                return True
            if not own:
                return False
            if counts:
                among = [one for one in among if one.steps[depth] == step]
        return False

    def _take_back(self, value_id: bytes, wanted: Wanted, teller: TreeLink) -> None:
        wanted.tellers.remove(teller)
        del teller.told[value_id]
        self._count(teller, -1)

    def drop(self, value_id: bytes) -> Wanted | None:
        """Want it no more; what was known of it."""
        wanted = self._wanted.pop(value_id, None)
        for teller in () if wanted is None else wanted.tellers:
            del teller.told[value_id]
            self._count(teller, -1)
        return wanted

    def forget_tellings(self, link: TreeLink, most: int, *, now: float) -> int:
        """Take back so many of what a peer that is gone has told; how many that were."""
        some = [value_id for value_id, _ in zip(link.told, range(most), strict=False)]
        for value_id in some:
            wanted = self._wanted[value_id]
            self._take_back(value_id, wanted, link)
            if not wanted.tellers:
                del self._wanted[value_id]
            elif wanted.asked is link:
                wanted.asked = None
                self.put_off(value_id, wanted, now)
        self._queue()
        return len(some)

    # When to look at one

    def look_at(self, ids: Iterable[bytes], due: float) -> None:
        """Look at these then, as far as they are wanted."""
        for value_id in ids:
            wanted = self._wanted.get(value_id)
            if wanted is not None:
                self.put_off(value_id, wanted, due)
        self._queue()

    def put_off(self, value_id: bytes, wanted: Wanted, due: float) -> None:
        """Look at it then; to be called within `due`, which puts it into the queue."""
        if due != wanted.due:
            wanted.due = due
            self._later[due].append(value_id)

    def _queue(self) -> None:
        """Put into the heap what was put off; make that anew where it has much that is stale."""
        later, self._later = self._later, defaultdict(list)
        self._dues += sum(map(len, later.values()))
        if self._dues > 2 * len(self._wanted) + SPARE_DUES:
            later, self._dues = defaultdict(list), len(self._wanted)
            self._due.clear()
            for value_id, wanted in self._wanted.items():
                later[wanted.due].append(value_id)
        for due, ids in later.items():
            heapq.heappush(self._due, (due, next(self._order), ids))

    @property
    def next_due(self) -> float:
        """When one is to be looked at, infinite: never."""
        while self._due:
            due, _, ids = self._due[0]
            while ids and not self._is_due(due, ids[-1]):
                ids.pop()
                self._dues -= 1
            if ids:
                return due
            heapq.heappop(self._due)
        return math.inf

    def _is_due(self, due: float, value_id: bytes) -> bool:
        wanted = self._wanted.get(value_id)
        return wanted is not None and wanted.due == due

    def due(self, now: float, most: int) -> Iterator[tuple[bytes, Wanted]]:
        """What is to be looked at now, no more than `most`; each is asked for, put off, dropped."""
        some: list[tuple[float, bytes]] = []
        while len(some) < most and self._due and self._due[0][0] <= now:
            due, _, ids = self._due[0]
            taken = ids[len(some) - most :]
            del ids[len(some) - most :]
            self._dues -= len(taken)
            some += [(due, value_id) for value_id in taken]
            if not ids:
                heapq.heappop(self._due)
        for due, value_id in some:
            if self._is_due(due, value_id):
                yield value_id, self._wanted[value_id]
        self._queue()

    # Whom to ask

    def ask(
        self, value_id: bytes, wanted: Wanted, *, now: float, waits_until: float
    ) -> TreeLink | None:
        """Whom to ask now, if anybody; `waits_until`: it may come by itself until then."""
        until = self._waits_until(wanted, now, waits_until)
        if until is not None:
            self.put_off(value_id, wanted, until)
            return None
        asked = wanted.asked
        if asked is not None:
            if not asked.is_gone:
                for account in asked.accounts:
                    account.missed_at = now
            self._take_back(value_id, wanted, asked)
            wanted.asked = None
        tellers = [teller for teller in wanted.tellers if not teller.is_gone]
        if not tellers:
            self.drop(value_id)
            return None
        link = tellers[0] if len(tellers) == 1 else min(tellers, key=lambda one: one.misses(now))
        wanted.asked, wanted.asked_at = link, now
        self.put_off(value_id, wanted, now + PULL_SECONDS)
        return link

    def _waits_until(self, wanted: Wanted, now: float, waits_until: float) -> float | None:
        """Until when it may still come by itself, or from who was asked; None: it does not."""
        asked = wanted.asked
        if asked is None:
            until = min(waits_until, wanted.told_at + CATCH_UP_FIRST)
            return until if now < until else None
        misses = asked.misses(now)
        if asked.is_gone or (misses and any(one.misses(now) < misses for one in wanted.tellers)):
            return None
        until = wanted.asked_at + PULL_SECONDS
        if now < wanted.asked_at + LONGEST_PULL_SECONDS and not asked.has_missed(now):
            until = max(until, asked.heard_at + PULL_SECONDS)
        return until if now < until else None
