"""What each dialect says otherwise, held against its text with hashlib and PyNaCl alone.

The draft has no peer to record: its bytes here are put together by hand from
"Handshake", "Signature Chain" and "Hash" of its text.
"""

from __future__ import annotations

import math
from hashlib import blake2b

import nacl.hash
import pytest
from feeding import check_feedings
from nacl.encoding import RawEncoder
from nacl.signing import SigningKey
from wire_peers import (
    FEED,
    LATER,
    LOCAL_NONCE,
    NOW,
    OWNER,
    PEER_ID,
    REMOTE_NONCE,
    Recorded,
    chain_of,
    credentials_of,
    each_dialect,
    events,
    open_bytes,
    pair,
    spoken_sides,
)

from hyperbloom.keys import HASH_KEY
from hyperbloom.trust import (
    LINK_FORMAT_2,
    LINK_FORMAT_DRAFT,
    ChainError,
    ChainMalformed,
    LinkFormat,
    issue_link,
    parse_link,
    verify_chain,
)
from hyperbloom.wire import (
    DIALECTS,
    Dialect,
    RemoteProtocolError,
    Session,
    UntrustedPeer,
)
from hyperbloom.wire.dialect import DIALECT_1, DIALECT_2, DIALECT_DRAFT
from hyperbloom.wire.events import DataReceived, HandshakeReceived, OpenReceived
from hyperbloom.wire.framing import MAGIC, encode_frame
from hyperbloom.wire.stream_cipher import XSalsa20Stream

OWNER_KEY = SigningKey(b"\x01" * 32)
ALICE_KEY = SigningKey(b"\x02" * 32)
BOB_KEY = SigningKey(b"\x03" * 32)
NONCE = bytes(range(32))


def draft_hash(data: bytes) -> bytes:
    return blake2b(data, digest_size=32, key=b"hyperbloom").digest()


def draft_link(issuer: SigningKey, trustee: SigningKey, nonce: bytes = NONCE) -> bytes:
    """version | public key | nonce | signature of their Hash."""
    signed = b"\x01" + bytes(trustee.verify_key) + nonce
    return signed + issuer.sign(draft_hash(signed)).signature


# The draft by hand.


def test_the_keyed_hash_of_the_draft() -> None:
    # hashlib's BLAKE2b and libsodium's, each keyed with the ten letters.
    assert draft_hash(FEED) == nacl.hash.blake2b(FEED, key=b"hyperbloom", encoder=RawEncoder)
    assert DIALECT_DRAFT.discovery_key(FEED) == draft_hash(FEED)
    assert DIALECT_DRAFT.discovery_key(FEED).hex() == (
        "a1219e9531e9c86b66c31a831724512dec1097147224901078d91464a8b9ce96"
    )
    assert DIALECT_DRAFT.discovery_key(FEED) != DIALECT_2.discovery_key(FEED)


def test_a_handshake_of_the_draft_signs_the_nonce_of_the_other_side() -> None:
    assert DIALECT_DRAFT.handshake_input(b"sent" * 6, b"got." * 6) == draft_hash(b"got." * 6)

    session = Session()
    credentials = credentials_of(2, dialect=DIALECT_DRAFT)
    opened = session.send_open(credentials, nonce=LOCAL_NONCE)
    feed = draft_hash(bytes(OWNER_KEY.verify_key))
    assert opened == MAGIC + b"\x3c\x0a\x20" + feed + b"\x12\x18" + LOCAL_NONCE
    session.receive_data(MAGIC + b"\x3c\x0a\x20" + feed + b"\x12\x18" + REMOTE_NONCE)
    assert events(session) == [OpenReceived(feed=feed)]

    frame = XSalsa20Stream(FEED, LOCAL_NONCE).process(session.send_handshake(peer_id=PEER_ID))
    signature = ALICE_KEY.sign(draft_hash(REMOTE_NONCE)).signature
    chain = draft_link(OWNER_KEY, ALICE_KEY, b"\x02" * 32)
    body = b"\x0a\x20" + PEER_ID + b"\x1a\x40" + signature + b"\x22\x81\x01" + chain
    assert frame == encode_frame(0, body)


def test_a_link_of_the_draft_has_129_bytes_and_no_end() -> None:
    raw = draft_link(OWNER_KEY, ALICE_KEY)
    assert len(raw) == 129
    link = parse_link(raw, LINK_FORMAT_DRAFT)
    assert (link.version, link.public_key, link.nonce) == (1, bytes(ALICE_KEY.verify_key), NONCE)
    assert link.expires == math.inf
    assert not link.is_expired(now=1e300)
    assert link.is_signed_by(FEED)
    assert link.to_bytes() == raw
    made = issue_link(
        OWNER, link.public_key, expires=math.inf, nonce=NONCE, format=LINK_FORMAT_DRAFT
    )
    assert made.to_bytes() == raw
    with pytest.raises(ValueError, match="never expires"):
        issue_link(OWNER, link.public_key, expires=LATER, nonce=NONCE, format=LINK_FORMAT_DRAFT)


def test_the_owner_of_a_draft_feed_shows_a_link_to_itself() -> None:
    chain = chain_of(dialect=DIALECT_DRAFT)
    (raw,) = chain.to_wire()
    assert raw == draft_link(OWNER_KEY, OWNER_KEY, draft_hash(FEED))
    OWNER_KEY.verify_key.verify(draft_hash(raw[:65]), raw[65:])
    assert chain.is_owners
    assert verify_chain(FEED, [raw], now=NOW, format=LINK_FORMAT_DRAFT) == chain
    # Its members' chains begin with their own links all the same.
    assert chain_of(2, dialect=DIALECT_DRAFT).to_wire() == (
        draft_link(OWNER_KEY, ALICE_KEY, b"\x02" * 32),
    )


def test_chains_of_the_draft_by_hand() -> None:
    raw = [draft_link(OWNER_KEY, ALICE_KEY), draft_link(ALICE_KEY, BOB_KEY)]
    chain = verify_chain(FEED, raw, now=NOW, format=LINK_FORMAT_DRAFT)
    assert chain.holder == bytes(BOB_KEY.verify_key)
    assert chain.expires == math.inf
    # "... or the feed's private key if the chain is empty" is in the text, too.
    assert verify_chain(FEED, [], now=NOW, format=LINK_FORMAT_DRAFT).is_owners
    for forged in (
        [draft_link(ALICE_KEY, ALICE_KEY)],
        [raw[0], draft_link(OWNER_KEY, BOB_KEY)],
        [draft_link(OWNER_KEY, ALICE_KEY), draft_link(BOB_KEY, ALICE_KEY)],
    ):
        with pytest.raises(ChainError):
            verify_chain(FEED, forged, now=NOW, format=LINK_FORMAT_DRAFT)


@pytest.mark.parametrize(
    ("made_in", "read_as"),
    [
        (DIALECT_DRAFT, LINK_FORMAT_2),
        (DIALECT_2, LINK_FORMAT_DRAFT),
        (DIALECT_1, LINK_FORMAT_DRAFT),
    ],
    ids=["draft by 2", "2 by draft", "1 by draft"],
)
@pytest.mark.parametrize("members", [(2,), (2, 3)])
def test_a_chain_of_another_form_is_refused(
    made_in: Dialect, read_as: LinkFormat, members: tuple[int, ...]
) -> None:
    with pytest.raises(ChainMalformed, match="bytes, not"):
        verify_chain(FEED, chain_of(*members, dialect=made_in).to_wire(), now=NOW, format=read_as)


# Two dialects never meet.


def meet(ours: Dialect, theirs: Dialect, *members: int) -> RemoteProtocolError | None:
    """Why our session ends when a peer of another dialect has found out how we name the feed."""
    session = Session()
    session.send_open(credentials_of(dialect=ours), nonce=LOCAL_NONCE)
    session.receive_data(open_bytes(dialect=ours))
    events(session)
    session.send_handshake(peer_id=PEER_ID)
    credentials = credentials_of(*members, dialect=theirs)
    peer = Session()
    peer.send_open(credentials, nonce=REMOTE_NONCE)
    peer.receive_data(open_bytes(LOCAL_NONCE, dialect=theirs))
    events(peer)
    session.receive_data(peer.send_handshake(peer_id=PEER_ID))
    try:
        events(session)
    except RemoteProtocolError as error:
        return error
    return None


@pytest.mark.parametrize("members", [(), (2,)], ids=["owner", "member"])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(DIALECT_DRAFT, DIALECT_2), (DIALECT_2, DIALECT_DRAFT), (DIALECT_1, DIALECT_DRAFT)],
    ids=lambda it: it.name,
)
def test_a_handshake_of_the_draft_is_refused_by_the_others_and_theirs_by_it(
    ours: Dialect, theirs: Dialect, members: tuple[int, ...]
) -> None:
    assert isinstance(meet(ours, theirs, *members), UntrustedPeer)
    assert meet(ours, ours, *members) is None


def test_dialects_with_another_hash_do_not_even_name_a_feed_alike() -> None:
    session = Session()
    session.send_open(credentials_of(dialect=DIALECT_2), nonce=LOCAL_NONCE)
    session.receive_data(open_bytes(dialect=DIALECT_DRAFT))
    with pytest.raises(RemoteProtocolError, match="another feed"):
        session.next_event(now=NOW)


def test_unsigned_values_are_refused_by_dialect_2_and_break_no_other() -> None:
    for sender, receiver in ((DIALECT_1, DIALECT_2), (DIALECT_2, DIALECT_1)):
        client, server = pair(credentials_of(2, dialect=sender), credentials_of(dialect=receiver))
        server.receive_data(client.send_data([b"v"]))
        if receiver.data_signed:
            with pytest.raises(RemoteProtocolError, match="lacks its signature"):
                events(server)
        else:
            assert [type(event) for event in events(server)] == [DataReceived]


# Every dialect alike.


@each_dialect
@pytest.mark.parametrize("members", [((), (2,)), ((2,), ()), ((), ()), ((2,), (2, 3, 4))])
def test_owners_and_members_talk_in_every_dialect(
    dialect: Dialect, members: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    ours, theirs = (credentials_of(*each, dialect=dialect) for each in members)
    client, server = pair(ours, theirs)
    assert client.remote is not None
    assert (client.remote.key, client.remote.chain) == (theirs.identity.public_key, theirs.chain)
    server.receive_data(client.send_data([b"one", b"two"]))
    (event,) = events(server)
    assert isinstance(event, DataReceived)
    assert event.values == (b"one", b"two")


@each_dialect
@pytest.mark.parametrize("role", [0, 1])
def test_a_session_however_its_bytes_are_cut(dialect: Dialect, role: int) -> None:
    sides = spoken_sides(dialect)
    us, them = sides[role], sides[1 - role]

    def make() -> object:
        session = Session()
        session.send_open(us.credentials, nonce=us.nonce)

        def feed(piece: bytes) -> list[object]:
            session.receive_data(piece)
            told: list[object] = list(events(session))
            if told and isinstance(told[-1], OpenReceived):
                session.send_handshake(peer_id=us.peer_id)
                told += events(session)
            return told

        return feed

    told = make()(b"".join(them.chunks))
    assert [type(event).__name__ for event in told] == [
        "OpenReceived",
        "HandshakeReceived",
        "SyncReceived",
        "FilterOptionsReceived",
        "DataReceived",
        "RequestReceived",
        last_event(dialect, us),
    ]
    sent = sum(map(len, them.chunks[1:]))
    unfinished = XSalsa20Stream(FEED, them.nonce).process(bytes(sent) + b"\x05")[-1:]
    check_feedings(make, b"".join(them.chunks), told, behind=unfinished)


def last_event(dialect: Dialect, us: Recorded) -> str:
    """What a Link to the member is: nothing known, of no use to the owner, or a shorter chain."""
    if not dialect.has_link_message:
        return "UnknownIgnored"
    return "LinkIgnored" if us.chain.is_owners else "LinkReceived"


def test_what_a_dialect_lacks_is_what_its_value_says() -> None:
    assert set(DIALECTS) == {"2", "1", "draft"}
    assert DIALECT_2.lacks == ()
    for dialect in DIALECTS.values():
        said = "; ".join(dialect.lacks)
        assert ("not signed" in said) is not dialect.data_signed
        assert ("never expire" in said) is not dialect.link_format.has_expiry
        is_bound = dialect.handshake_input(b"a", b"c") != dialect.handshake_input(b"b", b"c")
        assert ("handshake" in said) is not is_bound
    assert DIALECT_1.hash_key == DIALECT_2.hash_key == HASH_KEY


def test_why_a_handshake_of_the_draft_proves_little() -> None:
    """A stranger who knows the feed's key has Alice sign for Bob; dialect 2 does not let it."""
    passed = {}
    for dialect in DIALECTS.values():
        bob = Session()
        bob.send_open(credentials_of(3, dialect=dialect), nonce=LOCAL_NONCE)
        bob.receive_data(open_bytes(b"\x11" * 24, dialect=dialect))
        events(bob)
        bob.send_handshake(peer_id=PEER_ID)
        # To Alice the stranger opens with the nonce that Bob has sent it.
        alice = Session()
        alice.receive_data(open_bytes(LOCAL_NONCE, dialect=dialect))
        events(alice)
        alice.send_open(credentials_of(2, dialect=dialect), nonce=b"\x22" * 24)
        proof = XSalsa20Stream(FEED, b"\x22" * 24).process(alice.send_handshake(peer_id=b"a" * 32))
        bob.receive_data(XSalsa20Stream(FEED, b"\x11" * 24).process(proof))
        try:
            passed[dialect.name] = [type(event) for event in events(bob)] == [HandshakeReceived]
        except UntrustedPeer:
            passed[dialect.name] = False
    assert passed == {"2": False, "1": False, "draft": True}
