"""How a connection ends: what was asked for before the end is answered, then the node says its own.

The peer is a member with code of its own. It asks, ends its half (by a record of no bytes where the
stream is protected, by a FIN, or by both), reads on, and must get all, and the node's end.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time

import pytest
from attacker import DATA, REQUEST, Connection, Ended, KeyPair, Listener, field, values_of, varint
from nodes import real_nodes, wait_until
from noise_peer import NoiseConnection
from reconciler import WHOLE, Asked, id_of
from told import closings

OWNER = KeyPair(bytes(range(32)))
MEMBER = KeyPair(bytes(range(1, 33)))
#: Some 12 MB: more than what lies in the buffers of a connection.
VALUES = [b"value %04d " % number + os.urandom(40_000) for number in range(300)]
#: What fits a body of the control socket.
PUT_BYTES, PUT_VALUES = 800_000, 5_000
DIGESTS, SYMBOLS = b"set-digest-1", b"reconcile-1"

#: `hyperbloom.replication.limits`, as docs/wire.md has them.
OWED_BYTES, OWED_SECONDS = 67_108_864, 30.0

DIALECTS = ("2", "1", "draft")
#: Protected or not, and how the peer ends.
ENDS = ("plain fin", "noise end", "noise end and fin")


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """Starts nodes that hold values of the feed in a dialect; the peer listens where one dials."""
    with real_nodes(tmp_path_factory.mktemp("ends")) as nodes:

        def start(name, dialect="2", peers=(), values=VALUES):
            listed = ", ".join(f'"{address}"' for address in peers)
            config = f'[[feeds]]\nkey = "{OWNER.public.hex()}"\ndialect = "{dialect}"\n'
            config += f"peers = [{listed}]\n[sync]\nretry_first = 0.05\nretry_longest = 0.05\n"
            config += "interval = 3600\n[limits]\nhandshake_seconds = 3600\n"
            made = nodes.make(name, seed=OWNER.seed, config=config).start()
            at_once = min(PUT_VALUES, PUT_BYTES // len(values[0]))
            for at in range(0, len(values), at_once):
                made.put(*values[at : at + at_once])
            return made

        yield start


@pytest.fixture(scope="module", params=DIALECTS)
def dialled(request, started):
    """A node in each dialect, that is dialled."""
    return started("owner-" + request.param, request.param), request.param


def chain(dialect="2", key=MEMBER):
    return [OWNER.link(key.public, dialect=dialect)]


def secure(wire, dialect="2", extensions=()):
    """The handshakes, and the protected stream where the peer speaks it."""
    if isinstance(wire, NoiseConnection):
        wire.shake_hands(
            OWNER.public, MEMBER, chain(), dialect=dialect, extensions=(b"noise-1", *extensions)
        )
        wire.protect()
    else:
        wire.shake_hands(
            OWNER.public, MEMBER, chain(dialect), dialect=dialect, extensions=extensions
        )


def end(wire, how):
    if "end" in how:
        wire.send_end()
    if "fin" in how:
        wire.socket.shutdown(socket.SHUT_WR)


def until_the_end(wire) -> tuple[list[tuple[int, bytes]], bool]:
    """All messages until the node ends, and whether it ended in order: it said so, then a FIN."""
    messages = []
    try:
        while True:
            messages.append(wire.receive())
    except Ended as error:
        if isinstance(wire, NoiseConnection):
            return messages, wire.said_end and wire.socket.recv(1) == b""
        return messages, "has closed" in str(error)


def values_in(messages) -> list[bytes]:
    return sorted(value for kind, body in messages if kind == DATA for value in values_of(body))


@pytest.mark.parametrize("how", ENDS)
def test_what_was_asked_before_the_end_is_answered(dialled, how):
    node, dialect = dialled
    if dialect == "draft" and "noise" in how:
        pytest.skip("the draft carries no noise")
    before = closings(node)
    kind = NoiseConnection if "noise" in how else Connection
    wire = kind.dial(("127.0.0.1", node.port))
    with wire:
        secure(wire, dialect)
        wire.send_request()
        end(wire, how)
        messages, in_order = until_the_end(wire)
    assert values_in(messages) == sorted(VALUES)
    assert in_order
    node.wait_for_peers(OWNER.public, 0)
    assert (closings(node) - before)["cut"] == 0


@pytest.mark.parametrize("how", ENDS)
def test_it_is_the_same_where_the_node_has_dialled(started, how):
    """The question comes in the same packet as the end, and as the record before it."""
    with Listener("127.9.2.1") as listener:
        node = started("dialler-" + how.replace(" ", "-"), peers=[listener.address])
        wire = listener.accept()
        if "noise" in how:
            wire = NoiseConnection(wire.socket, dialled=False)
        with wire:
            secure(wire)
            wire.send_request()
            end(wire, how)
            messages, in_order = until_the_end(wire)
        assert values_in(messages) == sorted(VALUES)
        assert in_order
        # It dials again.
        listener.accept().close()
        assert node.stop()


def test_every_kind_of_question_is_answered_before_the_end(started):
    node = started("asked", values=[b"a", b"b", b"c"])
    with NoiseConnection.dial(("127.0.0.1", node.port)) as wire:
        secure(wire, extensions=(DIGESTS, SYMBOLS, b"broadcast-tree-1"))
        wire.send_sync(bytes(8), n=3)
        wire.send_request(b"b", b"c")
        wire.send(4365, struct.pack(">I", 77) + WHOLE)
        wire.send(4367, struct.pack(">IBII", 78, 0, 0, 64) + WHOLE)
        wire.send(4369, struct.pack(">I", 78) + id_of(b"a"))
        wire.send(4371, b"\x00" + id_of(b"c"))
        wire.send_end()
        messages, in_order = until_the_end(wire)
    assert in_order
    assert values_in(messages) == [b"a", b"a", b"b", b"b", b"c", b"c"]
    assert [body[:4] for kind, body in messages if kind == 4366] == [struct.pack(">I", 77)]
    assert [body[:4] for kind, body in messages if kind == 4368] == [struct.pack(">I", 78)]


@pytest.mark.parametrize("kind", [Connection, NoiseConnection])
def test_more_questions_than_may_wait_are_all_answered(started, kind):
    """Eight wait at once; the others are read as those are answered, though the end has come."""
    node = started("many-" + kind.__name__.lower(), values=[b"a", b"b", b"c"])
    with kind.dial(("127.0.0.1", node.port)) as wire:
        secure(wire)
        for _ in range(60):
            wire.send_request(b"b", b"c")
        end(wire, "end and fin" if kind is NoiseConnection else "fin")
        messages, in_order = until_the_end(wire)
    assert in_order
    assert values_in(messages) == [b"b"] * 60


def test_a_node_that_stops_before_all_is_answered_says_no_end(started):
    node = started("stops")
    with NoiseConnection.dial(("127.0.0.1", node.port)) as wire:
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        secure(wire)
        wire.send_request()
        wire.send_end()
        time.sleep(1.0)
        assert node.stop()
        messages, _ = until_the_end(wire)
        assert len(values_in(messages)) < len(VALUES)
        assert not wire.said_end


def test_after_the_end_the_peer_is_asked_nothing(started):
    node = started("asks-nothing")
    with NoiseConnection.dial(("127.0.0.1", node.port)) as wire:
        secure(wire, extensions=(b"split-replies", DIGESTS, SYMBOLS))
        wire.send_request()
        wire.send_end()
        messages, in_order = until_the_end(wire)
    assert in_order
    asked_before = [kind for kind, _ in messages[:2] if kind != DATA]
    assert {kind for kind, _ in messages[2:]} <= {DATA}, asked_before


def test_values_that_came_with_the_end_are_stored(started):
    node = started("takes", values=[b"one"])
    for number, kind in enumerate((Connection, NoiseConnection)):
        with kind.dial(("127.0.0.1", node.port)) as wire:
            secure(wire)
            wire.send_data([b"brought %d" % number])
            end(wire, "end and fin" if kind is NoiseConnection else "fin")
            assert until_the_end(wire)[1]
        node.wait_for_count(OWNER.public, 2 + number)


def test_an_end_between_two_bytes_of_a_frame_is_answered_by_nothing_more(started):
    node = started("halves", values=[b"one"])
    whole = varint(REQUEST) + field(1, b"")
    with Connection.dial(("127.0.0.1", node.port)) as wire:
        secure(wire)
        wire.send_request()
        wire.send_frame(varint(len(whole)) + whole[:1])
        wire.socket.shutdown(socket.SHUT_WR)
        with contextlib.suppress(Ended):
            while True:
                wire.receive()
    node.wait_for_peers(OWNER.public, 0)


@pytest.mark.parametrize("has_asked", [False, True])
def test_a_fin_is_no_end_of_a_protected_stream(started, has_asked):
    """Somebody on the path can send one: nothing more is answered, and it counts as cut.

    He may hold back the peer's question and its end, and send the FIN in their place. The node's
    end behind them would say that all was answered; so it says none.
    """
    node = started(f"cut-{has_asked}".lower(), values=[b"one"])
    before = closings(node)
    with NoiseConnection.dial(("127.0.0.1", node.port)) as wire:
        secure(wire)
        node.wait_for_peers(OWNER.public, 1)
        wire.drain(0.3)
        if has_asked:
            send, wire.write = wire.write, lambda data: None
            wire.send_request()
            wire.send_end()
            wire.write = send
        wire.socket.shutdown(socket.SHUT_WR)
        messages, _ = until_the_end(wire)
        assert values_in(messages) == []
        assert not wire.said_end
        assert wire.socket.recv(1) == b"", "the node closes"
    wait_until(lambda: (closings(node) - before)["cut"] == 1, 10, "it counts as cut")


def test_who_ends_and_does_not_read_is_cut(started):
    """Sockets that are never read do not stay: they are cut, and no end is said."""
    node = started("unread")
    wires = []
    for kind in (Connection, NoiseConnection) * 2:
        wire = kind.dial(("127.0.0.1", node.port))
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        secure(wire)
        wire.send_request()
        end(wire, "end and fin" if kind is NoiseConnection else "fin")
        wires.append(wire)
    begun = time.monotonic()
    node.wait_for_peers(OWNER.public, 0, 100)
    assert time.monotonic() - begun < 1.5 * OWED_SECONDS
    for wire in wires:
        messages, _ = until_the_end(wire)
        assert len(values_in(messages)) < len(VALUES)
        assert not (isinstance(wire, NoiseConnection) and wire.said_end)
        wire.close()


@pytest.mark.parametrize("kind", [Connection, NoiseConnection])
def test_no_more_is_sent_to_who_has_ended_than_the_bound(started, kind):
    """Each question is answered by 12 MB: the node stops at the bound, and says no end."""
    node = started("too-much-" + kind.__name__.lower())
    before = node.log_path.read_text()
    with kind.dial(("127.0.0.1", node.port)) as wire:
        secure(wire)
        for _ in range(1 + OWED_BYTES // sum(map(len, VALUES))):
            wire.send_request()
        end(wire, "end and fin" if kind is NoiseConnection else "fin")
        messages, in_order = until_the_end(wire)
    got = sum(len(body) for _, body in messages)
    assert OWED_BYTES - 10_000_000 < got <= OWED_BYTES + 300_000
    assert not in_order
    said = node.log_path.read_text()[len(before) :]
    assert said.count("asked for more than it is sent then") == 1


def test_who_ends_is_asked_by_no_try_that_goes_on(started):
    """A peer that ends in the middle of the node's own try by symbols leaves nothing behind."""
    node = started("in-a-try", values=[b"value %04d" % number for number in range(20_000)])
    with NoiseConnection.dial(("127.0.0.1", node.port)) as wire:
        secure(wire, extensions=(b"split-replies", DIGESTS, SYMBOLS))
        while True:
            message_id, body = wire.receive()
            if message_id == 4365:
                told = struct.pack(">Q32s", 19_990, os.urandom(32))
                wire.send(4366, body[:4] + told + told + WHOLE)
            if message_id == 4367:
                assert Asked.parse(body).first == 0
                break
        wire.send_end()
        _, in_order = until_the_end(wire)
        assert in_order
    node.wait_for_peers(OWNER.public, 0)
    log = node.log_path.read_text()
    assert "error" not in log
    assert "Traceback" not in log
