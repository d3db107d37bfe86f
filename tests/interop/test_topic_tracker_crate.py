"""The deployed crate reads our records, and we read what it writes now."""

from __future__ import annotations

import hashlib
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
import tracker_crate

from hyperbloom.addresses import Address
from hyperbloom.discovery.tracker.content import Neighbour, RecordContent
from hyperbloom.discovery.tracker.record import (
    SEAL_ENTROPY_BYTES,
    open_record,
    record_item,
    seal_record,
    sign_record,
)
from hyperbloom.discovery.tracker.topic import Topic
from hyperbloom.keys import Identity

REQUIRE = "HYPERBLOOM_REQUIRE_CARGO"
"""Set where a missing crate is a failure and not a skip."""
VECTORS = Path(__file__).parents[1] / "vectors" / "topic-tracker.json"
SECRET = b"the secret of this test"
TOPIC = Topic.named(b"the topic of this test", SECRET)
MINUTE = 29_000_001
PEERS = (
    Neighbour(node_id=b"\x21" * 32, addresses=(Address("10.0.0.2", 1),)),
    Neighbour(node_id=b"\x22" * 32),
)
CONTENT = RecordContent(
    addresses=(Address("10.0.0.1", 4365), Address("2001:db8::1", 4365)),
    active_peers=PEERS,
    last_message_hashes=(b"\x31" * 32,),
)

pytestmark = pytest.mark.timeout(600)  # Building the crate is part of the first test.


@pytest.fixture(scope="module")
def crate() -> Path:
    """The program built of the crate."""
    try:
        return tracker_crate.build()
    except tracker_crate.UnavailableError as error:
        if os.environ.get(REQUIRE):
            pytest.fail(f"the crate is required here: {error}", pytrace=False)
        pytest.skip(f"the crate distributed-topic-tracker cannot be built here: {error}")


def asked(content: RecordContent, *, secret: bytes = SECRET, minute: int = MINUTE) -> dict:
    """One of our records as a question to the crate, with the secret and minute to read it by."""
    keys = TOPIC.keys(MINUTE)
    entropy = random.Random(1).randbytes(SEAL_ENTROPY_BYTES)
    record = sign_record(Identity(b"p" * 32), keys, content)
    return {
        "topic": TOPIC.hash.hex(),
        "minute": minute,
        "secret": secret.hex(),
        "encrypted": seal_record(record, keys, entropy=entropy).hex(),
    }


def slots(*filled: bytes) -> list[str]:
    return [each.hex() for each in filled] + ["00" * 32] * (5 - len(filled))


def test_the_crate_reads_our_record_and_ignores_the_trailer(crate: Path) -> None:
    with_trailer, without = tracker_crate.read(crate, [asked(CONTENT), asked(RecordContent())])
    assert with_trailer["publisher"] == Identity(b"p" * 32).public_key.hex()
    assert with_trailer["active_peers"] == slots(*(peer.node_id for peer in PEERS))
    assert with_trailer["last_message_hashes"] == slots(b"\x31" * 32)
    assert without["active_peers"] == without["last_message_hashes"] == slots()


def test_the_crate_refuses_what_we_refuse(crate: Path) -> None:
    answers = tracker_crate.read(
        crate, [asked(CONTENT, secret=b"wrong"), asked(CONTENT, minute=MINUTE + 1)]
    )
    assert [list(answer) for answer in answers] == [["error"], ["error"]]


def test_the_crate_reads_its_recorded_records(crate: Path) -> None:
    """The recorded file is what the crate wrote, not what somebody edited."""
    recorded = json.loads(VECTORS.read_text())["records"]
    keys = ("publisher", "active_peers", "last_message_hashes", "record")
    assert tracker_crate.read(crate, recorded) == [
        {key: each[key] for key in keys} for each in recorded
    ]


def test_we_read_what_the_crate_writes_now(crate: Path) -> None:
    def without_chance(written: dict[str, Any]) -> list[dict[str, Any]]:
        drawn = ("encrypted", "item_signature")
        return [
            {key: value for key, value in each.items() if key not in drawn}
            for each in written["records"]
        ]

    written = tracker_crate.write(crate)
    assert without_chance(written) == without_chance(json.loads(VECTORS.read_text()))
    for each in written["records"]:
        secret_hash = hashlib.sha512(bytes.fromhex(each["secret"])).digest()[:32]
        topic = Topic(hash=bytes.fromhex(each["topic"]), secret_hash=secret_hash)
        keys = topic.keys(each["minute"])
        encrypted = bytes.fromhex(each["encrypted"])
        assert open_record(encrypted, keys).to_bytes().hex() == each["record"]
        assert record_item(encrypted, keys).signature.hex() == each["item_signature"]
