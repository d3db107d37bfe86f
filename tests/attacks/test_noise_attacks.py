"""Peers that speak `noise`, well and badly, with code of their own, and real nodes.

Who breaks a rule of the extension is a member here: it knows the feed's key and proves its own. So
what it does is what a member, or somebody who is between a member and the node, can do.
"""

from __future__ import annotations

import contextlib
import os

import pytest
from attacker import DATA, HANDSHAKE, REQUEST, Ended, KeyPair, Listener, field, values_of, varint
from nodes import real_nodes, wait_until
from noise_by_hand import (
    LOW_ORDER,
    NAME,
    NOISE_MESSAGE,
    REKEY_RECORDS,
    Forged,
    is_marked,
    marked_nonce,
)
from noise_peer import NoiseConnection
from told import closings, wait_for_closing

OWNER = KeyPair(bytes(range(32)))
FEED = OWNER.public
MEMBER = KeyPair(bytes(range(1, 33)))
VALUES = [b"secret %04d" % number for number in range(200)]
EXTENSION = NAME.encode()

REQUEST_ALL = varint(REQUEST) + field(1, b"")


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """Starts nodes that hold values, for all tests of the module."""
    with real_nodes(tmp_path_factory.mktemp("noise")) as nodes:

        def start(name, config=""):
            made = nodes.make(name, seed=OWNER.seed, config=config).start()
            made.put(*VALUES)
            return made

        yield start


@pytest.fixture(scope="module")
def node(started):
    """A node that is dialled."""
    return started("owner")


@pytest.fixture(scope="module")
def side(request, node, started):
    """Who has dialled whom: a node, and how a connection with it comes about."""
    if request.param == "dialling":
        yield node, lambda: dial(node)
        return
    with Listener("127.9.1.1") as listener:
        # A connection waits in the listener between the tests, however long they take.
        config = f'[[feeds]]\nkey = "{FEED.hex()}"\npeers = ["{listener.address}"]\n'
        config += (
            "[sync]\nretry_first = 0.05\nretry_longest = 0.05\n[limits]\nhandshake_seconds = 3600\n"
        )
        yield started("dialler", config), lambda: NoiseConnection.accept(listener)


def chain():
    return [OWNER.link(MEMBER.public)]


def dial(node):
    return NoiseConnection.dial(("127.0.0.1", node.port), source="127.7.1.1")


def shake(wire, **changed):
    return wire.shake_hands(FEED, MEMBER, chain(), **changed)


def read_all(wire):
    wire.send_request()
    found = []
    while len(found) < len(VALUES):
        message_id, body = wire.receive()
        if message_id == DATA:
            found += values_of(body)
    return sorted(found)


both_sides = pytest.mark.parametrize("side", ["dialling", "dialled"], indirect=True)


# Who keeps the rules


@both_sides
def test_a_peer_by_hand_exchanges_values_and_says_its_end(side):
    node, connect = side
    before = closings(node)
    with connect() as wire:
        seen = shake(wire)
        assert is_marked(FEED, wire.remote_nonce)
        assert EXTENSION in seen.extensions
        wire.protect()
        node.wait_for_peers(FEED, 1)
        assert set(read_all(wire)) >= set(VALUES)
        wire.send_data([b"written by " + node.folder.name.encode()])
        wait_until(
            lambda: b"written by " + node.folder.name.encode() in node.values(), 10, "the value"
        )
        wire.send_end()
        assert not [kind for kind, _ in wire.wait_for_end() if kind == DATA]
    wait_for_closing(node, "lost", before)


def test_a_node_says_its_end(nodes):
    owner = nodes.make("ending", seed=OWNER.seed).start()
    with dial(owner) as wire:
        shake(wire)
        wire.protect()
        owner.wait_for_peers(FEED, 1)
        assert owner.stop()
        wire.wait_for_end()
        assert wire.said_end
        assert wire.socket.recv(1) == b""


def test_a_node_turns_its_key_when_the_peer_does(node):
    """A frame of an unknown id, a byte a record, until both sides have taken the next key."""
    with protected(dial(node)) as wire:
        content = varint(77) + bytes(REKEY_RECORDS)
        records = [wire.seal(bytes([byte])) for byte in varint(len(content)) + content]
        wire.write(b"".join(len(sealed).to_bytes(2, "big") + sealed for sealed in records))
        assert set(read_all(wire)) >= set(VALUES)


def test_frames_that_come_before_the_handshake_are_bound(node):
    with dial(node) as wire:
        wire.use(FEED)
        wire.send_open()
        wire.receive_open()
        wire.send(78, b"unknown, and part of the prologue")
        wire.send_handshake(MEMBER, chain())
        wire.receive_handshake()
        wire.protect()
        assert set(read_all(wire)) >= set(VALUES)


@pytest.mark.parametrize("at_once", [1, 17, 65_519])
def test_frames_may_be_cut_into_records_anyhow(node, at_once):
    with dial(node) as wire:
        shake(wire)
        wire.protect()
        frame = varint(len(REQUEST_ALL)) + REQUEST_ALL
        wire.send_content(frame * 3, at_once=at_once)
        assert set(read_all(wire)) >= set(VALUES)


# Who breaks them


def told_nothing(wire):
    """The node has ended the connection, and sent no value."""
    try:
        messages = wire.wait_for_end()
    except Forged:
        return
    assert not [body for kind, body in messages if kind == DATA]


def refused(node, wire, kind, before):
    told_nothing(wire)
    wait_for_closing(node, kind, before)


@both_sides
def test_who_is_marked_and_announces_nothing_is_stripped(side):
    node, connect = side
    before = closings(node)
    with connect() as wire:
        shake(wire, extensions=[])
        refused(node, wire, "stripped", before)


@both_sides
def test_who_announces_without_a_mark_is_refused(side):
    node, connect = side
    before = closings(node)
    with connect() as wire:
        shake(wire, nonce=os.urandom(24))
        refused(node, wire, "protocol", before)


@both_sides
def test_a_mark_of_another_feed_is_none(side):
    node, connect = side
    before = closings(node)
    with connect() as wire:
        shake(wire, nonce=marked_nonce(os.urandom(32)))
        refused(node, wire, "protocol", before)


def instead(what):
    """What is sent where a NoiseMessage should be."""

    def send(wire):
        if what == "sync":
            wire.send_sync(bytes(8))
        elif what == "request":
            wire.send_request()
        elif what == "data":
            wire.send_data([b"never stored"])
        elif what == "unknown":
            wire.send(79, b"")
        elif what == "handshake":
            wire.send(HANDSHAKE, field(1, bytes(32)))
        elif what == "long":
            wire.send_frame(varint(20_481))
        else:
            wire.send_noise(bytes(int(what)))

    return send


@both_sides
@pytest.mark.parametrize(
    "what",
    ["sync", "request", "data", "unknown", "handshake", "long", "0", "47", "49", "20000"],
)
def test_nothing_stands_for_a_noise_message(side, what):
    node, connect = side
    before = closings(node)
    with connect() as wire:
        shake(wire)
        if not wire.dialled:
            wire.receive_noise()
        instead(what)(wire)
        refused(node, wire, "protocol", before)
    assert b"never stored" not in node.values()


def speak_noise_with(wire, **changed):
    """Send our NoiseMessage, made with something wrong; in either role."""
    machine = wire.noise_handshake(**changed)
    if not wire.dialled:
        with contextlib.suppress(Forged):  # we go on, from what we have
            machine.read(wire.receive_noise())
    wire.send_noise(machine.write())


@both_sides
@pytest.mark.parametrize("what", ["psk", "prologue", "static", "remote_static"])
def test_who_begins_noise_from_something_else_is_not_authentic(side, what):
    node, connect = side
    before = closings(node)
    with connect() as wire:
        shake(wire)
        speak_noise_with(wire, **{what: os.urandom(32)})
        refused(node, wire, "altered", before)


@both_sides
@pytest.mark.parametrize("place", [0, 31, 32, 47])
def test_a_changed_noise_message_is_not_authentic(side, place):
    node, connect = side
    before = closings(node)
    with connect() as wire:
        shake(wire)
        machine = wire.noise_handshake()
        if not wire.dialled:
            machine.read(wire.receive_noise())
        message = bytearray(machine.write())
        message[place] ^= 1
        wire.send_noise(bytes(message))
        refused(node, wire, "altered", before)


@both_sides
@pytest.mark.parametrize("point", LOW_ORDER[:3], ids=lambda it: it.hex()[:8])
def test_a_key_of_small_order_is_refused(side, point):
    """The sender knows all that the exchange would give, and its tag holds."""
    node, connect = side
    before = closings(node)
    with connect() as wire:
        shake(wire)
        machine = wire.noise_handshake()
        if not wire.dialled:
            machine.read(wire.receive_noise())
        wire.send_noise(machine.write(public=point))
        refused(node, wire, "protocol", before)


@both_sides
def test_a_noise_message_that_comes_twice_is_no_record(side):
    node, connect = side
    before = closings(node)
    with connect() as wire:
        shake(wire)
        machine = wire.noise_handshake()
        if not wire.dialled:
            machine.read(wire.receive_noise())
        message = machine.write()
        wire.send_noise(message)
        wire.send_noise(message)
        # Whatever length the node reads there, so much comes.
        wire.write(bytes(65_537))
        told_nothing(wire)
        wait_until(lambda: closings(node) - before, 10, "a closing")
        assert set(closings(node) - before) <= {"altered", "protocol"}


def protected(wire):
    shake(wire)
    wire.protect()
    return wire


def test_a_noise_message_in_a_record_is_refused(node):
    before = closings(node)
    with protected(dial(node)) as wire:
        wire.send(NOISE_MESSAGE, bytes(48))
        wire.wait_for_end()
        wait_for_closing(node, "protocol", before)


@pytest.mark.parametrize("length", range(16))
def test_a_record_shorter_than_its_tag_is_refused(node, length):
    before = closings(node)
    with protected(dial(node)) as wire:
        wire.write_record(bytes(length))
        wire.wait_for_end()
        wait_for_closing(node, "altered", before)


@pytest.mark.parametrize("length", [16, 17, 1_000, 65_535])
def test_a_record_of_no_key_is_refused(node, length):
    before = closings(node)
    with protected(dial(node)) as wire:
        wire.write_record(os.urandom(length))
        wire.wait_for_end()
        wait_for_closing(node, "altered", before)


def test_what_no_tag_covers_is_no_strike_of_the_peer(node):
    """Somebody on the path could do it as often as he likes, to have a member shut out."""
    for _ in range(12):
        with protected(dial(node)) as wire:
            wire.write_record(b"")
            wire.wait_for_end()
    with protected(dial(node)) as wire:
        assert set(read_all(wire)) >= set(VALUES)


def test_the_old_keystream_has_ended(node):
    """A Request in it, padded with requests to the length that its first bytes say."""
    before = closings(node)
    with dial(node) as wire:
        shake(wire)
        wire.protect()
        frame = varint(len(REQUEST_ALL)) + REQUEST_ALL
        out = wire._out
        assert out is not None
        wire.write(out.apply(frame * 22_000))
        told = [kind for kind, _ in wire.wait_for_end()]
        assert DATA not in told
        wait_until(lambda: closings(node) - before, 10, "a closing")


@pytest.mark.parametrize("behind", ["a byte", "a record", "an end"])
def test_nothing_comes_behind_the_end(node, behind):
    before = closings(node)
    with protected(dial(node)) as wire:
        end = wire.seal(b"")
        more = {
            "a byte": b"\x00",
            "a record": b"\x00\x20" + wire.seal(bytes(16)),
            "an end": b"\x00\x10" + wire.seal(b""),
        }[behind]
        wire.write(b"\x00\x10" + end + more)
        wire.wait_for_end()
        wait_for_closing(node, "altered", before)


@pytest.mark.parametrize("part", [b"\x80", b"\x05", b"\x05\x04abc"])
def test_an_end_inside_a_frame_is_refused(node, part):
    before = closings(node)
    with protected(dial(node)) as wire:
        wire.send_content(part)
        wire.send_end()
        wire.wait_for_end()
        wait_for_closing(node, "protocol", before)


@pytest.mark.parametrize("record", ["none", "forged", "empty", "a byte"])
def test_a_dialler_is_remembered_with_its_first_record_and_not_before(node, record):
    """The first NoiseMessage proves to the node what it knew: the second may never have arrived."""
    key = KeyPair.random()
    with dial(node) as wire:
        wire.shake_hands(FEED, key, [OWNER.link(key.public)])
        wire.protect()
        node.wait_for_peers(FEED, 1)
        if record == "forged":
            wire.write_record(os.urandom(30))
        elif record != "none":
            wire.send_record(b"" if record == "empty" else b"\x05")
            wait_until(lambda: remembers(node, key), 10, "it is remembered")
    node.wait_for_peers(FEED, 0)
    assert remembers(node, key) == (record in ("empty", "a byte"))


@pytest.mark.soak
@pytest.mark.timeout(3_600)
def test_a_member_with_ten_thousand_new_keys_pushes_nobody_out(nodes):
    """One protected stream each, of keys below his own; who was met before is remembered after."""
    owner = nodes.make("owner", seed=OWNER.seed).start()
    friends, thief = [KeyPair.random() for _ in range(20)], KeyPair.random()

    def meet(key, chain, number):
        source = f"127.8.{number // 250 % 250}.{1 + number % 250}"
        with NoiseConnection.dial(("127.0.0.1", owner.port), source=source) as wire:
            wire.shake_hands(FEED, key, chain)
            wire.protect()
            wire.send_end()
            with contextlib.suppress(Ended):
                while True:
                    wire.receive()

    for number, friend in enumerate(friends):
        meet(friend, [OWNER.link(friend.public)], number)
    assert all(remembers(owner, friend) for friend in friends)
    way = OWNER.link(thief.public)
    for number in range(10_300):
        key = KeyPair.random()
        meet(key, [way, thief.link(key.public)], number)
    with owner.client() as client:
        kept = {one["key"] for one in client.noise_keys()}
    assert len(kept) == 10_000
    assert {friend.public.hex() for friend in friends} <= kept


def remembers(node, key) -> bool:
    with node.client() as client:
        return key.public.hex() in {one["key"] for one in client.noise_keys()}


def test_who_goes_without_an_end_was_cut(node):
    before = closings(node)
    with protected(dial(node)) as wire:
        wire.send(77, b"")
    wait_for_closing(node, "cut", before)


@pytest.mark.parametrize("length", [262_145, 2_097_151])
def test_too_long_a_frame_is_refused_in_records_too(node, length):
    before = closings(node)
    with protected(dial(node)) as wire:
        wire.send_content(varint(length))
        wire.wait_for_end()
        wait_for_closing(node, "protocol", before)


@pytest.mark.parametrize("dialled", [True, False])
def test_who_is_slow_with_noise_is_closed_in_time(nodes, dialled):
    with Listener() as listener:
        peers = [] if dialled else [listener.address]
        config = f'[[feeds]]\nkey = "{FEED.hex()}"\npeers = {peers}\n'
        config += "[limits]\nhandshake_seconds = 1\n"
        owner = nodes.make("hasty", seed=OWNER.seed, config=config).start()
        with dial(owner) if dialled else NoiseConnection.accept(listener) as wire:
            shake(wire)
            machine = wire.noise_handshake()
            if not dialled:
                machine.read(wire.receive_noise())
            body = varint(NOISE_MESSAGE) + machine.write()
            wire.socket.settimeout(0.2)
            # A byte now and then does not make it last; the last one never comes.
            for byte in (varint(len(body)) + body)[:-1]:
                try:
                    wire.send_frame(bytes([byte]))
                    wire.receive()
                except TimeoutError:
                    continue
                except Ended:
                    break
            wire.socket.settimeout(120)
            assert wire.wait_for_end() == []
        wait_until(lambda: closings(owner)["slow"], 10, "it was slow")
