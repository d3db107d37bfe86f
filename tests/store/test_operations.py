"""What an operation refuses when it is made, so that a bad call fails where it is and not later."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hyperbloom.store import (
    AllowKey,
    AppendValues,
    DenyKey,
    DropExpiredLinks,
    DropFeed,
    DropPeer,
    ForgetValues,
    LinkRecord,
    OfferObjects,
    PeerRecord,
    PutFeed,
    PutLinks,
    PutPeer,
    RememberRefused,
    RestoreValues,
)

KEY = b"k" * 32
LATEST = 2**64 - 1


def link(**fields: object) -> LinkRecord:
    usual = {"issuer": KEY, "trustee": KEY, "introduced_by": KEY, "first_seen": 1}
    return LinkRecord(**usual | fields, expires=1.0, raw=b"link")


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
    "restore": lambda key: RestoreValues(key, [b"v"]),
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


@pytest.mark.parametrize("make", [*WITH_A_TIME.values()], ids=[*WITH_A_TIME])
def test_every_operation_costs_something_of_a_groups_room(make: Make) -> None:
    assert make(1).size > 0  # type: ignore[attr-defined]


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
