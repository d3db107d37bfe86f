"""What an operation refuses when it is made, so that a bad call fails where it is and not later."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from hyperbloom.sketches import no_symbols
from hyperbloom.store import AppendValues, DropFeed, ForgetValues, PutFeed, PutMeta, RestoreValues
from hyperbloom.store.limits import (
    FORGET_STEP,
    MAX_ADDRESS_BYTES,
    MAX_FIELD_NAME_BYTES,
    MAX_LINK_BYTES,
    MAX_OBJECT_BYTES,
    MAX_OBJECT_FIELDS,
    MAX_REASON_BYTES,
    MAX_VALUE_BYTES,
)
from hyperbloom.store.lmdb.kept_sketch import KeptSketch
from hyperbloom.store.objects.offers import OfferedChange, OfferedObject, OfferedRemoval
from hyperbloom.store.objects.records import pack_fields
from hyperbloom.store.objects.rule import OfferObjects
from hyperbloom.store.operations import OVERHEAD_BYTES, Operation
from hyperbloom.store.records import LinkRecord, PeerRecord
from hyperbloom.store.sketches.writing import DropSketch, KeepSketch
from hyperbloom.store.tables.denied import AllowKey, DenyKey
from hyperbloom.store.tables.links import DropExpiredLinks, PutLinks
from hyperbloom.store.tables.peers import DropPeer, PutPeer
from hyperbloom.store.values.forgotten import DropForgottenHashes
from hyperbloom.store.values.refused import RememberRefused

KEY = b"k" * 32
LATEST = 2**64 - 1


def link(**fields: object) -> LinkRecord:
    keys = {"issuer": KEY, "trustee": KEY, "introduced_by": KEY}
    return LinkRecord(**keys | {"first_seen": 1, "expires": 1.0, "raw": b"link"} | fields)


def peer(**fields: object) -> PeerRecord:
    return PeerRecord(**{"address": "192.0.2.1:1", "feed_key": KEY} | fields)


Make = Callable[..., object]

WITH_A_TIME: dict[str, Make] = {
    "append": lambda at: AppendValues(KEY, [b"v"], KEY, at),
    "refuse": lambda at: RememberRefused(KEY, [(b"v", "no")], at),
    "deny": lambda at: DenyKey(KEY, at),
    "offer": lambda at: OfferObjects([], at, 1),
    "link": lambda at: PutLinks(KEY, [link(first_seen=at)]),
    "peer": lambda at: PutPeer(peer(last_seen=at)),
}

WITH_A_KEY: dict[str, Make] = {
    "append": lambda key: AppendValues(key, [b"v"], KEY, 1),
    "append of": lambda key: AppendValues(KEY, [b"v"], key, 1),
    "forget": lambda key: ForgetValues(key, [b"v"]),
    "forget what one brought": lambda key: ForgetValues(KEY, [b"v"], brought_by=key),
    "forget hashes": DropForgottenHashes,
    "restore": lambda key: RestoreValues(key, [b"v"]),
    "keep sketch": lambda key: KeepSketch(key, b"", KeptSketch(), 1, 1, no_symbols(16), None),
    "drop sketch": lambda key: DropSketch(key, b""),
    "refuse": lambda key: RememberRefused(key, [(b"v", "no")], 1),
    "deny": lambda key: DenyKey(key, 1),
    "allow": AllowKey,
    "feed": lambda key: PutFeed(key, {}),
    "drop feed": DropFeed,
    "links": lambda key: PutLinks(key, [link()]),
    "issuer": lambda key: PutLinks(KEY, [link(issuer=key)]),
    "trustee": lambda key: PutLinks(KEY, [link(trustee=key)]),
    "introduced by": lambda key: PutLinks(KEY, [link(introduced_by=key)]),
    "expired": lambda key: DropExpiredLinks(key, 1.0),
    "peer": lambda key: PutPeer(peer(feed_key=key)),
    "peer's own": lambda key: PutPeer(peer(key=key)),
    "drop peer": lambda key: DropPeer(key, "192.0.2.1:1"),
}


@pytest.mark.parametrize("make", WITH_A_TIME.values(), ids=WITH_A_TIME)
def test_a_time_is_in_whole_microseconds_that_the_store_can_write(make: Make) -> None:
    for at in (0, LATEST):
        make(at)
    for at in (-1, LATEST + 1):
        with pytest.raises(ValueError, match=f"2\\^64 microseconds, not {at}"):
            make(at)
    with pytest.raises(TypeError, match="whole microseconds"):
        make(1.5)


@pytest.mark.parametrize("make", WITH_A_KEY.values(), ids=WITH_A_KEY)
def test_a_key_has_32_bytes(make: Make) -> None:
    make(KEY)
    for length in (0, 31, 33):
        with pytest.raises(ValueError, match=f"must be 32 bytes, not {length}"):
            make(bytes(length))
    with pytest.raises(TypeError, match="must be bytes"):
        make("k" * 32)


@pytest.mark.parametrize(
    "operation",
    [*(make(1) for make in WITH_A_TIME.values()), *(make(KEY) for make in WITH_A_KEY.values())],
    ids=[*(f"{name} at" for name in WITH_A_TIME), *(f"{name} by key" for name in WITH_A_KEY)],
)
def test_every_operation_costs_something_of_a_groups_room(operation: Operation) -> None:
    assert operation.size > 0


@pytest.mark.parametrize(
    "make",
    [
        lambda values: AppendValues(KEY, values, KEY, 1),
        lambda values: RememberRefused(KEY, [(value, "no") for value in values], 1),
        lambda values: ForgetValues(KEY, values),
        lambda values: RestoreValues(KEY, values),
    ],
    ids=["append", "refuse", "forget", "restore"],
)
def test_an_operation_is_as_large_as_its_values(make: Make) -> None:
    none, short, long, two = (
        make(values).size  # type: ignore[attr-defined]
        for values in ([], [b"v"], [b"v" * 1_001], [b"v" * 1_001, b"w"])
    )
    assert none < short
    assert long == short + 1_000
    assert two > long


def some(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def offered(**fields: object) -> OfferedObject:
    return OfferedObject(**{"hash": 1, "stamp": 1, "fields": {"a": 1}} | fields)


def changed(**fields: object) -> OfferedChange:
    return OfferedChange(**{"old": 1, "hash": 2, "stamp": 1, "fields": {"a": 1}} | fields)


#: What is made of so many bytes or pieces, and the most of them; of some the least is one.
BOUNDED: dict[str, tuple[Make, int, int]] = {
    "appended value": (lambda n: AppendValues(KEY, [b"v", bytes(n)], KEY, 1), 0, MAX_VALUE_BYTES),
    "refused value": (lambda n: RememberRefused(KEY, [(bytes(n), "")], 1), 0, MAX_VALUE_BYTES),
    "reason": (lambda n: RememberRefused(KEY, [(b"v", "r" * n)], 1), 0, MAX_REASON_BYTES),
    "forgotten value": (lambda n: ForgetValues(KEY, [bytes(n)]), 1, MAX_VALUE_BYTES),
    "forgotten at once": (lambda n: ForgetValues(KEY, some(n)), 0, FORGET_STEP),
    "restored value": (lambda n: RestoreValues(KEY, [bytes(n)]), 1, MAX_VALUE_BYTES),
    "restored at once": (lambda n: RestoreValues(KEY, some(n)), 0, FORGET_STEP),
    "why denied": (lambda n: DenyKey(KEY, 1, "r" * n), 0, MAX_REASON_BYTES),
    "link": (lambda n: PutLinks(KEY, [link(raw=bytes(n))]), 1, MAX_LINK_BYTES),
    "address": (lambda n: PutPeer(peer(address="a" * n)), 1, MAX_ADDRESS_BYTES),
    "dropped address": (lambda n: DropPeer(KEY, "a" * n), 1, MAX_ADDRESS_BYTES),
    "source": (lambda n: PutPeer(peer(source="s" * n)), 0, MAX_ADDRESS_BYTES),
    "entry": (lambda n: PutMeta("n" * n, b""), 1, 255),
    "fields": (lambda n: offered(fields={str(one): 1 for one in range(n)}), 1, MAX_OBJECT_FIELDS),
    "field": (lambda n: offered(fields={"f" * n: 1}), 1, MAX_FIELD_NAME_BYTES),
    "type": (lambda n: offered(type_name="t" * n), 1, MAX_FIELD_NAME_BYTES),
    "ancestors": (lambda n: offered(ancestors=tuple(range(n))), 0, 16),
    "stamp": (lambda n: offered(stamp=n), 0, 2**63 - 1),
    "removal": (lambda n: OfferedRemoval(hash=1, stamp=n), 0, 2**63 - 1),
    "change": (lambda n: changed(stamp=n), 0, 2**63 - 1),
    "changed hash": (lambda n: changed(old=n), -(2**63), 2**63 - 1),
    "new hash": (lambda n: changed(hash=n), -(2**63), 2**63 - 1),
    "removed hash": (lambda n: OfferedRemoval(hash=n, stamp=1), -(2**63), 2**63 - 1),
    "hash": (lambda n: offered(hash=n), -(2**63), 2**63 - 1),
    "ancestor": (lambda n: offered(ancestors=(n,)), -(2**63), 2**63 - 1),
}  # fmt: skip


@pytest.mark.parametrize(("make", "least", "most"), BOUNDED.values(), ids=BOUNDED)
def test_each_bound_is_taken_and_one_beyond_is_not(make: Make, least: int, most: int) -> None:
    make(least)
    make(most)
    with pytest.raises(ValueError, match=r"at most|has 1 to|no name|one word|between|64 bits"):
        make(most + 1)
    if least:
        with pytest.raises(ValueError, match=r"has 1 to|no name|64 bits"):
            make(least - 1)


def test_a_bound_in_bytes_counts_bytes() -> None:
    DenyKey(KEY, 1, "é" * (MAX_REASON_BYTES // 2))
    with pytest.raises(ValueError, match="at most"):
        DenyKey(KEY, 1, "é" * (MAX_REASON_BYTES // 2 + 1))


def test_when_a_link_expires_is_a_number() -> None:
    for expires in (-math.inf, math.inf):
        PutLinks(KEY, [link(expires=expires)])
        DropExpiredLinks(KEY, expires)
    with pytest.raises(ValueError, match="must be a number"):
        PutLinks(KEY, [link(expires=math.nan)])
    with pytest.raises(ValueError, match="must be a number"):
        DropExpiredLinks(KEY, math.nan)


@pytest.mark.parametrize(
    "make",
    [
        lambda: AppendValues(KEY, [b"v", "w"], KEY, 1),
        lambda: RememberRefused(KEY, [("v", "no")], 1),
        lambda: ForgetValues(KEY, [b"v", 1]),
        lambda: RestoreValues(KEY, ["v"]),
        lambda: PutMeta("name", "text"),
    ],
    ids=["append", "refuse", "forget", "restore", "meta"],
)
def test_values_are_bytes(make: Make) -> None:
    with pytest.raises(TypeError, match="must be bytes"):
        make()


def test_what_is_offered_costs_its_fields_and_a_little_more() -> None:
    short, long = {"a": 1}, {"a": 1, "b": "x" * 500}
    for make in (
        lambda fields: OfferedObject(hash=1, stamp=1, fields=fields),
        lambda fields: OfferedChange(old=1, hash=2, stamp=1, fields=fields),
    ):
        assert make(short).size == OVERHEAD_BYTES + len(pack_fields(short))
        assert make(long).size - make(short).size >= 500
    assert OfferedRemoval(hash=1, stamp=1).size == OVERHEAD_BYTES


def test_offers_together_cost_what_each_costs_and_a_little_more() -> None:
    offers = [OfferedRemoval(hash=1, stamp=1), OfferedObject(hash=2, stamp=1, fields={"a": 1})]
    operation = OfferObjects(offers, at=1, most=9)
    assert operation.size == OVERHEAD_BYTES + sum(offer.size for offer in offers)


def test_a_kept_sketch_weighs_an_eighth_of_its_bytes() -> None:
    def made(run: tuple[int, bytes] | None) -> KeepSketch:
        symbols = no_symbols(1_000)
        return KeepSketch(KEY, b"", KeptSketch(), 1, 1, symbols=symbols, run=run)

    assert made(None).size == OVERHEAD_BYTES + no_symbols(1_000).nbytes // 8
    assert made((1, bytes(8_000))).size - made(None).size == 1_000


def test_an_object_is_as_large_as_the_limit_and_no_larger() -> None:
    room = MAX_OBJECT_BYTES - len(pack_fields({"a": bytes(60_000)})) + 60_000
    assert len(pack_fields({"a": bytes(room)})) == MAX_OBJECT_BYTES
    OfferedObject(hash=1, stamp=1, fields={"a": bytes(room)})
    with pytest.raises(ValueError, match="an object has at most"):
        OfferedObject(hash=1, stamp=1, fields={"a": bytes(room + 1)})
