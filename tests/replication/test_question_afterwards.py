"""Digests are compared again one second after the last value of a round, not later."""

from __future__ import annotations

import pytest
from players import numbered
from sketched_pairs import SELDOM, asked_by_hand, different, silently, status, way

from hyperbloom.replication.limits import DOUBT_SECONDS
from hyperbloom.replication.settings import SyncSettings
from hyperbloom.replication.sync.peer_intake import PeerIntake
from hyperbloom.replication.sync.peer_output import PeerOutput
from hyperbloom.wire import DigestRequest

STEP = 0.01
#: A side does not see when the other one sends and takes values.
LATENCY = 0.1
PLANS = SyncSettings(interval=1_000.0, jitter=0.0, answer_wait=500.0, reconcile=False)


@pytest.fixture
def heard(monkeypatch, network):
    """When the nodes asked for a digest, and when values last went or came, on the fake clock."""
    seen = {"asked": [], "moved": []}

    def note(kind, name, which):
        call = getattr(kind, name)

        def noted(self, what, *more):
            if which == "moved" or isinstance(what, DigestRequest):
                seen[which].append(network.clock.seconds())
            return call(self, what, *more)

        monkeypatch.setattr(kind, name, noted)

    note(PeerOutput, "send_extension", "asked")
    note(PeerOutput, "send_values", "moved")
    note(PeerIntake, "take", "moved")
    return seen


@pytest.mark.parametrize(("sync", "by"), [(SELDOM, "sketch"), (PLANS, "filters")])
def test_the_question_comes_a_second_after_the_last_value(network, heard, sync, by):
    both = {"sync": sync}
    owner, member, feed = different(network, 3_000, 20, 20, owner=both, member=both)
    network.connect(member, owner, feed)
    network.run(4, step=STEP)
    assert way(member) == by
    assert status(member).in_sync
    last = max(heard["moved"])
    late = [at - last - DOUBT_SECONDS for at in heard["asked"] if at > last]
    print(f"seconds by which questions came late: {late}")
    assert late
    assert all(-LATENCY <= one <= LATENCY for one in late)


def test_the_question_comes_a_second_after_the_end_of_the_peers_try(network, heard):
    """The owner has met a difference twice by then, while the peer's try was under way."""
    sync = SyncSettings(interval=1_000.0, jitter=0.0, answer_wait=2.3)
    _, asker = asked_by_hand(network, sync=sync)
    silently(asker.member, asker.feed, numbered(20, b"new "))
    asker.ask(first=0, count=10, seconds=2.0)
    assert len([at for at in heard["asked"] if at > 2.0]) == 2
    asker.want(b"")
    over = network.clock.seconds() - 0.5
    network.run(4, step=STEP)
    late = min(at for at in heard["asked"] if at > over) - over - DOUBT_SECONDS
    print(f"the question came {late:.2f} s late")
    assert abs(late) <= LATENCY
