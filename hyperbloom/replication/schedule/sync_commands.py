"""What goes into the schedule of a connection and comes out of it: the situation, commands, ways.

`sync_schedule` decides, `sync_driver` runs the commands. Whoever adds a way to find what differs
adds it to `Way` and `choose_way`, and to what both of them do with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

__all__ = [
    "BeginPlan",
    "BeginSketch",
    "ChangeWay",
    "Command",
    "CompareDigests",
    "Situation",
    "Way",
    "choose_way",
]


class Way(Enum):
    """How what differs is found."""

    #: Symbols of the peer's set, of which as many are sent as the sets differ by. Both sides get
    #: what they lack.
    SKETCH = "sketch"
    #: Bloom filters list all that is here; the peer sends what is not in them.
    FILTERS = "filters"
    #: One empty filter a range; the peer sends all it has.
    EMPTY_FILTER = "empty filter"


def choose_way(
    *, peer_bytes: float | None, filters_bytes: float, sketch_bytes: float | None = None
) -> Way:
    """The way by which the fewest bytes go over the wire.

    `peer_bytes`: the values that the peer holds, None: not known. `filters_bytes`: the filters of
    all that is here, as far as they are not sent yet. `sketch_bytes`: the symbols that are expected
    to do, None: there are none.
    """
    ways = [(filters_bytes, Way.FILTERS)]
    if peer_bytes is not None:
        ways.append((peer_bytes, Way.EMPTY_FILTER))
    if sketch_bytes is not None:
        ways.append((sketch_bytes, Way.SKETCH))
    return min(ways, key=lambda way: way[0])[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareDigests:
    """Ask for the peer's digest, by this number; `digest_came` and `compared` tell of it."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginPlan:
    """Ask for all that is kept here, with filters of at most so many bytes; then `plan_asked`."""

    way: Way
    filter_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeWay:
    """Go on in this way with the plan that is under way."""

    way: Way


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginSketch:
    """Begin a try by symbols: `first` of them at once and `most` in all; then `sketch_over`.

    is_salted: the ids are mixed with a salt, of which whoever wrote the values knew nothing.
    """

    first: int
    most: int
    is_salted: bool


Command: TypeAlias = CompareDigests | BeginPlan | ChangeWay | BeginSketch


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What stands at a moment, `at` seconds since 1970.

    can_compare: both sides speak `set-digest`, and this one knows its digests. can_reconcile: both
    speak `reconcile`. may_salt: a try with a salt may begin; the last one was long enough ago.
    is_reconciled: the peer has a try under way. keeps_anything: there is something to ask for.
    was_asked: a Sync was sent on this connection before. is_receiving: values of the peer are not
    on disk yet, not asked for yet, or in a frame of which a part is here. is_sending: the peer
    waits for answers, or for new values.
    awaits_reply: a peer that cannot split its replies has not answered yet. values_new,
    values_sent: values of the peer that were new here; those that went to it. moved_at: when a
    value came from it or went to it last, in seconds of the schedule's clock. another_brings:
    another peer is being asked for what is lacking here.
    filters_bytes: see `choose_way`. peers: connected about this feed.
    """

    at: float
    can_compare: bool
    can_reconcile: bool
    may_salt: bool
    is_reconciled: bool
    keeps_anything: bool
    was_asked: bool
    is_receiving: bool
    is_sending: bool
    awaits_reply: bool
    another_brings: bool
    values_new: int
    moved_at: float
    values_sent: int
    filters_bytes: float
    peers: int
