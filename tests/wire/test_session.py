"""Two sessions in memory, and a raw peer that may send anything."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace

import pytest
from feeding import check_feedings
from wire_peers import (
    FEED,
    IDENTITIES,
    LATER,
    LOCAL_NONCE,
    NOW,
    OWNER,
    PEER_ID,
    REMOTE_NONCE,
    chain_of,
    credentials_of,
    drive,
    each_dialect,
    events,
    handshake_body,
    open_bytes,
    pair,
)

from hyperbloom.keys import discovery_key
from hyperbloom.trust import (
    MAX_CHAIN_LINKS,
    Chain,
    ChainExpired,
    ChainForged,
    ChainMalformed,
    ChainTooLong,
    TrustLink,
    issue_link,
)
from hyperbloom.wire import (
    DIALECTS,
    NEED_DATA,
    PAUSED,
    Credentials,
    Data,
    Dialect,
    FilterOptions,
    Handshake,
    Link,
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
    Request,
    Session,
    Sync,
    UntrustedPeer,
)
from hyperbloom.wire.credentials import sign_data, signed_frames
from hyperbloom.wire.dialect import DIALECT_2
from hyperbloom.wire.errors import PeerTurnedAway
from hyperbloom.wire.events import (
    ConnectionEnded,
    DataReceived,
    DataRefused,
    Event,
    FilterOptionsReceived,
    HandshakeReceived,
    LinkIgnored,
    LinkReceived,
    OpenReceived,
    RemotePeer,
    RequestReceived,
    SyncReceived,
    UnknownIgnored,
)
from hyperbloom.wire.framing import encode_frame, encode_varint
from hyperbloom.wire.limits import (
    MAX_BUFFERED_BYTES,
    MAX_EARLY_BYTES,
    MAX_EARLY_FRAME_BYTES,
    MAX_EXTENSION_BYTES,
    MAX_EXTENSIONS,
    MAX_FRAME_BYTES,
    SEND_FRAME_BYTES,
)
from hyperbloom.wire.packing import MAX_VALUE_BYTES
from hyperbloom.wire.states import State

SYNC = Sync(filter=b"\x01", size=8, n=1, seed=9)


@pytest.mark.parametrize("members", [((), (2,)), ((2,), ()), ((), ()), ((2,), (2, 3, 4))])
def test_owners_and_members_connect_either_way(
    members: tuple[tuple[int, ...], tuple[int, ...]],
) -> None:
    ours, theirs = credentials_of(*members[0]), credentials_of(*members[1])
    client, server = pair(ours, theirs, extensions=["one", "two"])
    assert client.remote == RemotePeer(
        id=b"\x02" * 32,
        key=theirs.identity.public_key,
        chain=theirs.chain,
        extensions=("one", "two"),
    )
    assert server.remote is not None
    assert server.remote.key == ours.identity.public_key
    assert server.remote.expires == ours.chain.expires
    assert client.credentials == ours
    assert client.local_chain == ours.chain


def test_each_message_arrives_as_its_event() -> None:
    client, server = pair(credentials_of(), credentials_of(2))
    request = Request(start=b"a", end=b"b", limit=4)
    sent = [
        server.send_sync(SYNC),
        server.send_filter_options(FilterOptions(size=800, n=5)),
        server.send_data([b"one", b"two"]),
        server.send_request(request),
    ]
    client.receive_data(b"".join(sent))
    assert events(client) == [
        SyncReceived(sync=SYNC),
        FilterOptionsReceived(size=800, n=5),
        # A frame's length is one byte here, and not counted.
        DataReceived(values=(b"one", b"two"), size=len(sent[2]) - 1),
        RequestReceived(request=request),
    ]
    server.receive_data(client.send_data([b"back"]))
    assert [type(event) for event in events(server)] == [DataReceived]


def test_messages_arrive_however_their_bytes_are_cut() -> None:
    remote = credentials_of(2)
    values = (b"v" * 90, b"w" * 50)
    clear = encode_frame(1, SYNC.encode()) + encode_frame(3, sign_data(remote, values).encode())
    unfinished = encode_frame(4, Request(start=b"behind").encode())[:-1]
    secret = drive(State.SECURE, remote=remote).cipher.process(clear + unfinished)

    def make() -> Callable[[bytes], list[Event]]:
        session = drive(State.SECURE, remote=remote).session

        def feed(piece: bytes) -> list[Event]:
            session.receive_data(piece)
            return events(session)

        return feed

    expected: list[Event] = [SyncReceived(sync=SYNC), DataReceived(values=values, size=211)]
    check_feedings(make, secret[: len(clear)], expected, behind=secret[len(clear) :])


def test_frames_wait_until_they_are_pulled() -> None:
    client, server = pair(credentials_of(), credentials_of(2))
    frames = [server.send_request(Request(start=bytes([i]))) for i in range(3)]
    client.receive_data(b"".join(frames))
    held = [client.buffered_bytes]
    for i in range(3):
        event = client.next_event(now=NOW)
        assert event == RequestReceived(request=Request(start=bytes([i])))
        held.append(client.buffered_bytes)
    assert held == [len(frames[0]) * left for left in (3, 2, 1, 0)]
    assert client.next_event(now=NOW) is NEED_DATA


def test_the_feed_is_learnt_from_the_peers_open() -> None:
    session = Session()
    session.receive_data(open_bytes())
    assert session.next_event(now=NOW) == OpenReceived(feed=discovery_key(FEED))
    assert session.next_event(now=NOW) is PAUSED
    assert session.send_open(credentials_of(), nonce=LOCAL_NONCE) == open_bytes(LOCAL_NONCE)
    assert session.state is State.OPENED
    assert session.next_event(now=NOW) is PAUSED


# Who is there.


@pytest.mark.parametrize(
    ("chain", "reason"),
    [
        (chain_of(2, expires=NOW - 1), ChainExpired),
        (Chain(FEED, (replace(chain_of(2).links[0], nonce=bytes(32)),)), ChainForged),
        (Chain(FEED, chain_of(2, 3).links[1:]), ChainForged),
    ],
)
def test_a_chain_that_proves_nothing_is_told_with_its_reason(
    chain: Chain, reason: type[Exception]
) -> None:
    peer = drive(State.HANDSHAKE_SENT)
    holder = next(it for it in IDENTITIES.values() if it.public_key == chain.holder)
    remote = Credentials(feed_key=FEED, identity=holder, chain=chain)
    peer.send(0, handshake_body(remote))
    with pytest.raises(UntrustedPeer) as caught:
        peer.session.next_event(now=NOW)
    assert type(caught.value.reason) is reason
    assert peer.session.state is State.CLOSED
    assert peer.session.remote is None


@pytest.mark.parametrize(
    ("links", "reason"),
    [([b"x" * 136], ChainMalformed), ([bytes(137)] * 6, ChainTooLong)],
)
def test_a_chain_that_is_none(links: list[bytes], reason: type[Exception]) -> None:
    peer = drive(State.HANDSHAKE_SENT)
    fields = [b"\x22" + encode_varint(len(link)) + link for link in links]
    peer.send(0, handshake_body(credentials_of()) + b"".join(fields))
    with pytest.raises(UntrustedPeer) as caught:
        peer.session.next_event(now=NOW)
    assert type(caught.value.reason) is reason


@pytest.mark.parametrize(("members", "key"), [((), FEED), ((2,), None), ((2, 3), None)])
def test_who_is_not_wanted_is_turned_away_by_the_key_it_names(
    members: tuple[int, ...], key: bytes | None
) -> None:
    asked: list[Chain] = []

    def refuses(named: Chain) -> str | None:
        asked.append(named)
        return "there is no room" if len(asked) == 1 else None

    remote = credentials_of(*members)
    for turned_away in (True, False):
        peer = drive(State.HANDSHAKE_SENT, session=Session(refuses=refuses))
        peer.send(0, handshake_body(remote))
        if turned_away:
            with pytest.raises(PeerTurnedAway, match="there is no room"):
                peer.session.next_event(now=NOW)
            assert peer.session.state is State.CLOSED
            assert peer.session.remote is None
        else:
            assert isinstance(peer.session.next_event(now=NOW), HandshakeReceived)
    assert [chain.holder for chain in asked] == [key or remote.identity.public_key] * 2
    assert asked == [remote.chain] * 2, "the whole way down"


def test_a_chain_that_names_nobody_is_refused_as_such() -> None:
    asked: list[Chain] = []
    peer = drive(State.HANDSHAKE_SENT, session=Session(refuses=asked.append))
    link = b"x" * 136
    peer.send(0, handshake_body(credentials_of()) + b"\x22" + encode_varint(len(link)) + link)
    with pytest.raises(UntrustedPeer) as caught:
        peer.session.next_event(now=NOW)
    assert type(caught.value.reason) is ChainMalformed
    assert asked == []


@pytest.mark.parametrize(
    "nonces",
    [(LOCAL_NONCE, REMOTE_NONCE), (REMOTE_NONCE, REMOTE_NONCE), (REMOTE_NONCE, bytes(24))],
)
def test_a_handshake_over_other_nonces_proves_nothing(nonces: tuple[bytes, bytes]) -> None:
    peer = drive(State.HANDSHAKE_SENT)
    peer.send(0, handshake_body(credentials_of(2), sent=nonces[0], received=nonces[1]))
    with pytest.raises(UntrustedPeer, match="not signed by the last key") as caught:
        peer.session.next_event(now=NOW)
    assert caught.value.reason is None


def test_a_chain_of_somebody_else_proves_nothing() -> None:
    peer = drive(State.HANDSHAKE_SENT)
    own = handshake_body(credentials_of(2))
    stolen = own[: 34 + 66] + handshake_body(credentials_of(3))[34 + 66 :]
    peer.send(0, stolen)
    with pytest.raises(UntrustedPeer):
        peer.session.next_event(now=NOW)


def test_leeway_is_granted_past_the_expiry() -> None:
    remote = credentials_of(2, expires=NOW - 5)
    session = drive(State.SECURE, remote=remote, session=Session(leeway=10.0)).session
    assert session.remote is not None
    with pytest.raises(UntrustedPeer):
        drive(State.SECURE, remote=remote, session=Session(leeway=4.0))


def test_a_mirror_of_all_we_send_is_refused() -> None:
    session = Session()
    session.receive_data(session.send_open(credentials_of(), nonce=LOCAL_NONCE))
    with pytest.raises(RemoteProtocolError, match="our own nonce"):
        session.next_event(now=NOW)


def test_our_nonce_must_not_be_the_peers() -> None:
    session = drive(State.OPEN_RECEIVED).session
    with pytest.raises(LocalProtocolError, match="not fresh"):
        session.send_open(credentials_of(), nonce=REMOTE_NONCE)
    assert session.state is State.OPEN_RECEIVED


def test_a_peer_of_another_feed() -> None:
    session = drive(State.OPEN_SENT).session
    session.receive_data(open_bytes(feed=bytes(32)))
    with pytest.raises(RemoteProtocolError, match="another feed"):
        session.next_event(now=NOW)


def test_credentials_of_another_feed_than_the_peer_opened() -> None:
    session = Session()
    session.receive_data(open_bytes(feed=bytes(32)))
    session.next_event(now=NOW)
    with pytest.raises(LocalProtocolError, match="another feed"):
        session.send_open(credentials_of(), nonce=LOCAL_NONCE)
    assert session.state is State.OPEN_RECEIVED


def test_credentials_must_fit_together() -> None:
    with pytest.raises(LocalProtocolError, match="another key"):
        Credentials(feed_key=FEED, identity=IDENTITIES[3], chain=chain_of(2))
    with pytest.raises(LocalProtocolError, match="another feed"):
        Credentials(feed_key=bytes(32), identity=OWNER, chain=chain_of())


# Values.


def test_values_of_a_peer_whose_trust_expires_are_refused_from_then_on() -> None:
    remote = credentials_of(2, expires=NOW + 10)
    peer = drive(State.SECURE, remote=remote)
    for now, expected in [
        (NOW + 10, DataReceived(values=(b"v",), size=70)),
        (NOW + 10.001, DataRefused(reason="expired", count=1)),
        (float("nan"), DataRefused(reason="expired", count=1)),
    ]:
        peer.send(3, sign_data(remote, [b"v"]).encode())
        assert peer.session.next_event(now=now) == expected
    assert peer.session.state is State.SECURE


def test_leeway_holds_for_values_too() -> None:
    remote = credentials_of(2, expires=NOW + 10)
    peer = drive(State.SECURE, remote=remote, session=Session(leeway=5.0))
    peer.send(3, sign_data(remote, [b"v"]).encode())
    assert isinstance(peer.session.next_event(now=NOW + 15), DataReceived)


def test_the_owners_values_never_expire() -> None:
    peer = drive(State.SECURE, local=credentials_of(2), remote=credentials_of())
    peer.send(3, sign_data(credentials_of(), [b"v"]).encode())
    assert isinstance(peer.session.next_event(now=1e300), DataReceived)


@pytest.mark.parametrize(
    "data",
    [
        Data(values=(b"v", b"w"), signature=bytes(64)),
        replace(sign_data(credentials_of(2), [b"v", b"x"]), values=(b"v", b"w")),
        sign_data(credentials_of(3), [b"v", b"w"]),
    ],
    ids=["none", "of other values", "by another key"],
)
def test_values_with_a_wrong_signature_are_refused_and_counted(data: Data) -> None:
    peer = drive(State.SECURE, remote=credentials_of(2))
    peer.send(3, data.encode())
    assert peer.session.next_event(now=NOW) == DataRefused(reason="signature", count=2)
    assert peer.session.state is State.SECURE


def test_data_without_a_signature_breaks_this_dialect() -> None:
    peer = drive(State.SECURE)
    peer.send(3, Data(values=(b"v",)).encode())
    with pytest.raises(RemoteProtocolError, match="lacks its signature"):
        peer.session.next_event(now=NOW)


def test_one_signature_does_for_many_peers() -> None:
    client, server = pair(credentials_of(2), credentials_of())
    assert client.credentials is not None
    server.receive_data(client.send_encoded_data(*signed_frames(client.credentials, [b"v"])))
    assert events(server) == [DataReceived(values=(b"v",), size=70)]


# Links.


@pytest.mark.parametrize(
    ("ours", "theirs", "due"),
    [
        ((), (), None),
        ((), (2,), None),
        ((), (2, 3), LATER),
        ((2,), (2, 3), None),
        ((2,), (2, 3, 4), LATER),
        ((2, 3, 4), (5, 6, 7, 8), None),
        ((2, 3, 4), (5, 6, 7, 8, 9), LATER),
    ],
)
def test_when_a_link_is_due_and_when_one_is_taken(
    ours: tuple[int, ...], theirs: tuple[int, ...], due: float | None
) -> None:
    us, them = credentials_of(*ours), credentials_of(*theirs)
    client, server = pair(us, them)
    assert client.link_due() == due
    link = issue_link(us.identity, them.identity.public_key, expires=LATER, nonce=bytes(32))
    if due is None:
        with pytest.raises(LocalProtocolError, match="no Link is due"):
            client.send_link(link)
        assert client.state is State.SECURE
        # A peer that sends it all the same is not followed.
        raw = drive(State.SECURE, local=them, remote=us)
        raw.send(5, Link(link=link.to_bytes()).encode())
        assert raw.session.next_event(now=NOW) == LinkIgnored(
            reason="it does not make our chain shorter"
        )
        return
    server.receive_data(client.send_link(link))
    shorter = Chain(FEED, (*us.chain.links, link))
    assert events(server) == [LinkReceived(chain=shorter)]
    assert len(shorter) < len(them.chain)
    # Nothing changes until it is said; then a link of the same length is of no more use.
    assert server.local_chain == them.chain
    server.use_chain(shorter)
    assert server.local_chain == shorter
    server.receive_data(client.send_link(link))
    assert [type(event) for event in events(server)] == [LinkIgnored]


def test_a_link_lasts_as_long_as_the_shortest_of_the_peers_links() -> None:
    links = list(chain_of(2, 3, 4).links)
    issuer = IDENTITIES[2]
    links[1] = issue_link(issuer, IDENTITIES[3].public_key, expires=NOW + 60, nonce=bytes(32))
    remote = Credentials(feed_key=FEED, identity=IDENTITIES[4], chain=Chain(FEED, tuple(links)))
    assert drive(State.SECURE, remote=remote).session.link_due() == NOW + 60


def test_no_link_is_due_before_the_connection_is_secure() -> None:
    for state in State:
        if state is not State.SECURE:
            assert drive(state).session.link_due() is None


def link_to(member: int, *, issuer: int = 1, expires: float = LATER) -> TrustLink:
    key = IDENTITIES[member].public_key
    return issue_link(IDENTITIES[issuer], key, expires=expires, nonce=bytes(32))


@pytest.mark.parametrize(
    ("link", "why"),
    [
        (link_to(3, expires=LATER + 1), "another time"),
        (link_to(4), "signed by us and for the peer"),
        (link_to(3, issuer=2), "signed by us and for the peer"),
    ],
)
def test_a_link_that_would_be_of_no_use_is_not_sent(link: TrustLink, why: str) -> None:
    session = drive(State.SECURE, remote=credentials_of(2, 3)).session
    with pytest.raises(LocalProtocolError, match=why):
        session.send_link(link)
    assert session.state is State.SECURE


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (link_to(4).to_bytes(), "another key than ours"),
        (link_to(3, issuer=2).to_bytes(), "not signed by"),
        (link_to(3, expires=NOW - 1).to_bytes(), "expired"),
        (link_to(3).to_bytes()[:-1], "137 bytes"),
        (b"", "137 bytes"),
    ],
)
def test_a_link_that_is_of_no_use_is_ignored_with_a_reason(raw: bytes, why: str) -> None:
    peer = drive(State.SECURE, local=credentials_of(2, 3), remote=credentials_of())
    peer.send(5, Link(link=raw).encode())
    event = peer.session.next_event(now=NOW)
    assert isinstance(event, LinkIgnored)
    assert why in event.reason
    assert peer.session.state is State.SECURE


def test_a_link_behind_a_chain_that_has_expired_since_is_ignored() -> None:
    remote = credentials_of(4, expires=NOW + 10)
    peer = drive(State.SECURE, local=credentials_of(2, 3, 5), remote=remote)
    link = issue_link(remote.identity, IDENTITIES[5].public_key, expires=LATER, nonce=bytes(32))
    peer.send(5, Link(link=link.to_bytes()).encode())
    event = peer.session.next_event(now=NOW + 11)
    assert isinstance(event, LinkIgnored)
    assert "expired" in event.reason


def test_a_chain_of_another_feed_or_key_cannot_be_used() -> None:
    session = drive(State.SECURE, local=credentials_of(2)).session
    with pytest.raises(LocalProtocolError, match="another key"):
        session.use_chain(chain_of(3))
    with pytest.raises(LocalProtocolError, match="another feed"):
        session.use_chain(Chain(bytes(32)))
    assert session.local_chain == chain_of(2)


def test_there_is_no_chain_before_our_open() -> None:
    session = Session()
    assert session.credentials is None
    with pytest.raises(LocalProtocolError):
        _ = session.local_chain
    with pytest.raises(LocalProtocolError):
        session.use_chain(chain_of())


# What a dialect decides.


@pytest.fixture
def unsigned_without_links() -> Credentials:
    dialect = replace(DIALECT_2, name="test", data_signed=False, has_link_message=False)
    return credentials_of(2, dialect=dialect)


def test_a_dialect_without_signatures_sends_and_takes_bare_values(
    unsigned_without_links: Credentials,
) -> None:
    dialect = unsigned_without_links.dialect
    client, server = pair(unsigned_without_links, credentials_of(dialect=dialect))
    assert sign_data(unsigned_without_links, [b"v"]).signature is None
    server.receive_data(client.send_data([b"v"]))
    assert events(server) == [DataReceived(values=(b"v",), size=4)]


def test_a_dialect_without_link_messages_skips_them(unsigned_without_links: Credentials) -> None:
    owner = credentials_of(dialect=unsigned_without_links.dialect)
    peer = drive(State.SECURE, local=owner, remote=credentials_of(2, 3, dialect=owner.dialect))
    assert peer.session.link_due() is None
    peer.send(5, b"whatever")
    assert peer.session.next_event(now=NOW) == UnknownIgnored(message_id=5, size=9)


def test_a_dialect_names_and_signs_in_its_own_way() -> None:
    dialect = replace(
        DIALECT_2, name="test", hash_key=b"other", join_nonces=lambda sent, received: received
    )
    session = Session()
    opened = session.send_open(credentials_of(dialect=dialect), nonce=LOCAL_NONCE)
    assert opened == open_bytes(LOCAL_NONCE, feed=discovery_key(FEED, hash_key=b"other"))
    assert dialect.handshake_input(b"s", b"r") == dialect.handshake_input(b"t", b"r")
    pair(credentials_of(2, dialect=dialect), credentials_of(dialect=dialect))


def test_dialects_are_found_by_name() -> None:
    assert DIALECTS["2"] is DIALECT_2
    assert all(name == dialect.name for name, dialect in DIALECTS.items())


# Unknown messages, errors, ends.


@pytest.mark.parametrize("state", [State.HANDSHAKE_SENT, State.SECURE])
@pytest.mark.parametrize("message_id", [6, 127, 128, 2**40])
def test_unknown_messages_are_skipped(state: State, message_id: int) -> None:
    peer = drive(state)
    peer.send(message_id, b"body")
    size = len(encode_varint(message_id)) + 4
    assert peer.session.next_event(now=NOW) == UnknownIgnored(message_id=message_id, size=size)
    assert peer.session.state is state
    if state is State.HANDSHAKE_SENT:
        peer.send(0, handshake_body(credentials_of(2)))
        assert isinstance(peer.session.next_event(now=NOW), HandshakeReceived)


def test_after_an_error_of_the_peer_it_is_told_again_and_bytes_are_dropped() -> None:
    peer = drive(State.SECURE)
    peer.send(0, handshake_body(credentials_of(2)))
    peer.send(4, Request(start=b"").encode())
    with pytest.raises(RemoteProtocolError, match="may not receive Handshake"):
        peer.session.next_event(now=NOW)
    peer.send(4, Request(start=b"").encode())
    peer.session.close()
    for _ in range(2):
        with pytest.raises(RemoteProtocolError, match=r"has ended.*may not receive Handshake"):
            peer.session.next_event(now=NOW)
    assert peer.session.buffered_bytes == 0
    with pytest.raises(LocalProtocolError):
        peer.session.send_data([b"v"])


def test_closing_twice_is_closing_once() -> None:
    session = drive(State.SECURE).session
    session.close()
    session.close()
    assert session.next_event(now=NOW) == ConnectionEnded()
    assert session.remote is not None, "who it was may still be asked"


@pytest.mark.parametrize("values", [[], [b""], [b"v", b"v"], [bytes(MAX_VALUE_BYTES + 1)]], ids=len)
def test_refused_values_change_nothing(values: list[bytes]) -> None:
    client, server = pair(credentials_of(), credentials_of(2))
    with pytest.raises(LocalProtocolError):
        client.send_data(values)
    assert client.state is State.SECURE
    server.receive_data(client.send_data([b"next"]))
    assert [type(event) for event in events(server)] == [DataReceived]


@pytest.mark.parametrize("peer_id", [b"", bytes(31), bytes(33)])
def test_a_refused_handshake_can_be_sent_again(peer_id: bytes) -> None:
    session = drive(State.OPENED).session
    with pytest.raises(LocalProtocolError):
        session.send_handshake(peer_id=peer_id)
    assert session.state is State.OPENED
    assert session.send_handshake(peer_id=PEER_ID)


def test_errors_say_whose_they_are() -> None:
    assert issubclass(UntrustedPeer, RemoteProtocolError)
    assert issubclass(RemoteProtocolError, ProtocolError)
    assert issubclass(LocalProtocolError, ProtocolError)
    assert not issubclass(LocalProtocolError, RemoteProtocolError)


# Limits.


def test_the_longest_frames_both_ways() -> None:
    client, server = pair(credentials_of(), credentials_of(2))
    value = bytes(MAX_VALUE_BYTES)
    server.receive_data(client.send_data([value]))
    assert events(server) == [DataReceived(values=(value,), size=SEND_FRAME_BYTES)]
    peer = drive(State.SECURE)
    peer.send_raw(encode_varint(MAX_FRAME_BYTES) + b"\x63" + bytes(MAX_FRAME_BYTES - 1))
    event = peer.session.next_event(now=NOW)
    assert event == UnknownIgnored(message_id=0x63, size=MAX_FRAME_BYTES)
    peer.send_raw(encode_varint(MAX_FRAME_BYTES + 1))
    with pytest.raises(RemoteProtocolError, match="length of a frame"):
        peer.session.next_event(now=NOW)


@each_dialect
def test_before_the_handshake_no_frame_is_longer_than_one_needs(dialect: Dialect) -> None:
    peer = drive(State.HANDSHAKE_SENT, dialect=dialect)
    peer.send_raw(encode_varint(MAX_EARLY_FRAME_BYTES) + b"\x63" + bytes(MAX_EARLY_FRAME_BYTES - 1))
    event = peer.session.next_event(now=NOW)
    assert event == UnknownIgnored(message_id=0x63, size=MAX_EARLY_FRAME_BYTES)
    peer.send_raw(encode_varint(MAX_EARLY_FRAME_BYTES + 1))
    with pytest.raises(RemoteProtocolError, match="length of a frame"):
        peer.session.next_event(now=NOW)
    assert peer.session.buffered_bytes == 0


def test_the_longest_handshake_is_short_enough_to_be_taken() -> None:
    longest = Handshake(
        id=PEER_ID,
        extensions=("x" * MAX_EXTENSION_BYTES,) * MAX_EXTENSIONS,
        signature=bytes(64),
        chain=(bytes(137),) * MAX_CHAIN_LINKS,
    )
    assert len(longest.encode()) + 1 == 17_313 <= MAX_EARLY_FRAME_BYTES
    deployed = Handshake(id=PEER_ID, signature=bytes(64), chain=(bytes(137),) * MAX_CHAIN_LINKS)
    assert len(deployed.encode()) + 1 == 801


def test_what_may_come_before_our_open_is_limited() -> None:
    session = drive(State.OPEN_RECEIVED).session
    session.receive_data(bytes(MAX_EARLY_BYTES))
    assert session.next_event(now=NOW) is PAUSED
    session.receive_data(b"x")
    with pytest.raises(RemoteProtocolError, match="before the peer could know our nonce"):
        session.next_event(now=NOW)


def test_what_waits_to_be_pulled_is_limited() -> None:
    session = drive(State.SECURE).session
    session.receive_data(bytes(MAX_BUFFERED_BYTES))
    with pytest.raises(LocalProtocolError, match="wait to be pulled"):
        session.receive_data(b"x")
    assert session.buffered_bytes == 0
    assert session.next_event(now=NOW) == ConnectionEnded()


def test_an_idle_secure_session_keeps_no_buffer() -> None:
    client, server = pair(credentials_of(), credentials_of(2))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(3):
            server.receive_data(client.send_data([bytes(MAX_VALUE_BYTES)]))
            assert len(events(server)) == 1
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    # A buffer that is kept has the value's size; other threads of the process allocate a little.
    assert grown < MAX_VALUE_BYTES // 4


def test_a_thousand_secure_sessions_fit_a_few_megabytes() -> None:
    ours, theirs = credentials_of(), credentials_of(2)
    pair(ours, theirs)
    tracemalloc.start()
    try:
        sessions = [pair(ours, theirs) for _ in range(50)]
        each = tracemalloc.get_traced_memory()[0] / (2 * len(sessions))
    finally:
        tracemalloc.stop()
    assert each < 5_000
