"""What the node remembers of the last days: what is kept, for how long, and over a restart."""

from __future__ import annotations

import dataclasses
import json

import pytest
from fake_node import FakeNode
from twisted.internet.task import Clock

from hyperbloom.api.limits import HISTORY_FEEDS, HISTORY_MINUTES, HISTORY_TENS
from hyperbloom.api.monitoring.history import MINUTE, History
from hyperbloom.api.monitoring.reactor_lag import LOOK_SECONDS, LagMeter
from hyperbloom.api.problems import Problem
from hyperbloom.keys import Identity
from hyperbloom.replication.settings import FeedSettings

MEGABYTE = 1_048_576


class Looked:
    """A history of a fake node, by a clock that the test moves."""

    def __init__(self, state: bytes = b"", at: float = 1_000_000.0):
        self.node, self.clock, self.saved = FakeNode(), Clock(), []
        self.node.context = self
        self.begin = at
        self.figures = {}
        whole = self.node.traffic
        self.node.traffic = lambda: dataclasses.replace(whole(), **self.figures)
        self.lag = LagMeter(self.clock)
        self.history = History(
            self.node, self.lag, clock=self.clock, state=state, save=self.saved.append
        )

    def now(self) -> float:
        return self.begin + self.clock.seconds()

    def pass_minutes(self, number: int) -> None:
        for _ in range(number):
            self.clock.advance(MINUTE)

    def form(self, span="hours", feed=None):
        return self.history.form(span, self.node.own.key if feed is None else feed)


def test_each_minute_has_what_came_in_it():
    looked = Looked()
    looked.history.start()
    looked.node.own.insert([b"a", b"b"])
    looked.figures = {"bytes_in": 7_500, "secure": 3}
    looked.pass_minutes(1)
    looked.node.own.insert([b"c"])
    looked.pass_minutes(1)
    form = looked.form()
    assert form["step"] == 60
    assert form["at"] == [1_000_000.0, 1_000_060.0, 1_000_120.0]
    # Counts begin with the node: of the first moment nothing is known.
    assert form["feed"]["arrived"] == [None, 2, 1]
    assert form["feed"]["values"] == [0, 2, 3]
    assert form["received_bytes"] == [None, 500, 0]
    assert form["peers"] == [1, 3, 3]
    assert looked.history.arrived() == {looked.node.own.key: 3}


def test_ten_minutes_are_one_row_of_the_week():
    looked = Looked()
    looked.history.start()
    for minute in range(20):
        looked.node.own.insert([b"%d" % minute])
        looked.pass_minutes(1)
    form = looked.form("week")
    assert form["step"] == 600
    # The first moment is a row by itself, so that something is shown at once.
    assert form["at"] == [1_000_000.0, 1_000_600.0, 1_001_200.0]
    assert form["feed"]["arrived"] == [None, 10, 10]
    assert form["feed"]["values"] == [0, 10, 20]


def test_the_longest_delay_of_a_minute_is_kept():
    looked = Looked()
    looked.lag.start()
    looked.history.start()
    looked.clock.advance(LOOK_SECONDS + 3.0)
    looked.clock.pump([LOOK_SECONDS] * 240)
    worst = looked.form()["lag_seconds"]
    assert worst[:2] == [0, 3.0]
    assert worst[2] == 0


def test_no_more_than_six_hours_and_a_week_are_kept():
    looked = Looked()
    looked.history.start()
    looked.pass_minutes(10 * HISTORY_TENS + 20)
    assert len(looked.form()["at"]) == HISTORY_MINUTES
    assert len(looked.form("week")["at"]) == HISTORY_TENS
    assert len(looked.form("week")["feed"]["values"]) == HISTORY_TENS
    assert looked.form()["at"][-1] == looked.now()
    # What the limits say of its memory.
    columns = [
        column
        for rows in looked.history._rows.values()
        for column in (rows.at, *rows.columns.values())
    ]
    assert sum(len(column) * column.itemsize for column in columns) <= 77_000 + 34_000


def test_of_one_feed_more_than_is_kept_there_is_nothing():
    looked = Looked()
    for number in range(HISTORY_FEEDS):
        looked.node.add(FeedSettings(key=Identity(b"%032d" % number).public_key))
    looked.history.start()
    kept = list(looked.node.feeds)
    assert looked.form(feed=kept[HISTORY_FEEDS - 1])["feed"]["values"] == [0]
    assert looked.form(feed=kept[HISTORY_FEEDS])["feed"]["values"] == [None]
    assert len(looked.history.dump()) < MEGABYTE


def test_a_feed_that_comes_and_goes_takes_its_figures_with_it():
    looked = Looked()
    looked.history.start()
    key = looked.node.add(FeedSettings(key=Identity(b"o" * 32).public_key)).key
    looked.pass_minutes(1)
    assert looked.form(feed=key)["feed"]["values"] == [None, 0]
    del looked.node.feeds[key]
    looked.pass_minutes(1)
    assert looked.form(feed=key)["feed"]["values"] == [None] * 3


def test_a_restart_keeps_the_figures():
    before = Looked()
    before.history.start()
    before.node.own.insert([b"a"])
    before.pass_minutes(59)
    assert before.saved == []
    before.pass_minutes(1)
    assert len(before.saved) == 1  # once an hour
    before.history.stop()
    assert len(before.saved) == 2
    assert not before.clock.getDelayedCalls()
    after = Looked(before.saved[-1], at=before.now() + 300)
    assert after.form() == before.form()
    assert after.form("week") == before.form("week")
    after.history.start()
    assert after.form()["at"] == [*before.form()["at"], before.now() + 300]
    assert after.form()["feed"]["arrived"][-1] is None


@pytest.mark.parametrize("cut", range(0, 60, 7))
def test_what_cannot_be_read_is_left(cut):
    before = Looked()
    before.history.start()
    state = before.history.dump()
    for broken in (state[:cut], state[:cut] + b"x" + state[cut + 1 :], b"{}" * cut):
        after = Looked(broken)
        after.history.start()
        assert len(after.form()["at"]) == 1


def test_what_was_kept_in_the_future_goes():
    before = Looked(at=9_000_000.0)
    before.history.start()
    before.pass_minutes(3)
    after = Looked(before.history.dump(), at=9_000_060.0)
    after.history.start()
    assert after.form()["at"] == [9_000_000.0, 9_000_060.0]


def test_clients_ask_for_it(served):
    with served.client() as client:
        found = client.history()
        assert found["feed"] is None
        assert found["peers"] == [1]
        assert client.history("week", feed="own")["feed"]["values"] == [0]
        with pytest.raises(Problem, match="there is no feed 'nobody'"):
            client.history(feed="nobody")
    status, _, answer = served.ask("GET", "/v1/history?span=year")
    assert (status, answer["detail"]) == (400, "span must be hours or week")
    assert json.dumps(found)
