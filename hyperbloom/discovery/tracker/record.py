"""Records: who takes part in a topic, signed by its publisher and sealed to the topic's secret.

    record            topic hash (32) ‖ minute u64 LE (8) ‖ publisher key (32) ‖ content ‖
                      signature (64), the publisher's over all before it
    encrypted record  u32 LE length ‖ record sealed to a one-time key ‖
                      one-time seed sealed to the minute's encryption key (88)
    value             the encrypted record as a bencoded byte string: the `v` of a mutable item

Every node of a topic can write the item, so that anybody may put anything there. What is believed
is what the publisher signed, about this topic, in this minute: an old record that is put again
under a new minute does not pass, nor one of another topic.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from hyperbloom.discovery.dht.common.items import MAX_SEQ, MutableItem, sign_item
from hyperbloom.discovery.tracker.content import (
    RecordContent,
    decode_content,
    encode_content,
)
from hyperbloom.discovery.tracker.limits import MAX_ENCRYPTED_RECORD_BYTES, MAX_VALUE_BYTES
from hyperbloom.discovery.tracker.sealing import (
    EPHEMERAL_BYTES,
    SEALING_BYTES,
    OpenFailed,
    open_sealed,
    seal,
)
from hyperbloom.discovery.tracker.topic import TopicKeys
from hyperbloom.errors import HyperbloomError
from hyperbloom.keys import PUBLIC_KEY_BYTES, SIGNATURE_BYTES, Identity, verify_signature

__all__ = [
    "SEAL_ENTROPY_BYTES",
    "Record",
    "RecordRefused",
    "RefusalReason",
    "decode_record",
    "open_record",
    "open_value",
    "record_item",
    "seal_record",
    "sign_record",
    "verify_record",
]

_TOPIC_BYTES: Final = 32
_MINUTE_BYTES: Final = 8
_HEADER_BYTES: Final = _TOPIC_BYTES + _MINUTE_BYTES + PUBLIC_KEY_BYTES
_LENGTH_BYTES: Final = 4
_ONE_TIME_SEED_BYTES: Final = 32
_SEALED_SEED_BYTES: Final = _ONE_TIME_SEED_BYTES + SEALING_BYTES

SEAL_ENTROPY_BYTES: Final = _ONE_TIME_SEED_BYTES + 2 * EPHEMERAL_BYTES
"""Random bytes that sealing one record uses up."""

#: A bencoded length: no sign, no leading zero, and never more than four digits below the limit.
_LENGTH: Final = re.compile(rb"(0|[1-9][0-9]{0,3}):")


class RefusalReason(StrEnum):
    """Why a value of the DHT is not taken as a record."""

    UNDECODABLE = "undecodable"
    """The value is no encrypted record, or a longer one than is read."""
    UNDECRYPTABLE = "undecryptable"
    """It was not sealed to this topic's secret in this minute."""
    MALFORMED = "malformed"
    """What was sealed is no record."""
    WRONG_TOPIC = "wrong topic"
    WRONG_MINUTE = "wrong minute"
    FORGED = "forged"
    """The signature is not that of the publisher it names."""
    OWN = "own"
    """This node's own record."""
    REPEATED = "repeated"
    """Another record of a publisher of whom one was taken already."""


class RecordRefused(HyperbloomError):
    """A value is not taken as a record; `reason` says why. Who wrote the value is to blame."""

    def __init__(self, reason: RefusalReason) -> None:
        super().__init__(f"a record was refused: {reason.value}")
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record as signed. `content` are its bytes; `decoded` is what they say."""

    topic_hash: bytes
    minute: int
    publisher: bytes
    content: bytes
    decoded: RecordContent
    signature: bytes

    def signed_bytes(self) -> bytes:
        """All of the record in front of its signature."""
        minute = self.minute.to_bytes(_MINUTE_BYTES, "little")
        return self.topic_hash + minute + self.publisher + self.content

    def to_bytes(self) -> bytes:
        """The record in the form that is sealed."""
        return self.signed_bytes() + self.signature


def sign_record(identity: Identity, keys: TopicKeys, content: RecordContent) -> Record:
    """A record of this topic and minute by this publisher. Raises `ValueError` as encoding does."""
    encoded = encode_content(content)
    minute = keys.minute.to_bytes(_MINUTE_BYTES, "little")
    signed = keys.topic_hash + minute + identity.public_key + encoded
    return Record(
        topic_hash=keys.topic_hash,
        minute=keys.minute,
        publisher=identity.public_key,
        content=encoded,
        decoded=content,
        signature=identity.sign(signed),
    )


def decode_record(data: bytes) -> Record:
    """The record of these bytes, not verified. Raises `RecordRefused` (malformed)."""
    content = data[_HEADER_BYTES:-SIGNATURE_BYTES]
    decoded = decode_content(content)
    if decoded is None:
        raise RecordRefused(RefusalReason.MALFORMED)
    return Record(
        topic_hash=data[:_TOPIC_BYTES],
        minute=int.from_bytes(data[_TOPIC_BYTES : _TOPIC_BYTES + _MINUTE_BYTES], "little"),
        publisher=data[_HEADER_BYTES - PUBLIC_KEY_BYTES : _HEADER_BYTES],
        content=content,
        decoded=decoded,
        signature=data[-SIGNATURE_BYTES:],
    )


def verify_record(record: Record, keys: TopicKeys) -> None:
    """Check topic, minute and signature (docs/protocol.md#verification). Raises `RecordRefused`.

    The signature is verified strictly: a scalar that is not reduced, and keys and points of small
    order, under which one signature fits many messages, do not pass.
    """
    if record.topic_hash != keys.topic_hash:
        raise RecordRefused(RefusalReason.WRONG_TOPIC)
    if record.minute != keys.minute:
        raise RecordRefused(RefusalReason.WRONG_MINUTE)
    if not verify_signature(record.publisher, record.signed_bytes(), record.signature):
        raise RecordRefused(RefusalReason.FORGED)


def seal_record(record: Record, keys: TopicKeys, *, entropy: bytes) -> bytes:
    """The encrypted record. Raises `ValueError` if it is longer than a DHT node holds.

    `entropy` are `SEAL_ENTROPY_BYTES` from a cryptographic source, used once.
    """
    if len(entropy) != SEAL_ENTROPY_BYTES:
        raise ValueError(f"sealing a record takes {SEAL_ENTROPY_BYTES} random bytes")
    one_time_seed, for_record, for_seed = entropy[:32], entropy[32:64], entropy[64:]
    sealed = seal(one_time_seed, record.to_bytes(), ephemeral=for_record)
    sealed_seed = seal(keys.encryption_seed, one_time_seed, ephemeral=for_seed)
    encrypted = len(sealed).to_bytes(_LENGTH_BYTES, "little") + sealed + sealed_seed
    if len(encrypted) > MAX_VALUE_BYTES:
        raise ValueError(f"a DHT node holds {MAX_VALUE_BYTES} bytes, this record {len(encrypted)}")
    return encrypted


def open_record(encrypted: bytes, keys: TopicKeys) -> Record:
    """The record within an encrypted record, verified. Raises `RecordRefused`, nothing else."""
    if len(encrypted) > MAX_ENCRYPTED_RECORD_BYTES:
        raise RecordRefused(RefusalReason.UNDECODABLE)
    length = int.from_bytes(encrypted[:_LENGTH_BYTES], "little")
    if len(encrypted) != _LENGTH_BYTES + length + _SEALED_SEED_BYTES:
        raise RecordRefused(RefusalReason.UNDECODABLE)
    sealed = encrypted[_LENGTH_BYTES:-_SEALED_SEED_BYTES]
    try:
        one_time_seed = open_sealed(keys.encryption_seed, encrypted[-_SEALED_SEED_BYTES:])
        data = open_sealed(one_time_seed, sealed)
    except OpenFailed:
        raise RecordRefused(RefusalReason.UNDECRYPTABLE) from None
    record = decode_record(data)
    verify_record(record, keys)
    return record


def record_item(encrypted: bytes, keys: TopicKeys) -> MutableItem:
    """The DHT item that carries an encrypted record, with the greatest seq as all of them have."""
    value = b"%d:%b" % (len(encrypted), encrypted)
    return sign_item(keys.signer, salt=keys.salt, seq=MAX_SEQ, value=value)


def open_value(value: bytes, keys: TopicKeys) -> Record:
    """The record within the bencoded value of an item. Raises `RecordRefused`, nothing else."""
    match = _LENGTH.match(value)
    if match is None or len(value) - match.end() != int(match[1]):
        raise RecordRefused(RefusalReason.UNDECODABLE)
    return open_record(value[match.end() :], keys)
