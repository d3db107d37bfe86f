"""What peers bring beside values, and where each of it ends."""

import math
from dataclasses import replace

import pytest

from hyperbloom.keys import keyed_hash
from hyperbloom.store import NoSuchFeed, PutFeed
from hyperbloom.store.limits import (
    MAX_LINK_BYTES,
    MAX_LINKS_PER_FEED,
    MAX_LINKS_PER_ISSUER,
    MAX_PEERS_PER_FEED,
    MAX_REASON_BYTES,
    MAX_REFUSED_BYTES,
    MAX_REFUSED_VALUES,
    MAX_VALUE_BYTES,
)
from hyperbloom.store.records import LinkRecord, PeerRecord
from hyperbloom.store.tables.links import DropExpiredLinks, PutLinks
from hyperbloom.store.tables.peers import DropPeer, PutPeer
from hyperbloom.store.values.refused import RememberRefused

SECOND = 1_000_000


def link(number: int = 0, *, issuer: bytes = b"i" * 32, expires: float = 1e9, at: int = SECOND):
    return LinkRecord(
        issuer=issuer,
        trustee=b"t" * 32,
        expires=expires,
        first_seen=at,
        introduced_by=b"p" * 32,
        raw=b"link %d" % number,
    )


def issuer(number: int) -> bytes:
    return number.to_bytes(32, "big")


def test_links_come_back_as_they_were_first_seen(store, run, feed):
    first = [link(1, expires=5.25), link(2, issuer=b"j" * 32, expires=math.inf)]
    assert run(PutLinks(feed, first)) == 2
    assert run(PutLinks(feed, [replace(first[0], first_seen=9, introduced_by=b"x" * 32)])) == 0
    assert sorted(store.links(feed), key=lambda record: record.raw) == first
    # The same bytes from another issuer are another link.
    assert run(PutLinks(feed, [replace(first[0], issuer=b"k" * 32)])) == 1
    assert store.verify().ok


def test_links_belong_to_a_feed(store, run, feed):
    run(PutFeed(b"g" * 32, {}))
    run(PutLinks(feed, [link(1)]))
    assert store.links(b"g" * 32) == []
    with pytest.raises(NoSuchFeed):
        run(PutLinks(b"s" * 32, [link(1)]))


def test_expired_links_are_dropped_on_demand(store, run, feed):
    run(PutLinks(feed, [link(1, expires=10.0), link(2, expires=20.0), link(3, expires=30.0)]))
    assert run(DropExpiredLinks(feed, 10.0)) == 0
    assert run(DropExpiredLinks(feed, 25.0)) == 2
    assert [record.expires for record in store.links(feed)] == [30.0]
    assert run(DropExpiredLinks(feed, 25.0)) == 0
    assert store.verify().ok


def test_a_feed_has_so_many_links_and_the_expired_go_first(store, run, feed):
    many = [link(n, issuer=issuer(n % 100), expires=100.0 + n) for n in range(MAX_LINKS_PER_FEED)]
    assert run(PutLinks(feed, many)) == MAX_LINKS_PER_FEED
    extra = link(-1, issuer=issuer(7), expires=1e9, at=99 * SECOND)
    assert run(PutLinks(feed, [extra])) == 0
    assert run(PutLinks(feed, many[:3])) == 0
    # At 103 s the first three are expired, so there is room for three.
    later = [replace(extra, raw=b"later %d" % n, first_seen=103 * SECOND) for n in range(5)]
    assert run(PutLinks(feed, later)) == 3
    stored = store.links(feed)
    assert len(stored) == MAX_LINKS_PER_FEED
    assert min(record.expires for record in stored) == 103.0
    assert store.verify().ok


def test_an_issuer_has_so_many_links(store, run, feed):
    own = [link(n, expires=100.0 if n else 50.0) for n in range(MAX_LINKS_PER_ISSUER)]
    assert run(PutLinks(feed, own)) == MAX_LINKS_PER_ISSUER
    assert run(PutLinks(feed, [link(-1), link(-2, issuer=b"j" * 32)])) == 1
    assert run(PutLinks(feed, [link(-1, at=60 * SECOND), link(-3, at=60 * SECOND)])) == 1
    assert store.verify().ok


def test_room_is_made_to_the_second(store, run, feed):
    end = 1_900_000_000
    own = [link(n, expires=float(end)) for n in range(MAX_LINKS_PER_ISSUER)]
    assert run(PutLinks(feed, own)) == MAX_LINKS_PER_ISSUER
    assert run(PutLinks(feed, [link(-1, at=end * SECOND)])) == 0
    assert run(PutLinks(feed, [link(-1, at=(end + 1) * SECOND)])) == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"issuer": b"short"},
        {"trustee": b""},
        {"introduced_by": b"p" * 33},
        {"expires": math.nan},
        {"first_seen": -1},
        {"raw": b""},
        {"raw": bytes(MAX_LINK_BYTES + 1)},
    ],
)
def test_a_link_that_cannot_be_kept_is_refused_when_it_is_put(feed, fields):
    PutLinks(feed, [link()])
    with pytest.raises(ValueError, match=r"must|has"):
        PutLinks(feed, [replace(link(), **fields)])


def test_peers_are_kept_renewed_and_dropped(store, run, feed):
    first = PeerRecord(
        address="peer.example:443",
        feed_key=feed,
        key=b"k" * 32,
        last_seen=5,
        source="dht",
        failures=2,
    )
    second = PeerRecord(address="[2001:db8::1]:9", feed_key=b"g" * 32)
    run(PutPeer(first))
    run(PutPeer(second))
    assert store.peers() == [first, second]
    run(PutPeer(replace(first, last_seen=6, failures=0)))
    assert store.peers()[0] == replace(first, last_seen=6, failures=0)
    assert run(DropPeer(feed, "peer.example:443")) is True
    assert run(DropPeer(feed, "peer.example:443")) is False
    assert store.peers() == [second]


def test_a_feed_has_so_many_peers_and_the_oldest_go(store, run, feed):
    other = PeerRecord(address="other:1", feed_key=b"g" * 32)
    run(PutPeer(other))
    for number in range(MAX_PEERS_PER_FEED + 2):
        seen = 5_000 - number if number < 10 else 10_000 + number
        run(PutPeer(PeerRecord(address=f"peer{number}:1", feed_key=feed, last_seen=seen)))
    peers = store.peers()
    assert len(peers) == MAX_PEERS_PER_FEED + 1
    addresses = {peer.address for peer in peers}
    assert {"peer9:1", "peer8:1"}.isdisjoint(addresses)
    assert {"peer0:1", "other:1", f"peer{MAX_PEERS_PER_FEED + 1}:1"} <= addresses


@pytest.mark.parametrize(
    "fields",
    [{"address": ""}, {"address": "x" * 301}, {"key": b"short"}, {"feed_key": b""}],
)
def test_a_peer_that_cannot_be_kept_is_refused_when_it_is_put(feed, fields):
    with pytest.raises(ValueError, match=r"must|has"):
        PutPeer(replace(PeerRecord(address="a:1", feed_key=feed), **fields))


def test_refused_values_are_kept_and_counted(store, run, feed):
    run(RememberRefused(feed, [(b"bad", "too bad"), (b"", "empty")], 5))
    run(RememberRefused(feed, [(b"bad", "still bad")], 9))
    records = {record.value: record for record in store.refused(feed)}
    assert set(records) == {b"bad", b""}
    bad = records[b"bad"]
    assert (bad.reason, bad.count, bad.last_seen) == ("still bad", 2, 9)
    assert bad.hash == keyed_hash(b"bad")
    assert store.verify().ok


def test_so_many_refused_values_are_kept_and_the_oldest_go(store, run, feed):
    for start in range(0, MAX_REFUSED_VALUES, 1_000):
        values = [(b"%d" % n, "") for n in range(start, start + 1_000)]
        run(RememberRefused(feed, values, start))
    assert len(store.refused(feed)) == MAX_REFUSED_VALUES
    run(RememberRefused(feed, [(b"one more", "")], MAX_REFUSED_VALUES))
    records = store.refused(feed)
    assert len(records) == MAX_REFUSED_VALUES * 9 // 10
    assert min(record.last_seen for record in records) == 1_000
    assert b"one more" in {record.value for record in records}
    assert store.verify().ok


def test_so_many_bytes_of_refused_values_are_kept(store, run, feed):
    for number in range(MAX_REFUSED_BYTES // MAX_VALUE_BYTES + 3):
        value = b"%03d" % number + bytes(MAX_VALUE_BYTES - 3)
        run(RememberRefused(feed, [(value, "long")], number))
        assert sum(len(record.value) for record in store.refused(feed)) <= MAX_REFUSED_BYTES
    assert value in {record.value for record in store.refused(feed)}
    assert store.verify().ok


@pytest.mark.parametrize(
    ("refused", "error"),
    [
        ([(bytes(MAX_VALUE_BYTES + 1), "")], ValueError),
        ([(b"a", "x" * (MAX_REASON_BYTES + 1))], ValueError),
        ([("text", "")], TypeError),
    ],
)
def test_a_refusal_that_cannot_be_kept_is_refused_when_it_is_made(feed, refused, error):
    with pytest.raises(error):
        RememberRefused(feed, refused, 1)
