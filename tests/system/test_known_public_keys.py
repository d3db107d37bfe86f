"""What a stranger reaches who knows a node's public key, and nothing else: nothing.

A node's key is sent in the open, to be invited. The stranger here is bytes on sockets put together
by hand; he tries all that can be made of the key. That he would have got somewhere with the feed's
key, by the same code, shows that he does it right.
"""

from __future__ import annotations

import hashlib
import os
import socket
import time
from collections.abc import Callable

import pytest
from nacl.signing import SigningKey
from nodes import Nodes, RealNode, free_port, wait_until
from test_discovery import discovery, end, start_bootstrap_node

MAGIC = bytes.fromhex("d572c875")
HASH_KEYS = {"2 and 1": b"---hyperbloom---", "draft": b"hyperbloom"}
PATIENCE = 30.0


def named_by(key: bytes, hash_key: bytes = HASH_KEYS["2 and 1"]) -> bytes:
    """The discovery key that a feed of this key would have."""
    return hashlib.blake2b(key, digest_size=32, key=hash_key).digest()


def sha512_half(*parts: bytes) -> bytes:
    return hashlib.sha512(b"".join(parts)).digest()[:32]


# The node's port


def says_to_open(node: RealNode, feed: bytes) -> bytes:
    """All that a node says to an Open that names a feed, until it closes or 3 s are over."""
    body = b"\x0a\x20" + feed + b"\x12\x18" + os.urandom(24)
    heard = b""
    with socket.create_connection(("127.0.0.1", node.port), timeout=3) as connection:
        connection.sendall(MAGIC + bytes([len(body)]) + body)
        try:
            while part := connection.recv(4096):
                heard += part
        except (TimeoutError, ConnectionResetError):
            pass
    return heard


# The DHT (BEP 5 and 44)


def bencoded(value: object) -> bytes:
    if isinstance(value, bytes):
        return b"%d:%s" % (len(value), value)
    assert isinstance(value, dict)
    return b"d" + b"".join(bencoded(k) + bencoded(v) for k, v in sorted(value.items())) + b"e"


def ask_dht(port: int, method: bytes, **arguments: bytes) -> bytes:
    """One question to a DHT node, and its raw answer."""
    named = {key.encode(): value for key, value in arguments.items()}
    question = {b"t": b"aa", b"y": b"q", b"q": method, b"a": {b"id": os.urandom(20), **named}}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(5)
        asking.sendto(bencoded(question), ("127.0.0.1", port))
        return asking.recv(4096)


def peers_in(answer: bytes) -> bool:
    return b"6:valuesl" in answer


def finds_peers(ports: list[int], feed: bytes) -> bool:
    """By the npm packages' swarm: is anybody announced under this discovery key?"""
    info_hash = hashlib.sha1(feed).digest()
    return any(peers_in(ask_dht(port, b"get_peers", info_hash=info_hash)) for port in ports)


def finds_records(ports: list[int], feed: bytes) -> bool:
    """By the topic tracker: is there a record under the keys of the last minutes?"""
    minute = int(time.time() / 60)
    for one in range(minute - 3, minute + 2):
        little = one.to_bytes(8, "little")
        signer = SigningKey(sha512_half(feed, little)).verify_key.encode()
        target = hashlib.sha1(signer + sha512_half(b"salt", feed, little)).digest()
        if any(b"3:seqi" in ask_dht(port, b"get", target=target) for port in ports):
            return True
    return False


@pytest.fixture
def dht():
    process, port = start_bootstrap_node()
    yield port
    end(process)


def member_with_discovery(owner: RealNode, nodes: Nodes, dht: int, port: int) -> RealNode:
    member = nodes.make("member", feed="mine", config=discovery(dht, port=port, legacy=True))
    member.start()
    line = owner.command("invite", member.key.hex()).stdout
    assert member.command("join", "-", stdin=line).returncode == 0
    return member


def test_a_nodes_public_key_opens_and_tells_nothing(nodes: Nodes, dht: int) -> None:
    ports = [free_port(), free_port()]
    owner = nodes.make("owner", feed="words", config=discovery(dht, port=ports[0], legacy=True))
    owner.start()
    owner.put(b"a value", b"another")
    member = member_with_discovery(owner, nodes, dht, ports[1])
    member.wait_for_count(owner.feed_key, 2)
    asked = [dht, *ports]
    # Who knows the feed's key finds all of it: so the stranger looks in the right places.
    feed = named_by(owner.feed_key)
    wait_until(lambda: finds_peers(asked, feed), PATIENCE, "the feed's swarm is announced")
    wait_until(lambda: finds_records(asked, feed), PATIENCE, "the feed's records are there")
    assert says_to_open(owner, feed).startswith(MAGIC)
    assert says_to_open(member, feed).startswith(MAGIC)
    tries: list[tuple[str, Callable[[bytes], object]]] = [
        ("the owner's port", lambda name: says_to_open(owner, name)),
        ("the member's port", lambda name: says_to_open(member, name)),
        ("the swarm", lambda name: finds_peers(asked, name)),
        ("the records", lambda name: finds_records(asked, name)),
    ]
    reached = [
        (whose, dialect, where)
        for whose, node in (("owner", owner), ("member", member))
        for dialect, hash_key in HASH_KEYS.items()
        for where, attempt in tries
        if attempt(named_by(node.key, hash_key))
    ]
    assert reached == []
    # The key is not even answered otherwise than any other 32 bytes.
    assert says_to_open(owner, os.urandom(32)) == says_to_open(owner, owner.key) == b""
    # Nor is a node told by its key anywhere in what strangers may ask the DHT for.
    answers = b"".join(
        ask_dht(port, method, **{name: hashlib.sha1(feed).digest()})
        for port in asked
        for method, name in ((b"get_peers", "info_hash"), (b"find_node", "target"))
    )
    assert [node.folder.name for node in (owner, member) if node.key in answers] == []


def test_names_on_the_local_network_are_of_feeds_alone(nodes: Nodes, dht: int) -> None:
    """What multicast DNS would tell is what the node says it searches by."""
    config = discovery(dht, port=free_port(), legacy=True)
    owner = nodes.make("owner", feed="words", config=config).start()
    owner.put(b"a value")
    feed = hashlib.sha1(named_by(owner.feed_key)).hexdigest()
    mine = hashlib.sha1(named_by(owner.key)).hexdigest()

    def told() -> str:
        return owner.command("status", "--json").stdout.decode()

    wait_until(lambda: feed in told(), PATIENCE, "the search has begun")
    assert mine not in told()
