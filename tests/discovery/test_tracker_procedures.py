"""What the tracker decides, each procedure by itself."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from hyperbloom.addresses import Address
from hyperbloom.discovery.dht.common.items import MutableItem
from hyperbloom.discovery.dht.reports import PutReport
from hyperbloom.discovery.tracker.content import Neighbour, RecordContent
from hyperbloom.discovery.tracker.limits import MAX_ADDRESSES_PER_NODE, MAX_CANDIDATES
from hyperbloom.discovery.tracker.neighbourhood import Candidate
from hyperbloom.discovery.tracker.procedures import (
    bootstrap_candidates,
    bootstrap_minutes,
    bubble_candidates,
    interval,
    is_published,
    may_publish,
    overlap_candidates,
    published_content,
)
from hyperbloom.discovery.tracker.record import Record, sign_record
from hyperbloom.discovery.tracker.settings import (
    BootstrapSettings,
    MergeSettings,
    PublisherSettings,
    StoreSettings,
    TrackerSettings,
)
from hyperbloom.discovery.tracker.topic import Topic
from hyperbloom.keys import Identity

KEYS = Topic.named(b"a topic", b"a secret").keys(7)
OWN = b"\xee" * 32


def node(number: int, *addresses: Address) -> Neighbour:
    return Neighbour(node_id=bytes([number]) * 32, addresses=addresses)


def at(number: int) -> Address:
    return Address(f"10.0.0.{number}", 4365)


def record(
    publisher: int, *peers: Neighbour, hashes: tuple[int, ...] = (), at: tuple[Address, ...] = ()
) -> Record:
    content = RecordContent(
        addresses=at,
        active_peers=peers,
        last_message_hashes=tuple(bytes([number]) * 32 for number in hashes),
    )
    return sign_record(Identity(bytes([publisher]) * 32), KEYS, content)


def key(publisher: int) -> bytes:
    return Identity(bytes([publisher]) * 32).public_key


def ids(candidates: list[Candidate]) -> set[bytes]:
    found = {candidate.node_id for candidate in candidates}
    assert len(found) == len(candidates)
    return found


def chance(seed: int = 1) -> random.Random:
    return random.Random(seed)


def test_the_defaults_are_those_of_the_text() -> None:
    settings = TrackerSettings()
    assert settings.max_bootstrap_records == 5
    assert settings.max_join_peers == 4
    assert settings.min_neighbours == 4
    assert settings.store == StoreSettings(
        get_timeout=10, put_timeout=30, put_retries=3, retry_base=5, retry_jitter=10
    )
    assert settings.bootstrap == BootstrapSettings(
        no_peers_retry=1.5,
        join_settle=0.1,
        join_confirmation=0.5,
        discovery_poll=2.0,
        publish_on_startup=True,
        check_older_first=False,
    )
    assert settings.publisher == PublisherSettings(
        initial_delay=10, base_interval=10, max_jitter=50
    )
    for merge, delay in ((settings.bubble_merge, 10), (settings.overlap_merge, 30)):
        assert merge == MergeSettings(initial_delay=delay, base_interval=60, max_jitter=120)


def test_intervals_lie_between_base_and_base_plus_jitter() -> None:
    drawn = [interval(10.0, 50.0, chance(seed)) for seed in range(500)]
    assert 10 <= min(drawn) < 15
    assert 55 < max(drawn) <= 60
    assert interval(10.0, 0.0, chance()) == 10.0


@pytest.mark.parametrize(("others", "may"), [(0, True), (4, True), (5, False), (6, False)])
def test_enough_records_of_others_make_ones_own_superfluous(others: int, may: bool) -> None:
    records = [record(number) for number in range(others)]
    drawn = [
        may_publish(records, max_bootstrap_records=5, random=chance(seed)) for seed in range(800)
    ]
    if may:
        assert all(drawn)
    else:
        # Who makes records up, under as many keys as he likes, silences nobody for good.
        assert 60 <= sum(drawn) <= 140


def test_nobody_is_named_before_others_for_naming_many() -> None:
    """19 made-up records, each of another key with five nodes; one record of a node alone."""
    liars = [
        record(number, *(Neighbour(node_id=key(100 + 5 * number + each)) for each in range(5)))
        for number in range(2, 21)
    ]
    for seed in range(50):
        found = bootstrap_candidates([*liars, record(1)], own=key(99), random=chance(seed))
        assert key(1) in {candidate.node_id for candidate in found[:20]}


@pytest.mark.parametrize(
    ("stored", "found", "others", "published"),
    [(3, True, 0, True), (3, False, 1, True), (3, False, 0, False), (0, False, 1, False)],
)
def test_only_what_is_read_back_is_published(
    stored: int, found: bool, others: int, published: bool
) -> None:
    item = MutableItem(public_key=bytes(32), salt=b"", seq=1, value=b"0:", signature=bytes(64))
    report = PutReport(
        asked=3,
        stored=stored,
        refused=3 - stored,
        silent=0,
        found=found,
        others=(item,) * others,
        refusals={301: 3 - stored},
        holding=others + found,
        looked_asked=3,
        looked_answered=3,
    )
    assert is_published(report) is published


@pytest.mark.parametrize(
    ("minute", "first", "older_first", "read"),
    [
        (9, True, False, (8, 9)),
        (9, False, False, (8, 9)),
        (9, True, True, (7, 8)),
        (9, False, True, (8, 9)),
        (0, True, True, (0, 0)),
    ],
)
def test_two_minutes_are_read(
    minute: int, first: bool, older_first: bool, read: tuple[int, int]
) -> None:
    found = bootstrap_minutes(minute, is_first_attempt=first, check_older_first=older_first)
    assert found == read


def test_a_record_names_at_most_five_neighbours_and_hashes() -> None:
    neighbours = [node(number) for number in range(9)]
    content = published_content(
        addresses=[at(1)],
        neighbours=neighbours,
        hashes=[bytes([number]) * 32 for number in range(9)],
        random=chance(),
    )
    assert len(content.active_peers) == len(set(content.active_peers)) == 5
    assert node(0) not in content.active_peers, "zeros mean an empty slot"
    assert content.last_message_hashes == tuple(bytes([number]) * 32 for number in range(1, 6))
    assert content.addresses == (at(1),)
    chosen = Counter(
        peer.node_id
        for seed in range(50)
        for peer in published_content(
            addresses=[], neighbours=neighbours, hashes=[], random=chance(seed)
        ).active_peers
    )
    assert len(chosen) == 8, "other neighbours are named each time"


def test_bootstrap_joins_publishers_and_their_peers_but_not_itself() -> None:
    own = Neighbour(node_id=OWN, addresses=())
    records = [record(1, node(0x51), own), record(2, node(0x51), node(0x52))]
    found = bootstrap_candidates(records, own=OWN, random=chance())
    assert ids(found) == {key(1), key(2), b"\x51" * 32, b"\x52" * 32}
    orders = {
        tuple(each.node_id for each in bootstrap_candidates(records, own=OWN, random=chance(s)))
        for s in range(20)
    }
    assert len(orders) > 5, "not every node goes to the same one first"


def test_what_a_node_says_of_its_addresses_comes_first() -> None:
    publisher = Neighbour(node_id=key(1), addresses=(at(9), at(1)))
    claims = [record(2, publisher), record(1, at=(at(1), at(2)))]
    found = bootstrap_candidates(claims, own=OWN, random=chance())
    addresses = {candidate.node_id: candidate.addresses for candidate in found}
    assert addresses == {key(1): (at(1), at(2), at(9)), key(2): ()}


def test_addresses_and_candidates_are_limited() -> None:
    claims = [
        record(n, Neighbour(node_id=b"\x51" * 32, addresses=(at(n), at(100 + n))))
        for n in (1, 2, 3)
    ]
    found = bootstrap_candidates(claims, own=OWN, random=chance())
    most = max(len(candidate.addresses) for candidate in found)
    assert most == MAX_ADDRESSES_PER_NODE
    many = [
        record(n, *(Neighbour(node_id=bytes([n, m]) * 16) for m in range(1, 6)))
        for n in range(1, 13)
    ]
    assert len(bootstrap_candidates(many, own=OWN, random=chance())) == MAX_CANDIDATES < 12 * 6


def bubble(records: list[Record], neighbours: list[Neighbour]) -> list[Candidate]:
    return bubble_candidates(
        records,
        neighbours=neighbours,
        own=OWN,
        min_neighbours=4,
        max_join_peers=4,
        random=chance(),
    )


def test_a_bubble_joins_new_nodes_only() -> None:
    records = [record(1, node(0x51), node(0x52), Neighbour(node_id=OWN))]
    assert ids(bubble(records, [node(0x52)])) == {key(1), b"\x51" * 32}
    assert bubble([], []) == []


@pytest.mark.parametrize(("neighbours", "joined"), [(0, 4), (3, 4), (4, 0), (5, 0)])
def test_only_a_small_bubble_joins_and_no_more_than_four(neighbours: int, joined: int) -> None:
    records = [record(1, *(node(0x51 + n) for n in range(5)))]
    assert len(bubble(records, [node(0x11 + n) for n in range(neighbours)])) == joined


def overlap(records: list[Record], hashes: tuple[int, ...], *known: Neighbour) -> list[Candidate]:
    return overlap_candidates(
        records,
        neighbours=known,
        own=OWN,
        hashes=[bytes([number]) * 32 for number in hashes],
        max_join_peers=4,
        random=chance(),
    )


def test_a_partition_shows_by_messages_that_do_not_overlap() -> None:
    apart = record(1, node(0x51), node(0x52), Neighbour(node_id=OWN), hashes=(7, 8))
    same = record(2, node(0x53), hashes=(8, 9))
    silent = record(3, node(0x54))
    records = [apart, same, silent]
    assert ids(overlap(records, (9,), node(0x52))) == {key(1), b"\x51" * 32}
    assert ids(overlap(records, (7,))) == {key(2), b"\x53" * 32}
    assert overlap(records, (8,)) == []
    assert overlap(records, ()) == [], "who got no message cannot tell"


def test_at_most_four_are_joined_across_a_partition() -> None:
    apart = record(1, *(node(0x51 + n) for n in range(5)), hashes=(7,))
    assert len(overlap([apart], (1,))) == 4
