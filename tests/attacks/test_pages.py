"""What docs/wire.md and the pages of the extensions say, done to real nodes by code of its own.

Each line of the table "What closes, what is a strike" is a case here; so is each rule that another
implementation has to know and cannot see from the bytes of an honest peer.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import re
import struct
import time
from itertools import islice
from pathlib import Path

import pytest
from attacker import (
    DATA,
    FILTER_OPTIONS,
    HANDSHAKE,
    LINK,
    REQUEST,
    SYNC,
    Connection,
    Ended,
    KeyPair,
    field,
    fields_of,
    hashed,
    values_of,
    varint,
)
from nacl.signing import VerifyKey
from nodes import real_nodes, wait_until
from noise_by_hand import NOISE_MESSAGE
from noise_peer import NoiseConnection
from reconciler import (
    DIGEST,
    DIGEST_REQUEST,
    ELEMENT_KEY,
    SKETCH,
    SKETCH_REQUEST,
    VALUES_WANTED,
    WHOLE,
    Asked,
    Symbols,
    check_key,
    check_of,
    digest,
    id_of,
    mix,
    peel,
    sketch_request,
    values_wanted,
    walk,
)
from set_digests import digest_of, keyed_blake3
from told import metrics_of

OWNER = KeyPair(bytes(range(32)))
VALUES = [b"value %02d" % number for number in range(20)]
SPLITS, DIGESTS, SYMBOLS = b"split-replies", b"set-digest-1", b"reconcile-1"
TREE, RENEWAL = b"broadcast-tree-1", b"renew-links-1"
EVERYTHING = (SPLITS, DIGESTS, SYMBOLS, TREE, RENEWAL)


@pytest.fixture(scope="module")
def owner(tmp_path_factory):
    with real_nodes(tmp_path_factory.mktemp("pages")) as nodes:
        node = nodes.make("owner", seed=OWNER.seed, config="[limits]\nstrikes = 1000\n").start()
        node.put(*VALUES)
        yield node


@contextlib.contextmanager
def member(node, key=None, extensions=(), kind=Connection, **more):
    key = key or KeyPair.random()
    chain = more.pop("chain", [OWNER.link(key.public)])
    with kind.dial(("127.0.0.1", node.port)) as wire:
        if kind is NoiseConnection:
            extensions = (b"noise-1", *extensions)
        wire.shake_hands(OWNER.public, key, chain, extensions=extensions, **more)
        if kind is NoiseConnection:
            wire.protect()
        yield wire


def strikes_of(node) -> int:
    """How many the node has counted since its start."""
    found = re.search(r"^hyperbloom_strikes_total (\S+)", metrics_of(node), re.MULTILINE)
    return int(float(found[1]))


def stays(wire) -> bool:
    """Whether the connection is there, behind all that was sent: a question is answered."""
    wire.send_request(b"value 07", b"value 08")
    try:
        while True:
            message_id, body = wire.receive()
            if message_id == DATA and values_of(body) == [b"value 07"]:
                return True
    except Ended:
        return False


def framed(content: bytes) -> bytes:
    return varint(len(content)) + content


def padded(size: int) -> bytes:
    """The unknown id 99 in so many bytes."""
    return b"\xe3" + b"\x80" * (size - 2) + b"\x00"


def sync_body(bloom=bytes(8), *, size=64, n=3, seed=0, limit=None) -> bytes:
    body = field(1, bloom) + field(2, size) + field(3, n) + field(4, seed)
    return body + (b"" if limit is None else field(5, limit))


def signed(wire, values) -> bytes:
    return b"".join(field(1, value) for value in values) + field(
        2, wire.key.data_signature(OWNER.public, values)
    )


def forged_chain() -> bytes:
    stranger = KeyPair.random()
    return stranger.link(OWNER.public)


NEITHER, STRIKE, BOTH = "neither", "strike", "both"

#: What a member sends, and what becomes of it: as the table of the page has it.
DONE = {
    "a frame of length 0": (BOTH, lambda w: w.send_frame(b"\x00")),
    "a length of four bytes": (BOTH, lambda w: w.send_frame(b"\x85\x80\x80\x00" + bytes(5))),
    "a frame of 262,145 bytes": (BOTH, lambda w: w.send_frame(varint(262_145))),
    "a padded length": (NEITHER, lambda w: w.send_frame(b"\x82\x80\x00\x63a")),
    "a padded id": (NEITHER, lambda w: w.send_frame(framed(b"\xe3\x80\x80\x00a"))),
    "an id of ten bytes": (NEITHER, lambda w: w.send_frame(framed(padded(10) + b"a"))),
    "an id of eleven bytes": (BOTH, lambda w: w.send_frame(framed(padded(11) + b"a"))),
    "an id without an end": (BOTH, lambda w: w.send_frame(framed(b"\x84\x80"))),
    "an unknown id": (NEITHER, lambda w: w.send(99, os.urandom(50))),
    "a second Handshake": (BOTH, lambda w: w.send(HANDSHAKE, bytes(10))),
    "a body that is no protobuf": (BOTH, lambda w: w.send(REQUEST, b"\x0a\xff")),
    "a field that is missing": (BOTH, lambda w: w.send(REQUEST, field(3, 1))),
    "a field of another kind": (BOTH, lambda w: w.send(REQUEST, field(1, 5))),
    "an unknown field": (NEITHER, lambda w: w.send(REQUEST, field(1, b"") + field(77, b"x"))),
    "a field twice": (NEITHER, lambda w: w.send(REQUEST, field(1, b"a") + field(1, b"x"))),
    "a limit of 0": (NEITHER, lambda w: w.send(REQUEST, field(1, b"") + field(3, 0))),
    "an empty end": (NEITHER, lambda w: w.send(REQUEST, field(1, b"") + field(2, b""))),
    "an end before its start": (
        NEITHER,
        lambda w: w.send(REQUEST, field(1, b"b") + field(2, b"a")),
    ),
    "a filter of 0 bits": (BOTH, lambda w: w.send(SYNC, sync_body(size=0))),
    "a filter of 0 functions": (BOTH, lambda w: w.send(SYNC, sync_body(n=0))),
    "a filter of 64 functions": (NEITHER, lambda w: w.send(SYNC, sync_body(n=64))),
    "a filter of 65 functions": (STRIKE, lambda w: w.send(SYNC, sync_body(n=65))),
    "a filter that is too short": (BOTH, lambda w: w.send(SYNC, sync_body(size=65))),
    "a filter with 3 bytes of padding": (NEITHER, lambda w: w.send(SYNC, sync_body(bytes(12)))),
    "a filter that is too long": (BOTH, lambda w: w.send(SYNC, sync_body(bytes(13)))),
    "recommended filters of 0 bits": (BOTH, lambda w: w.send(FILTER_OPTIONS, b"\x08\x00\x08\x01")),
    "recommended filters": (NEITHER, lambda w: w.send(FILTER_OPTIONS, b"\x08\x40\x08\x03")),
    "a Data without values": (BOTH, lambda w: w.send(DATA, signed(w, []))),
    "a Data with an empty value": (BOTH, lambda w: w.send(DATA, signed(w, [b"a", b""]))),
    "a Data with a value twice": (BOTH, lambda w: w.send(DATA, signed(w, [b"a", b"a"]))),
    "a Data without a signature": (BOTH, lambda w: w.send(DATA, field(1, b"a"))),
    "a signature of 63 bytes": (BOTH, lambda w: w.send(DATA, field(1, b"a") + field(2, bytes(63)))),
    "a wrong signature": (STRIKE, lambda w: w.send(DATA, field(1, b"a") + field(2, bytes(64)))),
    "a Data signed by another member": (
        STRIKE,
        lambda w: w.send_data(
            [b"another's"], signature=KeyPair.random().data_signature(OWNER.public, [b"another's"])
        ),
    ),
    "a Link that is of no use": (NEITHER, lambda w: w.send(LINK, field(1, bytes(137)))),
    "a Link without its field": (BOTH, lambda w: w.send(LINK, b"")),
    "an extension's body that breaks its rules": (BOTH, lambda w: w.send(4365, bytes(3))),
    "bytes behind an extension's body": (BOTH, lambda w: w.send(4365, bytes(4) + WHOLE + b"x")),
    "a Digest that was not asked for": (
        NEITHER,
        lambda w: w.send(4366, struct.pack(">IQ32xQ32x", 99, 0, 0) + WHOLE),
    ),
    "a Sketch that was not asked for": (
        NEITHER,
        lambda w: w.send(4368, struct.pack(">IIIQ32x", 99, 0, 0, 0)),
    ),
    "ids that nobody has": (NEITHER, lambda w: w.send(4369, bytes(4) + bytes(16))),
    "a renewed chain that is forged": (STRIKE, lambda w: w.send(4373, forged_chain())),
}


@pytest.mark.parametrize("what", DONE)
def test_what_closes_and_what_is_a_strike(owner, what):
    meant, do = DONE[what]
    before = strikes_of(owner)
    with member(owner, extensions=EVERYTHING) as wire:
        with contextlib.suppress(Ended):
            do(wire)
        is_here = stays(wire)
    struck = strikes_of(owner) - before
    assert (is_here, struck) == {NEITHER: (True, 0), STRIKE: (True, 1), BOTH: (False, 1)}[meant]


@pytest.mark.parametrize("kind", [Connection, NoiseConnection])
def test_who_has_proved_nothing_is_closed_and_has_no_strike(owner, kind):
    """Whatever comes where a Handshake, or a NoiseMessage, has to come."""
    for content in (b"\x01" + sync_body(), b"\x03" + field(1, b"a")):
        with kind.dial(("127.0.0.1", owner.port)) as wire:
            wire.use(OWNER.public)
            wire.send_open()
            wire.receive_open()
            wire.send_frame(framed(content))
            assert [kind for kind, _ in wire.wait_for_end()] == [HANDSHAKE]
    assert owner.peers() == []


def test_an_unknown_id_is_skipped_before_the_handshake_and_not_before_the_noise_message(owner):
    """Between the two only the NoiseMessage is taken; all else closes, and is no strike."""
    key = KeyPair.random()
    for is_early in (True, False):
        with NoiseConnection.dial(("127.0.0.1", owner.port)) as wire:
            wire.use(OWNER.public)
            wire.send_open()
            wire.receive_open()
            if is_early:
                wire.send(99, b"skipped")
            wire.send_handshake(key, [OWNER.link(key.public)])
            wire.receive_handshake()
            if not is_early:
                wire.send(99, b"not skipped")
                assert wire.wait_for_end() == []
                continue
            wire.protect()
            assert stays(wire)
    for body in (bytes(48), bytes(47)):
        with NoiseConnection.dial(("127.0.0.1", owner.port)) as wire:
            wire.shake_hands(OWNER.public, key, [OWNER.link(key.public)])
            wire.send(NOISE_MESSAGE, body)
            assert wire.wait_for_end() == []
    assert [one["strikes"] for one in owner.peers()] == []


#: What is done on a protected stream, and the strikes that it is: the node says no end after it.
BREACHES = {
    "a record that is not authentic": (0, lambda wire: wire.write_record(os.urandom(40))),
    "an end inside a frame": (1, lambda wire: (wire.send_content(b"\x05\x04"), wire.send_end())),
    "a body that breaks a rule": (1, lambda wire: wire.send(DIGEST_REQUEST, bytes(3))),
    "bytes that came with the end": (0, lambda wire: wire.write(both_records(wire))),
}


def both_records(wire) -> bytes:
    """The end and an unknown message behind it, to be sent at once."""
    sealed = wire.seal(b""), wire.seal(b"\x01\x63")
    return b"".join(len(one).to_bytes(2, "big") + one for one in sealed)


@pytest.mark.parametrize("what", BREACHES)
def test_a_protected_stream_that_breaks_a_rule_is_closed_without_an_end(owner, what):
    strikes, do = BREACHES[what]
    before = strikes_of(owner)
    with member(owner, kind=NoiseConnection, extensions=[DIGESTS]) as wire:
        assert stays(wire)
        do(wire)
        wire.wait_for_end()
        assert not wire.said_end
        assert wire.socket.recv(1) == b"", "a FIN, and no reset"
    assert strikes_of(owner) == before + strikes


def test_bytes_that_come_behind_the_end_are_not_read(owner):
    with member(owner, kind=NoiseConnection) as wire:
        wire.send_request(b"value 07", b"value 08")
        wire.send_end()
        time.sleep(0.5)
        wire.send_record(b"\x01\x63")
        seen = [values_of(body) for kind, body in wire.wait_for_end() if kind == DATA]
        assert (seen, wire.said_end) == ([[b"value 07"]], True)


def test_a_key_that_has_spoken_noise_and_does_not_now_is_refused_by_a_bare_fin(owner):
    key, before = KeyPair.random(), strikes_of(owner)
    with member(owner, key, kind=NoiseConnection) as wire:
        assert stays(wire)
    with member(owner, key) as wire:
        assert wire.wait_for_end() == []
    assert strikes_of(owner) == before


# What the bytes of an honest peer do not show


def answer(wire):
    """The next Data with any of VALUES; what an earlier test has brought may be on its way."""
    while True:
        kind, body = wire.receive()
        if kind == DATA and set(values_of(body)) & set(VALUES):
            return values_of(body)


def test_an_empty_end_is_an_end_and_not_the_lack_of_one(owner):
    with member(owner) as wire:
        wire.send(REQUEST, field(1, b"") + field(2, b""))
        wire.send(SYNC, sync_body() + field(6, field(1, b"") + field(2, b"")))
        wire.send_request(b"value 19")
        assert answer(wire) == [b"value 19"]


def test_a_field_that_comes_twice_counts_by_its_last(owner):
    with member(owner) as wire:
        wire.send(REQUEST, field(1, b"") + field(1, b"value 19"))
        assert answer(wire) == [b"value 19"]


def test_a_limited_answer_is_the_first_in_byte_order(owner):
    with member(owner) as wire:
        wire.send_request(b"value 03", limit=3)
        assert answer(wire) == VALUES[3:6]
        wire.send(SYNC, sync_body(limit=4))
        assert answer(wire) == VALUES[:4]


def test_data_is_signed_by_the_key_that_the_sender_has_proved(nodes):
    """By the last key of its own Handshake's chain: not by the feed's, nor whoever wrote it."""
    feed = KeyPair.random()
    config = f'[[feeds]]\nkey = "{feed.public.hex()}"\n'
    node = nodes.make("member", config=config).start()
    with node.client() as client:
        client.add_links([feed.link(node.key)], feed=feed.public.hex())
    key = KeyPair.random()
    with Connection.dial(("127.0.0.1", node.port)) as wire:
        seen = wire.shake_hands(feed.public, key, [feed.link(key.public)])
        assert seen.key == node.key
        wire.send_data([b"ours"])
        node.wait_for_count(feed.public, 1)
        wire.send_request()
        parts = dict(fields_of(wire.receive()[1]))
        covered = hashed(feed.public + struct.pack(">Q", 1) + b"ours")
        VerifyKey(node.key).verify(covered, bytes(parts[2]))


def test_each_digest_request_is_answered(owner):
    """Of a whole feed, at once; so each of a hundred that come together is."""
    with member(owner, extensions=[DIGESTS]) as wire:
        wire.drain(0.5)
        bodies = [struct.pack(">I", number) + WHOLE for number in range(100)]
        wire.send_frame(b"".join(framed(varint(4365) + body) for body in bodies))
        numbers = []
        while len(numbers) < 100:
            message_id, body = wire.receive()
            if message_id == 4366:
                numbers.append(int.from_bytes(body[:4], "big"))
        assert numbers == list(range(100))


def test_what_split_replies_permits(nodes):
    """Who does not announce it is asked with a limit, and is sent no FilterOptions."""
    node = nodes.make("full", seed=OWNER.seed).start()
    node.put(*[b"%05d" % number + bytes(60) for number in range(3_000)])
    for extensions, limited, options in (((), True, 0), ([SPLITS], False, 1)):
        with member(node, extensions=extensions) as wire:
            wire.send(SYNC, sync_body(b"\xff" * 8, n=1))
            wire.send(SYNC, sync_body(n=65))
            messages = wire.drain(3.0)
            syncs = [dict(fields_of(body)) for kind, body in messages if kind == SYNC]
            assert syncs
            assert {5 in one for one in syncs} == {limited}
            assert [kind for kind, _ in messages].count(FILTER_OPTIONS) == options


def test_the_id_of_a_handshake_tells_two_connections_of_one_process_apart(owner):
    """The same id and key: a twin, and the newer goes. Another id: both stay. It is not signed."""
    key, peer_id = KeyPair.random(), os.urandom(32)

    def connect(peer_id):
        wire = Connection.dial(("127.0.0.1", owner.port))
        wire.use(OWNER.public)
        wire.send_open()
        wire.receive_open()
        wire.send_handshake(key, [OWNER.link(key.public)], peer_id=peer_id)
        return wire, wire.receive_handshake().id

    (first, node_id), (second, again) = connect(peer_id), connect(peer_id)
    other, _ = connect(os.urandom(32))
    assert node_id == again, "the node's own is that of its process"
    second.wait_for_end()
    assert stays(first)
    assert stays(other)
    for wire in (first, second, other):
        wire.close()
    wait_until(lambda: owner.peers() == [], 10, "they are gone")


# ValuesWanted in a salted try


def salted_by_hand(identifier: bytes, salt: bytes) -> bytes:
    """As the page has it."""
    a, b = struct.unpack("<QQ", identifier)
    k = struct.unpack("<QQ", salt)
    for r in range(4):
        a, b = b, a ^ mix(b + k[r % 2] + r * 0x9E3779B97F4A7C15 & 2**64 - 1)
    return struct.pack("<QQ", a, b)


def unsalted_by_hand(identifier: bytes, salt: bytes) -> bytes:
    """Its inverse, as the page has it."""
    a, b = struct.unpack("<QQ", identifier)
    k = struct.unpack("<QQ", salt)
    for r in (3, 2, 1, 0):
        a, b = b ^ mix(a + k[r % 2] + r * 0x9E3779B97F4A7C15 & 2**64 - 1), a
    return struct.pack("<QQ", a, b)


SALT = bytes(range(16, 32))


def test_a_check_is_written_as_its_bytes():
    number = check_of(bytes(range(16)), check_key(bytes(range(32))))
    page = (Path(__file__).parents[2] / "docs" / "extensions" / "reconcile.md").read_text()
    assert f"`{number.to_bytes(8, 'little').hex()}` is the number 0x{number:016X}." in page


def test_the_vectors_of_salted_ids():
    for plain, mixed in (
        ("000102030405060708090a0b0c0d0e0f", "ee75b2523a334bb1d899c03b6212c320"),
        ("ff" * 16, "a14387d5981855e2bb50824849c03066"),
        ("00" * 16, "fc9fca1fe258a85e16bacc88d2ccf6c4"),
    ):
        assert salted_by_hand(bytes.fromhex(plain), SALT).hex() == mixed
        assert unsalted_by_hand(bytes.fromhex(mixed), SALT).hex() == plain
    for _ in range(100):
        one, salt = os.urandom(16), os.urandom(16)
        assert unsalted_by_hand(salted_by_hand(one, salt), salt) == one


def test_values_wanted_of_a_salted_try_names_values_by_their_own_ids(owner):
    """The symbols are of salted ids; what is asked for afterwards is named without the salt."""
    with member(owner, extensions=[SPLITS, DIGESTS, SYMBOLS]) as wire:
        wire.drain(0.3)
        wire.send(4367, struct.pack(">IB16sII", 7, 16, SALT, 0, 64) + WHOLE)
        while True:
            message_id, body = wire.receive()
            if message_id == 4368:
                break
        count = int.from_bytes(body[8:12], "big")
        assert count == 64
        total = [0, 0, 0, 0]
        for value in VALUES:
            words = struct.unpack("<4I", salted_by_hand(id_of(value), SALT))
            total = [one + other & 2**32 - 1 for one, other in zip(total, words, strict=True)]
        assert struct.unpack("<4I", body[52:68]) == tuple(total), "symbol 0 is of all, salted"
        wire.send(4369, struct.pack(">I", 7) + salted_by_hand(id_of(VALUES[3]), SALT))
        wire.send(4369, struct.pack(">I", 7) + id_of(VALUES[5]))
        while True:
            message_id, body = wire.receive()
            if message_id == DATA:
                break
        assert values_of(body) == [VALUES[5]]


def test_a_banned_key_is_let_in_again_after_its_time(nodes):
    config = "[limits]\nstrikes = 3\nban_seconds = 2\n"
    node = nodes.make("bans", seed=OWNER.seed, config=config).start()
    node.put(*VALUES)
    key = KeyPair.random()
    with member(node, key) as wire, contextlib.suppress(Ended):
        for _ in range(3):
            wire.send(DATA, field(1, b"a") + field(2, bytes(64)))
        wire.wait_for_end()
    with member(node, key) as wire:
        assert not stays(wire)
    with member(node) as wire:
        assert stays(wire), "another key from the same address"
    time.sleep(2.5)
    with member(node, key) as wire:
        assert stays(wire)


def test_the_try_with_a_salt_that_the_page_prints():
    """Walked through by hand, from the values to the ValuesWanted; each byte stands on the page."""
    page = (Path(__file__).parents[2] / "docs" / "extensions" / "reconcile.md").read_text()
    printed = page.split("### A try with a salt")[1].split("\n## ")[0]
    key = check_key(bytes(range(32)))
    own, came = Symbols(4), Symbols(4)
    for values, symbols in (((b"a", b"b"), own), ((b"b", b"c"), came)):
        for value in values:
            symbols.add(salted_by_hand(id_of(value), SALT), key)
    for symbols, sign in ((own, "its own"), (came, "what came")):
        packed = symbols.pack(2)
        for at in range(0, 96, 24):
            assert packed[at : at + 24].hex() in printed or not any(packed[at : at + 24]), sign
    assert "\n    " + came.pack(2)[96:].hex() + "\n" in printed
    for value in (b"a", b"b", b"c"):
        mixed = salted_by_hand(id_of(value), SALT)
        check = check_of(mixed, key).to_bytes(8, "little").hex()
        row = f"| `{value.decode()}` | `{id_of(value).hex()}` | `{mixed.hex()}` | `{check}` | "
        assert row + ", ".join(map(str, islice(walk(mixed), 4))) in printed
    found = peel(came.minus(own), key)
    assert found is not None
    theirs, mine = ({unsalted_by_hand(one, SALT) for one in some} for some in found)
    assert (theirs, mine) == ({id_of(b"c")}, {id_of(b"a")})
    assert "\n    00000004 " + id_of(b"c").hex() + "\n" in printed


# Elements, digests, and how symbols are asked for


def test_the_elements_and_digests_that_the_page_prints():
    page = (Path(__file__).parents[2] / "docs" / "extensions" / "set-digest.md").read_text()
    elements = {one: keyed_blake3(ELEMENT_KEY, one, 512) for one in (b"a", b"b", b"c")}
    for value, element in elements.items():
        ends = f"`{element[:16].hex()}` | `{element[-8:].hex()}`"
        assert f"| `{value.decode()}` | {ends} |" in page
    assert hashlib.sha256(elements[b"a"]).hexdigest() in page
    for held in ([b"a"], [b"a", b"b"], [b"b", b"c"], [b"a", b"b", b"c"]):
        total = sum(int.from_bytes(elements[one], "little") for one in held) % 2**4096
        added = total.to_bytes(512, "little")
        names = ", ".join(f"`{one.decode()}`" for one in held)
        row = f"| {names} | `{added[:16].hex()}` | `{added[-8:].hex()}` | "
        assert row + f"`{digest_of(held).hex()}` |" in page


def sketches_in(messages) -> list[tuple[int, int, int]]:
    """Their numbers, firsts and symbols."""
    return [struct.unpack_from(">III", body) for kind, body in messages if kind == SKETCH]


def send_at_once(wire, *messages):
    wire.send_frame(b"".join(framed(varint(kind) + body) for kind, body in messages))


def test_symbols_and_values_are_asked_for_without_anything_before(owner):
    """No Digest, no try, any number; unknown ids bring nothing; beyond the end no symbols come."""
    with member(owner, extensions=EVERYTHING[:3]) as wire:
        ids = sorted([id_of(VALUES[3]), id_of(VALUES[4]), bytes(16)])
        wire.send(VALUES_WANTED, values_wanted(991, ids))
        wire.send(VALUES_WANTED, values_wanted(0, [bytes(16)]))
        wire.send_request(b"value 09", b"value 10")
        seen = [values_of(body) for kind, body in wire.drain(0.5) if kind == DATA]
        assert seen in ([VALUES[3:5], [VALUES[9]]], [VALUES[4:2:-1], [VALUES[9]]])
        wire.send(SKETCH_REQUEST, sketch_request(5, 64, 8))
        assert sketches_in(wire.drain(0.5)) == [(5, 64, 0)], "a try begins at 0"
        wire.send(SKETCH_REQUEST, sketch_request(5, 0, 5_000))
        assert sketches_in(wire.drain(0.5)) == [(5, 0, 4_096), (5, 4_096, 0)]
        wire.send(SKETCH_REQUEST, sketch_request(5, 10, 20))
        assert sketches_in(wire.drain(0.5)) == [(5, 10, 20)]


def test_one_question_for_symbols_at_a_time(owner):
    with member(owner, extensions=EVERYTHING[:3]) as wire:
        wire.drain(0.3)
        first, more = sketch_request(7, 0, 64), sketch_request(7, 64, 32)
        send_at_once(wire, (SKETCH_REQUEST, first), (SKETCH_REQUEST, more))
        assert sketches_in(wire.drain(0.5)) == [(7, 64, 32)], "it takes the first one's place"
        first, over = sketch_request(8, 0, 64), values_wanted(8, [])
        send_at_once(wire, (SKETCH_REQUEST, first), (VALUES_WANTED, over))
        assert sketches_in(wire.drain(0.5)) == [(8, 0, 0)], "the try is over"


def test_a_try_with_a_salt_an_hour(owner):
    """The first one of a key may be its first try; the next is answered with no symbols."""
    with member(owner, extensions=EVERYTHING[:3]) as wire:
        for number, symbols in ((1, 64), (2, 0)):
            wire.send(SKETCH_REQUEST, sketch_request(number, 0, 64, salt=SALT))
            assert sketches_in(wire.drain(0.5)) == [(number, 0, symbols)]


def test_how_many_symbols_are_asked_for_at_first(nodes):
    """S(d) + 128, d being the difference of the counts: here of 20,000 and 19,960."""
    node = nodes.make("asks", seed=OWNER.seed).start()
    for at in range(0, 20_000, 5_000):
        node.put(*[b"%05d" % number for number in range(at, at + 5_000)])
    with member(node, extensions=EVERYTHING[:3]) as wire:
        while True:
            message_id, body = wire.receive()
            if message_id == DIGEST_REQUEST:
                number = int.from_bytes(body[:4], "big")
                wire.send(DIGEST, digest(number, 19_960, os.urandom(32)))
            if message_id == SKETCH_REQUEST:
                break
    asked = Asked.parse(body)
    assert (asked.first, asked.count) == (0, math.ceil(1.36 * 40 + 0.9 * math.sqrt(40)) + 128)
