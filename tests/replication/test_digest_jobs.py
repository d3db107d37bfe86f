"""Comparing by digest, one step at a time: what is said of an answer, and what it took."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import Deferred, ensureDeferred, succeed
from twisted.internet.task import Clock

from hyperbloom.digests import element_sum, set_digest
from hyperbloom.replication.reading.range_digests import RangeDigests
from hyperbloom.replication.settings import WHOLE, KeyRange
from hyperbloom.replication.status import NodeStatus, SyncState
from hyperbloom.replication.sync.digest_exchange import DigestExchange
from hyperbloom.store.records import Holding, SetFigures
from hyperbloom.wire import Digest, Range

#: Each is a slice of its own; the node keeps all from b"b" on.
VALUES = [b"a", b"b", b"c", b"d"]
KEPT: list[KeyRange] = [(b"b", None)]
WHOLE_STATE = Holding(here=SetFigures(4, b"4" * 32), settled=SetFigures(4, b"4" * 32))


def figures(*values: bytes) -> SetFigures:
    return SetFigures(len(values), set_digest(len(values), element_sum(list(values))))


def read(start: bytes, end: bytes | None) -> Any:
    inside = [value for value in VALUES if value >= start and (end is None or value < end)]
    return SimpleNamespace(values=inside[:1], next_start=inside[1] if inside[1:] else None)


class Peer:
    """What a comparison asks of its peer; a piece of work in a thread takes a second."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.clock.advance(100.0)
        self.state: Holding | None = WHOLE_STATE
        self.jobs: list[Any] = []
        self.strikes: list[str] = []
        slices = SimpleNamespace(here=read, forgotten=lambda start, end: read(b"z", None))
        values = SimpleNamespace(range_digests=RangeDigests(lambda: self.state), slices=slices)
        self.feed = SimpleNamespace(kept=KEPT, values=values)
        self.context = SimpleNamespace(clock=self.clock, now=lambda: 77.0)
        self.scheduler = SimpleNamespace(add=self.jobs.append)
        self.connection = SimpleNamespace(strike=self.strikes.append)

    def work(self, call: Any) -> Deferred[Any]:
        call()
        self.clock.advance(1.0)
        return succeed(None)


class Comparison:
    def __init__(self) -> None:
        self.peer = Peer()
        self.compared: list[tuple[int, SyncState | None, float]] = []
        self.exchange = DigestExchange(
            self.peer,  # type: ignore[arg-type]
            SimpleNamespace(
                digest_came=lambda number: number == 7,
                compared=lambda *what: self.compared.append(what),
            ),
        )

    def told(self, here: SetFigures, ranges: list[KeyRange] = KEPT, number: int = 7) -> int:
        """The peer tells what it holds; the steps that comparing took."""
        self.exchange.take_digest(
            Digest(
                number=number,
                count=here.count,
                digest=here.digest,
                settled_count=here.count,
                settled_digest=here.digest,
                ranges=tuple(Range(start=start, end=end) for start, end in ranges),
            )
        )
        steps = 0
        while self.peer.jobs:
            done: list[bool] = []
            ensureDeferred(self.peer.jobs[0].step()).addCallback(done.append)
            assert self.peer.jobs[0].ready_at <= self.peer.clock.seconds(), "our own work"
            steps += 1
            if done == [False]:
                self.peer.jobs.pop(0)
        return steps


@pytest.mark.parametrize(("theirs", "equal"), [((b"b", b"c", b"d"), True), ((b"b",), False)])
def test_a_part_is_added_up_slice_by_slice_and_then_known(theirs, equal) -> None:
    one = Comparison()
    shown = SyncState(in_sync=equal, at=77.0, source="digest")
    assert one.told(figures(*theirs)) == 3
    assert one.compared == [(7, shown, 3.0)]
    assert one.exchange.told is not None
    assert one.exchange.told[1].here == figures(b"b", b"c", b"d")
    assert one.told(figures(*theirs)) == 1
    assert one.compared[1:] == [(7, shown, 0.0)], "it took no time"


def test_what_nobody_awaits_is_dropped() -> None:
    one = Comparison()
    assert one.told(figures(), number=8) == 0
    assert one.compared == []


def test_ranges_that_are_not_kept_here_are_a_breach() -> None:
    one = Comparison()
    assert one.told(figures(), [(b"a", None)]) == 0
    assert one.compared == [(7, None, 0.0)]
    assert len(one.peer.strikes) == 1


def test_without_ranges_or_without_a_digest_nothing_is_shown() -> None:
    one = Comparison()
    assert one.told(figures(), []) == 0
    one.peer.state = None
    assert one.told(figures()) == 1
    assert one.compared == [(7, None, 0.0)] * 2
    assert one.exchange.told is None
    assert one.peer.strikes == []


def test_a_picture_for_json_has_bytes_as_hex_and_tuples_as_lists() -> None:
    fields = dict.fromkeys(NodeStatus.__dataclass_fields__)
    picture = NodeStatus(
        **fields | {"public_key": b"\x01\xff", "feeds": ((b"\x02", 1),), "store": {"a": b"\x03"}}
    ).as_json()
    assert picture["public_key"] == "01ff"
    assert picture["feeds"] == [["02", 1]]
    assert picture["store"] == {"a": "03"}
    assert picture["version"] is None


def test_peers_that_hold_the_same_are_remembered_by_one_object() -> None:
    both = [Comparison(), Comparison()]
    both[1].peer = both[0].peer
    for comparison in both:
        comparison.exchange = DigestExchange(
            both[0].peer,  # type: ignore[arg-type]
            SimpleNamespace(digest_came=lambda _: True, compared=lambda *_: None),
        )
        # The state is read anew each time; only what it says is the same.
        both[0].peer.state = Holding(here=SetFigures(4, b"4" * 32), settled=WHOLE_STATE.settled)
        both[0].peer.feed.kept = [WHOLE]
        comparison.told(SetFigures(4, b"4" * 32), [WHOLE])
    told = [comparison.exchange.told for comparison in both]
    assert told == [(WHOLE_STATE, WHOLE_STATE)] * 2
    assert len({id(holding) for pair in told if pair is not None for holding in pair}) == 1
    both[0].told(SetFigures(3, b"3" * 32), [WHOLE])
    assert both[0].exchange.told is not None
    assert both[0].exchange.told[0].here.count == 3
    both[0].peer.state = Holding(here=SetFigures(5, b"5" * 32), settled=WHOLE_STATE.settled)
    assert both[0].peer.feed.values.range_digests.find([WHOLE]) == both[0].peer.state
