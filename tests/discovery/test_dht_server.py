"""A node as others see it: what it answers, whom it lists, what it bears."""

from __future__ import annotations

import random

import pytest
from fake_nodes import FakeNode
from simnet import SimNetwork

from hyperbloom.addresses import Address
from hyperbloom.discovery.dht.collectors import Nodes
from hyperbloom.discovery.dht.common.compact import encode_contacts
from hyperbloom.discovery.dht.common.contact import Contact
from hyperbloom.discovery.dht.common.errors import LocalProtocolError
from hyperbloom.discovery.dht.common.items import MAX_SEQ, immutable_target, sign_item
from hyperbloom.discovery.dht.common.krpc import decode_packet, encode_packet
from hyperbloom.discovery.dht.common.messages import (
    AnnouncePeer,
    ErrorMessage,
    FindNode,
    Get,
    GetPeers,
    Packet,
    Ping,
    PutImmutable,
    PutMutable,
    Response,
    UnknownQuery,
)
from hyperbloom.discovery.dht.common.node_id import is_secure, make_node_id
from hyperbloom.discovery.dht.external_address import LEAST_VOTES, ExternalAddress
from hyperbloom.discovery.dht.limits import (
    MAX_ADDRESSES_WATCHED,
    MAX_DELAYED,
    MAX_OPERATIONS,
    MAX_OUTSTANDING,
    MAX_VOTERS,
    NODES_TOLD,
    PACKETS_PER_SECOND_OUT,
)
from hyperbloom.discovery.dht.machine import PING_BACK_SECONDS, Dht
from hyperbloom.discovery.dht.rate_limits import Allowance, Cooldown, Pace
from hyperbloom.discovery.dht.routing_table import (
    FRESH_SECONDS,
    PING_SECONDS,
    REFRESH_SECONDS,
    RoutingTable,
)
from hyperbloom.discovery.dht.server.responder import Responder
from hyperbloom.discovery.dht.server.storage import Storage
from hyperbloom.discovery.dht.server.tokens import Tokens
from hyperbloom.discovery.dht.settings import DhtSettings, EqualSeq
from hyperbloom.discovery.dht.transactions import Transactions
from hyperbloom.discovery.dht.upkeep import UPKEEP_SECONDS
from hyperbloom.keys import Identity

OWNER = Identity(b"o" * 32)
ASKER = Address("9.9.9.9", 4_000)
ID = b"a" * 20


class Server:
    """One machine, asked without a network. `now` is the test's."""

    def __init__(self, **settings) -> None:
        self.now = 1_000.0
        self.dht = Dht(DhtSettings(**settings), random_bytes=random.Random(1).randbytes, now=0.0)

    def ask(self, query, address: Address = ASKER, *, t: bytes = b"tx", **more) -> list[Packet]:
        """The packets that went to who asked."""
        packet = Packet(transaction_id=t, message=query, node_id=ID, **more)
        return [decode_packet(data) for data in self.send(encode_packet(packet), address)]

    def send(self, data: bytes, address: Address = ASKER) -> list[bytes]:
        """The datagrams that went back."""
        self.dht.receive(data, address, now=self.now)
        return [data for data, to in self.dht.take_datagrams() if to == address]

    def answer(self, query, address: Address = ASKER):
        """The message that answered, with what is in every answer checked."""
        answers = self.ask(query, address, t=b"abc", read_only=True)
        assert len(answers) == 1
        (packet,) = answers
        assert packet.transaction_id == b"abc"
        assert packet.observed == address
        assert not packet.read_only
        assert len(packet.version) == 4
        if not isinstance(packet.message, ErrorMessage):
            assert packet.node_id == self.dht.node_id
        return packet.message

    def list(self, count: int, host: str = "20.0.0.{}") -> list[Contact]:
        """That many nodes in the table."""
        contacts = [
            Contact(bytes([number]) * 20, Address(host.format(number), number + 1))
            for number in range(1, count + 1)
        ]
        for contact in contacts:
            self.dht.table.answered(contact, now=self.now)
        return contacts

    def token(self, address: Address = ASKER) -> bytes:
        return self.answer(Get(target=b"t" * 20), address).token

    def put(self, *, seq: int = 1, value: bytes = b"1:v", **more) -> PutMutable:
        one = sign_item(OWNER, salt=b"s", seq=seq, value=value)
        fields = {
            "token": self.token(),
            "public_key": one.public_key,
            "salt": one.salt,
            "seq": seq,
            "value": value,
            "signature": one.signature,
        }
        return PutMutable(**(fields | more))


def code(message) -> int:
    assert isinstance(message, ErrorMessage)
    return message.code


class TestAnswers:
    def test_ping(self) -> None:
        assert Server().answer(Ping()) == Response()

    def test_find_node_names_eight(self) -> None:
        server = Server()
        contacts = server.list(12)
        answer = server.answer(FindNode(target=contacts[4].node_id))
        assert len(answer.nodes) == NODES_TOLD
        assert answer == Response(nodes=answer.nodes)
        assert answer.nodes[0] == contacts[4]

    def test_a_get_always_brings_a_token_and_nodes(self) -> None:
        server = Server()
        assert server.answer(Get(target=b"t" * 20)).nodes == ()
        contacts = server.list(3)
        answer = server.answer(Get(target=b"t" * 20))
        assert set(answer.nodes) == set(contacts)
        assert answer.token
        assert answer.value is None

    def test_a_put_is_answered_with_the_id_alone(self) -> None:
        server = Server()
        server.list(3)
        item = server.put(seq=MAX_SEQ)
        assert server.answer(item) == Response()
        target = sign_item(OWNER, salt=b"s", seq=1, value=b"1:v").target
        found = server.answer(Get(target=target))
        assert (found.value, found.seq) == (b"1:v", MAX_SEQ)
        assert (found.public_key, found.signature) == (item.public_key, item.signature)
        assert len(found.nodes) == 3
        assert found.token
        known = server.answer(Get(target=target, seq=MAX_SEQ))
        assert (known.seq, known.value, known.public_key) == (MAX_SEQ, None, None)
        older = server.answer(Get(target=target, seq=MAX_SEQ - 1))
        assert older.value == b"1:v"

    def test_puts_with_and_without_target(self) -> None:
        server = Server()
        target = immutable_target(b"1:v")
        for given in (None, target):
            query = PutImmutable(token=server.token(), value=b"1:v", target=given)
            assert server.answer(query) == Response()
        assert server.answer(Get(target=target)).value == b"1:v"

    def test_the_token_is_checked_first(self) -> None:
        server = Server()
        huge = b"1001:" + b"x" * 1_001
        assert code(server.answer(server.put(value=huge, token=b"wrong"))) == 203
        assert code(server.answer(server.put(value=huge))) == 205
        assert code(server.answer(server.put(signature=bytes(64)))) == 206
        assert code(server.answer(PutImmutable(token=b"", value=b"1:v"))) == 203
        announce = AnnouncePeer(info_hash=b"i" * 20, token=b"x", port=1, implied_port=False)
        assert code(server.answer(announce)) == 203
        assert server.dht.storage.items == server.dht.storage.info_hashes == 0

    def test_a_refusal_says_why(self) -> None:
        server = Server()
        refused = server.answer(PutImmutable(token=b"", value=b"1:v"))
        assert refused == ErrorMessage(code=203, text="bad token")

    def test_a_token_is_no_good_from_elsewhere(self) -> None:
        server = Server()
        item = server.put()
        assert code(server.answer(item, Address("9.9.9.8", 4_000))) == 203

    def test_peers(self) -> None:
        server = Server()
        info_hash = b"i" * 20
        first = server.answer(GetPeers(info_hash=info_hash))
        assert (first.peers, first.nodes) == (None, ())
        for implied in (False, True):
            query = AnnouncePeer(
                info_hash=info_hash, token=first.token, port=7, implied_port=implied
            )
            assert server.answer(query) == Response()
        peers = server.answer(GetPeers(info_hash=info_hash)).peers
        assert peers == (ASKER, Address(ASKER.host, 7))

    def test_what_it_does_not_know(self) -> None:
        server = Server()
        unknown = b"d1:ad2:id20:" + ID + b"e1:q4:vote2:roi1e1:t2:tx1:y1:qe"
        (answer,) = server.send(unknown)
        assert code(decode_packet(answer).message) == 204
        (answer,) = server.send(unknown.replace(b"4:vote", b"3:get"))
        assert code(decode_packet(answer).message) == 203

    def test_ipv6(self) -> None:
        server = Server()
        contacts = server.list(3, "2620:fe:{}::1")
        asker = Address("2620:fe::fe", 4_000)
        answer = server.answer(FindNode(target=ID), asker)
        assert answer.nodes is None
        assert set(answer.nodes6) == set(contacts)

    def test_local_nodes_are_not_named_to_the_internet(self) -> None:
        server = Server()
        contacts = server.list(3, "192.168.0.{}")
        assert server.answer(FindNode(target=ID)).nodes == ()
        near = server.answer(FindNode(target=ID), Address("192.168.0.77", 1))
        assert set(near.nodes) == set(contacts)

    def test_a_read_only_node_answers_nobody(self) -> None:
        server = Server(server=False)
        assert server.ask(Ping()) == []
        assert len(server.dht.table) == 0

    def test_any_transaction_id_is_echoed(self) -> None:
        server = Server()
        for length in (1, 2, 4, 8, 32):
            (packet,) = server.ask(Ping(), t=b"t" * length, read_only=True)
            assert packet.transaction_id == b"t" * length


class TestWhoIsListed:
    def test_a_requester_only_after_it_answered_a_ping(self) -> None:
        network = SimNetwork()
        us = network.machine()
        asker = FakeNode(network)
        query = Packet(transaction_id=b"tx", message=FindNode(target=ID), node_id=asker.node_id)
        asker.answer = lambda packet: None
        asker.send(encode_packet(query), us.address)
        network.run(5)
        assert [type(each.message) for each in asker.queries] == [Response, Ping]
        assert len(us.dht.table) == 0

        asker.answer = lambda packet: Response() if packet.message == Ping() else None
        network.run(PING_BACK_SECONDS)
        asker.send(encode_packet(query), us.address)
        network.run(1)
        assert [node.contact for node in us.dht.table.nodes()] == [asker.contact]

    def test_a_requester_is_pinged_once_a_while(self) -> None:
        server = Server()
        for _ in range(20):
            server.now += PING_BACK_SECONDS / 21
            packets = server.ask(Ping())
        pinged = server.dht.counts["asked"]
        assert pinged == 1
        assert [type(packet.message) for packet in packets] == [Response]

    def test_who_asks_is_still_there(self) -> None:
        server = Server()
        (contact,) = server.list(1)
        server.now += FRESH_SECONDS - 1
        query = Packet(transaction_id=b"tx", message=Ping(), node_id=contact.node_id)
        assert len(server.send(encode_packet(query), contact.address)) == 1
        assert server.dht.table.good(now=server.now + FRESH_SECONDS - 1) == 1

    def test_a_read_only_requester_is_not_pinged(self) -> None:
        server = Server()
        assert [type(each.message) for each in server.ask(Ping(), read_only=True)] == [Response]

    def test_requesters_that_were_pinged_are_remembered_in_part_and_for_a_time(self) -> None:
        pinged = Cooldown(PING_BACK_SECONDS)
        for n in range(MAX_ADDRESSES_WATCHED + 1):
            assert pinged.take(Address(f"20.{n >> 16}.{n >> 8 & 255}.{n & 255}", 1), now=0.0)
        assert len(pinged) == MAX_ADDRESSES_WATCHED
        last = Address("30.0.0.1", 1)
        assert pinged.take(last, now=PING_BACK_SECONDS)
        assert len(pinged) == 1
        assert not pinged.take(last, now=2 * PING_BACK_SECONDS - 1)
        assert pinged.take(last, now=2 * PING_BACK_SECONDS)


class TestRates:
    def test_a_flood_from_one_address(self) -> None:
        """A second of 5,000 packets: what is answered is the burst and the rate, no more."""
        server = Server(packets_per_second=50, packet_burst=200, reply_burst=10**9)
        answers = 0
        for _ in range(5_000):
            server.now += 1 / 5_000
            answers += bool(server.ask(Ping(), read_only=True))
        assert 200 <= answers <= 251
        assert server.dht.counts["too_many"] == 5_000 - answers
        # Another is served all the while.
        assert server.ask(Ping(), Address("8.8.8.8", 1), read_only=True)

    def test_ports_of_one_host_share_except_at_loopback(self) -> None:
        server = Server(packets_per_second=1, packet_burst=1)

        def served(host: str) -> int:
            return sum(
                bool(server.ask(Ping(), Address(host, port), read_only=True))
                for port in range(1, 11)
            )

        assert served("9.9.9.9") == 1
        assert served("192.168.0.1") == 1
        assert served("127.0.0.1") == 10

    def test_a_poor_amplifier(self) -> None:
        """Who forges a victim's address makes us send it the burst and the rate at most."""
        server = Server(packets_per_second=1_000, packet_burst=1_000)
        server.list(8)
        server.answer(server.put(value=b"1000:" + b"x" * 1_000))
        target = sign_item(OWNER, salt=b"s", seq=1, value=b"1:v").target
        victim = Address("20.9.9.9", 53)
        query = Packet(transaction_id=b"t", message=Get(target=target), node_id=ID, read_only=True)
        data = encode_packet(query)
        asked = sent = 0
        for _ in range(10_000):
            server.now += 0.001
            asked += len(data)
            answers = server.send(data, victim)
            sent += sum(map(len, answers))
        # Ten seconds: 16 KiB at once, then 4 KiB a second. The largest answer is 16 times as
        # long as its query; over all, the victim got less than the forger had to send.
        assert sent <= 16_384 + 10 * 4_096
        assert sent >= 16_384
        assert sent < asked / 10
        assert server.dht.counts["replies_withheld"] > 9_000

    def test_the_largest_answer(self) -> None:
        """The figures of docs/dht.md."""
        server = Server()
        server.list(8)
        server.answer(server.put(value=b"1000:" + b"x" * 1_000))
        target = sign_item(OWNER, salt=b"s", seq=1, value=b"1:v").target
        query = Packet(transaction_id=b"t", message=Get(target=target), node_id=ID, read_only=True)
        data = encode_packet(query)
        (answer,) = server.send(data)
        assert len(answer) < 1_500
        assert len(answer) / len(data) < 17

    def test_an_allowance_comes_back(self) -> None:
        allowance = Allowance(rate=10, burst=20)
        assert allowance.take(ASKER, 20, now=0.0)
        assert not allowance.take(ASKER, 1, now=0.0)
        assert not allowance.take(ASKER, 11, now=1.0)
        assert allowance.take(ASKER, 10, now=1.0)
        assert not allowance.take(ASKER, 21, now=1_000.0)
        assert allowance.take(ASKER, 20, now=1_000.0)

    def test_addresses_watched_are_bounded(self) -> None:
        allowance, pace = Allowance(rate=1, burst=1), Pace()
        for number in range(MAX_ADDRESSES_WATCHED + 1):
            address = Address(f"20.{number >> 16}.{number >> 8 & 255}.{number & 255}", 1)
            allowance.take(address, 1, now=0.0)
            pace.note(address, at=0.0, now=0.0)
        assert len(allowance) == len(pace) == MAX_ADDRESSES_WATCHED

    def test_what_is_past_is_forgotten(self) -> None:
        allowance, pace = Allowance(rate=10, burst=20), Pace()
        for number in range(100):
            address = Address(f"20.0.0.{number}", 1)
            allowance.take(address, 1, now=float(number))
            pace.note(address, at=float(number), now=float(number))
        assert len(allowance) == 2
        assert len(pace) == 1

    def test_pace(self) -> None:
        pace = Pace()
        for number in range(PACKETS_PER_SECOND_OUT):
            assert pace.next_time(ASKER, now=0.1 * number) == 0.1 * number
            pace.note(ASKER, at=0.1 * number, now=0.1 * number)
        assert pace.next_time(ASKER, now=0.5) == 1.0
        assert pace.next_time(Address("8.8.8.8", 1), now=0.5) == 0.5
        assert pace.next_time(ASKER, now=1.5) == 1.5

    def test_answers_count_for_the_pace_of_queries(self) -> None:
        """The other side counts packets, and bans who sends too many, whatever they are."""
        server = Server()
        for _ in range(PACKETS_PER_SECOND_OUT):
            server.answer(Ping())
        server.dht.ping(Contact(ID, ASKER), now=server.now)
        server.dht.tick(now=server.now + 0.999)
        assert server.dht.take_datagrams() == []
        server.dht.tick(now=server.now + 1.0)
        ((data, to),) = server.dht.take_datagrams()
        assert (decode_packet(data).message, to) == (Ping(), ASKER)

    def test_queries_held_back_are_bounded(self) -> None:
        server = Server()
        contact = Contact(b"q" * 20, Address("8.8.8.8", 1))
        for _ in range(PACKETS_PER_SECOND_OUT + MAX_DELAYED + 1):
            server.dht.ping(contact, now=server.now)
        assert server.dht.counts["asked"] == PACKETS_PER_SECOND_OUT
        assert server.dht.counts["not_sent"] == 1

    def test_answers_awaited_are_bounded(self) -> None:
        server = Server()
        for number in range(MAX_OUTSTANDING + 1):
            address = Address(f"20.0.{number >> 8}.{number & 255}", 1)
            server.dht.ping(Contact(b"q" * 20, address), now=server.now)
        assert server.dht.counts["asked"] == MAX_OUTSTANDING
        assert server.dht.counts["not_sent"] == 1

    def test_answers_to_queries_held_back_are_awaited_within_the_same_bound(self) -> None:
        server = Server()
        late = Contact(b"q" * 20, Address("8.8.8.8", 1))
        for _ in range(PACKETS_PER_SECOND_OUT + 1):
            server.dht.ping(late, now=server.now)
        for number in range(MAX_OUTSTANDING - PACKETS_PER_SECOND_OUT):
            address = Address(f"20.0.{number >> 8}.{number & 255}", 1)
            server.dht.ping(Contact(b"q" * 20, address), now=server.now)
        server.dht.tick(now=server.now + 1.0)
        assert server.dht.counts["asked"] == MAX_OUTSTANDING
        assert server.dht.counts["not_sent"] == 1


def test_transactions_run_out_in_their_order() -> None:
    waiting: Transactions[str] = Transactions(random.Random(1).randbytes, seconds=2.0)
    first = waiting.begin(ASKER, "first", now=0.0)
    second = waiting.begin(ASKER, "second", now=1.0)
    assert waiting.take(first, Address("9.9.9.9", 4_001)) is None
    assert list(waiting.expire(now=1.9)) == []
    assert waiting.deadline == 2.0
    assert list(waiting.expire(now=2.0)) == ["first"]
    assert waiting.take(first, ASKER) is None
    assert waiting.take(second, ASKER) == "second"
    assert waiting.deadline is None


class TestUpkeep:
    def test_nodes_are_pinged_and_the_dead_forgotten(self) -> None:
        network = SimNetwork()
        alive, dead = FakeNode(network), FakeNode(network)
        us = network.machine(known=(alive.contact, dead.contact))
        us.bootstrap([])
        network.run(3)
        assert len(us.dht.table) == 2
        network.detach(dead.address)
        network.run(6 * PING_SECONDS)
        assert [node.contact for node in us.dht.table.nodes()] == [alive.contact]
        assert sum(packet.message == Ping() for packet in alive.queries) >= 4

    def test_the_table_is_refreshed(self) -> None:
        network = SimNetwork()
        fake = FakeNode(network)
        us = network.machine(known=(fake.contact,))
        us.bootstrap([])
        network.run(3 * REFRESH_SECONDS)
        own = [
            packet for packet in fake.queries if packet.message == FindNode(target=us.dht.node_id)
        ]
        assert 3 <= len(own) <= 4
        assert len({packet.message for packet in fake.queries}) >= 4
        # Its bucket no more often than the neighbours, and pings in between.
        assert len(fake.queries) <= 20

    def test_who_knows_nobody_asks_again(self) -> None:
        network = SimNetwork()
        address = Address("8.8.8.8", 6881)
        us = network.machine()
        us.bootstrap([address])
        network.run(100)
        router = FakeNode(network, address=address)
        network.run(400)
        assert len(us.dht.table) == 1
        assert router.queries

    def test_a_busy_node_does_it_later(self) -> None:
        """Half of the operations are left to those who use the node."""
        server = Server(query_seconds=1_000, lookup_seconds=1_000)
        server.list(1)
        wanted = MAX_OPERATIONS // 2
        numbers = [
            server.dht.find(Nodes(number.to_bytes(20, "big")), now=server.now)
            for number in range(wanted + 1)
        ]
        server.dht.tick(now=server.now)
        assert server.dht.operations == wanted + 1
        server.dht.cancel(numbers[0])
        server.dht.tick(now=server.now + UPKEEP_SECONDS)
        assert server.dht.operations > wanted

    def test_an_idle_node_without_bootstrap_is_silent(self) -> None:
        network = SimNetwork()
        network.machine()
        network.run(7_200)
        assert network.carried["packets"] == 0


class TestAddress:
    def voters(self, network: SimNetwork, count: int, seen: Address) -> list[FakeNode]:
        fakes = [FakeNode(network) for _ in range(count)]
        for fake in fakes:
            fake.answer = lambda packet, fake=fake: encode_packet(
                Packet(
                    transaction_id=packet.transaction_id,
                    message=Response(nodes=()),
                    node_id=fake.node_id,
                    observed=seen,
                )
            )
        return fakes

    def test_an_id_that_fits_what_others_see(self) -> None:
        network = SimNetwork()
        seen = Address("85.1.2.3", 999)
        fakes = self.voters(network, LEAST_VOTES, seen)
        us = network.machine(
            Address("192.168.0.5", 1), node_id=b"i" * 20, known=tuple(f.contact for f in fakes)
        )
        us.bootstrap([])
        network.run(1)
        assert us.dht.external_address.settled == seen
        assert us.dht.node_id != b"i" * 20
        assert is_secure(us.dht.node_id, seen.host)
        assert us.dht.table.own_id == us.dht.node_id
        assert len(us.dht.table) == LEAST_VOTES
        again = us.dht.node_id
        network.run(UPKEEP_SECONDS)
        own = FindNode(target=again)
        assert any(packet.message == own for fake in fakes for packet in fake.queries)
        us.find(Nodes(b"u" * 20))
        assert us.dht.node_id == again

    def test_an_id_that_fits_already_stays(self) -> None:
        network = SimNetwork()
        own = make_node_id("85.1.2.3", network.random_bytes)
        fakes = self.voters(network, 5, Address("85.1.2.3", 999))
        us = network.machine(
            Address("192.168.0.5", 1), node_id=own, known=tuple(f.contact for f in fakes)
        )
        us.find(Nodes(b"t" * 20))
        assert us.dht.node_id == own

    def test_few_or_divided_voters_settle_nothing(self) -> None:
        votes = ExternalAddress()
        seen = [Address("85.1.2.3", 1), Address("85.1.2.4", 1)]
        for number in range(LEAST_VOTES - 1):
            votes.told(Address(f"20.0.0.{number}", 1), seen[0])
        # One host is one voter, however many ports it has.
        for port in range(50):
            votes.told(Address("20.0.0.0", port), seen[0])
        assert votes.settled is None
        votes.told(Address("20.0.1.0", 1), seen[0])
        assert votes.settled == seen[0]
        for number in range(LEAST_VOTES):
            votes.told(Address(f"20.0.2.{number}", 1), seen[1])
        assert votes.settled is None

    def test_the_port_is_what_most_say(self) -> None:
        votes = ExternalAddress()
        for number in range(5):
            votes.told(Address(f"20.0.0.{number}", 1), Address("85.1.2.3", 7 if number else 8))
        assert votes.settled == Address("85.1.2.3", 7)

    def test_voters_are_bounded(self) -> None:
        votes = ExternalAddress()
        for number in range(MAX_VOTERS + 1):
            votes.told(Address(f"20.0.{number}.1", 1), Address("85.1.2.3", 7))
        assert len(votes) == MAX_VOTERS


def test_the_compact_form_of_an_answer() -> None:
    """`nodes` in what goes out is 26 bytes a node."""
    server = Server()
    contacts = server.list(8)
    query = Packet(transaction_id=b"t", message=FindNode(target=ID), node_id=ID, read_only=True)
    (data,) = server.send(encode_packet(query))
    assert b"5:nodes208:" in data
    assert all(encode_contacts([contact]) in data for contact in contacts)


def test_an_answer_with_a_query_nobody_named() -> None:
    with pytest.raises(LocalProtocolError, match="without a name"):
        encode_packet(Packet(transaction_id=b"t", message=UnknownQuery(), node_id=ID))


def test_of_what_nobody_stores_there_is_nothing_to_tell() -> None:
    randoms = random.Random(1).randbytes
    storage = Storage(equal_seq=EqualSeq.KEEP, max_items=1)
    responder = Responder(RoutingTable(ID), storage, Tokens(randoms, now=0.0))
    for query in (FindNode(target=ID), Get(target=ID), GetPeers(info_hash=ID)):
        assert responder.own_answer(query, now=0.0) == Response()


class TestCounts:
    """What the status shows of a node: each packet is counted once, as what it was."""

    def test_what_came_in(self) -> None:
        server = Server(packets_per_second=1, packet_burst=20, reply_burst=2_048)
        server.list(8)
        nodes = FindNode(target=ID)
        replies = [len(server.ask(nodes, read_only=True)) for _ in range(20)]
        given = sum(replies)
        assert 0 < given < 20
        assert server.ask(nodes, read_only=True) == []
        other = Address("9.9.9.8", 1)
        server.send(b"no packet", other)
        answer = Packet(transaction_id=b"none", message=Response(), node_id=ID)
        server.send(encode_packet(answer), other)
        assert server.dht.counts == {
            "received": 23,
            "too_many": 1,
            "queries": 20,
            "replies_withheld": 20 - given,
            "sent": given,
            "malformed": 1,
            "unasked": 1,
        }

    def test_what_became_of_what_was_asked(self) -> None:
        server = Server()
        server.dht.tick(now=server.now)
        for number, message in enumerate((Response(), ErrorMessage(code=202), None), start=1):
            contact = Contact(ID, Address(f"20.0.0.{number}", 1))
            server.dht.ping(contact, now=server.now)
            ((data, _),) = server.dht.take_datagrams()
            if message is not None:
                t = decode_packet(data).transaction_id
                answer = Packet(transaction_id=t, message=message, node_id=ID)
                server.send(encode_packet(answer), contact.address)
        server.dht.tick(now=server.now + server.dht.settings.query_seconds)
        counts = {name: count for name, count in server.dht.counts.items() if name != "received"}
        assert counts == {"asked": 3, "sent": 3, "answers": 1, "errors": 1, "unanswered": 1}

    def test_what_a_read_only_node_is_asked(self) -> None:
        server = Server(server=False)
        server.ask(Ping())
        assert server.dht.counts == {"received": 1, "ignored": 1}


class TestWithoutRoom:
    """A query that cannot be sent is at once as good as unanswered, to who asks."""

    def fill(self, server: Server, count: int) -> None:
        for number in range(count):
            address = Address(f"21.0.{number >> 8}.{number & 255}", 1)
            server.dht.ping(Contact(b"q" * 20, address), now=server.now)

    def outcomes(self, server: Server) -> list[tuple[int, int]]:
        return [(e.outcome.asked, e.outcome.answered) for e in server.dht.take_events()]

    def test_a_lookup_ends_at_once(self) -> None:
        server = Server()
        server.list(3)
        self.fill(server, MAX_OUTSTANDING)
        server.dht.find(Nodes(b"t" * 20), now=server.now)
        assert self.outcomes(server) == [(3, 0)]
        assert server.dht.counts["not_sent"] == 3

    def test_a_lookup_whose_query_had_to_wait_ends_when_its_turn_comes(self) -> None:
        server = Server()
        server.dht.tick(now=server.now)
        (contact,) = server.list(1)
        for _ in range(PACKETS_PER_SECOND_OUT):
            server.dht.ping(contact, now=server.now)
        server.dht.find(Nodes(b"t" * 20), now=server.now)
        self.fill(server, MAX_OUTSTANDING - PACKETS_PER_SECOND_OUT)
        server.dht.tick(now=server.now + 0.9)
        assert self.outcomes(server) == []
        server.dht.tick(now=server.now + 1.0)
        assert self.outcomes(server) == [(1, 0)]
