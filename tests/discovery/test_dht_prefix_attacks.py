"""What an attacker with an IPv6 prefix, or the addresses of others, must not get of a DHT node.

He has a /64 (2^64 addresses), a /48 (65,536 of them), or writes whatever sender he likes on his
datagrams. What he says is put together by hand in `dht_attacker`.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from dht_attacker import (
    Liar,
    addresses,
    answer,
    asked_in,
    bencoded,
    forged,
    ipv4_sites,
    query,
    sites,
    token_in,
    with_prefixes,
)
from simnet import SimNetwork

from hyperbloom.addresses import Address
from hyperbloom.discovery.dht.collectors import MutableItems, Nodes, Peers
from hyperbloom.discovery.dht.common.contact import Contact
from hyperbloom.discovery.dht.common.groups import network_key, site_key
from hyperbloom.discovery.dht.common.items import MAX_SEQ, immutable_target, sign_item
from hyperbloom.discovery.dht.common.krpc import decode_packet
from hyperbloom.discovery.dht.common.messages import PutImmutable, PutMutable, Response
from hyperbloom.discovery.dht.external_address import ExternalAddress
from hyperbloom.discovery.dht.limits import (
    CLOSEST_NODES,
    CLOSEST_PER_SITE,
    MAX_PEERS_FOUND,
    MAX_PEERS_PER_HASH,
    MAX_PEERS_TOLD,
    MAX_PROVED_SITES,
    MAX_SPARES,
    PEERS_PER_NETWORK,
    PROVED_EXCESS_BURST,
    PROVED_EXCESS_PER_SECOND,
    PROVED_PER_SITE,
    SITE_SHARES,
    TABLE_NODES_PER_SITE,
    TRIES_PER_NETWORK,
    UNPROVED_EXCESS_BURST,
    UNPROVED_EXCESS_PER_SECOND,
    UNPROVED_NETWORK_BURST,
    UNPROVED_NETWORK_PER_SECOND,
    UNPROVED_SITE_SHARES,
    VOTERS_PER_SITE,
)
from hyperbloom.discovery.dht.lookup import Lookup
from hyperbloom.discovery.dht.machine import Dht
from hyperbloom.discovery.dht.reply_budget import PROVED_SECONDS, ReplyBudget
from hyperbloom.discovery.dht.routing_table import RoutingTable
from hyperbloom.discovery.dht.server.storage import Storage
from hyperbloom.discovery.dht.settings import DhtSettings, EqualSeq
from hyperbloom.keys import Identity

OWNER = Identity(b"o" * 32)
ITEM = sign_item(OWNER, salt=b"", seq=MAX_SEQ, value=b"996:" + b"v" * 996)
PREFIX = "2a02:db8:1::/48"
#: At most so many bytes go out for each that comes in under names of others.
MOST = 1.5


class Node:
    """A node without a socket; `rtt` is not simulated, `now` is. It holds ITEM and knows others."""

    def __init__(self, **settings) -> None:
        chance = random.Random(1)
        self.now = 1_000.0
        self.dht = Dht(DhtSettings(**settings), random_bytes=chance.randbytes, now=self.now)
        put = PutMutable(
            token=b"", public_key=ITEM.public_key, salt=b"", seq=MAX_SEQ, value=ITEM.value,
            signature=ITEM.signature,
        )  # fmt: skip
        self.dht.storage.put_mutable(put, Address("2a03::1", 1), now=self.now)
        for number in range(1, 9):
            for host in (f"2a04:{number}::1", f"20.0.{number}.1"):
                contact = Contact(chance.randbytes(20), Address(host, 6881))
                self.dht.table.answered(contact, now=self.now)

    def hear(self, data: bytes, source: tuple[str, int]) -> list[tuple[bytes, Address]]:
        """What goes out for a datagram."""
        self.dht.receive(data, Address(*source), now=self.now)
        return self.dht.take_datagrams()

    def asked(self, source: tuple[str, int], *, read_only: bool = True) -> bytes:
        """The answer to a get of ITEM."""
        get = query("get", t=b"honn", node_id=b"h" * 20, read_only=read_only, target=ITEM.target)
        return next(data for data, _ in self.hear(get, source) if b"1:t4:honn" in data)

    def prove(self, source: tuple[str, int]) -> None:
        """Somebody at this address answers a ping of the node."""
        self.dht.ping(Contact(b"p" * 20, Address(*source)), now=self.now)
        ((data, _),) = self.dht.take_datagrams()
        self.hear(answer(asked_in(data), b"p" * 20), source)


def flood(node: Node, packets: Iterable[tuple[bytes, tuple[str, int]]], *, seconds: float, count):
    """Send them evenly over the time; bytes in, bytes out (answers and pings back).

    What the node sends to the nodes that it knows by itself is no answer.
    """
    bytes_in = bytes_out = 0
    known = {each.contact.address for each in node.dht.table.nodes()}
    for data, source in packets:
        node.now += seconds / count
        bytes_in += len(data)
        datagrams = node.hear(data, source)
        node.dht.tick(now=node.now)
        datagrams += node.dht.take_datagrams()
        bytes_out += sum(len(out) for out, to in datagrams if to not in known)
    return bytes_in, bytes_out


NETWORK = addresses("2a02:db8:1::/64", hosts=20_000)
SITE = addresses(PREFIX, networks=1_000, hosts=20)
SITES = sites("2a02:db8::/32", 2_000, hosts=10)
EACH_ITS_OWN_SITE = sites("2a02::/16", 20_000)
IPV4_SITE = ipv4_sites(1, hosts=250)
IPV4_SITES = ipv4_sites(20_000)
SOURCES = [
    pytest.param(NETWORK, id="one /64"),
    pytest.param(SITE, id="1,000 /64s of a /48"),
    pytest.param(SITES, id="2,000 /48s"),
    pytest.param(EACH_ITS_OWN_SITE, id="20,000 /48s"),
    pytest.param(IPV4_SITE, id="a /24"),
    pytest.param(IPV4_SITES, id="20,000 /24s"),
]


class TestForgedQueries:
    """He must not have more sent to others than he sends himself."""

    @pytest.mark.parametrize(
        ("sources", "count", "seconds"),
        [
            *(pytest.param(*each.values, 8_000, 2.0, id=each.id) for each in SOURCES),
            pytest.param(EACH_ITS_OWN_SITE, 20_000, 10.0, id="20,000 /48s for long"),
        ],
    )
    def test_bytes_out_for_bytes_in(self, sources, count: int, seconds: float) -> None:
        bytes_in, bytes_out = flood(
            Node(), forged(sources, ITEM.target, count=count), seconds=seconds, count=count
        )
        assert bytes_in > 80 * count
        assert bytes_out <= MOST * bytes_in

    @pytest.mark.parametrize("rate", [5, 50])
    @pytest.mark.parametrize("sources", SOURCES[:2])
    def test_slowly_it_is_a_trickle(self, sources, rate: int) -> None:
        """Whatever the speed: what a prefix is sent beyond what came in its name is bounded."""
        count = rate * 60
        bytes_in, bytes_out = flood(
            Node(), forged(sources, ITEM.target, count=count), seconds=60.0, count=count
        )
        shares = 1 if sources is NETWORK else UNPROVED_SITE_SHARES
        most = UNPROVED_NETWORK_BURST + 60 * UNPROVED_NETWORK_PER_SECOND
        assert bytes_out - bytes_in <= shares * most

    def test_all_unproved_share_what_goes_beyond_their_queries(self) -> None:
        count = 8_000
        bytes_in, bytes_out = flood(
            Node(), forged(SITES, ITEM.target, count=count), seconds=2.0, count=count
        )
        assert bytes_out - bytes_in <= UNPROVED_EXCESS_BURST + 2.0 * UNPROVED_EXCESS_PER_SECOND
        assert bytes_out > 0.5 * bytes_in, "who asks is still answered"

    def test_addresses_of_proved_nodes_can_be_forged_as_well(self) -> None:
        node, count = Node(), 15_000
        victims = sites("2a05::/16", 1_000)
        for victim in victims:
            node.prove(victim)
        packets = forged(victims, ITEM.target, count=count)
        bytes_in, bytes_out = flood(node, packets, seconds=1.0, count=count)
        assert bytes_out - bytes_in <= PROVED_EXCESS_BURST + PROVED_EXCESS_PER_SECOND
        assert bytes_out <= MOST * bytes_in

    def test_a_site_is_sent_so_much_and_no_more(self) -> None:
        """Be its networks proved or not, and be the answers no longer than the queries."""
        settings = DhtSettings()
        count = 16_000
        packets = forged(addresses(PREFIX, networks=count), ITEM.target, count=count)
        _, bytes_out = flood(Node(), packets, seconds=4.0, count=count)
        most = settings.reply_burst + 4.0 * settings.reply_bytes_per_second
        assert bytes_out <= SITE_SHARES * most

    @pytest.mark.timeout(180)
    @pytest.mark.parametrize("kind", ["network", "site", "sites"])
    def test_over_real_sockets(self, kind: str) -> None:
        """As above, with a real node, and senders written on real datagrams."""
        script = str(Path(__file__).with_name("forged_queries.py"))
        host, count = "2a01:1::1", 10_000
        command = [sys.executable, script, host, kind, str(count), "6"]
        try:
            ran = subprocess.run(
                with_prefixes(command, "2a00::/12", host=host), capture_output=True, timeout=150
            )
        except FileNotFoundError as error:
            pytest.skip(f"this machine has no {error.filename}")
        if ran.returncode:
            pytest.skip(f"not by this kernel: {ran.stderr.decode()[-300:]}")
        told = json.loads(ran.stdout)
        # What the socket's buffer had no room for was not asked.
        read = told["sent"] / told["packets"] * told["read"]
        assert told["items"] == 1
        assert read > 250_000
        assert told["got"] <= MOST * read


class TestHonestAskers:
    """A flood of forged queries must not keep the answers from who really asks."""

    def flooded(self, node: Node) -> None:
        """Take all that the unproved share, with long answers and then with short ones."""
        for data, source in forged(EACH_ITS_OWN_SITE, ITEM.target, count=2_000):
            node.hear(data, source)
        for source in (*EACH_ITS_OWN_SITE[2_000:2_100], *IPV4_SITES[2_000:2_100]):
            node.hear(query("ping", t=b"tttt", node_id=b"f" * 20, read_only=True), source)

    def test_who_has_proved_itself_gets_whole_answers(self) -> None:
        node, honest = Node(), ("2a06:1::1", 6881)
        node.prove(honest)
        whole = node.asked(honest)
        assert len(whole) > 1_300
        for number, (data, source) in enumerate(forged(SITES, ITEM.target, count=10_000)):
            node.now += 0.0005
            node.hear(data, source)
            if number % 1_000 == 0:
                assert len(node.asked(honest)) == len(whole)

    def test_the_largest_answer_over_ipv6(self) -> None:
        """The figures of docs/dht.md: with the ping back."""
        node = Node()
        node.dht.use_family(ipv6=True)
        get = query("get", t=b"honn", node_id=b"h" * 20, target=ITEM.target)
        sent = [len(data) for data, _ in node.hear(get, ("2a06:1::1", 6881))]
        assert 1_500 < max(sent) < 1_600
        assert len(sent) == 2
        assert 18 < sum(sent) / len(get) < 19

    def test_a_newcomer_gets_a_whole_answer_while_nobody_floods(self) -> None:
        assert len(Node().asked(("2a06:1::1", 6881))) > 1_300

    @pytest.mark.parametrize("source", [("2a06:1::1", 6881), ("22.0.0.1", 6881)])
    def test_a_newcomer_in_a_flood_gets_a_token_and_proves_itself_by_it(self, source) -> None:
        node = Node()
        self.flooded(node)
        short = node.asked(source)
        assert len(short) <= 96, "no longer than its query"
        one = decode_packet(short).message
        assert isinstance(one, Response)
        put = query(
            "put", t=b"puts", node_id=b"h" * 20, read_only=True, token=token_in(short), v=b"mine"
        )
        ((data, _),) = node.hear(put, source)
        assert isinstance(decode_packet(data).message, Response)
        assert len(node.asked(source)) > 1_300

    def test_a_newcomer_proves_itself_by_a_ping(self) -> None:
        node, source = Node(), ("2a06:1::1", 6881)
        get = query("get", t=b"newc", node_id=b"n" * 20, target=ITEM.target)
        pings = [data for data, _ in node.hear(get, source) if asked_in(data) is not None]
        assert len(pings) == 1
        node.hear(answer(asked_in(pings[0]), b"n" * 20), source)
        self.flooded(node)
        assert len(node.asked(source)) > 1_300

    def test_a_proof_is_good_for_a_time_and_for_its_network(self) -> None:
        node, honest = Node(), ("2a06:1::1", 6881)
        node.prove(honest)
        self.flooded(node)
        assert len(node.asked(("2a06:1:0:1::1", 6881))) < 100
        assert len(node.asked(("2a06:1::2", 6881))) > 1_300
        node.now += PROVED_SECONDS
        self.flooded(node)
        assert len(node.asked(honest)) < 100

    def test_short_answers_to_each_query_can_be_read(self) -> None:
        node = Node()
        self.flooded(node)
        asked = {
            "ping": {},
            "find_node": {"target": b"t" * 20},
            "get_peers": {"info_hash": b"t" * 20},
            "get": {"target": ITEM.target},
            "vote": {},
        }
        for number, (name, arguments) in enumerate(asked.items()):
            for source in ((f"2a07:{number}::1", 1), (f"23.0.{number}.1", 1)):
                data = query(name, t=b"tttt", node_id=b"h" * 20, read_only=True, **arguments)
                ((short, _),) = node.hear(data, source)
                assert len(short) <= len(data)
                decode_packet(short)

    def test_nearer_networks_are_not_short_of_answers(self) -> None:
        """Read-only nodes of a private network ask all they want, as they did."""
        node = Node()
        self.flooded(node)
        assert all(len(node.asked(("192.168.0.7", 6881))) > 1_000 for _ in range(8))

    def test_somebody_with_many_networks_pushes_no_proof_out(self) -> None:
        budget, honest = ReplyBudget(rate=1e9, burst=1e9), Address("2a06:1::1", 1)
        budget.prove(honest, now=0.0)
        for source in addresses(PREFIX, networks=20_000):
            budget.prove(Address(*source), now=0.0)
        size = UNPROVED_NETWORK_BURST + 1
        assert budget.take(honest, size, paid=0, now=0.0)
        last = [Address(*source) for source in addresses(PREFIX, networks=20_000)]
        assert budget.take(last[-PROVED_PER_SITE], size, paid=0, now=0.0)
        assert not budget.take(last[-PROVED_PER_SITE - 1], size, paid=0, now=0.0)

    def test_sites_that_have_proved_themselves_are_bounded(self) -> None:
        budget = ReplyBudget(rate=1e9, burst=1e9)
        made = [Address(*source) for source in sites("2a05::/16", MAX_PROVED_SITES + 1)]
        for address in made:
            budget.prove(address, now=0.0)
        size = UNPROVED_NETWORK_BURST + 1
        assert not budget.take(made[0], size, paid=0, now=0.0)
        assert budget.take(made[1], size, paid=0, now=0.0)


class TestGroups:
    @pytest.mark.parametrize(
        ("host", "network", "site"),
        [
            ("2a02:db8:1:2:3::4", "2a020db800010002", "2a020db80001"),
            ("21.2.3.4", "15020304", "150203"),
            ("192.168.7.8", "c0a80708", "c0a807"),
            ("fd00:1:2:3::4", "fd000001000200030000000000000004", "fd00000100020003"),
            ("fe80::1%eth0", "fe800000000000000000000000000001", "fe80000000000000"),
            ("::ffff:21.2.3.4", "15020304", "150203"),
        ],
    )
    def test_what_an_address_counts_as(self, host: str, network: str, site: str) -> None:
        address = Address(host, 7)
        assert (network_key(address).hex(), site_key(address).hex()) == (network, site)

    def test_each_port_of_loopback_counts(self) -> None:
        for address in (Address("127.0.0.1", 1), Address("::1", 2)):
            assert network_key(address) == site_key(address) == address


class TestVotes:
    """A prefix must not tell a node where it is."""

    TRUE, FALSE = Address("2a01:1::1", 6881), Address("2a0f::bad", 6881)

    @pytest.mark.parametrize(
        ("voters", "votes"),
        [
            pytest.param(addresses(PREFIX, hosts=64), 1, id="one /64"),
            pytest.param(addresses(PREFIX, networks=640), VOTERS_PER_SITE, id="one /48"),
            pytest.param(ipv4_sites(1, hosts=250), VOTERS_PER_SITE, id="one /24"),
        ],
    )
    def test_of_a_prefix_against_forty(self, voters, votes: int) -> None:
        said = ExternalAddress()
        for number in range(40):
            said.told(Address(f"2a04:{number + 1:x}::1", 6881), self.TRUE)
        for voter in voters:
            said.told(Address(*voter), self.FALSE)
        assert said.settled == self.TRUE
        assert len(said) == 40 + votes

    def test_of_a_prefix_alone(self) -> None:
        said = ExternalAddress()
        for voter in addresses("2a02:db8:1::/64", hosts=64):
            said.told(Address(*voter), self.FALSE)
        assert said.settled is None

    def test_who_is_asked_and_lies(self) -> None:
        """A node that asked 64 nodes of one /64, all of which lie, stays who it is."""
        node = Node()
        own = node.dht.node_id
        for number in range(40):
            self.vote(node, (f"2a04:{number + 1:x}::1", 6881), self.TRUE)
        settled = node.dht.node_id
        assert settled != own
        for source in addresses("2a02:db8:1::/64", hosts=64):
            self.vote(node, source, self.FALSE)
        assert node.dht.external_address.settled == self.TRUE
        assert node.dht.node_id == settled

    def vote(self, node: Node, source, seen: Address) -> None:
        liar = Liar(random.Random(source[0]).randbytes(20), seen=tuple(seen))
        node.now += 0.3
        node.dht.ping(Contact(liar.node_id, Address(*source)), now=node.now)
        ((data, _),) = node.dht.take_datagrams()
        node.hear(liar.said(data), source)


class TestTable:
    """A prefix must not fill the routing table."""

    def crowd(self, sources) -> RoutingTable:
        """Nodes of an attacker ask, answer the pings, and are listed as far as they are let."""
        network = SimNetwork(seed=2)
        us = network.machine(Address("2a01:1::1", 6881))
        for source in sources:
            liar = Liar(network.random_bytes(20))
            address = Address(*source)

            def hear(data: bytes, sender: Address, liar=liar, address=address) -> None:
                said = liar.said(data)
                if said is not None:
                    network.send(said, address, sender)

            network.attach(address, hear)
            asking = query("find_node", t=b"ffff", node_id=liar.node_id, target=us.dht.node_id)
            network.send(asking, address, us.address)
            network.run(0.3)
        network.run(10.0)
        return us.dht.table

    @pytest.mark.parametrize(
        ("sources", "places"),
        [
            pytest.param(addresses("2a02:db8:1::/64", hosts=1_000), 1, id="one /64"),
            pytest.param(addresses(PREFIX, networks=1_000), TABLE_NODES_PER_SITE, id="one /48"),
            pytest.param(ipv4_sites(1, hosts=250), TABLE_NODES_PER_SITE, id="one /24"),
        ],
    )
    def test_places_of_a_prefix(self, sources, places: int) -> None:
        assert 1 <= len(self.crowd(sources)) <= places

    def test_the_place_of_a_network_goes_to_who_is_there(self) -> None:
        """Machines of a /64 take new addresses every day."""
        table = RoutingTable(bytes(20))
        first, second = (
            Contact(bytes([n]) * 20, Address(f"2a02:db8:1::{n}", 1)) for n in (0x81, 0x42)
        )
        table.answered(first, now=0.0)
        table.answered(second, now=1.0)
        assert [node.contact for node in table.nodes()] == [first]
        for _ in range(2):
            table.silent(first)
        assert table.wants(second)
        table.answered(second, now=2.0)
        assert [node.contact for node in table.nodes()] == [second]

    def test_a_site_gets_places_back(self) -> None:
        table = RoutingTable(bytes(20))
        crowd = [
            Contact(bytes([0x80 >> n % 8, n]) * 10, Address(host, 1))
            for n, (host, _) in enumerate(addresses(PREFIX, networks=TABLE_NODES_PER_SITE + 1))
        ]
        for contact in crowd:
            table.answered(contact, now=0.0)
        assert len(table) == TABLE_NODES_PER_SITE
        assert not table.wants(crowd[-1])
        for _ in range(5):
            table.silent(crowd[0])
        table.answered(crowd[-1], now=1.0)
        assert crowd[-1] in table
        assert len(table) == TABLE_NODES_PER_SITE

    def test_of_a_network_one_waits_for_a_place(self) -> None:
        table = RoutingTable(bytes(20))
        for number in range(20):
            contact = Contact(b"\x80" + bytes([number]) * 19, Address(f"20.0.{number}.1", 1))
            table.answered(contact, now=0.0)
        honest = Contact(b"\x90" * 20, Address("20.1.0.1", 1))
        table.answered(honest, now=1.0)
        for number, source in enumerate(addresses("2a02:db8:1::/64", hosts=MAX_SPARES + 1)):
            table.answered(Contact(b"\xa0" + bytes([number]) * 19, Address(*source)), now=2.0)
        for gone in list(table.nodes())[:2]:
            table.silent(gone.contact)
            table.silent(gone.contact)
        assert honest in table


class TestLookups:
    """A prefix must not be all that a lookup asks, nor hide who is there."""

    def asked(self, seeds: list[Contact], silent=frozenset()) -> list[Address]:
        one = Lookup(
            Nodes(bytes(20)), own_id=b"\xff" * 20, is_secure=lambda contact: True,
            seconds=10.0, now=0.0, seeds=seeds,
        )  # fmt: skip
        asked = []
        while asks := one.due(now=0.0):
            for ask in asks:
                asked.append(ask.address)
                if ask.address in silent:
                    one.silent(ask)
                else:
                    one.answered(ask, ask.node_id, Response(token=b"tokn"))
        self.closest, self.holders = one.closest(), one.holders()
        return asked

    def crowd(self, sources) -> list[Contact]:
        return [
            Contact(number.to_bytes(20, "big"), Address(*source))
            for number, source in enumerate(sources, 1)
        ]

    HONEST = tuple(
        Contact(b"\x01" + bytes([number]) * 19, Address(f"20.0.{number}.1", 1))
        for number in range(1, 41)
    )

    @pytest.mark.parametrize(
        ("sources", "most"),
        [
            pytest.param(addresses("2a02:db8:1::/64", hosts=300), 1, id="one /64"),
            pytest.param(addresses(PREFIX, networks=300), CLOSEST_PER_SITE, id="one /48"),
            pytest.param(ipv4_sites(1, hosts=250), CLOSEST_PER_SITE, id="one /24"),
        ],
    )
    def test_of_a_prefix_few_are_asked_and_put_to(self, sources, most: int) -> None:
        liars = self.crowd(sources)
        asked = self.asked([*liars, *self.HONEST])
        theirs = {contact.address for contact in liars}
        assert sum(address in theirs for address in asked) == most
        for found in (self.closest, [contact for contact, _ in self.holders]):
            assert sum(contact.address in theirs for contact in found) == most
            assert len(found) == CLOSEST_NODES

    def test_a_crowd_pushes_no_honest_node_out_of_those_kept(self) -> None:
        liars = self.crowd(addresses("2a02:db8:1::/64", hosts=1_000))
        asked = self.asked([*self.HONEST, *liars])
        assert {contact.address for contact in self.HONEST[:19]} <= set(asked)

    def test_false_nodes_of_a_network_do_not_hide_the_one_that_is_there(self) -> None:
        hosts = addresses("2a06:1::/64", hosts=TRIES_PER_NETWORK)
        true = Contact(b"\x02" * 20, Address(*hosts.pop()))
        false = self.crowd(hosts)
        asked = self.asked([*false, true], silent={contact.address for contact in false})
        assert asked == [*(contact.address for contact in false), true.address]
        assert self.closest == [true]

    def test_tries_of_a_network_are_bounded(self) -> None:
        false = self.crowd(addresses("2a06:1::/64", hosts=50))
        asked = self.asked(false, silent={contact.address for contact in false})
        assert len(asked) == TRIES_PER_NETWORK


class TestStorage:
    """A prefix must not push out what others store, nor be all that is told of it."""

    def storage(self, size: int = 100) -> Storage:
        return Storage(equal_seq=EqualSeq.OVERWRITE, max_items=size)

    HONEST = tuple(Address(f"2a04:{number + 1:x}::1", 6881) for number in range(40))

    def values(self, kept: Storage) -> list[bytes]:
        made = [b"%d:%b" % (len(text), text) for text in (str(a).encode() for a in self.HONEST)]
        for value, address in zip(made, self.HONEST, strict=True):
            kept.put_immutable(PutImmutable(token=b"", value=value), address, now=0.0)
        return made

    def held(self, kept: Storage, values: list[bytes]) -> int:
        targets = [immutable_target(value) for value in values]
        return sum(kept.immutable(target, now=2.0) is not None for target in targets)

    @pytest.mark.parametrize("networks", [1, 500])
    def test_items(self, networks: int) -> None:
        kept = self.storage()
        values = self.values(kept)
        crowd = addresses(PREFIX, networks=networks, hosts=1_000 // networks)
        for number, source in enumerate(crowd):
            junk = PutImmutable(token=b"", value=b"i%de" % number)
            kept.put_immutable(junk, Address(*source), now=1.0)
        assert kept.items == 100
        assert self.held(kept, values) == len(values)

    def test_items_that_he_puts_again_are_not_lost_with_his(self) -> None:
        kept = self.storage()
        values = self.values(kept)
        thief = Address(*addresses(PREFIX)[0])
        for number in range(60):
            kept.put_immutable(PutImmutable(token=b"", value=b"i%de" % number), thief, now=1.0)
        for value in values:
            kept.put_immutable(PutImmutable(token=b"", value=value), thief, now=1.0)
        for number in range(60, 200):
            kept.put_immutable(PutImmutable(token=b"", value=b"i%de" % number), thief, now=1.0)
        assert self.held(kept, values) == len(values)

    def test_mutable_items(self) -> None:
        kept = self.storage()
        items = [sign_item(OWNER, salt=b"%d" % n, seq=1, value=b"1:v") for n in range(40)]

        def put(one, source: Address) -> None:
            query = PutMutable(
                token=b"", public_key=one.public_key, salt=one.salt, seq=one.seq,
                value=one.value, signature=one.signature,
            )  # fmt: skip
            kept.put_mutable(query, source, now=0.0)

        for one, address in zip(items, self.HONEST, strict=True):
            put(one, address)
        for number, source in enumerate(addresses("2a02:db8:1::/64", hosts=200)):
            put(sign_item(OWNER, salt=b"x%d" % number, seq=1, value=b"1:v"), Address(*source))
        assert all(kept.mutable(one.target, now=1.0) is not None for one in items)

    def test_peers_of_a_hash(self) -> None:
        kept, info_hash = self.storage(), b"i" * 20
        for address in self.HONEST:
            kept.announce(info_hash, address, now=0.0)
        for source in addresses("2a02:db8:1::/64", hosts=2 * MAX_PEERS_PER_HASH):
            kept.announce(info_hash, Address(*source), now=1.0)
        for port in range(1, 200):
            kept.announce(info_hash, Address("21.0.0.1", port), now=1.0)
        told = kept.peers(info_hash, now=2.0)
        assert len(told) == MAX_PEERS_TOLD
        assert set(self.HONEST) <= set(told)

    def test_info_hashes(self) -> None:
        kept = self.storage()
        hashes = [bytes([number]) * 20 for number in range(1, 41)]
        for info_hash, address in zip(hashes, self.HONEST, strict=True):
            kept.announce(info_hash, address, now=0.0)
        for number, source in enumerate(addresses("2a02:db8:1::/64", hosts=2_000)):
            kept.announce(number.to_bytes(20, "big"), Address(*source), now=1.0)
        assert all(kept.peers(info_hash, now=2.0) for info_hash in hashes)

    def test_a_token_is_good_for_its_address_alone(self) -> None:
        node = Node()
        here, there = addresses("2a02:db8:1::/64", hosts=2)
        put = query(
            "put", t=b"puts", node_id=b"h" * 20, read_only=True,
            token=token_in(node.asked(here)), v=b"mine",
        )  # fmt: skip
        ((refused, _),) = node.hear(put, there)
        assert bencoded([203, b"bad token"]) in refused


class TestWhatLookupsBring:
    """Whoever tells much must not keep out what others tell."""

    def test_peers(self) -> None:
        honest, liar = Address("2a04:1::1", 1), Address(*addresses(PREFIX)[0])
        found = Peers(b"i" * 20)
        crowd = [Address(*source) for source in sites("2a05::/16", 3 * MAX_PEERS_FOUND)]
        for at in range(0, len(crowd), 100):
            # He answers from one /64 after the other.
            teller = Address(addresses(PREFIX, networks=100)[at // 100][0], 1)
            found.collect(Response(peers=tuple(crowd[at : at + 100])), teller)
        told = tuple(Address(f"20.0.{number}.1", 1) for number in range(50))
        found.collect(Response(peers=told), honest)
        assert liar != honest
        assert len(found.found) == MAX_PEERS_FOUND
        assert set(told) <= set(found.found)

    def test_of_a_network_few_peers_are_found(self) -> None:
        found = Peers(b"i" * 20)
        crowd = tuple(Address(*source) for source in addresses(PREFIX, hosts=90))
        found.collect(Response(peers=crowd), Address("2a04:1::1", 1))
        assert found.found == crowd[:PEERS_PER_NETWORK]
        local = tuple(Address("192.168.0.1", port) for port in range(1, 50))
        found.collect(Response(peers=local), Address("192.168.0.2", 1))
        assert set(local) <= set(found.found)

    def test_versions_of_an_item(self) -> None:
        found = MutableItems(OWNER.public_key, b"s")

        def tell(value: bytes, teller: Address) -> None:
            one = sign_item(OWNER, salt=b"s", seq=MAX_SEQ, value=value)
            answered = Response(
                value=value, public_key=one.public_key, seq=one.seq, signature=one.signature
            )
            assert found.collect(answered, teller)

        for number, source in enumerate(addresses(PREFIX, networks=200)):
            tell(b"i%de" % number, Address(*source))
        tell(b"6:honest", Address("2a04:1::1", 1))
        assert len(found.found) == 201
        assert found.found[1].value == b"6:honest"
