"""When the table is looked after, and whose word on the own address counts."""

from __future__ import annotations

import random

import pytest

from hyperbloom.addresses import Address
from hyperbloom.discovery.dht.common.contact import Contact, distance
from hyperbloom.discovery.dht.common.krpc import decode_packet, encode_packet
from hyperbloom.discovery.dht.common.messages import Packet, Response
from hyperbloom.discovery.dht.events import AddressSettled, Event
from hyperbloom.discovery.dht.external_address import LEAST_VOTES, ExternalAddress
from hyperbloom.discovery.dht.limits import MAX_VOTERS
from hyperbloom.discovery.dht.machine import Dht
from hyperbloom.discovery.dht.routing_table import REFRESH_SECONDS, RoutingTable
from hyperbloom.discovery.dht.settings import DhtSettings
from hyperbloom.discovery.dht.upkeep import UPKEEP_SECONDS, Upkeep

OWN = b"o" * 20
ROUTER = Address("8.8.8.8", 6881)
NODE = Contact(b"n" * 20, Address("9.9.9.9", 1))


def lookups(upkeep: Upkeep, table: RoutingTable, *, now: float) -> list:
    return list(upkeep.lookups(table, random.Random(1).randbytes, now=now))


def moments(upkeep: Upkeep, table: RoutingTable, seconds: float) -> list[float]:
    """When something is looked up, of all the times at which the table is looked after."""
    times = [index * UPKEEP_SECONDS for index in range(int(seconds // UPKEEP_SECONDS) + 1)]
    return [now for now in times if lookups(upkeep, table, now=now)]


def test_the_table_is_looked_after_at_regular_times() -> None:
    upkeep = Upkeep(now=100.0)
    assert upkeep.due_at == 100.0 + UPKEEP_SECONDS
    assert not upkeep.is_due(now=99.0 + UPKEEP_SECONDS)
    assert upkeep.is_due(now=100.0 + UPKEEP_SECONDS)
    assert not upkeep.is_due(now=100.0 + UPKEEP_SECONDS)
    assert upkeep.due_at == 100.0 + 2 * UPKEEP_SECONDS


class TestWhoKnowsNobody:
    def test_asks_again_at_longer_and_longer_intervals(self) -> None:
        upkeep, table = Upkeep(now=0.0), RoutingTable(OWN)
        upkeep.bootstrapped([ROUTER], now=0.0)
        assert moments(upkeep, table, 1_350) == [0, 30, 90, 210, 450, 750, 1_050, 1_350]
        assert lookups(upkeep, table, now=1_650.0) == [(OWN, (ROUTER,))]

    def test_asks_soon_again_when_somebody_was_there_meanwhile(self) -> None:
        upkeep, table = Upkeep(now=0.0), RoutingTable(OWN)
        upkeep.bootstrapped([ROUTER], now=0.0)
        moments(upkeep, table, 450)
        table.answered(NODE, now=600.0)
        lookups(upkeep, table, now=600.0)
        table.keep_family(ipv6=True)
        times = [now for now in range(615, 900, 15) if lookups(upkeep, table, now=float(now))]
        assert times == [750, 780, 840]

    def test_asks_the_nodes_of_a_saved_table_too(self) -> None:
        upkeep, table = Upkeep(now=0.0), RoutingTable(OWN)
        table.restore(NODE, now=0.0)
        assert lookups(upkeep, table, now=0.0) == [(OWN, ())]

    def test_asks_nobody_where_nobody_is_to_be_asked(self) -> None:
        assert moments(Upkeep(now=0.0), RoutingTable(OWN), 900) == []


class TestRefreshing:
    def test_the_neighbours_are_looked_up_again(self) -> None:
        upkeep, table = Upkeep(now=0.0), RoutingTable(OWN)
        upkeep.bootstrapped([ROUTER], now=0.0)
        for now in (REFRESH_SECONDS - 1, REFRESH_SECONDS, 2 * REFRESH_SECONDS - 1):
            table.answered(NODE, now=now)
            table.looked_up(NODE.node_id, now=now)
            due = lookups(upkeep, table, now=now)
            assert due == ([(OWN, ())] if now == REFRESH_SECONDS else [])
        upkeep.moved()
        assert lookups(upkeep, table, now=2 * REFRESH_SECONDS - 1) == [(OWN, ())]

    def test_two_buckets_at_once(self) -> None:
        upkeep, table = Upkeep(now=0.0), RoutingTable(bytes(20))
        upkeep.bootstrapped([ROUTER], now=0.0)
        for bit in range(8):
            contact = Contact(bytes([1 << bit]) + bytes(19), Address(f"9.9.9.{bit}", 1))
            table.answered(contact, now=0.0)
        targets = [target for target, _ in lookups(upkeep, table, now=0.0)]
        assert [distance(bytes(20), each).bit_length() for each in targets] == [153, 154]


def asked_where_we_are(dht: Dht, voters: list[Contact], seen: Address) -> list[Event]:
    """What happens when each of these was pinged and answered that it sees us there."""
    for voter in voters:
        dht.ping(voter, now=0.0)
        ((data, to),) = dht.take_datagrams()
        answer = Packet(
            transaction_id=decode_packet(data).transaction_id,
            message=Response(),
            node_id=voter.node_id,
            observed=seen,
        )
        dht.receive(encode_packet(answer), to, now=0.0)
    return dht.take_events()


@pytest.mark.parametrize(
    ("host", "seen", "is_told"),
    [("20.0.0.{}", "85.1.2.3", True), ("192.168.0.{}", "192.168.0.99", False)],
)
def test_a_new_id_is_told_where_the_internet_sees_us(host: str, seen: str, is_told: bool) -> None:
    dht = Dht(DhtSettings(), random_bytes=random.Random(1).randbytes, now=0.0, node_id=OWN)
    voters = [
        Contact(bytes([number]) * 20, Address(host.format(number), 1))
        for number in range(1, LEAST_VOTES + 3)
    ]
    events = asked_where_we_are(dht, voters, Address(seen, 7))
    assert dht.external_address.settled == Address(seen, 7)
    told = AddressSettled(address=Address(seen, 7), node_id=dht.node_id)
    assert events == ([told] if is_told else [])
    assert (dht.node_id != OWN) == is_told


class TestVotes:
    HERE, THERE = Address("85.1.2.3", 7), Address("85.1.2.4", 7)

    def test_a_vote_says_whether_it_changes_anything(self) -> None:
        votes, voter = ExternalAddress(), Address("20.0.0.1", 1)
        assert votes.told(voter, self.HERE)
        assert not votes.told(voter, self.HERE)
        assert votes.told(voter, self.THERE)

    def test_the_oldest_vote_is_forgotten_for_a_new_one(self) -> None:
        votes = ExternalAddress()
        voters = [Address(f"20.0.{number}.1", 1) for number in range(MAX_VOTERS + 1)]
        for voter in voters[:-1]:
            votes.told(voter, self.THERE if voter == voters[0] else self.HERE)
        # Who spoke again is not the oldest any more.
        votes.told(voters[0], self.THERE)
        assert not votes.told(voters[-1], self.HERE), "one said what the other one had said"
        assert votes.told(voters[1], self.THERE), "it was the oldest, and is new again"
        assert len(votes) == MAX_VOTERS
        assert votes.settled == self.HERE
