"""A node that answers wrongly, in each way that real nodes do or could: nothing of it counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fake_nodes import TOKEN, FakeNode, raw_answer
from simnet import SimNetwork

from hyperbloom.addresses import Address
from hyperbloom.discovery.dht.collectors import ImmutableValue, MutableItems, Nodes, Peers
from hyperbloom.discovery.dht.common import bencode
from hyperbloom.discovery.dht.common.contact import Contact
from hyperbloom.discovery.dht.common.items import MAX_SEQ, MutableItem, immutable_target, sign_item
from hyperbloom.discovery.dht.common.messages import ErrorMessage, Packet, Response
from hyperbloom.keys import Identity

OWNER, OTHER = Identity(b"o" * 32), Identity(b"x" * 32)
SALT = b"salt"
GOOD = sign_item(OWNER, salt=SALT, seq=7, value=b"4:good")
FORGED = {
    "another key": sign_item(OTHER, salt=SALT, seq=7, value=b"4:good"),
    "another salt": sign_item(OWNER, salt=b"pepper", seq=7, value=b"4:good"),
    "no salt": sign_item(OWNER, salt=b"", seq=7, value=b"4:good"),
    "another value": (GOOD, {"v": b"evil"}),
    "another seq": (GOOD, {"seq": 8}),
    "a seq below 0": (GOOD, {"seq": -1}),
    "a seq of 64 bits": (GOOD, {"seq": 2**63}),
    "another's signature": (GOOD, {"sig": OTHER.sign(b"x")}),
    "a signature of zeros": (GOOD, {"sig": bytes(64)}),
    "a short signature": (GOOD, {"sig": GOOD.signature[:63]}),
    "a short key": (GOOD, {"k": GOOD.public_key[:31]}),
    "a key of another": (GOOD, {"k": OTHER.public_key}),
    "a v too long": sign_item(OWNER, salt=SALT, seq=7, value=b"1001:" + b"x" * 1_001),
}
MISSING = ["k", "seq", "sig", "v"]


def fields_of(item: MutableItem) -> dict[str, Any]:
    return {
        "k": item.public_key,
        "seq": item.seq,
        "sig": item.signature,
        "v": bencode.decode(item.value),
        "token": TOKEN,
        "nodes": b"",
    }


def look_up(collector: Any, answer: Any) -> tuple[Any, FakeNode]:
    """One lookup that knows one node; what came of it, and the node."""
    network = SimNetwork()
    fake = FakeNode(network, answer)
    us = network.machine(known=(fake.contact,))
    return us.find(collector), fake


def test_a_right_answer_counts() -> None:
    """Without this, the tests below would prove nothing."""
    collector = MutableItems(OWNER.public_key, SALT)
    outcome, _ = look_up(collector, lambda p: raw_answer(p, b"n" * 20, **fields_of(GOOD)))
    assert collector.found == (GOOD,)
    assert outcome.holding == 1


@pytest.mark.parametrize("name", FORGED)
def test_items_that_do_not_count(name: str) -> None:
    case = FORGED[name]
    item, changes = case if isinstance(case, tuple) else (case, {})
    fields = fields_of(item) | changes
    collector = MutableItems(OWNER.public_key, SALT)
    outcome, fake = look_up(collector, lambda p: raw_answer(p, b"n" * 20, **fields))
    assert fake.queries
    assert collector.found == ()
    assert outcome.holding == 0


def test_an_item_that_many_tell_is_found_once_and_verified_once() -> None:
    collector = MutableItems(OWNER.public_key, SALT)
    teller = Address("192.0.2.1", 6881)
    told = Response(
        value=GOOD.value, seq=GOOD.seq, public_key=GOOD.public_key, signature=GOOD.signature
    )
    other = sign_item(OWNER, salt=SALT, seq=GOOD.seq + 1, value=GOOD.value)
    later = replace(told, seq=other.seq, signature=other.signature)
    assert collector.collect(told, teller)
    assert collector.collect(told, teller)
    # It is known to be authentic; checking it again for each of many nodes would cost.
    assert collector.collect(replace(told, signature=bytes(64)), teller)
    assert collector.found == (GOOD,)
    assert collector.collect(later, teller)
    assert collector.found == (GOOD, other)
    assert not collector.collect(replace(later, value=b"5:other"), teller)


@pytest.mark.parametrize("name", MISSING)
def test_items_with_something_missing(name: str) -> None:
    fields = {key: value for key, value in fields_of(GOOD).items() if key != name}
    collector = MutableItems(OWNER.public_key, SALT)
    outcome, _ = look_up(collector, lambda p: raw_answer(p, b"n" * 20, **fields))
    assert collector.found == ()
    assert outcome.holding == 0


LONG = b"x" * 1_001


@pytest.mark.parametrize(
    ("hashed", "told", "holding"),
    [
        (b"5:right", {"v": b"right"}, 1),
        (b"5:right", {"v": b"wrong"}, 0),
        (b"5:right", {}, 0),
        (b"1001:" + LONG, {"v": LONG}, 0),
    ],
    ids=["right", "under another hash", "nothing", "too long"],
)
def test_a_value_counts_under_its_hash(hashed: bytes, told: Any, holding: int) -> None:
    collector = ImmutableValue(immutable_target(hashed))
    outcome, _ = look_up(collector, lambda p: raw_answer(p, b"n" * 20, token=TOKEN, **told))
    assert collector.found == (hashed if holding else None)
    assert outcome.holding == holding


def by_id(packet: Packet, **fields: Any) -> bytes:
    """An answer with another transaction id."""
    fake = Packet(transaction_id=packet.transaction_id[::-1] + b"x", message=packet.message)
    return raw_answer(fake, b"n" * 20, **fields)


UNHEARD = {
    "another transaction id": lambda p: by_id(p, **fields_of(GOOD)),
    "an empty transaction id": lambda p: raw_answer(
        Packet(transaction_id=b"", message=p.message), b"n" * 20, **fields_of(GOOD)
    ),
    "an id of 19 bytes": lambda p: raw_answer(p, b"n" * 19, **fields_of(GOOD)),
    "nodes of 25 bytes": lambda p: raw_answer(
        p, b"n" * 20, **(fields_of(GOOD) | {"nodes": b"n" * 25})
    ),
    "keys not sorted": lambda p: raw_answer(p, b"n" * 20, **fields_of(GOOD)).replace(
        b"1:t4:" + p.transaction_id + b"1:y1:r", b"1:y1:r1:t4:" + p.transaction_id
    ),
    "something behind the end": lambda p: raw_answer(p, b"n" * 20, **fields_of(GOOD)) + b"e",
    "more than a packet holds": lambda p: raw_answer(
        p, b"n" * 20, **fields_of(GOOD), filler=b"x" * 2_048
    ),
    "an error": lambda p: ErrorMessage(code=202, text="no"),
    "nothing": lambda p: None,
    "not bencoded": lambda p: b"\xff" * 50,
}


@pytest.mark.parametrize("name", UNHEARD)
def test_packets_that_answer_nothing(name: str) -> None:
    collector = MutableItems(OWNER.public_key, SALT)
    outcome, fake = look_up(collector, UNHEARD[name])
    assert fake.queries
    assert collector.found == ()
    assert (outcome.answered, outcome.closest) == (0, ())


def test_an_answer_from_another_address_is_no_answer() -> None:
    network = SimNetwork()
    stranger = FakeNode(network)
    fake = FakeNode(network)

    def through_a_stranger(packet: Packet) -> None:
        answer = raw_answer(packet, fake.node_id, **fields_of(GOOD))
        stranger.send(answer, us.address)

    fake.answer = through_a_stranger
    us = network.machine(known=(fake.contact,))
    collector = MutableItems(OWNER.public_key, SALT)
    outcome = us.find(collector)
    assert collector.found == ()
    assert outcome.answered == 0
    assert us.dht.counts["unasked"] == 1


def test_an_answer_counts_once() -> None:
    network = SimNetwork()
    fake = FakeNode(network)

    def twice(packet: Packet) -> bytes:
        answer = raw_answer(packet, fake.node_id, **fields_of(GOOD))
        fake.send(answer, us.address)
        return answer

    fake.answer = twice
    us = network.machine(known=(fake.contact,))
    outcome = us.find(MutableItems(OWNER.public_key, SALT))
    network.run(1)
    assert outcome.answered == 1
    assert us.dht.counts["unasked"] == 1


def test_an_answer_that_comes_too_late() -> None:
    network = SimNetwork(latency=(1.1, 1.1))
    fake = FakeNode(network)
    us = network.machine(known=(fake.contact,))
    collector = MutableItems(OWNER.public_key, SALT)
    fake.answer = lambda p: raw_answer(p, fake.node_id, **fields_of(GOOD))
    assert us.find(collector).answered == 0
    assert collector.found == ()


def test_transaction_ids_are_4_bytes_and_not_to_be_guessed() -> None:
    network = SimNetwork()
    fake = FakeNode(network)
    us = network.machine(known=(fake.contact,))
    for _ in range(50):
        us.find(Nodes(network.random_bytes(20)))
    ids = [packet.transaction_id for packet in fake.queries]
    assert {len(each) for each in ids} == {4}
    assert len(set(ids)) == len(ids) == 50
    # Not counted upwards, nor any one byte of them.
    for place in range(4):
        assert len({each[place] for each in ids}) > 20


def test_a_node_under_another_id_than_it_was_told_is_not_put_to() -> None:
    network = SimNetwork()
    fake = FakeNode(network)
    named = FakeNode(network)
    fake.answer = lambda packet: Response(nodes=(named.contact,), token=TOKEN)
    us = network.machine(known=(Contact(b"q" * 20, fake.address),))
    outcome = us.put(MutableItems(OWNER.public_key, SALT), lambda token: Nodes(b"q" * 20).query)
    assert (outcome.looked.answered, outcome.looked.closest, outcome.asked) == (1, (), 0)
    assert len(fake.queries) == 1
    assert named.queries == [], "who lies about itself is not believed about others"
    us.find(Nodes(b"q" * 20))
    assert us.dht.table.closest(b"q" * 20, 8) == []


def test_contacts_that_a_stranger_may_not_name() -> None:
    """Nobody on the internet sends us to our own loopback or site, nor to no port at all."""
    network = SimNetwork()
    victims = [FakeNode(network, address=Address(host, 80)) for host in ("127.0.0.1", "10.0.0.1")]
    named = (
        *(victim.contact for victim in victims),
        Contact(b"z" * 20, Address("0.0.0.0", 1)),
        Contact(b"m" * 20, Address("224.0.0.1", 1)),
    )
    outcome, _ = look_up(Nodes(b"z" * 20), lambda p: Response(nodes=named, token=TOKEN))
    network.run(10)
    assert outcome.asked == 1

    fake = FakeNode(network, lambda p: Response(nodes=named, token=TOKEN))
    us = network.machine(known=(fake.contact,))
    us.find(Nodes(b"z" * 20))
    assert [victim.queries for victim in victims] == [[], []]


@pytest.mark.parametrize(("host", "asked"), [("8.8.8.8", "9.9.9.9"), ("2620:fe::9", "2620:ff::fe")])
def test_contacts_of_the_other_family_are_not_asked(host: str, asked: str) -> None:
    """A socket is of one family; writing to the other raises."""
    network = SimNetwork()
    told = Response(
        nodes=(Contact(b"4" * 20, Address("9.9.9.9", 1)),),
        nodes6=(Contact(b"6" * 20, Address("2620:ff::fe", 1)),),
    )
    fake = FakeNode(network, lambda p: told, address=Address(host, 6881))
    us = network.machine(known=(fake.contact,))
    us.dht.find(Nodes(b"z" * 20), now=network.clock.seconds())
    us.flush()
    reached: list[str] = []
    network.cut = lambda sender, receiver: bool(reached.append(receiver.host))
    network.run(1)
    assert set(reached) - {host, us.address.host} == {asked}


def test_peers_that_a_stranger_may_not_name() -> None:
    told = (Address("127.0.0.1", 22), Address("192.168.1.1", 80), Address("9.9.9.9", 6881))
    collector = Peers(b"i" * 20)
    look_up(collector, lambda p: Response(peers=told, token=TOKEN))
    assert collector.found == (Address("9.9.9.9", 6881),)


def test_a_token_too_long_to_send_back() -> None:
    network = SimNetwork()
    fakes = [
        FakeNode(network, lambda p, n=length: Response(nodes=(), token=b"t" * n))
        for length in (256, 257)
    ]
    us = network.machine(known=tuple(fake.contact for fake in fakes))
    put = []

    def query_with(token: bytes) -> Any:
        put.append(token)
        return Nodes(b"q" * 20).query

    us.put(MutableItems(OWNER.public_key, SALT), query_with)
    assert put == [b"t" * 256]


def test_the_greatest_sequence_number_counts() -> None:
    item = sign_item(OWNER, salt=SALT, seq=MAX_SEQ, value=b"4:last")
    collector = MutableItems(OWNER.public_key, SALT)
    look_up(collector, lambda p: raw_answer(p, b"n" * 20, **fields_of(item)))
    assert collector.found == (item,)
