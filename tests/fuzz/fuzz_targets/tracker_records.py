"""Records of the topic tracker: the values of DHT items, sealed, signed, or neither."""

from __future__ import annotations

from choices import Choices, piece
from vectors import vectors

from hyperbloom.discovery.dht.common.items import MAX_SEQ, MutableItem
from hyperbloom.discovery.tracker.content import (
    SLOTS,
    decode_content,
    encode_content,
)
from hyperbloom.discovery.tracker.limits import MAX_ADDRESSES_PER_NODE, MAX_ITEMS_READ
from hyperbloom.discovery.tracker.reading import read_records
from hyperbloom.discovery.tracker.record import (
    SEAL_ENTROPY_BYTES,
    Record,
    RecordRefused,
    decode_record,
    open_value,
    seal_record,
    sign_record,
)
from hyperbloom.discovery.tracker.topic import Topic
from hyperbloom.keys import Identity

MAX_BYTES = 2_200
RUNS = 30

_KEYS = Topic.named(b"fuzz", b"secret").keys(0)
_PUBLISHER = Identity(b"\x05" * 32)
_ENTROPY = bytes(range(SEAL_ENTROPY_BYTES))


def fuzz(data: bytes) -> bool:
    """A value as it came, a record or a content that is signed and sealed here, or many values."""
    choices = Choices(data)
    read = choices.one_of((_value, _record, _content, _many))
    try:
        return read(choices)
    except RecordRefused:
        return False


def _value(choices: Choices) -> bool:
    open_value(choices.rest(), _KEYS)
    return True


def _record(choices: Choices) -> bool:
    """What was sealed by who knows the topic's secret, of any form."""
    record = decode_record(choices.rest())
    try:
        encrypted = seal_record(record, _KEYS, entropy=_ENTROPY)
    except ValueError:
        return False
    try:
        open_value(b"%d:%b" % (len(encrypted), encrypted), _KEYS)
    except RecordRefused:
        # Only the publisher can sign; that it was opened and read is what is asked here.
        return True
    return True


def _content(choices: Choices) -> bool:
    content = decode_content(choices.rest())
    if content is None:
        return False
    assert len(content.active_peers) <= SLOTS
    for neighbour in content.active_peers:
        assert len(neighbour.addresses) <= MAX_ADDRESSES_PER_NODE
    encode_content(content)
    record: Record = sign_record(_PUBLISHER, _KEYS, content)
    encrypted = seal_record(record, _KEYS, entropy=_ENTROPY)
    return open_value(b"%d:%b" % (len(encrypted), encrypted), _KEYS).decoded == content


def _many(choices: Choices) -> bool:
    items = [
        MutableItem(public_key=bytes(32), salt=b"", seq=MAX_SEQ, value=value, signature=bytes(64))
        for value in choices.pieces(2 * MAX_ITEMS_READ)
    ]
    reading = read_records(items, _KEYS, own=bytes(32))
    taken = len(reading.records) + sum(reading.refused.values())
    assert taken <= min(len(items), MAX_ITEMS_READ)
    return bool(items)


def seeds() -> dict[str, bytes]:
    """Recorded records, and one of ours in each form."""
    found = {}
    for number, entry in enumerate(vectors("topic-tracker")["records"][:2]):
        found[f"recorded-{number}"] = b"\x01" + bytes.fromhex(entry["record"])
    content = bytes(range(64)) + bytes(256) + b"\x01\x00\xc0\x00\x02\x01\x11\x0d"
    content += b"\x81\x20\x01\x0d\xb8" + bytes(11) + b"\x01\x11\x0d"
    found["content"] = b"\x02" + content
    decoded = decode_content(content)
    assert decoded is not None
    sealed = seal_record(sign_record(_PUBLISHER, _KEYS, decoded), _KEYS, entropy=_ENTROPY)
    value = b"%d:%b" % (len(sealed), sealed)
    found["value"] = b"\x00" + value
    found["many"] = b"\x03" + piece(value) + piece(value) + piece(b"5:wrong")
    return found
