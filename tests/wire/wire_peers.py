"""Peers, sessions and recorded bytes that the tests of the wire share."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from hyperbloom.keys import Identity
from hyperbloom.trust import Chain, TrustLink, issue_link, owner_chain, verify_chain
from hyperbloom.wire import (
    DIALECTS,
    NEED_DATA,
    PAUSED,
    Credentials,
    Dialect,
    FilterOptions,
    Link,
    Request,
    Session,
    Sync,
)
from hyperbloom.wire.credentials import sign_data
from hyperbloom.wire.dialect import DIALECT_2
from hyperbloom.wire.events import ConnectionEnded, Event, HandshakeReceived, NoiseReceived
from hyperbloom.wire.extensions.broadcast_tree import BROADCAST_TREE
from hyperbloom.wire.extensions.noise import NOISE, NoiseHandshake, NoiseMessage
from hyperbloom.wire.extensions.reconcile import RECONCILE
from hyperbloom.wire.extensions.renew_links import RENEW_LINKS
from hyperbloom.wire.extensions.set_digest import SET_DIGEST
from hyperbloom.wire.framing import MAGIC, encode_frame, encode_varint
from hyperbloom.wire.states import State
from hyperbloom.wire.stream_cipher import XSalsa20Stream

NOW = 1_700_000_000.0
LATER = NOW + 3_600.0

each_dialect = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=lambda it: it.name)

#: Identity i is made from a seed of 32 bytes i, as in the vectors. Identity 1 owns the feed.
IDENTITIES = {i: Identity(bytes([i]) * 32) for i in range(1, 10)}
OWNER = IDENTITIES[1]
FEED = OWNER.public_key


def link_of(
    issuer: Identity, member: int, *, expires: float = LATER, dialect: Dialect = DIALECT_2
) -> TrustLink:
    """A link to this identity; it expires if links of the dialect do."""
    return issue_link(
        issuer,
        IDENTITIES[member].public_key,
        expires=expires if dialect.link_format.has_expiry else math.inf,
        nonce=bytes([member]) * 32,
        format=dialect.link_format,
    )


def chain_of(*members: int, expires: float = LATER, dialect: Dialect = DIALECT_2) -> Chain:
    """A chain from the owner through these identities; the owner's own for none."""
    chain = owner_chain(OWNER, format=dialect.link_format)
    issuer = OWNER
    for member in members:
        chain = chain.extended(link_of(issuer, member, expires=expires, dialect=dialect))
        issuer = IDENTITIES[member]
    return chain


def credentials_of(
    *members: int, expires: float = LATER, dialect: Dialect = DIALECT_2
) -> Credentials:
    """Credentials of the last of these identities through the others; of the owner for none."""
    return Credentials(
        feed_key=FEED,
        identity=IDENTITIES[members[-1] if members else 1],
        chain=chain_of(*members, expires=expires, dialect=dialect),
        dialect=dialect,
    )


def events(session: Session, *, now: float = NOW) -> list[Event]:
    """All events there are, until it needs data, is paused or has ended."""
    told: list[Event] = []
    while True:
        event = session.next_event(now=now)
        if event is NEED_DATA or event is PAUSED:
            return told
        told.append(event)
        if isinstance(event, ConnectionEnded):
            return told


@dataclass
class RawPeer:
    """The other side of a session under test, which can send anything; it knows the feed's key.

    `send` gives the session a frame, encrypted; `send_raw` any bytes, encrypted. `noise` is its
    side of the Noise handshake, where there is one.
    """

    session: Session
    cipher: XSalsa20Stream
    noise: NoiseHandshake | None = None

    def send(self, message_id: int, body: bytes) -> None:
        self.send_raw(encode_frame(message_id, body))

    def send_raw(self, clear: bytes) -> None:
        self.session.receive_data(self.cipher.process(clear))


LOCAL_NONCE = b"\x0a" * 24
REMOTE_NONCE = b"\x0b" * 24
PEER_ID = b"\x0c" * 32
EXTENSIONS = (SET_DIGEST, RECONCILE, BROADCAST_TREE, RENEW_LINKS)


def open_bytes(
    nonce: bytes = REMOTE_NONCE, feed: bytes | None = None, dialect: Dialect = DIALECT_2
) -> bytes:
    body = b"\x0a\x20" + (feed or dialect.discovery_key(FEED)) + b"\x12\x18" + nonce
    return MAGIC + bytes([len(body)]) + body


def handshake_body(
    remote: Credentials,
    *,
    sent: bytes = REMOTE_NONCE,
    received: bytes = LOCAL_NONCE,
    extensions: Sequence[str] = EXTENSIONS,
) -> bytes:
    """The Handshake of a peer with these credentials."""
    signed = remote.dialect.handshake_input(sent, received)
    fields = [b"\x0a\x20" + PEER_ID]
    fields += [b"\x12" + bytes([len(name)]) + name.encode() for name in extensions]
    fields.append(b"\x1a\x40" + remote.identity.sign(signed))
    fields += [b"\x22" + encode_varint(len(link)) + link for link in remote.chain.to_wire()]
    return b"".join(fields)


NOISE_STATES = (State.NOISE_DUE, State.NOISE_SENT, State.NOISE_AWAITED, State.NOISE_RECEIVED)
LOCAL_EPHEMERAL = b"\x1a" * 32
REMOTE_EPHEMERAL = b"\x1b" * 32


def drive(
    state: State,
    *,
    local: Credentials | None = None,
    remote: Credentials | None = None,
    session: Session | None = None,
    dialect: Dialect = DIALECT_2,
) -> RawPeer:
    """A session in the state asked for, and the raw peer that brought it there.

    `dialect` is that of the credentials which are not given. States of Noise are those of a session
    of its own.
    """
    local = local or credentials_of(dialect=dialect)
    remote = remote or credentials_of(2, dialect=local.dialect)
    if state in NOISE_STATES:
        return drive_noise(state, local, remote)
    session = session or Session()
    peer = RawPeer(session, XSalsa20Stream(FEED, REMOTE_NONCE))
    opened = open_bytes(dialect=local.dialect)
    if state is State.OPEN_RECEIVED:
        session.receive_data(opened)
        session.next_event(now=NOW)
    elif state is State.CLOSED:
        session.close()
    elif state is not State.IDLE:
        session.send_open(local, nonce=LOCAL_NONCE)
        if state is not State.OPEN_SENT:
            session.receive_data(opened)
            session.next_event(now=NOW)
            if state is not State.OPENED:
                session.send_handshake(peer_id=PEER_ID, extensions=EXTENSIONS)
        if state in (State.SECURE, State.PEER_ENDED):
            peer.send(0, handshake_body(remote))
            session.next_event(now=NOW)
        if state is State.PEER_ENDED:
            session.end_data()
            session.next_event(now=NOW)
    assert session.state is state
    return peer


def drive_noise(state: State, local: Credentials, remote: Credentials) -> RawPeer:
    """A session that speaks Noise, in one of the states of its handshake; its dialect carries it.

    What the peer does here is done from the page: mark, announcement and prologue by hand.
    """
    dialled = state in (State.NOISE_DUE, State.NOISE_SENT)
    session = Session(dialled=dialled)
    nonces = [marked_by_hand(nonce) for nonce in (LOCAL_NONCE, REMOTE_NONCE)]
    opened = session.send_open(local, nonce=LOCAL_NONCE, speaks_noise=True)
    assert opened.endswith(nonces[0])
    remote_opened = open_bytes(nonces[1], dialect=local.dialect)
    session.receive_data(remote_opened)
    session.next_event(now=NOW)
    frame = XSalsa20Stream(FEED, nonces[0]).process(session.send_handshake(peer_id=PEER_ID))
    peer = RawPeer(session, XSalsa20Stream(FEED, nonces[1]))
    body = handshake_body(remote, sent=nonces[1], received=nonces[0], extensions=[NOISE])
    peer.send(0, body)
    event = session.next_event(now=NOW)
    assert isinstance(event, HandshakeReceived)
    assert event.speaks_noise
    seen = [hashed(opened + frame), hashed(remote_opened + encode_frame(0, body))]
    peer.noise = NoiseHandshake(
        dialled=not dialled,
        identity=remote.identity,
        peer_key=local.identity.public_key,
        psk=hashlib.blake2b(b"noise-1 psk", digest_size=32, key=FEED).digest(),
        prologue=b"noise-1 prologue" + b"".join(seen if dialled else reversed(seen)),
    )
    if state is State.NOISE_SENT:
        sent = session.send_noise(ephemeral=LOCAL_EPHEMERAL)
        frames = XSalsa20Stream(FEED, nonces[0])
        frames.process(bytes(len(frame)))
        peer.noise.read(NoiseMessage(frames.process(sent)[3:]))
    if state is State.NOISE_RECEIVED:
        peer.send(NoiseMessage.message_id, peer.noise.write(ephemeral=REMOTE_EPHEMERAL).body)
        assert session.next_event(now=NOW) == NoiseReceived()
    assert session.state is state
    return peer


def hashed(data: bytes) -> bytes:
    return hashlib.blake2b(data).digest()


def marked_by_hand(nonce: bytes) -> bytes:
    """The nonce of who speaks Noise, as its page has it."""
    mark = hashlib.blake2b(b"noise-1" + nonce[:16], digest_size=8, key=FEED)
    return nonce[:16] + mark.digest()


def protected_pair(a: Credentials, b: Credentials) -> tuple[Session, Session]:
    """Two sessions in memory whose stream is protected; the first dialled the second."""
    client, server = Session(dialled=True), Session()
    server.receive_data(client.send_open(a, nonce=LOCAL_NONCE, speaks_noise=True))
    events(server)
    client.receive_data(server.send_open(b, nonce=REMOTE_NONCE, speaks_noise=True))
    events(client)
    client.receive_data(server.send_handshake(peer_id=b"\x02" * 32))
    server.receive_data(client.send_handshake(peer_id=b"\x01" * 32))
    events(client)
    server.receive_data(client.send_noise(ephemeral=LOCAL_EPHEMERAL))
    events(server)
    client.receive_data(server.send_noise(ephemeral=REMOTE_EPHEMERAL))
    events(client)
    assert client.state is server.state is State.SECURE
    assert client.is_protected
    assert server.is_protected
    return client, server


def pair(
    a: Credentials, b: Credentials, *, extensions: Sequence[str] = ()
) -> tuple[Session, Session]:
    """Two sessions in memory, secure; the first connected to the second."""
    client, server = Session(), Session()
    server.receive_data(client.send_open(a, nonce=LOCAL_NONCE))
    events(server)
    client.receive_data(server.send_open(b, nonce=REMOTE_NONCE))
    events(client)
    client.receive_data(server.send_handshake(peer_id=b"\x02" * 32, extensions=extensions))
    server.receive_data(client.send_handshake(peer_id=b"\x01" * 32, extensions=extensions))
    events(client)
    events(server)
    assert client.state is server.state is State.SECURE
    return client, server


@dataclass
class Recorded:
    """One side of a recorded session: what it sent, who it was."""

    identity: Identity
    chain: Chain
    peer_id: bytes
    chunks: list[bytes]
    dialect: Dialect = DIALECT_2

    @property
    def nonce(self) -> bytes:
        return self.chunks[0][-24:]

    @property
    def credentials(self) -> Credentials:
        return Credentials(
            feed_key=FEED, identity=self.identity, chain=self.chain, dialect=self.dialect
        )

    def frames(self) -> list[bytes]:
        """What it sent after Open, in the clear, chunk by chunk."""
        cipher = XSalsa20Stream(FEED, self.nonce)
        return [cipher.process(chunk) for chunk in self.chunks[1:]]


def spoken_sides(dialect: Dialect) -> tuple[Recorded, Recorded]:
    """The owner and a member of two links in a session of two of ours: one of each message."""
    sides = []
    for credentials, nonce in (
        (credentials_of(dialect=dialect), LOCAL_NONCE),
        (credentials_of(2, 3, dialect=dialect), REMOTE_NONCE),
    ):
        other = REMOTE_NONCE if nonce is LOCAL_NONCE else LOCAL_NONCE
        session = Session()
        opened = session.send_open(credentials, nonce=nonce)
        session.receive_data(open_bytes(other, dialect=dialect))
        session.next_event(now=NOW)
        cipher = XSalsa20Stream(FEED, nonce)
        frames = [
            (0, handshake_body(credentials, sent=nonce, received=other)),
            (1, Sync(filter=b"\xff\x00", size=16, n=3, seed=1).encode()),
            (2, FilterOptions(size=800, n=3).encode()),
            (3, sign_data(credentials, [b"one", b"two"]).encode()),
            (4, Request(start=b"a", end=b"b").encode()),
            (5, Link(link=link_of(OWNER, 3, dialect=dialect).to_bytes()).encode()),
        ]
        chunks = [cipher.process(encode_frame(message_id, body)) for message_id, body in frames]
        assert session.send_handshake(peer_id=PEER_ID, extensions=EXTENSIONS) == chunks[0]
        sides.append(
            Recorded(
                identity=credentials.identity,
                chain=credentials.chain,
                peer_id=PEER_ID,
                chunks=[opened, *chunks],
                dialect=dialect,
            )
        )
    return sides[0], sides[1]


def recorded_sides(vectors: dict[str, Any]) -> tuple[Recorded, Recorded]:
    """The two sides, a and b, of the recorded session; `vectors` as read from the file."""
    session = vectors["session"]
    assert bytes.fromhex(session["feed"]) == FEED

    def side(name: str, sent: str) -> Recorded:
        raw = [bytes.fromhex(link) for link in session[name]["chain"]]
        return Recorded(
            identity=IDENTITIES[session[name]["key"]],
            chain=verify_chain(FEED, raw, now=NOW),
            peer_id=bytes.fromhex(session[name]["id"]),
            chunks=[bytes.fromhex(chunk) for chunk in session[sent]],
        )

    return side("a", "a_to_b"), side("b", "b_to_a")
