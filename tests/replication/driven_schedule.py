"""A schedule that a test drives: its clock, its peer, and what it is answered."""

from __future__ import annotations

from dataclasses import replace

from hyperbloom.replication.schedule.plan import FILTER_BYTES
from hyperbloom.replication.schedule.sync_commands import (
    BeginPlan,
    Situation,
    Way,
)
from hyperbloom.replication.schedule.sync_schedule import (
    SyncSchedule,
)
from hyperbloom.replication.settings import WHOLE
from hyperbloom.replication.status import SyncState

INTERVAL = 60.0

#: A peer that can be compared with, and to which nothing is under way.
QUIET = Situation(
    at=1_900_000_000.0,
    can_compare=True,
    can_reconcile=False,
    may_salt=True,
    is_reconciled=False,
    keeps_anything=True,
    was_asked=False,
    is_receiving=False,
    is_sending=False,
    awaits_reply=False,
    another_brings=False,
    values_new=0,
    moved_at=0.0,
    values_sent=0,
    filters_bytes=1_000.0,
    peers=1,
)
#: A peer of npm 2.x: no comparison.
NPM = replace(QUIET, can_compare=False)

PLAN = BeginPlan(way=Way.FILTERS, filter_bytes=FILTER_BYTES)


def in_sync(yes=True):
    return SyncState(in_sync=yes, at=QUIET.at, source="digest")


class Driven:
    """A schedule with a clock that is a number; `wake` goes to its next deadline."""

    def __init__(self, situation=QUIET, wait=0.0):
        self.now = 1_000.0
        self.situation = situation
        self.schedule = SyncSchedule([WHOLE], interval=self.interval, now=self.now)
        self.schedule.begin(wait, now=self.now)

    def interval(self, least):
        return max(INTERVAL, least)

    def wake(self):
        self.now = self.schedule.next_deadline
        return self.schedule.wake(now=self.now, situation=self.situation)

    def compared(self, number, state, seconds=0.0):
        return self.schedule.compared(
            number, state, seconds, now=self.now, situation=self.situation, counts=(100, 101)
        )

    def planned(self, seconds=0.0):
        self.schedule.plan_asked(seconds, now=self.now, situation=self.situation)

    def asked(self, peer_bytes=None):
        return self.schedule.peer_asked(peer_bytes, now=self.now, situation=self.situation)

    @property
    def wait(self):
        return self.schedule.next_deadline - self.now
