"""What the topic tracker decides: when to publish, which minutes to read, whom to join.

Pure functions of the records read, of what the node knows of its neighbours, and of an injected
source of randomness. The text's procedures are these functions and the timers of `bootstrap` and
`tracker` around them. Where several nodes could be joined, some are chosen at random: if all nodes
of a topic took the same, one would get all their connections.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from hyperbloom.addresses import Address
from hyperbloom.discovery.dht.common.groups import in_turn
from hyperbloom.discovery.dht.reports import PutReport
from hyperbloom.discovery.tracker.content import MESSAGE_HASH_BYTES, SLOTS, Neighbour, RecordContent
from hyperbloom.discovery.tracker.limits import (
    MAX_ADDRESSES_PER_NODE,
    MAX_CANDIDATES,
    PUBLISHED_ANYWAY,
)
from hyperbloom.discovery.tracker.neighbourhood import Candidate
from hyperbloom.discovery.tracker.record import Record

__all__ = [
    "bootstrap_candidates",
    "bootstrap_minutes",
    "bubble_candidates",
    "interval",
    "is_published",
    "may_publish",
    "overlap_candidates",
    "published_content",
]


def interval(base: float, jitter: float, random: Random) -> float:
    """Seconds: the base and a random part of the jitter."""
    return base + random.uniform(0.0, jitter)


def may_publish(records: Sequence[Record], *, max_bootstrap_records: int, random: Random) -> bool:
    """The rate limit: enough records of others in a minute make one's own superfluous.

    Whoever has the feed's key can make up records of as many publishers as he likes. So that he
    cannot silence everybody, one in `PUBLISHED_ANYWAY` is published all the same.
    """
    return len(records) < max_bootstrap_records or not random.randrange(PUBLISHED_ANYWAY)


def is_published(report: PutReport) -> bool:
    """Whether a put needs no retry: a record was read back from the nodes that acknowledged it.

    That an item is stored is only known by reading it back. Nodes that hold another record of the
    same minute may keep it; then putting once more changes nothing, and there is a record by which
    the topic's nodes meet.
    """
    return report.stored > 0 and (report.found or bool(report.others))


def published_content(
    *,
    addresses: Sequence[Address],
    neighbours: Sequence[Neighbour],
    hashes: Sequence[bytes],
    random: Random,
) -> RecordContent:
    """The content of an own record: up to `SLOTS` neighbours at random, and as many hashes."""
    known = {each.node_id: each for each in neighbours if any(each.node_id)}
    chosen = random.sample(list(known.values()), min(SLOTS, len(known)))
    fitting = dict.fromkeys(
        each for each in hashes if len(each) == MESSAGE_HASH_BYTES and any(each)
    )
    return RecordContent(
        addresses=tuple(addresses),
        active_peers=tuple(chosen),
        last_message_hashes=tuple(fitting)[:SLOTS],
    )


def bootstrap_minutes(
    minute: int, *, is_first_attempt: bool, check_older_first: bool
) -> tuple[int, int]:
    """The two minutes whose records are read, the older one first."""
    newest = minute - 1 if is_first_attempt and check_older_first else minute
    return max(0, newest - 1), max(0, newest)


def bootstrap_candidates(
    records: Iterable[Record], *, own: bytes, random: Random
) -> list[Candidate]:
    """Publishers and active peers of all records, at random, the records in turn."""
    return _shuffled(records, excluded={own}, random=random)


def bubble_candidates(
    records: Iterable[Record],
    *,
    neighbours: Sequence[Neighbour],
    own: bytes,
    min_neighbours: int,
    max_join_peers: int,
    random: Random,
) -> list[Candidate]:
    """Whom a node with few neighbours joins: nodes that the records name and it is not joined to.

    The text names the active peers alone; the publishers are taken as well, as deployed peers do,
    for a record of a node without neighbours names nobody else.
    """
    if len(neighbours) >= min_neighbours:
        return []
    excluded = {own, *(each.node_id for each in neighbours)}
    return _shuffled(records, excluded=excluded, random=random)[:max_join_peers]


def overlap_candidates(
    records: Iterable[Record],
    *,
    neighbours: Sequence[Neighbour],
    own: bytes,
    hashes: Sequence[bytes],
    max_join_peers: int,
    random: Random,
) -> list[Candidate]:
    """Whom a node that got messages joins: publishers who got others only, and their peers.

    A record without any message hash says nothing about a partition.
    """
    if not hashes:
        return []
    apart = [
        record
        for record in records
        if record.decoded.last_message_hashes
        and not set(hashes) & set(record.decoded.last_message_hashes)
    ]
    excluded = {own, *(each.node_id for each in neighbours)}
    return _shuffled(apart, excluded=excluded, random=random)[:max_join_peers]


def _named_nodes(records: Iterable[Record]) -> dict[bytes, tuple[Address, ...]]:
    """Node ids with their addresses: what a node says of itself in front of what others say."""
    records = list(records)
    claims = [(record.publisher, record.decoded.addresses) for record in records]
    for record in records:
        claims += [(peer.node_id, peer.addresses) for peer in record.decoded.active_peers]
    named: dict[bytes, tuple[Address, ...]] = {}
    for node_id, addresses in claims:
        known = (*named.get(node_id, ()), *addresses)
        named[node_id] = tuple(dict.fromkeys(known))[:MAX_ADDRESSES_PER_NODE]
    return named


def _shuffled(
    records: Iterable[Record], *, excluded: set[bytes], random: Random
) -> list[Candidate]:
    """The nodes that records name, at random. One of each record comes before a second of any.

    Made-up nodes cost nothing, but a lookup brings one record of a DHT node, and asks one node of a
    /64: so nobody gains by naming more nodes in a record, or by keys.
    """
    records = list(records)
    named = _named_nodes(records)
    random.shuffle(records)
    rows = []
    for record in records:
        row = [record.publisher, *(peer.node_id for peer in record.decoded.active_peers)]
        random.shuffle(row)
        rows.append(row)
    chosen = [node_id for node_id in dict.fromkeys(in_turn(rows)) if node_id not in excluded]
    return [Candidate(node_id=one, addresses=named[one]) for one in chosen[:MAX_CANDIDATES]]
