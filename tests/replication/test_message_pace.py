"""What the small messages of a branch may cost, however many keys and connections it has."""

from __future__ import annotations

from functools import partial
from itertools import count

import pytest
from players import Intruder
from sim import pair
from twisted.internet.task import Clock

from hyperbloom.replication.limits import MAX_LEFT_BRANCHES, MESSAGE_BURST, MESSAGE_PART
from hyperbloom.replication.message_pace import MessagePace
from hyperbloom.replication.sync.peer import Peering
from hyperbloom.wire import DigestRequest, Range, Request
from hyperbloom.wire.extensions.broadcast_tree import LinkKind, ValuesPull, ValuesTold

MESSAGE = 0.01
SECONDS = 10.0


class Sender:
    """Connections that send without end: each message costs MESSAGE; how many were taken."""

    def __init__(self, clock, pace, *path):
        self.peer, self.taken = pace.join(tuple(path)), 0
        clock.callLater(0, self.go_on)

    def go_on(self):
        while not self.peer.rests:
            self.taken += 1
            self.peer.spend(MESSAGE)
        self.peer.wait(self.go_on)


def run(clock, seconds=SECONDS):
    clock.pump([0.01] * round(seconds / 0.01))


def most(part=MESSAGE_PART, senders=1):
    return (MESSAGE_BURST + part * SECONDS) / MESSAGE + senders


def test_a_branch_has_its_part_of_the_time_with_however_many_keys():
    clock = Clock()
    pace = MessagePace(clock)
    senders = [Sender(clock, pace, b"m", b"key %d" % n) for n in range(40)]
    other = Sender(clock, pace, b"other")
    run(clock)
    taken = [sender.taken for sender in senders]
    assert 0.8 * most() <= sum(taken) <= most(senders=2)
    assert max(taken) - min(taken) <= 1 + MESSAGE_BURST / MESSAGE, "they go on in turn"
    assert 0.8 * most() <= other.taken <= most(), "another branch has its own"


def test_below_one_coordinator_a_member_with_many_keys_leaves_half_of_it_to_the_others():
    clock = Clock()
    pace = MessagePace(clock)
    members = [Sender(clock, pace, b"c", b"m", b"key %d" % n) for n in range(40)]
    honest = Sender(clock, pace, b"c", b"honest")
    run(clock)
    assert sum(sender.taken for sender in members) <= most(MESSAGE_PART / 2, senders=2)
    assert honest.taken >= 0.8 * MESSAGE_PART / 2 * SECONDS / MESSAGE


def test_who_leaves_and_comes_again_owes_what_it_owed():
    clock = Clock()
    pace = MessagePace(clock)
    peer = pace.join((b"m", b"1"))
    peer.spend(1.0)
    pace.leave(peer)
    assert pace.join((b"m", b"2")).rests
    assert not pace.join((b"other",)).rests
    clock.advance(1.0 / MESSAGE_PART)
    assert not pace.join((b"m", b"3")).rests


def test_of_paths_without_a_connection_so_many_are_remembered():
    pace = MessagePace(Clock())
    for number in range(MAX_LEFT_BRANCHES + 1):
        peer = pace.join((b"%d" % number,))
        peer.spend(1.0)
        pace.leave(peer)
    assert len(pace._debts) == MAX_LEFT_BRANCHES


def test_nobody_is_woken_who_waits_no_more():
    clock = Clock()
    pace = MessagePace(clock)
    peer, woken = pace.join((b"m",)), []
    go_on = partial(woken.append, "woken")
    peer.spend(1.0)
    peer.wait(go_on)
    peer.wait(go_on)
    peer.forget(go_on)
    assert not clock.getDelayedCalls()
    peer.wait(go_on)
    clock.advance(1.0 / MESSAGE_PART)
    assert woken == ["woken"]


SMALL = {
    "told": ValuesTold(ids=bytes(16)),
    "pulls": ValuesPull(link=LinkKind.TELL, ids=b""),
    "questions": DigestRequest(number=1, ranges=(Range(start=b"", end=None),)),
}


@pytest.mark.parametrize("what", SMALL)
def test_of_a_flood_of_small_messages_so_many_are_taken_as_there_is_time_for(
    network, monkeypatch, what
):
    owner, member, feed = pair(network)
    intruder = Intruder(network, member, owner, feed)
    network.run(1)
    owner.context.work_seconds = partial(next, count(0.0, MESSAGE))
    taken, take = [], Peering.take

    def counted(peering, event):
        if peering.context is owner.context:
            taken.append(event)
        take(peering, event)

    monkeypatch.setattr(Peering, "take", counted)
    flood = b"".join(intruder.session.send_extension(SMALL[what]) for _ in range(1_000))
    begun = network.clock.seconds()
    intruder.send(network, flood, seconds=SECONDS)
    seconds = network.clock.seconds() - begun
    assert 10 < len(taken) <= (MESSAGE_BURST + MESSAGE_PART * seconds) / MESSAGE + 1
    assert intruder.connection.transport.connected


def test_a_flood_of_other_messages_is_not_held_up_by_it(network, monkeypatch):
    owner, member, feed = pair(network)
    intruder = Intruder(network, member, owner, feed)
    network.run(1)
    peering = next(iter(owner.feed(feed).peers))
    intruder.send(network, intruder.session.send_request(Request(start=b"", end=None)), seconds=1)
    assert not peering.pace.rests
