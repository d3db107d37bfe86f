"""The invitation's bytes (docs/wire.md#the-invitation), made and read by code of its own."""

from __future__ import annotations

import base64
import re
import struct
from pathlib import Path

import pytest
from attacker import KeyPair, hashed
from nodes import real_nodes

PAGE = Path(__file__).parents[2] / "docs" / "wire.md"
FEED = KeyPair(b"\x01" * 32)
LINK_BYTES = 137


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    with real_nodes(tmp_path_factory.mktemp("invitations")) as nodes:
        yield lambda name, **more: nodes.make(name, **more).start()


def made(links, addresses=(), *, feed=FEED.public, version=1, behind=b"") -> str:
    """An invitation by hand."""
    body = bytes([version]) + feed
    for items in (links, addresses):
        body += bytes([len(items)]) + b"".join(bytes([len(one)]) + one for one in items)
    body += behind
    sealed = body + hashed(body)[:6]
    return "hyperbloom:" + base64.urlsafe_b64encode(sealed).decode().rstrip("=")


def read(line: str) -> tuple[bytes, list[bytes], list[bytes]]:
    """Feed, links and addresses of an invitation, by hand."""
    assert line.startswith("hyperbloom:")
    text = line.removeprefix("hyperbloom:")
    sealed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    body, checksum = sealed[:-6], sealed[-6:]
    assert hashed(body)[:6] == checksum
    assert body[0] == 1
    at, parts = 33, []
    for _ in range(2):
        items = []
        count, at = body[at], at + 1
        for _ in range(count):
            items.append(body[at + 1 : at + 1 + body[at]])
            at += 1 + body[at]
        parts.append(items)
    assert at == len(body)
    return body[1:33], *parts


def test_the_vector_of_the_page():
    member = KeyPair(b"\x02" * 32)
    signed = b"\x01" + member.public + struct.pack(">d", 4_000_000_000.0) + b"\x03" * 32
    link = signed + FEED.sign(hashed(signed))
    line = made([link], [b"192.0.2.1:4365", b"[2001:db8::1]:4365"])
    section = PAGE.read_text().split("## The invitation")[1].split("\n## ")[0]
    block = re.search(r"(    hyperbloom:\S+\n(?:    \S+\n)+)", section)[1]
    assert "".join(block.split()) == line
    assert read(line) == (FEED.public, [link], [b"192.0.2.1:4365", b"[2001:db8::1]:4365"])


def test_an_invitation_made_by_hand_is_taken(started):
    node = started("taker")
    line = made([FEED.link(node.key)], [b"192.0.2.1:4365"])
    # White space is passed over, wherever it is.
    broken = " ".join(line[at : at + 50] for at in range(0, len(line), 50))
    joined = node.command("join", "-", stdin=broken.encode())
    assert joined.returncode == 0, joined.stderr
    with node.client() as client:
        feed = client.feed(FEED.public.hex())
    assert feed["chain"]["links"] == 1
    assert "192.0.2.1:4365" in str(feed)


def test_an_invitation_of_a_node_is_read_by_hand(started):
    node, member = started("giver", feed="list"), KeyPair.random()
    given = node.command("invite", member.public.hex(), "--expires", "30d", "--json")
    assert given.returncode == 0, given.stderr
    feed, links, addresses = read(re.search(rb"hyperbloom:[\w-]+", given.stdout)[0].decode())
    assert feed == node.feed_key
    assert all(b":" in one for one in addresses)
    (link,) = links
    assert len(link) == LINK_BYTES
    assert link[1:33] == member.public


@pytest.mark.parametrize(
    "spoil",
    [
        lambda node: made([]),
        lambda node: made([FEED.link(FEED.public)]),
        lambda node: made([FEED.link(node.key)], version=2),
        lambda node: made([FEED.link(node.key)], behind=b"x"),
        lambda node: made([FEED.link(node.key)] * 6),
        lambda node: made([FEED.link(node.key)], [b"a.example:1"] * 9),
        lambda node: made([FEED.link(node.key)], [b""]),
        lambda node: made([FEED.link(node.key)], [b"\xff"]),
        lambda node: made([FEED.link(node.key)], [b"no port"]),
        lambda node: made([FEED.link(node.key, expires=1.0)]),
        lambda node: made([FEED.link(node.key)]) + "=",
        lambda node: made([FEED.link(node.key)])[:-1],
        lambda node: made([KeyPair.random().link(node.key)]),
        lambda node: made([FEED.link(node.key)[:-1]]),
    ],
)
def test_what_is_none_is_refused_in_a_sentence(started, spoil):
    node = started(f"refuses-{abs(hash(spoil))}")
    joined = node.command("join", "-", stdin=spoil(node).encode())
    assert joined.returncode not in (0, 1), joined
    said = joined.stderr.decode()
    assert "Traceback" not in said
    assert "unexpected" not in said.lower()
    assert said.count("\n") <= 3
    with node.client() as client:
        assert FEED.public.hex() not in str(client.feeds())
    assert "Traceback" not in node.log_path.read_text()
