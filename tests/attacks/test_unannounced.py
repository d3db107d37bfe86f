"""Messages of extensions that one side did not announce: they are unknown ids, and are skipped.

One rule for all of them (docs/wire.md#extensions): a message of an extension means something only
where both sides announced it in their Handshakes. The peer here is a member, with code of its own.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
import time

import pytest
from attacker import DATA, Connection, KeyPair, field, values_of
from noise_by_hand import NOISE_MESSAGE
from reconciler import WHOLE, id_of
from told import closings

OWNER = KeyPair(bytes(range(32)))
MEMBER = KeyPair(bytes(range(1, 33)))
VALUES = [b"value %02d" % number for number in range(20)]

SET_DIGEST, RECONCILE = b"set-digest-1", b"reconcile-1"
TREE, RENEWAL = b"broadcast-tree-1", b"renew-links-1"
IDS = b"".join(sorted(map(id_of, VALUES)))
ABSENT = bytes(range(16))

#: Each message of an extension with a body that is well-formed, and its extension.
MESSAGES = {
    "DigestRequest": (4365, SET_DIGEST, bytes(4) + WHOLE),
    "Digest": (4366, SET_DIGEST, struct.pack(">IQ32xQ32x", 1, 0, 0) + WHOLE),
    "SketchRequest": (4367, RECONCILE, struct.pack(">IBII", 1, 0, 0, 128) + WHOLE),
    "Sketch": (4368, RECONCILE, struct.pack(">IIIQ32x", 1, 0, 0, 0)),
    "ValuesWanted": (4369, RECONCILE, struct.pack(">I", 1) + IDS),
    "ValuesTold": (4370, TREE, ABSENT),
    "ValuesPull": (4371, TREE, b"\x01" + IDS),
    "NoiseMessage": (NOISE_MESSAGE, b"noise-1", bytes(48)),
    "RenewedChain": (4373, RENEWAL, bytes(137)),
}
FLOOD = 300

each_message = pytest.mark.parametrize("name", MESSAGES)
bodies = pytest.mark.parametrize("is_sound", [True, False], ids=["well-formed", "garbage"])


@pytest.fixture(scope="module")
def owner(tmp_path_factory):
    from nodes import real_nodes

    with real_nodes(tmp_path_factory.mktemp("unannounced")) as nodes:
        node = nodes.make("owner", seed=OWNER.seed).start()
        node.put(*VALUES)
        yield node


@contextlib.contextmanager
def member(node, *, feed=OWNER.public, key=MEMBER, chain=None, extensions=(), dialect="2"):
    """A secure connection of a member, whose messages until now are read."""
    chain = [OWNER.link(key.public, dialect=dialect)] if chain is None else chain
    with Connection.dial(("127.0.0.1", node.port)) as wire:
        wire.shake_hands(feed, key, chain, extensions=extensions, dialect=dialect)
        wire.drain(0.3)
        yield wire


def log_of(node) -> str:
    return node.log_path.read_text()


def errors_in(log: str) -> list[str]:
    return [line for line in log.splitlines() if re.search(r"error|critical|Traceback", line)]


def is_answered(wire) -> list[int]:
    """The ids of what comes until the answer to a Request of everything, which has to come."""
    wire.send_request()
    came = []
    found: set[bytes] = set()
    deadline = time.monotonic() + 20
    while not found >= set(VALUES):
        assert time.monotonic() < deadline
        message_id, body = wire.receive()
        came.append(message_id)
        if message_id == DATA:
            found.update(values_of(body))
    return came


def check_skipped(node, wire, name, body) -> None:
    """The message, many times, is skipped: no answer, no strike, no end, little in the log."""
    before, closed = log_of(node), closings(node)
    message_id = MESSAGES[name][0]
    for _ in range(FLOOD):
        wire.send(message_id, body)
    came = is_answered(wire)
    said = log_of(node)[len(before) :]
    assert errors_in(said) == []
    assert [one["strikes"] for one in node.peers()] == [0]
    assert came.count(DATA) == 1, "a Data beyond the answer to the Request"
    assert not [one for one in came if one in range(4366, 4374) and one != DATA]
    assert closings(node) == closed
    told = [line for line in said.splitlines() if "127.0.0.1:" in line]
    assert len(told) <= 3, told[:10]


@each_message
@bodies
def test_what_the_peer_did_not_announce_is_skipped(owner, name, is_sound):
    body = MESSAGES[name][2] if is_sound else os.urandom(37)
    with member(owner) as wire:
        check_skipped(owner, wire, name, body)


@each_message
def test_what_the_peer_announced_only_before_its_handshake_is_unknown(owner, name):
    message_id, extension, body = MESSAGES[name]
    with Connection.dial(("127.0.0.1", owner.port)) as wire:
        wire.use(OWNER.public)
        wire.send_open()
        wire.receive_open()
        wire.send(message_id, body)
        extensions = [] if extension == b"noise-1" else [extension]
        wire.send_handshake(MEMBER, [OWNER.link(MEMBER.public)], extensions=extensions)
        wire.receive_handshake()
        is_answered(wire)


@pytest.mark.parametrize("name", [name for name in MESSAGES if name != "NoiseMessage"])
@bodies
def test_what_the_node_did_not_announce_is_skipped(nodes, name, is_sound):
    message_id, extension, body = MESSAGES[name]
    body = body if is_sound else os.urandom(37)
    dialect = "draft" if extension == RENEWAL else "2"
    mode = "full" if extension in (RECONCILE, RENEWAL) else "light"
    feed = f'[[feeds]]\nkey = "{OWNER.public.hex()}"\nmode = "{mode}"\ndialect = "{dialect}"\n'
    node = nodes.make("node", config=feed + "[sync]\nreconcile = false\n").start()
    link = OWNER.link(node.key, dialect=dialect)
    with node.client() as client:
        client.add_links([link], feed=OWNER.public.hex())
    # We are the owner, so that nothing is lacking of what it may do.
    chain = [OWNER.link(OWNER.public, dialect=dialect)] if dialect == "draft" else []
    everything = (extension,)
    with member(node, key=OWNER, chain=chain, extensions=everything, dialect=dialect) as wire:
        before = log_of(node)
        for _ in range(FLOOD):
            wire.send(message_id, body)
        # Written behind all of it, so all of it was taken.
        wire.send_data([b"the last"])
        if mode == "full":
            node.wait_for_count(OWNER.public, 1)
        wire.send_request()
        came = wire.drain(1.0)
        said = log_of(node)[len(before) :]
        assert errors_in(said) == []
        assert [one["strikes"] for one in node.peers()] == [0]
        assert not [one for one, _ in came if 4365 <= one <= 4373], came
        assert len([line for line in said.splitlines() if "127.0.0.1:" in line]) <= 3


def test_a_longer_chain_is_taken_of_those_alone_who_announced_it(nodes):
    feed = f'[[feeds]]\nkey = "{OWNER.public.hex()}"\n'
    node = nodes.make("member", config=feed).start()
    ends = time.time() + 3_000
    with node.client() as client:
        client.add_links([OWNER.link(node.key, expires=ends)], feed=OWNER.public.hex())

    def until() -> float:
        with node.client() as client:
            return client.feed(OWNER.public.hex())["chain"]["expires"]

    assert abs(until() - ends) < 1
    longer = OWNER.link(node.key, expires=ends + 5_000)
    with member(node, key=OWNER, chain=[]) as wire:
        wire.send(4373, longer)
        wire.send_data([b"behind it"])
        node.wait_for_count(OWNER.public, 1)
        assert abs(until() - ends) < 1
    time.sleep(5.5)  # one in five seconds is looked at of a key
    with member(node, key=OWNER, chain=[], extensions=[RENEWAL]) as wire:
        wire.send(4373, longer)
        wire.send_data([b"behind that"])
        node.wait_for_count(OWNER.public, 2)
        deadline = time.monotonic() + 20
        while abs(until() - ends - 5_000) > 1:
            assert time.monotonic() < deadline


def test_a_flood_over_many_connections_leaves_some_lines(owner):
    """The log says it once a connection, and of many connections in a minute a count."""
    before = log_of(owner)
    for number in range(40):
        key = KeyPair(bytes([number]) * 32)
        with member(owner, key=key) as wire:
            for message_id, _, body in MESSAGES.values():
                wire.send(message_id, body)
            is_answered(wire)
    said = log_of(owner)[len(before) :]
    assert errors_in(said) == []
    assert len([line for line in said.splitlines() if "means nothing" in line]) <= 11


def test_a_field_in_the_protocols_own_messages_is_not_touched(owner):
    """An unknown field is skipped, as protobuf has it; so is a padded number."""
    with member(owner) as wire:
        wire.send(4, field(1, b"") + field(99, b"of a later version") + b"\xa0\x86\x80\x00\x00")
        assert values_of(wire.receive()[1]) == VALUES
