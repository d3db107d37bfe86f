"""Proofs that are passed on: back to who made them, and to another member."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import select
import signal
import socket
import subprocess
import time

import pytest
from attacker import DATA, HANDSHAKE, Connection, Ended, KeyPair, Listener, hashed, values_of
from nodes import HYPERBLOOM, RealNode, wait_until
from noise_by_hand import NOISE_MESSAGE
from told import closings

from hyperbloom.store import Store

VALUES = [b"value %04d" % number for number in range(100)]


def flipped(identifier: bytes) -> bytes:
    return bytes([identifier[0] ^ 1]) + identifier[1:]


def listed(messages) -> list[bytes]:
    return [value for kind, body in messages if kind == DATA for value in values_of(body)]


def victim(nodes, listener, dialect, noise="off") -> RealNode:
    """A node that dials the attacker about its own feed."""
    key = KeyPair(bytes(range(32)))
    node = nodes.make(
        "victim",
        seed=bytes(range(32)),
        node=f'noise = "{noise}"',
        config=f'[[feeds]]\nkey = "{key.public.hex()}"\ndialect = "{dialect}"\n'
        f'peers = ["{listener.address}"]\n[sync]\nretry_first = 0.2',
    ).start()
    node.put(*VALUES)
    return node


@pytest.mark.parametrize("dialect", ["2", "1", "draft"])
@pytest.mark.parametrize("side", ["dialled by the node", "dialling the node"])
def test_a_node_never_takes_itself_for_a_peer(nodes, dialect, side):
    with Listener("127.9.0.1") as listener:
        node = victim(nodes, listener, dialect)
        # The node dials us; we dial it back with its own Open, and hand each Handshake that comes
        # of one connection to the other, with a bit of the id flipped.
        with listener.accept() as dialled_us, Connection.dial(("127.0.0.1", node.port)) as back:
            for wire in (dialled_us, back):
                wire.use(node.key, dialect)
            _, nonce = dialled_us.receive_open()
            back.send_open(nonce)
            _, other_nonce = back.receive_open()
            dialled_us.send_open(other_nonce)
            seen = {"back": back.receive_handshake(), "dialled": dialled_us.receive_handshake()}
            if side == "dialled by the node":
                attacked, proof = dialled_us, seen["back"]
            else:
                attacked, proof = back, seen["dialled"]
            attacked.forward_handshake(proof, peer_id=flipped(proof.id))
            with contextlib.suppress(Ended):  # it may have been cut off by now
                attacked.send_request()
                if dialect != "2":
                    attacked.send_data([b"written by nobody"])
            read = listed(attacked.drain(3.0))
            written = set(node.values()) - set(VALUES)
            assert (len(read), written) == (0, set())
            assert listed(attacked.wait_for_end()) == []
        assert node.peers() == []


def pipe(one: Connection, other: Connection) -> None:
    """All bytes from one to the other, both ways, until one of them ends."""
    across = {one.socket: other.socket, other.socket: one.socket}
    while True:
        ready, _, _ = select.select(list(across), [], [], 120)
        assert ready, "neither connection ended"
        for sock in ready:
            with contextlib.suppress(ConnectionError):
                if data := sock.recv(1 << 16):
                    across[sock].sendall(data)
                    continue
            return


def test_a_node_that_is_piped_to_itself_speaks_noise_and_goes(nodes):
    """All holds, the Noise handshake too: it is the node itself, at both ends."""
    with Listener("127.9.0.1") as listener:
        node = victim(nodes, listener, "2", "require")
        with listener.accept() as dialled_us, Connection.dial(("127.0.0.1", node.port)) as back:
            pipe(dialled_us, back)
        assert node.peers() == []
        wait_until(lambda: closings(node)["own"], 10, "it knows itself")


@pytest.fixture
def dht_port():
    """The UDP port of a node of a DHT, in its own process."""
    command = [HYPERBLOOM, "dht", "bootstrap", "--port", "0", "--interface", "127.0.0.1"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
    )
    line = process.stdout.readline().decode()
    yield int(re.search(r"127\.0\.0\.1:(\d+)", line)[1])
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)


def announce(dht_port: int, feed: bytes, port: int) -> None:
    """Tell a node of the DHT that a peer of the feed is at a port of 127.0.0.1 (BEP-5)."""
    info_hash = hashlib.sha1(hashed(feed)).digest()
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        sock.settimeout(10)
        sock.connect(("127.0.0.1", dht_port))
        asked = b"2:id20:" + os.urandom(20) + b"9:info_hash20:" + info_hash
        sock.send(b"d1:ad" + asked + b"e1:q9:get_peers1:t2:aa1:y1:qe")
        answer = answer_to(sock, b"aa")
        at = re.search(rb"5:token(\d+):", answer)
        token = answer[at.end() : at.end() + int(at[1])]
        asked += b"4:porti%de5:token%d:%b" % (port, len(token), token)
        sock.send(b"d1:ad" + asked + b"e1:q13:announce_peer1:t2:ab1:y1:qe")
        assert b"1:rd2:id20:" in answer_to(sock, b"ab")


def answer_to(sock: socket.socket, transaction: bytes) -> bytes:
    """The answer to a question; the node's own questions are passed over."""
    while True:
        datagram = sock.recv(2_000)
        if b"1:t2:" + transaction in datagram:
            return datagram


@contextlib.contextmanager
def relay_between(nodes, dht_port, noise):
    """An owner, a member who takes the relay for it, and the relay's connections with both.

    The Opens have been passed on; each node has sent its Handshake, and awaits the other's.
    """
    node = f'noise = "{noise}"'
    found = f'[discovery]\nenabled = true\nbootstrap = ["127.0.0.1:{dht_port}"]\nport = 0\n'
    found += 'interface = "127.0.0.1"\nlan = "off"\n[discovery.swarm]\nretry_interval = 1\n'
    owner = nodes.make("owner", node=node).start()
    owner.put(*VALUES)
    with Listener() as relay:
        announce(dht_port, owner.key, relay.port)
        feed = f'[[feeds]]\nkey = "{owner.key.hex()}"\n'
        member = nodes.make("member", config=feed + found, node=node).start()
        with owner.client() as client:
            link = client.issue_link(member.key, expires=time.time() + 86_400)
        with member.client() as client:
            client.add_links([bytes.fromhex(link["link"])], feed=owner.key.hex())
        member.put(b"the member's own", feed=owner.key)
        with relay.accept() as as_owner, Connection.dial(("127.0.0.1", owner.port)) as as_member:
            for wire in (as_owner, as_member):
                wire.use(owner.key)
            as_member.send_open(as_owner.receive_open()[1])
            as_owner.send_open(as_member.receive_open()[1])
            yield owner, member, as_owner, as_member


def written_addresses(member) -> list[object]:
    """The addresses at which a stopped node has found peers."""
    with contextlib.closing(Store.open(member.folder / "store")) as store:
        return store.peers()


def test_without_noise_a_proof_shown_to_one_member_can_be_shown_to_another(nodes, dht_port):
    """What protocol 2 does not prevent, as the pages say; and what it must not lead to."""
    with relay_between(nodes, dht_port, "off") as (owner, member, as_owner, as_member):
        as_member.forward_handshake(as_owner.receive_handshake())
        as_owner.forward_handshake(as_member.receive_handshake())
        # The relay has no link, and goes on by itself in the keystreams of the two.
        for wire, values in ((as_member, VALUES), (as_owner, [b"the member's own"])):
            wire.send_request()
            assert set(listed(wire.drain(3.0))) == set(values)
        as_member.send_data([b"forged"], signature=bytes(64))
        wait_until(lambda: owner.peers()[0]["strikes"], 30, "a strike for what is forged")
        assert b"forged" not in owner.values()
        assert [peer["key"] for peer in member.peers(owner.key)] == [owner.key.hex()]
        assert member.stop()
    assert written_addresses(member) == []


@pytest.mark.parametrize("noise", ["prefer", "require"])
def test_with_noise_who_carries_a_proof_reads_nothing(nodes, dht_port, noise):
    with relay_between(nodes, dht_port, noise) as (owner, member, as_owner, as_member):
        as_member.send(HANDSHAKE, as_owner.receive_handshake().body)
        as_owner.send(HANDSHAKE, as_member.receive_handshake().body)
        # The member dialled: its NoiseMessage comes, and the relay cannot answer it.
        assert as_owner.receive()[0] == NOISE_MESSAGE
        for wire in (as_member, as_owner):
            wire.send_request()
            wire.send_data([b"forged"], signature=bytes(64))
            assert wire.wait_for_end() == []
        assert owner.peers() == member.peers() == []
        for node in (owner, member):
            wait_until(lambda node=node: closings(node)["protocol"], 10, "it is closed and told")
            assert b"forged" not in node.values(owner.key)
        assert member.stop()
    assert written_addresses(member) == []
