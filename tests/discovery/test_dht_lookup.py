"""Lookups and puts over simulated networks."""

from __future__ import annotations

import random

import pytest
from fake_nodes import TOKEN, FakeNode, raw_answer
from simnet import SimNetwork

from hyperbloom.addresses import Address
from hyperbloom.discovery.dht.collectors import MutableItems, Nodes, Peers
from hyperbloom.discovery.dht.common.contact import Contact, distance
from hyperbloom.discovery.dht.common.errors import LocalProtocolError
from hyperbloom.discovery.dht.common.items import MAX_SEQ, sign_item
from hyperbloom.discovery.dht.common.messages import (
    ErrorMessage,
    Get,
    GetPeers,
    PutMutable,
    Response,
)
from hyperbloom.discovery.dht.common.node_id import is_secure, make_node_id
from hyperbloom.discovery.dht.limits import (
    ASKED_AT_ONCE,
    CLOSEST_NODES,
    MAX_BOOTSTRAP_ADDRESSES,
    MAX_CANDIDATES,
    MAX_LOOKUP_ASKED,
    MAX_OPERATIONS,
    MAX_PEERS_FOUND,
    MAX_PUT_NODES,
    PACKETS_PER_SECOND_OUT,
)
from hyperbloom.discovery.dht.lookup import SLOW_SECONDS, Lookup
from hyperbloom.discovery.dht.settings import DhtSettings, EqualSeq
from hyperbloom.discovery.dht_node import DhtNode
from hyperbloom.keys import Identity

OWNER = Identity(b"o" * 32)
SALT = b"s" * 32


def item(value: bytes, seq: int = MAX_SEQ):
    return sign_item(OWNER, salt=SALT, seq=seq, value=b"%d:%b" % (len(value), value))


def put_query(one, token: bytes) -> PutMutable:
    return PutMutable(
        token=token,
        public_key=one.public_key,
        salt=one.salt,
        seq=one.seq,
        value=one.value,
        signature=one.signature,
        target=one.target,
    )


@pytest.fixture(scope="module")
def network():
    """A network of 120 nodes, not to be changed by tests that look at all of it."""
    network = SimNetwork(seed=5)
    network.all = network.machines(120)
    return network


def closest(machines, target: bytes, count: int):
    ordered = sorted(machines, key=lambda each: distance(each.dht.node_id, target))
    return [machine.contact for machine in ordered[:count]]


def test_the_closest_nodes_are_found(network) -> None:
    for machine in network.all[::20]:
        target = network.random_bytes(20)
        outcome = machine.find(Nodes(target))
        others = [each for each in network.all if each is not machine]
        assert list(outcome.closest[:8]) == closest(others, target, 8)
        assert len(outcome.closest) == CLOSEST_NODES
        assert CLOSEST_NODES <= outcome.asked <= 60


def test_what_is_put_is_read_by_others(network) -> None:
    node = DhtNode(network.reactor("9.0.0.1"), DhtSettings(), random_bytes=network.random_bytes)
    node.listen(6881)
    assert network.wait(node.bootstrap([network.addresses[0]])) >= 8
    report = network.wait(node.put_mutable(item(b"hello")))
    assert (report.asked, report.refused, report.silent) == (report.stored, 0, 0)
    assert 20 <= report.stored <= MAX_PUT_NODES
    assert report.found
    assert report.others == ()
    assert report.holding >= 8
    reader = MutableItems(OWNER.public_key, SALT)
    outcome = network.all[77].find(reader)
    assert reader.found == (item(b"hello"),)
    assert outcome.holding >= 8
    network.wait(node.stop())


def test_all_distinct_values_come_from_one_lookup() -> None:
    """Each node holds another value of the same sequence number; none hides another."""
    network = SimNetwork(seed=6)
    values = [item(b"value %d" % number) for number in range(15)]
    fakes = []
    for value in values:
        one = {"k": value.public_key, "seq": value.seq, "sig": value.signature}
        body = value.value.partition(b":")[2]
        fakes.append(
            FakeNode(
                network,
                lambda p, one=one, body=body: raw_answer(
                    p, b"n" * 20, **one, v=body, token=TOKEN, nodes=b""
                ),
            )
        )
    for fake in fakes:
        fake.answer = lambda p, answer=fake.answer, own=fake.node_id: answer(p).replace(
            b"n" * 20, own
        )
    us = network.machine(known=tuple(fake.contact for fake in fakes))
    collector = MutableItems(OWNER.public_key, SALT)
    outcome = us.find(collector)
    assert set(collector.found) == set(values)
    assert len(collector.found) == len(values) == outcome.holding


@pytest.mark.parametrize("policy", EqualSeq)
def test_a_second_writer(policy: EqualSeq) -> None:
    network = SimNetwork(seed=7)
    machines = network.machines(25, settings=DhtSettings(equal_seq=policy))
    first, second = item(b"first"), item(b"second")

    def write(machine, one):
        back = MutableItems(OWNER.public_key, SALT)
        looking = MutableItems(OWNER.public_key, SALT)
        outcome = machine.put(looking, lambda token: put_query(one, token), back)
        return outcome, back.found

    outcome, found = write(machines[3], first)
    assert outcome.stored == outcome.asked >= 20
    assert found == (first,)
    outcome, found = write(machines[9], second)
    # Of 25 nodes a few were among the 20 of one writer only; they have the one they were given.
    assert second in found if policy is EqualSeq.OVERWRITE else first in found
    holders = [m.dht.storage.mutable(first.target, now=network.clock.seconds()) for m in machines]
    if policy is EqualSeq.OVERWRITE:
        assert outcome.stored == outcome.asked
        assert holders.count(second) == outcome.asked
    elif policy is EqualSeq.KEEP:
        assert outcome.stored == outcome.asked
        assert holders.count(first) >= 20
    else:
        assert outcome.refusals == {302: outcome.asked - outcome.stored}
        assert outcome.refusals[302] >= 15
        assert holders.count(first) >= 20


def test_half_of_the_nodes_die() -> None:
    network = SimNetwork(seed=8)
    machines = network.machines(100)
    outcome = machines[1].put(
        MutableItems(OWNER.public_key, SALT), lambda token: put_query(item(b"kept"), token)
    )
    assert outcome.stored >= 20
    for machine in machines[2::2]:
        machine.stop()
    begun = network.clock.seconds()
    collector = MutableItems(OWNER.public_key, SALT)
    outcome = machines[1].find(collector)
    assert network.clock.seconds() - begun <= 10.0
    assert collector.found == (item(b"kept"),)
    assert outcome.answered < outcome.asked


def test_a_lookup_ends_at_its_cap_with_what_there_is() -> None:
    """Every node names nodes that are not there: without the cap this would go on."""
    network = SimNetwork(seed=9)

    def ghosts(_) -> Response:
        near = (mine[:10] + network.random_bytes(10) for _ in range(40))
        named = tuple(Contact(each, Address(network.free_host(), 1)) for each in near)
        return Response(nodes=named, token=TOKEN)

    mine = MutableItems(OWNER.public_key, SALT).target
    fakes = [FakeNode(network, ghosts) for _ in range(8)]
    one = item(b"there")
    body = {"k": one.public_key, "seq": one.seq, "sig": one.signature, "v": b"there"}
    holder = FakeNode(network)
    holder.answer = lambda p: raw_answer(p, holder.node_id, **body)
    us = network.machine(known=(*(fake.contact for fake in fakes), holder.contact))
    begun = network.clock.seconds()
    collector = MutableItems(OWNER.public_key, SALT)
    outcome = us.find(collector)
    assert network.clock.seconds() - begun == pytest.approx(10.0)
    assert collector.found == (one,)
    assert outcome.answered == 9
    assert outcome.asked <= MAX_LOOKUP_ASKED
    # What is still awaited harms nobody when it comes or runs out.
    network.run(5)


def test_lost_packets_do_not_stop_a_lookup() -> None:
    network = SimNetwork(seed=10, loss=0.0)
    machines = network.machines(60)
    network.loss = 0.2
    outcomes = [machine.find(Nodes(b"t" * 20)) for machine in machines[:8]]
    # An answer takes two packets: 64 of 100 come.
    assert sum(outcome.answered for outcome in outcomes) >= 8 * 10
    assert all(outcome.answered < outcome.asked for outcome in outcomes)


def lookup(**more) -> Lookup:
    return Lookup(
        Nodes(bytes(20)),
        own_id=b"\xff" * 20,
        is_secure=lambda contact: is_secure(contact.node_id, contact.address.host),
        seconds=10.0,
        now=0.0,
        **more,
    )


def contacts(count: int, *, base: int = 1) -> list[Contact]:
    """Nodes in order, next to the target 0; their ids fit no address."""
    network = SimNetwork()
    return [
        Contact(number.to_bytes(20, "big"), Address(network.free_host(), 1))
        for number in range(base, base + count)
    ]


def run_all(one: Lookup, answer) -> list:
    """Ask until nobody is to be asked; the asks."""
    asked = []
    while asks := one.due(now=0.0):
        asked += asks
        for ask in asks:
            one.answered(ask, ask.node_id, answer(ask))
    return asked


class TestTheTwoSets:
    """Ids close to the target that fit no address do not hide the closest that do."""

    def test_both_are_asked(self) -> None:
        liars = contacts(200)
        chance = random.Random(3)
        honest = [
            Contact(make_node_id(host, chance.randbytes), Address(host, 1))
            for host in (f"30.0.{number}.1" for number in range(1, 51))
        ]
        one = lookup(seeds=[*liars, *honest])
        asked = {ask.node_id for ask in run_all(one, lambda ask: Response(token=TOKEN))}
        near_liars = {each.node_id for each in liars[:CLOSEST_NODES]}
        ordered = sorted(honest, key=lambda each: each.node_id)
        near_honest = {each.node_id for each in ordered[:CLOSEST_NODES]}
        assert near_liars <= asked
        assert near_honest <= asked
        assert len(asked) == 2 * CLOSEST_NODES
        holders = {contact.node_id for contact, _ in one.holders()}
        assert holders == near_liars | near_honest
        assert len(holders) == MAX_PUT_NODES

    def test_a_false_address_of_an_id_does_not_hide_the_true_one(self) -> None:
        honest = contacts(CLOSEST_NODES - 1, base=2)
        false = [each._replace(address=Address(f"40.0.0.{n}", 1)) for n, each in enumerate(honest)]
        liar = Contact(bytes(19) + b"\x01", Address("41.0.0.1", 1))
        guide = Contact(b"\x01" * 20, Address("41.0.0.2", 1))
        one = lookup(seeds=[liar, guide])
        asked = []
        while asks := one.due(now=0.0):
            asked += asks
            for ask in asks:
                if ask.address.host.startswith("40."):
                    one.silent(ask)
                    continue
                told = {liar.address: false, guide.address: honest}.get(ask.address, ())
                one.answered(ask, ask.node_id, Response(nodes=tuple(told), token=TOKEN))
        assert {each.address for each in honest} <= {ask.address for ask in asked}
        assert {each.address for each in honest} <= {c.address for c in one.closest()}

    def test_of_one_host_only_one_is_asked(self) -> None:
        crowd = [Contact(bytes([0, n]) * 10, Address("9.9.9.9", 1_000 + n)) for n in range(99)]
        assert len(run_all(lookup(seeds=crowd), lambda ask: Response())) == 1
        local = [each._replace(address=Address("127.0.0.1", 1 + n)) for n, each in enumerate(crowd)]
        assert len(run_all(lookup(seeds=local), lambda ask: Response())) == CLOSEST_NODES


class TestHolders:
    """Who is put to."""

    def secure(self, count: int) -> list[Contact]:
        chance = random.Random(3)
        hosts = [f"30.0.{number}.1" for number in range(1, count + 1)]
        made = [Contact(make_node_id(host, chance.randbytes), Address(host, 1)) for host in hosts]
        return sorted(made, key=lambda each: each.node_id)

    def holders(self, seeds: list[Contact], token=lambda ask: TOKEN) -> list[Contact]:
        one = lookup(seeds=seeds)
        run_all(one, lambda ask: Response(token=token(ask)))
        return [contact for contact, _ in one.holders()]

    def test_as_many_more_as_are_lacking_of_those_whose_ids_fit(self) -> None:
        plain, secure = contacts(15), self.secure(30)
        assert self.holders([*plain, *secure]) == [*plain, *secure[:CLOSEST_NODES]]
        assert self.holders(secure) == secure[:CLOSEST_NODES]

    def test_who_gave_no_token_takes_nobodys_place(self) -> None:
        seeds = contacts(CLOSEST_NODES + 5)
        mute = {contact.address for contact in seeds[:5]}
        holders = self.holders(seeds, lambda ask: None if ask.address in mute else TOKEN)
        assert holders == seeds[5:CLOSEST_NODES]

    def test_a_node_known_by_its_address_alone_is_one_of_them(self) -> None:
        address = Address("9.9.9.9", 1)
        one = lookup(addresses=[address])
        (ask,) = one.due(now=0.0)
        one.answered(ask, b"r" * 20, Response(token=TOKEN))
        assert one.is_finished(now=0.0)
        assert one.closest() == [Contact(b"r" * 20, address)]
        assert one.holders() == [(Contact(b"r" * 20, address), TOKEN)]


class TestWhoIsSilent:
    """Who asked learns it as soon as it is known, not at the end of the time of a lookup."""

    def lasting(self, answer) -> tuple[float, int]:
        network = SimNetwork()
        fake = FakeNode(network, answer)
        us = network.machine(known=(fake.contact,))
        begun = network.clock.seconds()
        outcome = us.find(Nodes(b"t" * 20))
        assert (outcome.asked, outcome.answered, outcome.holding) == (1, 0, 0)
        return network.clock.seconds() - begun

    def test_a_lookup_ends_when_its_last_query_runs_out(self) -> None:
        assert self.lasting(lambda packet: None) == pytest.approx(DhtSettings().query_seconds)

    def test_a_lookup_ends_when_its_last_query_is_refused(self) -> None:
        assert self.lasting(lambda packet: ErrorMessage(code=202)) < 0.3

    def test_a_put_tells_how_many_nodes_were_silent(self) -> None:
        network = SimNetwork()
        said = [Response(), None, ErrorMessage(code=302), None]
        fakes = [FakeNode(network) for _ in said]
        for fake, message in zip(fakes, said, strict=True):
            told = Response(nodes=(), token=TOKEN)
            fake.answer = lambda p, m=message, t=told: t if isinstance(p.message, Get) else m
        us = network.machine(known=tuple(fake.contact for fake in fakes))
        begun = network.clock.seconds()
        outcome = us.put(
            MutableItems(OWNER.public_key, SALT), lambda token: put_query(item(b"x"), token)
        )
        assert network.clock.seconds() - begun < DhtSettings().query_seconds + 0.3
        assert (outcome.asked, outcome.stored, outcome.silent) == (4, 1, 2)
        assert outcome.refusals == {302: 1}

    def test_the_next_closest_is_asked_in_its_stead(self) -> None:
        seeds = contacts(CLOSEST_NODES + 1)
        one = lookup(seeds=seeds)
        while asks := one.due(now=0.0):
            for ask in asks:
                if ask.node_id == seeds[0].node_id:
                    one.silent(ask)
                else:
                    one.answered(ask, ask.node_id, Response())
        assert one.closest() == seeds[1:]

    def test_a_slow_node_holds_up_nobody(self) -> None:
        one = lookup(seeds=contacts(1))
        assert (one.asked, one.answered_count, one.holding) == (0, 0, 0)
        one.due(now=0.0)
        assert one.deadline(now=0.0) == SLOW_SECONDS
        assert one.deadline(now=SLOW_SECONDS) == 10.0
        assert not one.is_finished(now=9.9)
        assert one.is_finished(now=10.0)


class TestLimits:
    def test_who_was_asked_is_remembered_beyond_them(self) -> None:
        """Others that are closer do not make us forget whom we wait for."""
        everyone = contacts(MAX_CANDIDATES + 10)
        one = lookup(seeds=everyone[-ASKED_AT_ONCE:])
        asks = one.due(now=0.0)
        closer = Response(nodes=tuple(everyone[:-ASKED_AT_ONCE]))
        one.answered(asks[0], asks[0].node_id, closer)
        for ask in asks[1:]:
            one.silent(ask)
        assert one.closest() == everyone[-ASKED_AT_ONCE:][:1]

    def test_a_host_that_was_forgotten_may_be_named_again(self) -> None:
        far = Contact(b"\x7f" * 20, Address("9.9.9.9", 1))
        one = lookup(seeds=[*contacts(MAX_CANDIDATES, base=2), far])
        first = one.due(now=0.0)[0]
        near = far._replace(node_id=bytes(19) + b"\x01")
        one.answered(first, first.node_id, Response(nodes=(near,)))
        assert [ask.address for ask in one.due(now=0.0)] == [near.address]

    def test_candidates(self) -> None:
        many = contacts(MAX_CANDIDATES + 50)
        one = lookup(seeds=many[::-1])
        assert len(one._sorted) == MAX_CANDIDATES
        assert [each.contact for each in one._sorted] == many[:MAX_CANDIDATES]

    def test_nodes_asked(self) -> None:
        """A chain of made-up nodes, each closer than the one before, has its end."""
        made = iter(range(2**40, 0, -1))
        network = SimNetwork(seed=4)

        def closer(ask) -> Response:
            near = next(made).to_bytes(20, "big")
            host = network.free_host().replace("20.", "21.", 1)
            return Response(nodes=(Contact(near, Address(host, 1)),))

        one = lookup(seeds=contacts(1, base=2**50))
        assert len(run_all(one, closer)) == MAX_LOOKUP_ASKED
        assert one.is_finished(now=0.0)

    def test_queries_at_once(self) -> None:
        one = lookup(seeds=contacts(3 * ASKED_AT_ONCE))
        first = one.due(now=0.0)
        assert (len(first), one.due(now=0.1)) == (ASKED_AT_ONCE, [])
        one.silent(first[0])
        assert len(one.due(now=0.2)) == 1
        assert len(one.due(now=0.2 + SLOW_SECONDS)) == ASKED_AT_ONCE

    def test_bootstrap_addresses(self) -> None:
        given = [Address("9.9.9.9", port) for port in range(1, MAX_BOOTSTRAP_ADDRESSES + 2)]
        one = lookup(addresses=given)
        asked = []
        while asks := one.due(now=0.0):
            asked += asks
            for ask in asks:
                one.silent(ask)
        assert [ask.address for ask in asked] == given[:MAX_BOOTSTRAP_ADDRESSES]

    def test_peers(self) -> None:
        collector = Peers(b"i" * 20)
        peers = tuple(Address(f"9.9.{n // 250}.{n % 250}", 1) for n in range(MAX_PEERS_FOUND + 1))
        for start in range(0, len(peers), 100):
            collector.collect(Response(peers=peers[start : start + 100]), Address("8.8.8.8", 1))
        assert collector.found == peers[:MAX_PEERS_FOUND]

    def test_operations(self) -> None:
        network = SimNetwork()
        fake = FakeNode(network, lambda packet: None)
        us = network.machine(known=(fake.contact,))
        now = network.clock.seconds()
        for _ in range(MAX_OPERATIONS):
            us.dht.find(Nodes(network.random_bytes(20)), now=now)
        with pytest.raises(LocalProtocolError):
            us.dht.find(Nodes(b"t" * 20), now=now)


def test_no_address_gets_five_packets_a_second() -> None:
    """libtorrent bans an address from which that many come."""
    network = SimNetwork(seed=11, latency=(0.001, 0.001))
    fake = FakeNode(network)
    us = network.machine(known=(fake.contact,))
    now = network.clock.seconds()
    for _ in range(12):
        us.dht.find(Nodes(network.random_bytes(20)), now=now)
    us.flush()
    network.run(10)
    times = [at for at, _, _ in fake.came]
    assert len(times) == 12
    for begin in times:
        within = [at for at in times if begin <= at < begin + 0.999]
        assert len(within) <= PACKETS_PER_SECOND_OUT


def test_a_query_says_what_mainline_wants() -> None:
    network = SimNetwork()
    fake = FakeNode(network)
    client = network.machine(settings=DhtSettings(server=False), known=(fake.contact,))
    one = item(b"x")
    client.put(
        MutableItems(OWNER.public_key, SALT),
        lambda token: put_query(one, token),
        MutableItems(OWNER.public_key, SALT),
    )
    kinds = [type(packet.message) for packet in fake.queries]
    assert kinds == [Get, PutMutable, Get]
    for packet in fake.queries:
        assert packet.read_only
        assert len(packet.version) == 4
    assert fake.queries[0].message.seq is None
    assert fake.queries[1].message == put_query(one, TOKEN)
    client.find(Peers(b"i" * 20))
    assert fake.queries[-1].message == GetPeers(info_hash=b"i" * 20)
