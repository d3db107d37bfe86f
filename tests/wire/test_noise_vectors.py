"""The published vectors of Noise through our code, and our code against Noise by hand."""

from __future__ import annotations

import random
from typing import Any

import pytest
from golden_noise import golden
from noise.backends.default import DefaultNoiseBackend
from noise.noise_protocol import NoiseProtocol
from noise.state import HandshakeState
from noise_by_hand import (
    LOW_ORDER,
    PROTOCOL,
    REKEY_BYTES,
    REKEY_RECORDS,
    CipherState,
    Forged,
    Keys,
    NoiseMachine,
    mark_of,
    prologue_of,
    psk_of,
    x25519_private,
    x25519_public,
)

from hyperbloom.keys import Identity
from hyperbloom.wire.errors import RemoteProtocolError, StreamAltered
from hyperbloom.wire.extensions.noise import (
    NoiseHandshake,
    NoiseMessage,
    is_marked,
    marked,
    prologue,
    shared_secret,
)
from hyperbloom.wire.records import MAX_RECORD_CONTENT, RecordReader, RecordWriter

CHANCE = random.Random(20_261_122)
P = 2**255 - 19


class GivenIdentity:
    """Stands for an Identity whose X25519 key is that of a vector."""

    def __init__(self, private: bytes) -> None:
        self._private = private

    def exchange_seed(self) -> bytes:
        return self._private


def ed25519_public(x25519: bytes) -> bytes:
    """A key whose X25519 form is this one: y = (u - 1) / (u + 1) (RFC 7748, 4.1)."""
    u = int.from_bytes(x25519, "little")
    return ((u - 1) * pow(u + 1, -1, P) % P).to_bytes(32, "little")


def our_side(vector: dict[str, Any], name: str) -> NoiseHandshake:
    def given(what: str) -> bytes:
        return bytes.fromhex(vector[f"{name}_{what}"])

    (psk,) = vector[f"{name}_psks"]
    return NoiseHandshake(
        dialled=name == "init",
        identity=GivenIdentity(given("static")),
        peer_key=ed25519_public(given("remote_static")),
        psk=bytes.fromhex(psk),
        prologue=given("prologue"),
    )


def test_the_published_vector_of_our_pattern(noise_vectors, monkeypatch):
    """Our own messages have no payload, those of the vector have: the library is given them."""
    (vector,) = (it for it in noise_vectors if it["protocol_name"] == PROTOCOL)
    payloads, sealed = (
        [bytes.fromhex(message[key]) for message in vector["messages"]]
        for key in ("payload", "ciphertext")
    )
    write = HandshakeState.write_message
    turn = iter(payloads)
    monkeypatch.setattr(
        HandshakeState, "write_message", lambda self, _, out: write(self, next(turn), out)
    )
    initiator, responder = our_side(vector, "init"), our_side(vector, "resp")
    first = initiator.write(ephemeral=bytes.fromhex(vector["init_ephemeral"]))
    assert first.body == sealed[0]
    responder.read(first)
    second = responder.write(ephemeral=bytes.fromhex(vector["resp_ephemeral"]))
    assert second.body == sealed[1]
    initiator.read(second)
    sides = [initiator.ciphers(), responder.ciphers()]
    for number, (payload, message) in enumerate(zip(payloads[2:], sealed[2:], strict=True)):
        (writer, _), (_, reader) = sides[number % 2], sides[1 - number % 2]
        record = writer.process(payload)
        assert record == len(message).to_bytes(2, "big") + message
        assert reader.process(record) == payload


def test_the_published_vectors_through_the_layer_that_we_use(noise_vector):
    """Patterns beside ours, by the library's functions that our handshake calls."""
    sides = []
    for name in ("init", "resp"):
        protocol = NoiseProtocol(noise_vector["protocol_name"].encode(), DefaultNoiseBackend())
        keypair = protocol.keypair_class
        protocol.initiator = name == "init"
        protocol.prologue = bytes.fromhex(noise_vector[f"{name}_prologue"])
        protocol.psks = [bytes.fromhex(psk) for psk in noise_vector.get(f"{name}_psks", [])]
        for key, make in (
            ("static", keypair.from_private_bytes),
            ("remote_static", keypair.from_public_bytes),
        ):
            given = noise_vector.get(f"{name}_{key}")
            short = "s" if key == "static" else "rs"
            protocol.keypairs[short] = None if given is None else make(bytes.fromhex(given))
        protocol.initialise_handshake_state()
        ephemeral = bytes.fromhex(noise_vector[f"{name}_ephemeral"])
        protocol.handshake_state.e = keypair.from_private_bytes(ephemeral)
        sides.append(protocol)
    sender, receiver = sides
    for number, message in enumerate(noise_vector["messages"]):
        payload, sealed = (bytes.fromhex(message[key]) for key in ("payload", "ciphertext"))
        out, found = bytearray(), bytearray()
        if number < 2:
            sender.handshake_state.write_message(payload, out)
            receiver.handshake_state.read_message(sealed, found)
        else:
            out += sender.cipher_state_encrypt.encrypt_with_ad(b"", payload)
            found += receiver.cipher_state_decrypt.decrypt_with_ad(b"", sealed)
        assert (out, found) == (sealed, payload)
        sender, receiver = receiver, sender
    if "handshake_hash" in noise_vector:
        assert {side.handshake_hash.hex() for side in sides} == {noise_vector["handshake_hash"]}


# Our code and Noise by hand

OURS, THEIRS = (Identity(CHANCE.randbytes(32)) for _ in range(2))
PSK, PROLOGUE = CHANCE.randbytes(32), CHANCE.randbytes(144)


def ours(*, dialled: bool) -> NoiseHandshake:
    return NoiseHandshake(
        dialled=dialled,
        identity=OURS,
        peer_key=THEIRS.public_key,
        psk=PSK,
        prologue=PROLOGUE,
    )


def by_hand(*, initiator: bool, **changed: Any) -> NoiseMachine:
    keys: dict[str, Any] = {
        "ephemeral": CHANCE.randbytes(32),
        "prologue": PROLOGUE,
        "static": x25519_private(THEIRS.seed),
        "remote_static": x25519_public(OURS.public_key),
        "psks": [PSK],
    }
    return NoiseMachine(Keys(initiator=initiator, **{**keys, **changed}))


def shake_hands(*, dialled: bool, **changed: Any) -> tuple[NoiseHandshake, NoiseMachine]:
    node, hand = ours(dialled=dialled), by_hand(initiator=not dialled, **changed)
    if dialled:
        hand.read(node.write(ephemeral=CHANCE.randbytes(32)).body)
        node.read(NoiseMessage.decode(hand.write()))
    else:
        node.read(NoiseMessage.decode(hand.write()))
        hand.read(node.write(ephemeral=CHANCE.randbytes(32)).body)
    return node, hand


@pytest.mark.parametrize("dialled", [True, False])
def test_noise_by_hand_in_either_role(dialled):
    node, hand = shake_hands(dialled=dialled)
    writer, reader = node.ciphers()
    for size in (1, 100, MAX_RECORD_CONTENT):
        data = CHANCE.randbytes(size)
        record = writer.process(data)
        assert hand.receiving.decrypt(record[2:]) == data
        sealed = hand.sending.encrypt(data)
        assert reader.process(len(sealed).to_bytes(2, "big") + sealed) == data


def test_hashes_by_hand():
    feed, nonce = CHANCE.randbytes(32), CHANCE.randbytes(24)
    assert marked(nonce, feed) == nonce[:16] + mark_of(feed, nonce[:16])
    assert is_marked(marked(nonce, feed), feed)
    assert not is_marked(nonce, feed)
    assert shared_secret(feed) == psk_of(feed)
    assert prologue_of(b"", b"") == prologue(
        prologue_of(b"", b"")[16:80], prologue_of(b"", b"")[80:]
    )


@pytest.mark.parametrize(
    "changed",
    [
        {"psks": [bytes(32)]},
        {"prologue": PROLOGUE[:-1]},
        {"static": CHANCE.randbytes(32)},
        {"remote_static": x25519_public(THEIRS.public_key)},
    ],
    ids=lambda it: next(iter(it)),
)
def test_who_begins_from_something_else_is_not_authentic(changed):
    node = ours(dialled=False)
    with pytest.raises(StreamAltered):
        node.read(NoiseMessage.decode(by_hand(initiator=True, **changed).write()))


def test_who_answers_without_the_static_key_is_not_authentic():
    node = ours(dialled=True)
    hand = by_hand(initiator=False, static=CHANCE.randbytes(32))
    with pytest.raises(Forged):
        hand.read(node.write(ephemeral=CHANCE.randbytes(32)).body)
    with pytest.raises(StreamAltered):
        node.read(NoiseMessage.decode(hand.write()))


@pytest.mark.parametrize("point", LOW_ORDER, ids=lambda it: it.hex()[:8])
@pytest.mark.parametrize("dialled", [True, False])
def test_an_ephemeral_key_of_small_order_is_refused(dialled, point):
    """Who sends one knows what the exchange gives: zeros, whatever the other's key."""
    node, hand = ours(dialled=dialled), by_hand(initiator=not dialled)
    if dialled:
        hand.read(node.write(ephemeral=CHANCE.randbytes(32)).body)
    message = NoiseMessage.decode(hand.write(public=point))
    with pytest.raises(RemoteProtocolError):
        node.read(message)


def test_a_point_of_small_order_is_no_static_key():
    for key in (b"\x01" + bytes(31), bytes(32), b"\xec" + b"\xff" * 30 + b"\x7f"):
        with pytest.raises(RemoteProtocolError):
            NoiseHandshake(dialled=True, identity=OURS, peer_key=key, psk=PSK, prologue=PROLOGUE)


def test_the_golden_transcripts_by_hand():
    """From seeds, ephemeral keys, Opens and Handshakes of the page, all else that it writes."""
    page = {name: bytes.fromhex(digits) for name, digits in golden().items()}
    feed, seeds = page["feed key"], {"dialler": b"\x02" * 32, "other": b"\x01" * 32}
    names = ("dialler", "other")
    seen = {name: page[f"{name} open"] + page[f"{name} handshake"] for name in names}
    for name in names:
        assert page[f"{name} static public"] == x25519_public(Identity(seeds[name]).public_key)
        chance, mark = page[f"{name} open"][-24:-8], page[f"{name} open"][-8:]
        assert mark == mark_of(feed, chance)
    assert page["psk"] == psk_of(feed)
    hashes = page["H dialler"], page["H other"]
    assert prologue_of(*seen.values()) == b"noise-1 prologue" + b"".join(hashes)
    dialler, other = (
        NoiseMachine(
            Keys(
                initiator=name == "dialler",
                ephemeral=page[f"{name} ephemeral private"],
                prologue=prologue_of(*seen.values()),
                static=x25519_private(seeds[name]),
                remote_static=page[f"{peer} static public"],
                psks=[psk_of(feed)],
            )
        )
        for name, peer in (names, reversed(names))
    )
    head = bytes([50, 0x94, 0x22])
    assert head + dialler.write() == page["first message"]
    other.read(page["first message"][3:])
    assert head + other.write() == page["second message"]
    dialler.read(page["second message"][3:])
    request = other.receiving.decrypt(page["dialler record"][2:])
    assert b"one" in dialler.receiving.decrypt(page["other record"][2:])
    assert dialler.receiving.decrypt(page["other end"][2:]) == b""
    other.receiving.nonce = REKEY_RECORDS
    other.receiving.rekey()
    assert other.receiving.decrypt(page["dialler record after rekey"][2:]) == request


# The turn of a key, by hand on the other side


@pytest.fixture
def directions() -> tuple[RecordWriter, RecordReader, CipherState, CipherState]:
    """Ours for what we send and for what comes; the other side's, by hand."""
    node, hand = shake_hands(dialled=True)
    writer, reader = node.ciphers()
    return writer, reader, hand.receiving, hand.sending


def sealed_by_hand(sending: CipherState, content: bytes) -> bytes:
    sending.before_record()
    sealed = sending.encrypt(content)
    sending.count(len(content))
    return len(sealed).to_bytes(2, "big") + sealed


def test_the_key_turns_after_so_many_records(directions):
    writer, reader, receiving, sending = directions
    first_keys = receiving.key, sending.key
    for number in range(REKEY_RECORDS + 2):
        content = number.to_bytes(3, "big")
        record = writer.process(content)
        receiving.before_record()
        assert receiving.decrypt(record[2:]) == content
        receiving.count(len(content))
        assert reader.process(sealed_by_hand(sending, content)) == content
        if number == REKEY_RECORDS - 1:
            assert (receiving.key, sending.key) == first_keys
    assert receiving.key != first_keys[0]
    assert sending.key != first_keys[1]
    assert receiving.nonce == REKEY_RECORDS + 2


def test_the_key_turns_after_so_many_bytes(directions):
    """Of the records in between nothing is looked at: by hand they are counted."""
    writer, reader, receiving, sending = directions
    first_keys = receiving.key, sending.key
    content = bytes(MAX_RECORD_CONTENT)
    records, over = divmod(REKEY_BYTES, MAX_RECORD_CONTENT)
    assert over
    for _ in range(records + 1):
        writer.process(content)
        receiving.before_record()
        receiving.nonce += 1
        receiving.count(len(content))
        assert len(reader.process(sealed_by_hand(sending, content))) == len(content)
    assert (receiving.key, sending.key) == first_keys
    record = writer.process(b"under the next key")
    receiving.before_record()
    assert receiving.decrypt(record[2:]) == b"under the next key"
    assert reader.process(sealed_by_hand(sending, b"the same")) == b"the same"
    assert receiving.key != first_keys[0]
    assert sending.key != first_keys[1]


@pytest.mark.parametrize("when", ["early", "late"])
def test_who_turns_the_key_at_another_time_is_not_read(directions, when):
    _, reader, _, sending = directions
    turned = REKEY_RECORDS - 1 if when == "early" else REKEY_RECORDS
    for _ in range(turned):
        reader.process(sealed_by_hand(sending, b"x"))
    if when == "early":
        sending.rekey()
    sealed = sending.encrypt(b"x")
    with pytest.raises(StreamAltered):
        reader.process(len(sealed).to_bytes(2, "big") + sealed)
