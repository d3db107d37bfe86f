"""A HyperBloom connection in each state and dialect, before and after its handshake."""

from __future__ import annotations

import wire_peers
from choices import Choices
from vectors import vectors
from wire_peers import NOW, PEER_ID, credentials_of, drive, handshake_body, recorded_sides

from hyperbloom.wire import (
    DIALECTS,
    NEED_DATA,
    PAUSED,
    DigestRequest,
    FilterOptions,
    Link,
    Range,
    RemoteProtocolError,
    Request,
    Session,
    SketchRequest,
    Sync,
    ValuesWanted,
)
from hyperbloom.wire.credentials import sign_data
from hyperbloom.wire.events import ConnectionEnded
from hyperbloom.wire.extensions.broadcast_tree import LinkKind, ValuesPull, ValuesTold
from hyperbloom.wire.extensions.renew_links import RenewedChain
from hyperbloom.wire.framing import encode_frame
from hyperbloom.wire.states import State

MAX_BYTES = 4_096
RUNS = 40

_DIALECTS = tuple(DIALECTS.values())
_STATES = (
    State.IDLE,
    State.OPEN_SENT,
    State.OPEN_RECEIVED,
    State.OPENED,
    State.HANDSHAKE_SENT,
    State.SECURE,
)
#: Who listens: the owner, or a member whose chain a Link may make shorter.
_LOCALS = {
    (dialect, members): credentials_of(*members, dialect=dialect)
    for dialect in _DIALECTS
    for members in ((), (3, 4, 5))
}
_REMOTES = {dialect: credentials_of(2, dialect=dialect) for dialect in _DIALECTS}


def fuzz(data: bytes) -> bool:
    """What a peer that knows the feed's key sends in one state; the bytes are encrypted here."""
    choices = Choices(data)
    dialect = choices.one_of(_DIALECTS)
    state = choices.one_of(_STATES)
    members = choices.one_of(((), (3, 4, 5)))
    piece = 1 + 16 * choices.number()
    stream = choices.rest()
    peer = drive(
        state, local=_LOCALS[dialect, members], remote=_REMOTES[dialect], session=Session()
    )
    session = peer.session
    if state is State.OPEN_RECEIVED:
        session.send_open(_LOCALS[dialect, members], nonce=wire_peers.LOCAL_NONCE)
        session.send_handshake(peer_id=PEER_ID, extensions=wire_peers.EXTENSIONS)
    for at in range(0, len(stream), piece):
        part = stream[at : at + piece]
        if state in (State.IDLE, State.OPEN_SENT):
            session.receive_data(part)
        else:
            peer.send_raw(part)
        assert session.buffered_bytes <= len(stream)
        if not _pull(session):
            return False
    return not session.buffered_bytes


def _pull(session: Session) -> bool:
    """Whether the peer may go on; does what a careful owner does."""
    for _ in range(MAX_BYTES + 10):
        try:
            event = session.next_event(now=NOW)
        except RemoteProtocolError:
            assert session.state is State.CLOSED
            assert session.buffered_bytes == 0
            return False
        if event is PAUSED and session.state is State.OPENED:
            session.send_handshake(peer_id=PEER_ID, extensions=wire_peers.EXTENSIONS)
        elif event is NEED_DATA or event is PAUSED or isinstance(event, ConnectionEnded):
            return True
    raise AssertionError("more events than bytes")


def _messages(dialect: object) -> bytes:
    remote = next(each for each in _REMOTES.values() if each.dialect is dialect)
    link = wire_peers.link_of(wire_peers.IDENTITIES[2], 5, dialect=remote.dialect)
    frames = [
        (1, Sync(filter=b"\xff\x00", size=16, n=3, seed=1).encode()),
        (2, FilterOptions(size=800, n=3).encode()),
        (3, sign_data(remote, [b"one", b"two"]).encode()),
        (4, Request(start=b"a", end=b"b").encode()),
        (5, Link(link=link.to_bytes()).encode()),
        (4365, DigestRequest(number=7, ranges=(Range(start=b"a", end=b"c"),)).encode()),
        (
            4367,
            SketchRequest(
                number=7, salt=b"", first=0, count=99, ranges=(Range(start=b""),)
            ).encode(),
        ),
        (4369, ValuesWanted(number=7, ids=b"i" * 16).encode()),
        (4370, ValuesTold(ids=b"i" * 16).encode()),
        (4371, ValuesPull(link=LinkKind.TELL, ids=b"i" * 16).encode()),
        (
            4373,
            RenewedChain(links=(link.to_bytes(),)).encode() if dialect.has_link_message else b"",
        ),
        (77, b"unknown"),
    ]
    return b"".join(encode_frame(message_id, body) for message_id, body in frames)


def seeds() -> dict[str, bytes]:
    """Opens, Handshakes and messages that are good in their state, and a recorded session."""
    found = {}
    for number, dialect in enumerate(_DIALECTS):
        opened = wire_peers.open_bytes(dialect=dialect)
        handshake = encode_frame(0, handshake_body(_REMOTES[dialect]))
        for state, stream in (
            (State.IDLE, opened),
            (State.OPEN_SENT, opened),
            (State.OPEN_RECEIVED, handshake),
            (State.HANDSHAKE_SENT, handshake + _messages(dialect)),
            (State.SECURE, _messages(dialect)),
        ):
            head = bytes([number, _STATES.index(state), 1, 255])
            found[f"{dialect.name}-{state.name.lower()}"] = head + stream
    side = recorded_sides(vectors("hyperbloom-2"))[1]
    recorded = b"".join(side.frames()[1:])
    found["recorded"] = bytes([0, _STATES.index(State.SECURE), 0, 255]) + recorded
    return found
