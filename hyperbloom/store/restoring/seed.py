"""To begin a store with the values of a snapshot, which may be another node's.

The values and links of some feeds are read into a new store: the other node's refusals, addresses,
denied keys, keys that speak Noise, forgotten values, objects and identity stay with it. Each value
keeps its place in the order of arrival, and the peer and time that the snapshot's node wrote down
with it; these are that node's word, which `seeded_from` in the meta table names.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from hyperbloom.digests import sum_of_schema_3
from hyperbloom.store.backup.snapshot import load_snapshot_info, read_figures
from hyperbloom.store.backup.verify import Progress
from hyperbloom.store.errors import NoSuchFeed, StoreCorrupt
from hyperbloom.store.limits import DEFAULT_MAP_BYTES
from hyperbloom.store.lmdb.environment import Environment
from hyperbloom.store.lmdb.layout import SUMMED_SCHEMA
from hyperbloom.store.migrations import MIGRATIONS, initialize, schema_version
from hyperbloom.store.operations import Operation
from hyperbloom.store.records import FeedFigures, FeedRecord, LinkRecord, LogRecord, SnapshotInfo
from hyperbloom.store.restoring.replacement import (
    commit_all,
    compare_figures,
    handed_on,
    new_store_in,
    understood,
    verify_copy,
)
from hyperbloom.store.store import Store
from hyperbloom.store.tables.feeds import PutFeed
from hyperbloom.store.tables.links import PutLinks
from hyperbloom.store.tables.meta import SEEDED_FROM, PutMeta
from hyperbloom.store.values.append import AppendValues

__all__ = ["SeededFeed", "feed_key_in", "seed_store"]

_SLICE_VALUES = 10_000
_SLICE_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SeededFeed:
    """What is taken of a feed beside its values."""

    settings: Mapping[str, object]
    links: Sequence[LinkRecord]


def take_all(record: FeedRecord, links: Sequence[LinkRecord]) -> SeededFeed:
    """For a snapshot of whom one trusts like oneself."""
    return SeededFeed(settings=record.settings, links=links)


def seed_store(
    snapshot: Path,
    target: Path,
    *,
    feeds: Sequence[bytes] | None,
    now: float,
    replace: bool = False,
    verify: bool = False,
    take: Callable[[FeedRecord, Sequence[LinkRecord]], SeededFeed] = take_all,
    progress: Progress | None = None,
    warn: Callable[[str], None] = lambda sentence: None,
) -> SnapshotInfo:
    """Make the store `target` with the values and unexpired links of a snapshot's feeds.

    `feeds`: their keys; None: each that holds anything. `now` in seconds: no value arrived
    later. `take` says what is taken of a feed's settings and links; it may raise ValueError,
    TypeError or KeyError for what is none. `warn` as in `restore_store`. Returns the snapshot's
    word, with the feeds taken. Raises as `restore_store`, and NoSuchFeed.
    """
    info = load_snapshot_info(snapshot)
    with understood(snapshot), closing(Store.open_readonly(snapshot)) as source:
        compare_figures(snapshot, read_figures(source.environment), info.feeds)
        chosen = _choose(source, feeds)
        taken = tuple(one for one in info.feeds if one.key in {record.key for record in chosen})
        with new_store_in(target, replace) as aside:
            environment = Environment(
                aside, map_bytes=DEFAULT_MAP_BYTES, durable=False, create=True
            )
            with closing(environment):
                initialize(environment, MIGRATIONS)
                commit_all(environment, [_seeded_from(info), *handed_on(target, warn)])
                done, total = 0, sum(record.count for record in chosen)
                tell = progress or (lambda done, total: None)
                for record in chosen:
                    done = _take_feed(
                        source, environment, record, take, now, done, lambda now: tell(now, total)
                    )
                _compare_taken(snapshot, source, environment, taken)
                if verify:
                    verify_copy(snapshot, environment, progress)
    return SnapshotInfo(node_key=info.node_key, taken_at=info.taken_at, feeds=taken)


def feed_key_in(snapshot: Path, name: str) -> bytes:
    """The key of a feed in a snapshot, by its key in hex or its alias.

    Raises NoSuchFeed, or StoreCorrupt and others as `seed_store` does.
    """
    with understood(snapshot), closing(Store.open_readonly(snapshot)) as store:
        for record in store.feeds():
            if name.lower() == record.key.hex() or name == record.settings.get("alias"):
                return record.key
    raise NoSuchFeed(f"the snapshot has no feed {name!r}")


def _compare_taken(
    snapshot: Path, source: Store, environment: Environment, told: Sequence[FeedFigures]
) -> None:
    """Whether what was taken is what the snapshot says, as far as it knows its digests."""
    has_digests = schema_version(source.environment) >= SUMMED_SCHEMA

    def comparable(one: FeedFigures, like: FeedFigures) -> tuple[object, ...]:
        is_known = has_digests and like.digest is not None
        return one.key, one.count, one.bytes, one.digest if is_known else None

    found = read_figures(environment)
    if len(found) != len(told) or any(
        comparable(one, like) != comparable(like, like)
        for one, like in zip(found, told, strict=True)
    ):
        raise StoreCorrupt(f"{snapshot} holds other values than it says; use another one")
    if not has_digests:
        _compare_by_schema_3(snapshot, source, told)


def _compare_by_schema_3(snapshot: Path, source: Store, told: Sequence[FeedFigures]) -> None:
    for one in told:
        total = after = 0
        while True:
            piece = source.log_slice(one.key, after, limit=_SLICE_VALUES, max_bytes=_SLICE_BYTES)
            if not piece.records:
                break
            total += sum_of_schema_3([record.value for record in piece.records])
            after = piece.last_seq
        if (total % (1 << 256)).to_bytes(32, "big") != one.digest:
            raise StoreCorrupt(f"{snapshot} holds other values than it says; use another one")


def _choose(source: Store, keys: Sequence[bytes] | None) -> list[FeedRecord]:
    """The feeds to take, in the order of their keys."""
    records = source.feeds()
    if keys is None:
        return [one for one in records if one.count or source.links(one.key)]
    for key in keys:
        if all(one.key != key for one in records):
            raise NoSuchFeed(f"the snapshot has no feed {key.hex()}")
    return [one for one in records if one.key in keys]


def _seeded_from(info: SnapshotInfo) -> PutMeta:
    node = None if info.node_key is None else info.node_key.hex()
    text = json.dumps({"node_key": node, "taken_at": info.taken_at})
    return PutMeta(name=SEEDED_FROM, value=text.encode())


def _take_feed(
    source: Store,
    environment: Environment,
    record: FeedRecord,
    take: Callable[[FeedRecord, Sequence[LinkRecord]], SeededFeed],
    now: float,
    done: int,
    progress: Callable[[int], None],
) -> int:
    """Copy one feed; how many values are done by then."""
    taken = take(record, [link for link in source.links(record.key) if link.expires >= now])
    commit_all(
        environment,
        [
            PutFeed(feed_key=record.key, settings=taken.settings),
            PutLinks(record.key, tuple(taken.links)),
        ],
    )
    latest, after = int(now * 1e6), 0
    while True:
        piece = source.log_slice(record.key, after, limit=_SLICE_VALUES, max_bytes=_SLICE_BYTES)
        if not piece.records:
            return done
        commit_all(environment, _appends(record.key, piece.records, latest))
        after = piece.last_seq
        done += len(piece.records)
        progress(done)


def _appends(feed: bytes, records: Sequence[LogRecord], latest: int) -> list[Operation]:
    """The records in their order; those that came together are one operation."""
    return [
        AppendValues(
            feed_key=feed,
            values=[one.value for one in together],
            origin=origin,
            received_at=min(received_at, latest),
        )
        for (received_at, origin), together in groupby(
            records, key=lambda one: (one.received_at, one.origin)
        )
    ]
