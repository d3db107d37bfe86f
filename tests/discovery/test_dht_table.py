"""The routing table: who is listed, who is told, who goes."""

from __future__ import annotations

import random

from hyperbloom.addresses import Address
from hyperbloom.discovery.dht.common.contact import Contact, distance
from hyperbloom.discovery.dht.common.node_id import make_node_id
from hyperbloom.discovery.dht.limits import BUCKET_NODES, MAX_SPARES
from hyperbloom.discovery.dht.routing_table import (
    BAD_FAILURES,
    FRESH_SECONDS,
    LAST_FAILURES,
    PING_SECONDS,
    REFRESH_SECONDS,
    RoutingTable,
)

OWN = bytes(20)


def host(number: int) -> str:
    return f"20.{number >> 8 & 255}.{number & 255}.1"


def far(number: int) -> Contact:
    """A node of the farthest bucket; its id fits its address in no case."""
    return Contact(b"\x80" + number.to_bytes(19, "big"), Address(host(number + 1), 1))


def full_bucket(table: RoutingTable) -> list[Contact]:
    contacts = [far(number) for number in range(BUCKET_NODES)]
    for contact in contacts:
        table.answered(contact, now=0.0)
    return contacts


def fail(table: RoutingTable, contact: Contact, times: int) -> None:
    for _ in range(times):
        table.silent(contact)


def test_closest_is_what_sorting_says() -> None:
    chance = random.Random(1)
    own = chance.randbytes(20)
    table = RoutingTable(own)
    for number in range(3_000):
        near = chance.randrange(21)
        contact = Contact(own[:near] + chance.randbytes(20 - near), Address(host(number), 1))
        table.answered(contact, now=0.0)
    listed = [node.contact for node in table.nodes()]
    assert len(listed) == len(table) > 100
    targets = [own, *(own[:near] + chance.randbytes(20 - near) for near in range(20))]
    for target in targets:
        for count in (1, 8, 20, 1_000):
            ordered = sorted(listed, key=lambda each: distance(each.node_id, target))
            assert table.closest(target, count) == ordered[:count]


def test_a_bucket_is_bounded_and_the_old_stay() -> None:
    table = RoutingTable(OWN)
    old = full_bucket(table)
    assert not table.wants(far(99))
    table.answered(far(99), now=1.0)
    assert len(table) == BUCKET_NODES
    assert table.closest(far(0).node_id, 100) == old


def test_spares_are_bounded_and_the_newest_gets_the_place() -> None:
    table = RoutingTable(OWN)
    old = full_bucket(table)
    for number in range(50, 50 + MAX_SPARES + 5):
        table.answered(far(number), now=1.0)
    newest = [far(50 + number) for number in range(MAX_SPARES + 4, 4, -1)]
    for gone, spare in zip(old, newest, strict=False):
        fail(table, gone, BAD_FAILURES)
        assert gone not in table
        assert spare in table
        assert len(table) == BUCKET_NODES
    assert table.good(now=1.0) == BUCKET_NODES - MAX_SPARES, "a spare is questionable at first"
    table.answered(newest[0], now=1.0)
    assert table.good(now=1.0) == BUCKET_NODES - MAX_SPARES + 1
    fail(table, old[MAX_SPARES], BAD_FAILURES)
    assert old[MAX_SPARES] in table, "there is no spare left for its place"


def test_a_bad_node_makes_room() -> None:
    table = RoutingTable(OWN)
    old = full_bucket(table)
    fail(table, old[3], BAD_FAILURES)
    assert old[3] in table
    assert old[3] not in table.closest(OWN, 100)
    assert table.wants(far(99))
    table.answered(far(99), now=1.0)
    assert far(99) in table
    assert old[3] not in table


def test_without_another_a_bad_node_stays_a_while() -> None:
    table = RoutingTable(OWN)
    contact = far(1)
    table.answered(contact, now=0.0)
    fail(table, contact, LAST_FAILURES - 1)
    assert contact in table
    table.answered(contact, now=9.0)
    assert table.closest(OWN, 1) == [contact]
    fail(table, contact, LAST_FAILURES)
    assert len(table) == 0


def test_an_id_that_fits_its_address_makes_room_too() -> None:
    table = RoutingTable(OWN)
    full_bucket(table)
    chance = random.Random(2)
    secure = Contact(b"", Address("9.9.9.9", 1))
    while not secure.node_id[:1] >= b"\x80":
        secure = secure._replace(node_id=make_node_id("9.9.9.9", chance.randbytes))
    table.answered(secure, now=1.0)
    assert secure in table
    assert len(table) == BUCKET_NODES


def test_good_questionable_bad() -> None:
    table = RoutingTable(OWN)
    contact = far(1)
    table.answered(contact, now=0.0)
    assert table.good(now=FRESH_SECONDS - 1) == 1
    assert table.good(now=FRESH_SECONDS) == 0
    table.heard(contact, now=FRESH_SECONDS)
    assert table.good(now=FRESH_SECONDS) == 1
    table.silent(contact)
    assert table.good(now=FRESH_SECONDS) == 0
    table.answered(contact, now=FRESH_SECONDS)
    assert table.good(now=FRESH_SECONDS) == 1
    # Another node under its id, which asks us from elsewhere, keeps it good no longer.
    table.heard(contact._replace(address=Address("9.9.9.9", 1)), now=2 * FRESH_SECONDS)
    assert table.good(now=2 * FRESH_SECONDS) == 0


def test_who_only_asks_is_not_listed() -> None:
    table = RoutingTable(OWN)
    table.heard(far(1), now=0.0)
    assert len(table) == 0


def test_of_one_host_one_node_is_listed() -> None:
    table = RoutingTable(OWN)
    first, second = far(1), far(2)._replace(address=far(1).address._replace(port=9))
    table.answered(first, now=0.0)
    assert not table.wants(second)
    table.answered(second, now=0.0)
    assert [node.contact for node in table.nodes()] == [first]
    for port in (1, 2):
        local = Contact(bytes([0x80, port]) * 10, Address("127.0.0.1", port))
        table.answered(local, now=0.0)
        assert local in table


def test_nobody_takes_the_id_of_a_node_that_answers() -> None:
    table = RoutingTable(OWN)
    first = far(1)
    moved = first._replace(address=Address("9.9.9.9", 1))
    table.answered(first, now=0.0)
    table.answered(moved, now=0.0)
    table.heard(moved, now=0.0)
    table.silent(moved)
    assert first in table
    assert table.good(now=1.0) == 1
    fail(table, first, BAD_FAILURES)
    table.answered(moved, now=2.0)
    assert [node.contact for node in table.nodes()] == [moved]
    assert moved in table
    assert first not in table


def test_the_own_id_is_never_listed() -> None:
    table = RoutingTable(OWN)
    table.answered(Contact(OWN, Address("9.9.9.9", 1)), now=0.0)
    assert len(table) == 0


def test_pings_are_due_and_named_once() -> None:
    table = RoutingTable(OWN)
    contacts = [far(number) for number in range(10)]
    for contact in contacts:
        table.answered(contact, now=0.0)
    assert table.to_ping(now=PING_SECONDS - 1, count=99) == []
    table.answered(contacts[0], now=PING_SECONDS - 1)
    assert table.to_ping(now=PING_SECONDS, count=4) == contacts[1:5]
    assert table.to_ping(now=PING_SECONDS, count=99) == contacts[5:]
    assert table.to_ping(now=PING_SECONDS, count=99) == []


def test_buckets_are_refreshed() -> None:
    chance = random.Random(3)
    table = RoutingTable(chance.randbytes(20))
    for number in range(200):
        table.answered(Contact(chance.randbytes(20), Address(host(number), 1)), now=0.0)
    due = table.to_refresh(now=REFRESH_SECONDS)
    assert len(due) >= 5
    for index in due:
        target = table.id_in(index, chance.randbytes(20))
        assert distance(table.own_id, target).bit_length() == index
        table.looked_up(target, now=REFRESH_SECONDS)
    assert table.to_refresh(now=2 * REFRESH_SECONDS - 1) == []
    assert table.to_refresh(now=2 * REFRESH_SECONDS) == due


def test_restored_nodes_are_questionable() -> None:
    table = RoutingTable(OWN)
    table.restore(far(1), now=5_000.0)
    assert table.good(now=5_000.0) == 0
    assert table.to_ping(now=5_000.0, count=9) == [far(1)]
    assert table.closest(OWN, 9) == [far(1)]
    table.answered(far(1), now=5_001.0)
    assert table.good(now=5_001.0) == 1


def test_another_own_id_keeps_the_nodes() -> None:
    table = RoutingTable(OWN)
    contacts = full_bucket(table)
    fail(table, contacts[0], 1)
    moved = table.moved_to(b"\x80" + bytes(18) + b"\xff")
    assert {node.contact for node in moved.nodes()} == set(contacts)
    assert moved.good(now=1.0) == BUCKET_NODES - 1
    assert moved.closest(contacts[5].node_id, 1) == [contacts[5]]


def test_a_host_whose_node_was_forgotten_may_have_another() -> None:
    table = RoutingTable(OWN)
    first, second = far(1), far(2)._replace(address=far(1).address._replace(port=9))
    table.answered(first, now=0.0)
    fail(table, first, LAST_FAILURES)
    assert table.wants(second)
    table.answered(second, now=1.0)
    assert second in table


def test_the_node_that_failed_most_makes_room() -> None:
    """Among those whose ids do not fit; of equal ones, the one not heard of longest."""
    secure = Contact(b"", Address("9.9.9.9", 1))
    chance = random.Random(2)
    while not secure.node_id[:1] >= b"\x80":
        secure = secure._replace(node_id=make_node_id("9.9.9.9", chance.randbytes))
    for failed, gone in ((7, 7), (None, 0)):
        table = RoutingTable(OWN)
        old = full_bucket(table)
        for contact in old[1:]:
            table.heard(contact, now=5.0)
        if failed is not None:
            table.silent(old[failed])
        table.answered(secure, now=9.0)
        assert [contact for contact in old if contact not in table] == [old[gone]]


def test_any_id_fits_a_local_address_unless_those_count_too() -> None:
    local = Contact(b"\x99" * 20, Address("192.168.0.9", 1))
    for table, is_in in ((RoutingTable(OWN), True), (RoutingTable(OWN, exempt_local=False), False)):
        full_bucket(table)
        table.answered(local, now=1.0)
        assert (local in table) is is_in


def test_spares_that_were_overtaken_are_left_out() -> None:
    """One whose host or id got a place in the meantime gets none."""
    table = RoutingTable(OWN)
    old = full_bucket(table)
    waiting, same_id = far(70), far(71)
    elsewhere = same_id._replace(address=Address("9.9.9.8", 1))
    for spare in (waiting, same_id, elsewhere):
        table.answered(spare, now=1.0)
    table.answered(Contact(b"\x01" * 20, waiting.address._replace(port=2)), now=1.0)
    listed = len(table)
    fail(table, old[0], BAD_FAILURES)
    assert elsewhere in table
    assert len(table) == listed
    fail(table, old[1], LAST_FAILURES)
    assert same_id not in table
    assert waiting not in table
    assert len(table) == listed - 1


def test_spares_of_the_other_family_go_with_it() -> None:
    table = RoutingTable(OWN)
    old = full_bucket(table)
    kept, other = far(70), far(71)._replace(address=Address("2620:fe::fe", 1))
    for spare in (kept, other):
        table.answered(spare, now=1.0)
    table.keep_family(ipv6=False)
    fail(table, old[0], BAD_FAILURES)
    fail(table, old[1], BAD_FAILURES)
    assert kept in table
    assert other not in table


def test_an_id_in_a_bucket_may_be_any_of_it() -> None:
    table = RoutingTable(random.Random(4).randbytes(20))
    for index in (1, 2, 8, 159, 160):
        nearest, farthest = table.id_in(index, bytes(20)), table.id_in(index, b"\xff" * 20)
        assert distance(table.own_id, nearest) == 2 ** (index - 1)
        assert distance(table.own_id, farthest) == 2**index - 1
