"""A protected stream that is changed in any way: nothing changed is taken, and nothing behind it.

What is delivered is a beginning of what was sent, no longer than the records that came whole and
unchanged; then the session closes, or no end has come.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from hypothesis import given
from hypothesis import strategies as st
from noise_streams import (
    EPHEMERALS,
    FILLER,
    MEMBER,
    NONCES,
    OWNER,
    STREAMS,
    drain,
    shake,
    take,
    try_change,
)
from wire_peers import NOW

from hyperbloom.keys import Identity
from hyperbloom.wire import Session, records
from hyperbloom.wire.errors import RemoteProtocolError, StreamAltered
from hyperbloom.wire.events import NoiseReceived, PeerEnded
from hyperbloom.wire.extensions.noise import NoiseHandshake
from hyperbloom.wire.records import MAX_RECORD_CONTENT, RecordReader, RecordWriter
from hyperbloom.wire.states import State

SEED = 20_261_122
#: So many at a time, each from a seed of its own.
CHUNK = 2_000
SOAK_CHUNKS = 500
PARTS = 10


def changes(chunks: range) -> Counter[str]:
    found: Counter[str] = Counter()
    for chunk in chunks:
        chance = random.Random(SEED + chunk)
        changed = 0
        while changed < CHUNK:
            try:
                word = try_change(chance)
            except AssertionError as error:
                raise AssertionError(f"chunk {chunk}, change {changed}") from error
            changed += word != "same"
            found[word] += 1
    del found["same"]
    return found


def test_nothing_changed_is_taken():
    found = changes(range(1))
    assert found["refused"] > CHUNK // 2
    assert found["cut"] > CHUNK // 50
    assert found.total() == CHUNK


def test_without_the_tags_changes_would_be_taken(monkeypatch):
    """The control: a stream cipher alone, as the old one is, under the same changes."""

    class Untagged:
        def __init__(self, key):
            self.key, self.encrypt = key, ChaCha20Poly1305(key).encrypt

        def decrypt(self, nonce, data, ad):
            cipher = Cipher(ChaCha20(self.key, (1).to_bytes(4, "little") + nonce), None)
            return cipher.decryptor().update(bytes(data[:-16]))

    monkeypatch.setattr(records, "ChaCha20Poly1305", Untagged)
    chance = random.Random(SEED)
    taken = 0
    for _ in range(200):
        try:
            try_change(chance)
        except AssertionError:
            taken += 1
    assert taken > 50


@pytest.mark.soak
@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_of_a_million_changes_is_taken(part):
    share = SOAK_CHUNKS // PARTS
    found = changes(range(part * share, (part + 1) * share))
    print(dict(found))
    assert found.total() == share * CHUNK
    assert found["refused"] > found.total() // 2


@pytest.mark.parametrize("dialled", [True, False])
def test_each_single_bit(dialled):
    """Of the NoiseMessage, of each record's length, content and tag: every byte, a bit of it."""
    stream = STREAMS[dialled]
    for place in range(len(stream.data)):
        changed = bytearray(stream.data)
        changed[place] ^= 1 << place % 8
        session = stream.receiver()
        told = []
        assert take(session, [bytes(changed), FILLER], told) == "refused"
        assert told == list(stream.events[: len(told)])
        assert len(told) <= stream.allowed(place)


@pytest.mark.parametrize("dialled", [True, False])
def test_each_place_to_cut_is_no_end(dialled):
    stream = STREAMS[dialled]
    for place in range(len(stream.data)):
        session = stream.receiver()
        session.receive_data(stream.data[:place])
        told = drain(session)
        assert not session.end_received
        assert not any(isinstance(event, PeerEnded) for event in told)
        assert len(told) == stream.allowed(place)


@pytest.mark.parametrize("dialled", [True, False])
def test_the_unchanged_stream_is_taken_to_its_end(dialled):
    """What the others change is sound."""
    stream = STREAMS[dialled]
    session = stream.receiver()
    session.receive_data(stream.data)
    assert tuple(drain(session)) == stream.events
    assert stream.events[0] == NoiseReceived()
    assert len(stream.events) == len(stream.pieces)
    assert session.state is State.PEER_ENDED


@pytest.mark.parametrize("dialled", [True, False])
def test_two_of_one_role_do_not_meet(dialled):
    """Two nodes that dial each other have two connections; a relay may join their like ends."""
    first, second = roles = [Session(dialled=dialled) for _ in range(2)]
    opened = first.send_open(MEMBER, nonce=NONCES[True], speaks_noise=True)
    other_opened = second.send_open(OWNER, nonce=NONCES[False], speaks_noise=True)
    handshake = shake(second, opened)
    second.receive_data(shake(first, other_opened))
    first.receive_data(handshake)
    for session in roles:
        session.next_event(now=NOW)
        assert session.state is (State.NOISE_DUE if dialled else State.NOISE_AWAITED)
    if dialled:
        messages = [session.send_noise(ephemeral=EPHEMERALS[True]) for session in roles]
        for session, message in zip(roles, reversed(messages), strict=True):
            session.receive_data(message)
            with pytest.raises(StreamAltered):
                session.next_event(now=NOW)


# The reader of records alone

ONE, OTHER = Identity(b"\x51" * 32), Identity(b"\x52" * 32)


def direction() -> tuple[RecordWriter, RecordReader]:
    """The dialler's for what it sends, and the other's for what comes."""
    ends = [
        NoiseHandshake(
            dialled=dialled,
            identity=ONE if dialled else OTHER,
            peer_key=(OTHER if dialled else ONE).public_key,
            psk=bytes(32),
            prologue=b"",
        )
        for dialled in (True, False)
    ]
    ends[1].read(ends[0].write(ephemeral=EPHEMERALS[True]))
    ends[0].read(ends[1].write(ephemeral=EPHEMERALS[False]))
    return ends[0].ciphers()[0], ends[1].ciphers()[1]


contents = st.lists(
    st.one_of(
        st.binary(min_size=1, max_size=40),
        st.integers(1, 2 * MAX_RECORD_CONTENT + 1).map(lambda size: b"\x07" * size),
    ),
    min_size=1,
    max_size=5,
)


def cut_at(data: bytes, places: list[int]) -> list[bytes]:
    marks = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[one:two] for one, two in itertools.pairwise(marks)]


@given(contents, st.data())
def test_changed_records_give_a_beginning_and_the_named_errors(sent, data):
    writer, reader = direction()
    records = [writer.process(content) for content in sent] + [writer.end()]
    stream = b"".join(records)
    at = data.draw(st.integers(0, len(stream) - 1))
    instead = data.draw(st.binary(max_size=20))
    until = at + data.draw(st.integers(0, 40))
    changed = stream[:at] + instead + stream[until:]
    got = b""
    failed = False
    try:
        for part in cut_at(changed, data.draw(st.lists(st.integers(0, 1 << 20), max_size=6))):
            got += reader.process(part)
    except RemoteProtocolError:
        failed = True
    whole = b"".join(sent)
    assert whole.startswith(got)
    if changed != stream:
        assert not reader.has_ended or failed or changed.startswith(stream)
