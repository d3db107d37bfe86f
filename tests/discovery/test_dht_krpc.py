"""Packets as bytes: those recorded from mainline (Rust), and those that nobody may send."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hyperbloom.addresses import Address
from hyperbloom.discovery.dht.common import bencode
from hyperbloom.discovery.dht.common.compact import decode_address, decode_contacts, encode_address
from hyperbloom.discovery.dht.common.contact import Contact
from hyperbloom.discovery.dht.common.errors import LocalProtocolError, RemoteProtocolError
from hyperbloom.discovery.dht.common.items import MAX_SEQ, mutable_target, sign_item
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
from hyperbloom.discovery.dht.limits import MAX_DEPTH, MAX_PACKET_BYTES, MAX_TRANSACTION_BYTES
from hyperbloom.keys import Identity

VECTORS = json.loads((Path(__file__).parents[1] / "vectors/dht-rust-mainline.json").read_text())
REQUESTS, REPLIES = VECTORS["requests_from_rust_client"], VECTORS["replies_from_rust_server"]
KEY = {name: bytes.fromhex(text) for name, text in VECTORS["key"].items()}
RS = b"RS\x00\x05"
OWN = bytes.fromhex("023266b0469141d5e6cc7c8c93334d8a6e1f0496")
SERVER = bytes.fromhex("33d215c5afc585efdb0bb53d7e6f3f4d7172e1d9")
NEIGHBOUR = Contact(
    bytes.fromhex("ed9031d12cc5ee6b70c69acd59ab337f21ef197b"), Address("127.0.0.1", 58_931)
)
ITEM = sign_item(Identity(KEY["seed"]), salt=KEY["salt"], seq=MAX_SEQ, value=b"5:hello")
PLAIN = sign_item(Identity(KEY["seed"]), salt=b"", seq=1, value=b"5:hello")


def put(item, *, cas):
    return PutMutable(
        token=b"tokn",
        public_key=item.public_key,
        salt=item.salt,
        seq=item.seq,
        value=item.value,
        signature=item.signature,
        cas=cas,
        target=item.target,
    )


QUERIES = {
    "find_node": FindNode(target=OWN),
    "ping": Ping(),
    "get": Get(target=KEY["target"]),
    "get+seq": Get(target=KEY["target"], seq=5),
    "put+cas+salt": put(ITEM, cas=MAX_SEQ),
    "put": put(PLAIN, cas=None),
}
TOKEN = bytes.fromhex("7eac31d5")
ANSWERS = {
    "ping": Response(),
    "find_node": Response(nodes=(NEIGHBOUR,)),
    "get_nothing_stored": Response(nodes=(NEIGHBOUR,), token=TOKEN),
    "put_ok": Response(),
    "get_value": Response(
        nodes=(NEIGHBOUR,),
        token=TOKEN,
        value=b"5:hello",
        public_key=KEY["public"],
        seq=MAX_SEQ,
        signature=ITEM.signature,
    ),
    "get_no_more_recent": Response(nodes=(NEIGHBOUR,), token=TOKEN, seq=MAX_SEQ),
    "err_301": ErrorMessage(code=301, text="CAS mismatched, re-read value and try again."),
    "err_302": ErrorMessage(code=302, text="Sequence number less than current."),
    "err_203": ErrorMessage(code=203, text="Bad token"),
    "err_205": ErrorMessage(code=205, text="Message (v field) too big."),
    "err_206": ErrorMessage(code=206, text="Invalid signature"),
    "err_207": ErrorMessage(code=207, text="salt (salt field) too big."),
    "get_peers": Response(nodes=(NEIGHBOUR,), token=TOKEN),
}


def test_every_recorded_packet_has_its_test() -> None:
    assert set(QUERIES) == set(REQUESTS)
    assert set(ANSWERS) == set(REPLIES)
    assert KEY["target"] == mutable_target(KEY["public"], KEY["salt"])
    assert KEY["target_no_salt"] == mutable_target(KEY["public"], b"")


@pytest.mark.parametrize("name", QUERIES)
def test_recorded_queries_both_ways(name: str) -> None:
    data = bytes.fromhex(REQUESTS[name])
    packet = decode_packet(data)
    assert packet.message == QUERIES[name]
    assert (packet.read_only, packet.version) == (True, RS)
    # To the byte what mainline sends, so that its server takes ours.
    assert encode_packet(packet) == data


@pytest.mark.parametrize("name", ANSWERS)
def test_recorded_answers_both_ways(name: str) -> None:
    data = bytes.fromhex(REPLIES[name])
    packet = decode_packet(data)
    assert packet.message == ANSWERS[name]
    assert packet.observed == Address("127.0.0.1", 58_931)
    assert packet.node_id == (None if name.startswith("err") else SERVER)
    # Mainline says ro = 0 in answers; we never say it there.
    assert data.count(b"2:roi0e") == 1
    assert encode_packet(packet) == data.replace(b"2:roi0e", b"")


def test_the_signature_of_the_vectors() -> None:
    signed = KEY["signable(seq=MAX,v=hello,salt)"]
    assert ITEM.signature == Identity(KEY["seed"]).sign(signed)


MORE = [
    GetPeers(info_hash=b"i" * 20),
    AnnouncePeer(info_hash=b"i" * 20, token=b"t", port=6881, implied_port=False),
    AnnouncePeer(info_hash=b"i" * 20, token=b"t", port=65_535, implied_port=False),
    AnnouncePeer(info_hash=b"i" * 20, token=b"t", port=6881, implied_port=True),
    put(sign_item(Identity(KEY["seed"]), salt=b"", seq=0, value=b"5:hello"), cas=0),
    PutImmutable(token=b"t", value=b"d1:ali1ei-2eee", target=b"x" * 20),
    PutImmutable(token=b"t", value=b"i5e"),
    Response(peers=(Address("192.0.2.1", 7), Address("2001:db8::1", 8))),
    Response(nodes6=(Contact(b"n" * 20, Address("2001:db8::2", 65_535)),)),
    Response(value=b"le", token=b""),
    ErrorMessage(code=201),
]


@pytest.mark.parametrize("message", MORE, ids=lambda message: type(message).__name__)
def test_other_messages_come_back(message) -> None:
    sender = None if isinstance(message, ErrorMessage) else b"s" * 20
    packet = Packet(transaction_id=b"tx", message=message, node_id=sender)
    assert decode_packet(encode_packet(packet)) == packet


def test_queries_of_real_nodes_with_the_least_in_them() -> None:
    """libtorrent and bittorrent-dht leave out `v`, `ro`, `target`, and choose 2-byte ids."""
    data = b"d1:ad2:id20:" + b"a" * 20 + b"5:token2:xy1:v1:ve1:q3:put1:t2:ab1:y1:qe"
    packet = decode_packet(data)
    assert packet.message == PutImmutable(token=b"xy", value=b"1:v")
    assert (packet.transaction_id, packet.read_only, packet.version) == (b"ab", False, None)


def body(**fields) -> dict:
    return {key.encode(): value for key, value in fields.items()}


def query(name: str, **arguments) -> bytes:
    arguments = body(id=b"s" * 20) | body(**arguments)
    return bencode.encode(body(t=b"tx", y=b"q", q=name.encode(), a=arguments))


def response(**fields) -> bytes:
    return bencode.encode(body(t=b"tx", y=b"r", r=body(id=b"s" * 20) | body(**fields)))


@pytest.mark.parametrize(
    "data",
    [
        query("find_node"),
        query("find_node", target=b"short"),
        query("find_node", target=7),
        query("get", target=b"t" * 20, seq=b"1"),
        query("get_peers", info_hash=b"i" * 21),
        query("announce_peer", info_hash=b"i" * 20, token=b"t"),
        query("announce_peer", info_hash=b"i" * 20, token=b"t", port=65_536),
        query("announce_peer", info_hash=b"i" * 20, port=1),
        query("announce_peer", info_hash=b"i" * 20, token=b"t", port=0, implied_port=0),
        query("put", token=b"t"),
        query("put", v=b"v"),
        query("put", token=b"t", v=b"v", k=b"k" * 31, seq=1, sig=b"s" * 64),
        query("put", token=b"t", v=b"v", k=b"k" * 32, seq=1, sig=b"s" * 63),
        query("put", token=b"t", v=b"v", k=b"k" * 32, sig=b"s" * 64),
        query("put", token=b"t", v=b"v", k=b"k" * 32, seq=-1, sig=b"s" * 64),
    ],
)
def test_arguments_that_do_not_fit(data: bytes) -> None:
    message = decode_packet(data).message
    assert isinstance(message, UnknownQuery)
    assert message.problem


def test_an_unknown_query() -> None:
    assert decode_packet(query("vote")).message == UnknownQuery()


NESTED = b"l" * (MAX_DEPTH - 1) + b"e" * (MAX_DEPTH - 1)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"d",
        b"le",
        b"i1e",
        b"de",
        b"d1:t2:txe",
        b"d1:t2:tx1:y1:xe",
        b"d1:ti1e1:y1:qe",
        b"d1:q4:ping1:t2:tx1:y1:qe",
        b"d1:ade1:q4:ping1:t2:tx1:y1:qe",
        b"d1:ad2:id19:" + b"a" * 19 + b"e1:q4:ping1:t2:tx1:y1:qe",
        b"d1:rd2:id21:" + b"a" * 21 + b"e1:t2:tx1:y1:re",
        b"d1:ele1:t2:tx1:y1:ee",
        b"d1:el3:abce1:t2:tx1:y1:ee",
        b"d1:t2:tx1:y1:q1:ad2:id20:" + b"a" * 20 + b"e1:q4:pinge",  # keys not sorted
        query("ping") + b"x",
        response(nodes=b"n" * 27),
        response(nodes6=b"n" * 26),
        response(nodes=[]),
        response(values=b"v" * 6),
        response(values=[b"v" * 7]),
        response(values=[1]),
        response(k=b"k" * 31),
        response(sig=b"s" * 65),
        response(seq=2**63),
        response(seq=b"1"),
        response(token=1),
        response(v=[-(2**63) - 1]),
        b"d1:rd2:id20:" + b"a" * 20 + b"1:vl" + NESTED + b"ee1:t2:tx1:y1:re",
    ],
)
def test_what_is_no_packet(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_packet(data)


class TestLimits:
    def test_length(self) -> None:
        room = MAX_PACKET_BYTES - len(response(v=b"x" * 1_000)) + 1_000
        assert decode_packet(response(v=b"x" * room)).node_id == b"s" * 20
        with pytest.raises(RemoteProtocolError):
            decode_packet(response(v=b"x" * (room + 1)))

    def test_the_longest_is_sent(self) -> None:
        def packet(length: int) -> Packet:
            value = b"%d:%b" % (length, bytes(length))
            return Packet(transaction_id=b"t", message=Response(value=value), node_id=b"s" * 20)

        room = 1_000 + MAX_PACKET_BYTES - len(encode_packet(packet(1_000)))
        assert len(encode_packet(packet(room))) == MAX_PACKET_BYTES
        with pytest.raises(LocalProtocolError, match="a packet of"):
            encode_packet(packet(room + 1))

    def test_nothing_longer_is_sent(self) -> None:
        message = Response(value=b"2000:" + b"x" * 2_000)
        with pytest.raises(LocalProtocolError):
            encode_packet(Packet(transaction_id=b"t", message=message, node_id=b"s" * 20))

    def test_depth(self) -> None:
        bencode.decode(b"l" * MAX_DEPTH + b"e" * MAX_DEPTH)
        with pytest.raises(RemoteProtocolError):
            bencode.decode(b"l" * (MAX_DEPTH + 1) + b"e" * (MAX_DEPTH + 1))
        with pytest.raises(RemoteProtocolError):
            bencode.decode(b"d1:a" * (MAX_DEPTH + 1) + b"0:" + b"e" * (MAX_DEPTH + 1))

    def test_transaction_id(self) -> None:
        def ping(length: int) -> bytes:
            packet = Packet(transaction_id=b"t" * length, message=Ping(), node_id=b"s" * 20)
            return encode_packet(packet)

        assert decode_packet(ping(MAX_TRANSACTION_BYTES)).message == Ping()
        with pytest.raises(RemoteProtocolError):
            decode_packet(ping(MAX_TRANSACTION_BYTES + 1))

    @pytest.mark.parametrize("number", [2**63 - 1, -(2**63)])
    def test_integers(self, number: int) -> None:
        assert bencode.decode(b"i%de" % number) == number
        with pytest.raises(RemoteProtocolError):
            bencode.decode(b"i%de" % (number + (1 if number > 0 else -1)))


@pytest.mark.parametrize("data", [b"i-0e", b"i01e", b"01:a", b"d1:bi1e1:ai1ee", b"i1ei1e"])
def test_what_would_not_come_back_is_refused(data: bytes) -> None:
    """Signatures are over the bytes of v, so a second form of a value must not be read."""
    with pytest.raises(RemoteProtocolError):
        bencode.decode(data)


def test_compact_addresses() -> None:
    for address in (Address("1.2.3.4", 5), Address("2001:db8::7", 65_535)):
        assert decode_address(encode_address(address)) == address
    with pytest.raises(LocalProtocolError):
        encode_address(Address("example.org", 1))
    with pytest.raises(RemoteProtocolError):
        decode_address(b"12345")
    assert decode_contacts(b"n" * 20 + b"\x01\x02\x03\x04\x00\x00") == ()


@pytest.mark.parametrize(
    "make",
    [
        lambda an_id: FindNode(target=an_id),
        lambda an_id: GetPeers(info_hash=an_id),
        lambda an_id: AnnouncePeer(info_hash=an_id, token=b"t", port=1, implied_port=False),
        lambda an_id: Get(target=an_id),
    ],
    ids=["find_node", "get_peers", "announce_peer", "get"],
)
def test_what_is_asked_about_has_20_bytes(make):
    make(bytes(20))
    for length in (0, 19, 21):
        with pytest.raises(ValueError, match="20 bytes"):
            make(bytes(length))


@pytest.mark.parametrize("sender", [None, b"s" * 19, b"s" * 21])
@pytest.mark.parametrize("message", [Ping(), Response()])
def test_only_an_error_goes_without_an_id(message, sender) -> None:
    with pytest.raises(LocalProtocolError, match="sender's id"):
        encode_packet(Packet(transaction_id=b"t", message=message, node_id=sender))


@pytest.mark.parametrize("seen", [b"12345", b"", 7, [b"123456"]])
def test_an_address_that_cannot_be_read_is_left_out(seen) -> None:
    """Nodes write all kinds of things into `ip`; the rest of such a packet is good."""
    data = bencode.encode(body(t=b"tx", y=b"r", ip=seen, r=body(id=b"s" * 20)))
    assert decode_packet(data).observed is None


def test_what_is_announced_from_its_own_port_names_none() -> None:
    data = query("announce_peer", info_hash=b"i" * 20, token=b"t", implied_port=1)
    message = decode_packet(data).message
    assert message == AnnouncePeer(info_hash=b"i" * 20, token=b"t", port=0, implied_port=True)
