"""A member who sends an invitation to a feed that its reader has joined long ago.

He may make one: each member can invite. It must not have the reader's node dial addresses of his
choice, from now on and for good, without a word.
"""

from __future__ import annotations

import contextlib
import json

import pytest
from attacker import KeyPair, Listener
from nodes import RealNode

from hyperbloom.invitation import Invitation, encode_invitation

#: As many as an invitation has room for.
ADDRESSES = 8


@pytest.fixture
def listeners():
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Listener(f"127.7.1.{n + 1}")) for n in range(ADDRESSES)]


@pytest.fixture
def reader(nodes) -> RealNode:
    """A member of the owner's feed, which dials the owner."""
    nodes.owner = nodes.make("owner", feed="main").start()
    made = nodes.invited(nodes.owner, "reader", config="[sync]\nretry_first = 0.1\n")
    made.wait_for_peers(nodes.owner.feed_key, 1)
    return made


def invitation_of(owner: RealNode, reader: RealNode, addresses: list[str]) -> bytes:
    """A line of a member who was invited fairly."""
    member = KeyPair.random()
    with owner.client() as client:
        link = bytes.fromhex(client.issue_link(member.public, expires=4e9)["link"])
    links = (link, member.link(reader.key))
    line = encode_invitation(
        Invitation(feed_key=owner.feed_key, links=links, addresses=tuple(addresses))
    )
    return line.encode() + b"\n"


def dialled(listeners: list[Listener], seconds: float) -> list[str]:
    """The addresses that were dialled, within so long for the first and no longer for the rest."""
    found = []
    for listener in listeners:
        with contextlib.suppress(TimeoutError):
            listener.accept(seconds if not found else 0.5).close()
            found.append(listener.address)
    return found


def peers_of(reader: RealNode, feed: bytes) -> list[str]:
    with reader.client() as client:
        return client.feed(feed.hex())["peers"]


def test_it_has_no_address_dialled_that_nobody_has_agreed_to(nodes, reader, listeners):
    feed, his = nodes.owner.feed_key, [listener.address for listener in listeners]
    before = peers_of(reader, feed)
    assert before == [nodes.owner.address]
    line = invitation_of(nodes.owner, reader, his)
    done = reader.command("join", "-", stdin=line)
    assert dialled(listeners, 0.5) == []
    assert peers_of(reader, feed) == before
    assert done.returncode == 0, done.stderr
    told = done.stderr.decode()
    assert all(address in told for address in his)
    assert "take the invitation with --add-addresses" in told
    form = json.loads(reader.command("join", "-", "--json", stdin=line).stdout)
    assert (form["not_added"], form["peers"]) == (his, before)
    # Nor after a restart.
    assert reader.stop()
    reader.start()
    assert dialled(listeners, 0.5) == []
    assert peers_of(reader, feed) == before


def test_who_joins_again_because_the_inviter_has_moved_says_so(nodes, reader, listeners):
    """What an honest member does whose inviter has other addresses now."""
    feed, moved = nodes.owner.feed_key, listeners[0]
    line = invitation_of(nodes.owner, reader, [nodes.owner.address, moved.address])
    done = reader.command("join", "-", "--add-addresses", stdin=line)
    assert (done.returncode, done.stderr) == (0, b"")
    assert peers_of(reader, feed) == [nodes.owner.address, moved.address]
    assert dialled([moved], 30) == [moved.address]


def test_the_links_of_an_invitation_that_is_taken_again_count(nodes):
    """So a membership is renewed by a new line, whatever addresses it names."""
    owner = nodes.make("owner", feed="main").start()
    reader = nodes.invited(owner, "reader", expires="1h")
    line = owner.command("invite", reader.key.hex(), "--expires", "30d", "--address", "h.example:1")
    done = reader.command("join", "-", stdin=line.stdout)
    assert done.returncode == 0, done.stderr
    assert "(in 29d" in done.stdout.decode() or "(in 30d" in done.stdout.decode()
    assert peers_of(reader, owner.feed_key) == [owner.address]
