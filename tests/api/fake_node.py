"""A node in memory that records what the API asks of it: no network, no disk."""

from __future__ import annotations

import bisect
import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed

from hyperbloom.addresses import Address
from hyperbloom.api.served import ServedNode
from hyperbloom.connections.bandwidth import RateFigures
from hyperbloom.connections.close_reason import ClosedConnection
from hyperbloom.digests import element_sum, set_digest
from hyperbloom.feed_words import is_beginning
from hyperbloom.keys import Identity, discovery_key, parse_public_key
from hyperbloom.replication.feed.forgetting import Selection, Step
from hyperbloom.replication.feed.membership import NotTrusted
from hyperbloom.replication.feeds import UnknownFeed
from hyperbloom.replication.petnames import UnknownKey
from hyperbloom.replication.settings import FeedSettings
from hyperbloom.replication.status import (
    FeedStatus,
    FeedTraffic,
    NodeStatus,
    NodeTraffic,
    PeerStatus,
    SyncRound,
)
from hyperbloom.replication.sync.wait_synced import InSync, NotInSync, UnknownPeer
from hyperbloom.store import StoreError, StoreFull
from hyperbloom.store.records import (
    Appended,
    CountSlice,
    DeniedRecord,
    DiskSize,
    FeedFigures,
    FeedRecord,
    ForgottenFigures,
    LinkRecord,
    LogRecord,
    LogSlice,
    NameRecord,
    NoiseRecord,
    OriginSlice,
    RangeSlice,
    SnapshotInfo,
    StoreSize,
    VerifyReport,
)
from hyperbloom.store.tables.names import NameTaken, check_petname
from hyperbloom.store.writer import CommitFigures
from hyperbloom.trust import Chain, LinkGraph, Member, TrustLink, issue_link, verify_chain


class FakeForgetting:
    """Finds nothing to forget: what forgetting does is tested on real stores and nodes."""

    def __init__(self) -> None:
        self.steps: list[Selection] = []

    def figures(self) -> ForgottenFigures:
        return ForgottenFigures(count=0, bytes=0, hashes=0)

    async def step(self, selection: Selection, position: object, **_: bool) -> Step:
        self.steps.append(selection)
        return Step(count=0, size=0, absent=len(selection.values or ()), next=None)

    async def undo_step(self, selection: Selection, position: object, **_: bool) -> Step:
        return await self.step(selection, position)

    async def drop_hashes(self) -> None:
        pass


class FakeFeed:
    """Values in a sorted list and an arrival log; what fails is told by `failure`."""

    def __init__(self, node: FakeNode, settings: FeedSettings) -> None:
        self.node, self.settings = node, settings
        self.key = settings.key
        self.discovery_key = discovery_key(settings.key)
        self.graph = LinkGraph(settings.key)
        self.ordered: list[bytes] = []
        self.known: set[bytes] = set()
        self.log: list[LogRecord] = []
        self.subscribers: list[Callable[..., None]] = []
        self.interests: list[tuple[bytes, bytes | None]] = []
        self.raw_links: list[LinkRecord] = []
        self.failure: Exception | None = None
        self.forgetting = FakeForgetting()
        self.digest_left = 0
        self.pending: dict[bytes, float] = {}

    @property
    def values(self) -> FakeFeed:
        return self  # one object stands for all parts of the feed

    @property
    def trust(self) -> FakeFeed:
        return self

    @property
    def identity(self) -> Identity:
        return self.node.pairs.get(self.key, self.node.identity)

    @property
    def chain(self) -> Chain | None:
        return self.graph.shortest_chain(self.identity.public_key, now=time.time())

    @property
    def top_seq(self) -> int:
        return len(self.log)

    def record(self) -> FeedRecord:
        return FeedRecord(
            key=self.key,
            count=len(self.ordered),
            bytes=sum(map(len, self.ordered)),
            digest=(
                None
                if self.digest_left
                else set_digest(len(self.ordered), element_sum(self.ordered))
            ),
            digest_left=self.digest_left,
            top_seq=len(self.log),
            settings=self.settings.to_json(),
        )

    def insert(self, values: Sequence[bytes]) -> Deferred[Appended]:
        self.node.calls.append(("insert", self.key, len(values)))
        if self.failure is not None:
            return fail(self.failure)
        if not all(values):
            raise ValueError("a value has at least one byte")
        if self.chain is None:
            raise NotTrusted("no chain of links leads from the feed to this node's key")
        new = [v for v in dict.fromkeys(values) if v not in self.known]
        for value in new:
            self.known.add(value)
            bisect.insort(self.ordered, value)
            self.log.append(
                LogRecord(len(self.log) + 1, 1_000_000, self.node.identity.public_key, value)
            )
        appended = Appended(
            values=new, first_seq=len(self.log) - len(new) + 1, top_seq=len(self.log)
        )
        for subscriber in list(self.subscribers):
            subscriber(appended, self.node.identity.public_key)
        return succeed(appended)

    def has(self, values: Sequence[bytes]) -> list[bool]:
        return [value in self.known for value in values]

    def read(
        self, start: bytes = b"", end: bytes | None = None, *, limit: int, max_bytes: int
    ) -> Deferred[RangeSlice]:
        self.node.calls.append(("read", start, end, limit))
        first = bisect.bisect_left(self.ordered, start)
        last = len(self.ordered) if end is None else bisect.bisect_left(self.ordered, end)
        values: list[bytes] = []
        size = 0
        for value in self.ordered[first:last]:
            if values and (len(values) >= limit or size + len(value) > max_bytes):
                return succeed(RangeSlice(values=values, next_start=values[-1] + b"\0"))
            values.append(value)
            size += len(value)
        return succeed(RangeSlice(values=values, next_start=None))

    def count_slice(
        self, start: bytes = b"", end: bytes | None = None, *, limit: int
    ) -> Deferred[CountSlice]:
        self.node.calls.append(("count", start, end))
        found = [v for v in self.ordered if v >= start and (end is None or v < end)]
        piece = found[:limit]
        return succeed(
            CountSlice(
                count=len(piece),
                bytes=sum(map(len, piece)),
                next_start=piece[-1] + b"\0" if len(found) > limit else None,
            )
        )

    def log_after(self, seq: int, *, limit: int, max_bytes: int) -> Deferred[LogSlice]:
        self.node.calls.append(("log_after", seq))
        if self.failure is not None:
            return fail(self.failure)
        records: list[LogRecord] = []
        size = 0
        for record in self.log[seq : seq + limit]:
            if records and size + len(record.value) > max_bytes:
                break
            records.append(record)
            size += len(record.value)
        return succeed(LogSlice(records=records, last_seq=seq + len(records)))

    def life(self) -> tuple[int, int]:
        return 1, 0

    def take_interest(self, start: bytes, end: bytes | None) -> Callable[[], None]:
        interest = (start, end)
        self.interests.append(interest)
        return lambda: self.interests.remove(interest)

    def subscribe(self, subscriber: Callable[..., None]) -> Callable[[], None]:
        self.subscribers.append(subscriber)
        return lambda: self.subscribers.remove(subscriber)

    def invite(self, trustee: bytes, *, expires: float) -> Deferred[TrustLink]:
        self.pending[trustee] = 3.0
        return self.issue_link(trustee, expires=expires)

    def invited(self) -> dict[bytes, float]:
        return self.pending

    def issue_link(self, trustee: bytes, *, expires: float) -> Deferred[TrustLink]:
        chain = self.chain
        if chain is None:
            raise NotTrusted("no chain of links leads from the feed to this node's key")
        link = issue_link(
            self.identity, trustee, expires=min(expires, chain.expires), nonce=bytes(32)
        )
        self._learn(self.identity.public_key, link)
        return succeed(link)

    def _learn(self, issuer: bytes, link: TrustLink) -> None:
        self.graph.add(issuer, link)
        self.raw_links.append(
            LinkRecord(
                issuer=issuer,
                trustee=link.public_key,
                expires=link.expires,
                first_seen=2_000_000,
                introduced_by=issuer,
                raw=link.to_bytes(),
            )
        )

    def add_links(self, raw: Sequence[bytes]) -> Deferred[Chain]:
        chain = verify_chain(self.key, raw, now=time.time(), leeway=self.node.context.leeway)
        for issuer, link in chain.issuers():
            self._learn(issuer, link)
        return succeed(chain)

    def members(self) -> list[Member]:
        return self.graph.members(now=time.time())

    def links(self) -> list[LinkRecord]:
        return self.raw_links


class FakeStore:
    def __init__(self, node: FakeNode) -> None:
        self.node = node

    def snapshot(
        self, target: Path, progress: Callable[[int, int], None] | None = None
    ) -> SnapshotInfo:
        if target.exists():
            raise StoreError(f"the snapshot {target} exists already; name another folder")
        self.node.calls.append(("snapshot", target))
        figures = [f.record() for f in self.node.feeds.values()]
        return SnapshotInfo(
            node_key=self.node.identity.public_key,
            taken_at=3,
            feeds=tuple(
                FeedFigures(
                    key=f.key, count=f.count, bytes=f.bytes, digest=f.digest, top_seq=f.top_seq
                )
                for f in figures
            ),
        )

    def forgotten_slice(self, *_: object, **__: object) -> RangeSlice:
        return RangeSlice(values=[], next_start=None)

    def origin_slice(self, *_: object, **__: object) -> OriginSlice:
        return OriginSlice(records=[], next_seq=None)

    def verify(self, progress: Callable[[int, int], None] | None = None) -> VerifyReport:
        if progress is not None:
            self.node.while_verifying(progress)
        return VerifyReport(ok=False, problems=["one value is twice in the log"], values=7)


class FakeContext:
    now = staticmethod(time.time)
    leeway = 0.0

    def __init__(self, node: FakeNode) -> None:
        self.node = node

    def is_own(self, key: bytes) -> bool:
        return key == self.node.identity.public_key or key in self.node.pairs


class FakeNames:
    """Names without a store; `seen` are keys of which the beginning is enough."""

    def __init__(self) -> None:
        self.by_key: dict[bytes, str] = {}
        self.seen: set[bytes] = set()

    def get(self, key: bytes | None) -> str | None:
        return None if key is None else self.by_key.get(key)

    def named(self, word: str) -> bytes | None:
        return next((key for key, name in self.by_key.items() if name == word), None)

    def records(self) -> list[NameRecord]:
        return [
            NameRecord(key=key, name=name, named_at=1_000_000)
            for key, name in sorted(self.by_key.items())
        ]

    def check_new(self, key: bytes, name: str) -> None:
        check_petname(name)
        holder = self.named(name)
        if holder not in (None, key):
            raise NameTaken(f"{name} is what {holder.hex()} is called; choose another name")

    async def name(self, key: bytes, name: str) -> str | None:
        self.check_new(key, name)
        was, self.by_key[key] = self.by_key.get(key), name
        return was

    async def unname(self, key: bytes) -> str | None:
        return self.by_key.pop(key, None)

    async def find(
        self, word: str, among: Collection[bytes] | None = None, *, those: str = ""
    ) -> bytes:
        known = {*self.seen, *self.by_key} if among is None else set(among)
        found = [key for key in known if is_beginning(word, key)]
        named = self.named(word)
        if named is not None or len(found) == 1:
            return found[0] if named is None else named
        try:
            return parse_public_key(word)
        except ValueError:
            raise UnknownKey(f"{len(found)} keys are meant by {word!r}") from None


def a_peer(feed: bytes, **other: Any) -> PeerStatus:
    fields: dict[str, Any] = {
        "feed": feed,
        "address": "192.0.2.7:4365",
        "outgoing": True,
        "protected": True,
        "key": bytes(range(32)),
        "id": bytes(32),
        "chain_links": 0,
        "expires": math.inf,
        "extensions": (),
        "since": time.time() - 3_670,
        "values_in": 1_234,
        "values_new": 1_000,
        "values_out": 5,
        "bytes_in": 1,
        "bytes_out": 2,
        "last_sync_sent": time.time() - 5,
        "last_sync_received": None,
        "last_data": None,
        "strikes": 0,
        "in_sync": True,
        "in_sync_at": time.time() - 5,
        "in_sync_by": "digest",
        "last_round": SyncRound(
            way="sketch", at=time.time() - 5, symbols=283, bytes=7_251, differences=200
        ),
    }
    return PeerStatus(**{**fields, **other})


class FakeOwnership:
    """Makes feeds of made-up pairs; `put_there` are pairs that lie in the folder, unread."""

    def __init__(self, node: FakeNode) -> None:
        self.node = node
        self.failure: Exception | None = None
        self.put_there: list[Identity] = []

    def _own(self, pair: Identity, **settings: Any) -> FakeFeed:
        self.node.pairs[pair.public_key] = pair
        return self.node.add(FeedSettings(key=pair.public_key, **settings))

    def create(self, *, alias: str, dialect: str) -> Deferred[FakeFeed]:
        if self.failure is not None:
            return fail(self.failure)
        seed = bytes([200 + len(self.node.pairs)]) * 32
        return succeed(self._own(Identity(seed), alias=alias, dialect=dialect))

    def read_keys(self) -> Deferred[list[FakeFeed]]:
        if self.failure is not None:
            return fail(self.failure)
        found, self.put_there = self.put_there, []
        return succeed([self._own(pair) for pair in found])

    def release(self, feed: FakeFeed, *, expires: float) -> Deferred[TrustLink]:
        if feed.key not in self.node.pairs:
            raise ValueError("this node does not hold the feed's key")
        issued = feed.issue_link(self.node.identity.public_key, expires=expires)
        del self.node.pairs[feed.key]
        return issued

    async def copy_step(
        self, source: FakeFeed, target: FakeFeed, after: int
    ) -> tuple[int, int | None]:
        piece = await source.log_after(after, limit=2, max_bytes=1 << 20)
        await target.insert([record.value for record in piece.records])
        following = piece.last_seq if piece.last_seq < len(source.log) else None
        return len(piece.records), following


class FakeNode:
    """The node of an identity; `calls` is what it was asked."""

    def __init__(self, seed: bytes = bytes(32)) -> None:
        self.identity = Identity(seed)
        self.denied_keys: dict[bytes, str] = {}
        self.noise: dict[bytes, int] = {}
        self.calls: list[tuple[Any, ...]] = []
        #: Called in a thread while the store is verified.
        self.while_verifying: Callable[[Callable[[int, int], None]], None] = lambda tell: None
        self.context = FakeContext(self)
        self.names = FakeNames()
        self.store = FakeStore(self)
        self.pairs: dict[bytes, Identity] = {}
        self.ownership = FakeOwnership(self)
        self.feeds: dict[bytes, FakeFeed] = {}
        self.add(FeedSettings(key=self.identity.public_key))
        self.listens = ["127.0.0.1:4365"]
        self.problem: str | None = None
        self.commits = CommitFigures()
        self.broken_store: str | None = None
        self.sizes = {
            "map_bytes": 1, "used_bytes": 3 << 20, "free_bytes": 0, "file_bytes": 1,
        }  # fmt: skip
        self.discovered: dict[bytes, Any] = {}
        self.connected: list[PeerStatus] = [a_peer(self.own.key)]
        self.refusals = (
            ClosedConnection(
                at=time.time() - 61,
                address="192.0.2.9:1",
                kind="expired",
                reason="a link of its chain has expired",
            ),
        )

    def add(self, settings: FeedSettings) -> FakeFeed:
        feed = self.feeds[settings.key] = FakeFeed(self, settings)
        return feed

    @property
    def own(self) -> FakeFeed:
        return self.feeds[self.identity.public_key]

    def resolve(self, name: str | None) -> FakeFeed:
        if name is None:
            return self.own
        for feed in self.feeds.values():
            if name in (feed.settings.alias, feed.key.hex()):
                return feed
        if name == "own" and self.identity.public_key in self.feeds:
            return self.own
        raise UnknownFeed(f"there is no feed {name!r} on this node")

    def join(self, settings: FeedSettings) -> Deferred[FakeFeed]:
        self.calls.append(("join", settings))
        present = self.feeds.get(settings.key)
        if present is None:
            return succeed(self.add(settings))
        present.settings = settings
        return succeed(present)

    def leave(self, feed_key: bytes, *, delete_key: bool = False) -> Deferred[None]:
        if feed_key in self.pairs and not delete_key:
            raise ValueError("this node holds the feed's key, which would be lost")
        if feed_key == self.identity.public_key:
            raise ValueError("this feed is named in the configuration file")
        self.pairs.pop(feed_key, None)
        del self.feeds[feed_key]
        return succeed(None)

    async def deny(self, key: bytes, reason: str = "") -> bool:
        self.calls.append(("deny", key, reason))
        is_new = key not in self.denied_keys
        self.denied_keys[key] = reason
        return is_new

    async def forget_noise(self, key: bytes) -> bool:
        self.calls.append(("forget_noise", key))
        return self.noise.pop(key, None) is not None

    def noise_keys(self) -> list[NoiseRecord]:
        return [
            NoiseRecord(key=key, first_met=1_000_000, last_met=last)
            for key, last in self.noise.items()
        ]

    async def allow(self, key: bytes) -> bool:
        return self.denied_keys.pop(key, None) is not None

    def denied(self) -> list[DeniedRecord]:
        return [
            DeniedRecord(key=key, denied_at=1_000_000, reason=reason)
            for key, reason in self.denied_keys.items()
        ]

    def peers(self) -> list[PeerStatus]:
        return [replace(peer, name=self.names.get(peer.key)) for peer in self.connected]

    def fetch(
        self,
        feed_key: bytes,
        start: bytes,
        end: bytes | None,
        *,
        limit: int | None,
        timeout: float,
    ) -> Deferred[int]:
        self.calls.append(("fetch", start, end, limit, timeout))
        return succeed(0 if self.feeds[feed_key].settings.mode == "full" else 5)

    def wait_synced(
        self, feed_key: bytes, names: Sequence[str], *, timeout: float
    ) -> Deferred[list[InSync]]:
        """In sync with everyone but at "nobody:1" and "apart:1"; "never:1" is not answered."""
        self.calls.append(("wait_synced", feed_key, list(names), timeout))
        failures = {
            "nobody:1": UnknownPeer("the feed has no peer 'nobody:1'"),
            "apart:1": NotInSync("not in sync within 1 s: apart:1 differs"),
        }
        if names[0] in failures:
            return fail(failures[names[0]])
        if names[0] == "never:1":
            return Deferred(lambda _: self.calls.append(("gone",)))
        return succeed(
            [
                InSync(name=name, key=bytes(32), address="192.0.2.7:1", at=5.0, source="digest")
                for name in names
            ]
        )

    def _distrust(self, feed: FakeFeed) -> str | None:
        if feed.chain is not None:
            return None
        if any(link.trustee == self.identity.public_key for link in feed.links()):
            return "every link to this node's key has expired"
        return "no chain of links leads from the feed to this node's key"

    def feed_status(self, feed: FakeFeed) -> FeedStatus:
        record, chain = feed.record(), feed.chain
        return FeedStatus(
            key=feed.key,
            discovery_key=feed.discovery_key,
            alias=feed.settings.alias,
            mode=feed.settings.mode,
            dialect="2",
            noise=feed.settings.noise or "prefer",
            data_signed=True,
            lacks=(),
            own=feed is self.own,
            owner=feed.identity.public_key == feed.key,
            count=record.count,
            bytes=record.bytes,
            digest=record.digest,
            digest_left=record.digest_left,
            top_seq=record.top_seq,
            peers=sum(peer.feed == feed.key for peer in self.connected),
            peers_in_sync=0,
            peers_unprotected=sum(
                peer.feed == feed.key and not peer.protected for peer in self.connected
            ),
            last_round=None,
            chain_links=None if chain is None else len(chain),
            chain_expires=None if chain is None else chain.expires,
            trusted=chain is not None,
            problem=self.problem or self._distrust(feed),
            is_full=False,
            forgotten=0,
            forgotten_hashes=0,
            forgotten_refused=0,
            retained_out=0,
        )

    def status(self) -> NodeStatus:
        return NodeStatus(
            version="9.9",
            public_key=self.identity.public_key,
            started=time.time() - 90_000,
            listening=tuple(self.listens),
            connections=1,
            feeds=tuple(self.feed_status(feed) for feed in self.feeds.values()),
            refusals=self.refusals,
            store=self.sizes,
            queued_bytes=0,
            denied=0,
            store_problem=self.broken_store,
        )

    def store_problem(self) -> str | None:
        return self.broken_store

    def traffic(self) -> NodeTraffic:
        return NodeTraffic(
            started=1_700_000_000.0,
            connections=3,
            secure=1,
            dialled=4,
            accepted=5,
            closed={"expired": 2, "twin": 1},
            secured_protected=23,
            secured_plain=24,
            denied=25,
            strikes=6,
            bytes_in=7_000,
            bytes_out=8_000,
            feeds=tuple(
                FeedTraffic(
                    key=feed.key,
                    alias=feed.settings.alias,
                    count=len(feed.ordered),
                    bytes=sum(map(len, feed.ordered)),
                    is_shared=True,
                    trusted=True,
                    chain_expires=1_900_000_000.0,
                    issued_links=26,
                    issued_expire=1_800_000_000.0,
                    peers=1,
                    peers_in_sync=27,
                    peers_differing=28,
                    peers_unprotected=1,
                    last_sync=1_750_000_000.0,
                    rounds={"sketch": 29},
                    round_bytes={"sketch": 30},
                    forgotten=31,
                    forgotten_hashes=32,
                    retained_out=33,
                    kept_out={"full": 9},
                    values_in=10,
                    values_new=11,
                    values_out=12,
                    syncs_sent=13,
                    syncs_received=14,
                    sync_seconds=1.5,
                    values_tested=16,
                    sketches_asked=17,
                    sketch_symbols=18,
                    sketch_bytes=19,
                    sketch_differences=20,
                    ids_told=21,
                    values_pulled=22,
                )
                for feed in self.feeds.values()
            ),
            store=StoreSize(map_bytes=4, used_bytes=3, free_bytes=2, file_bytes=1),
            disk=DiskSize(size_bytes=35, free_bytes=34),
            queued_bytes=17,
            commits=self.commits,
            store_problem=self.broken_store,
            sending=RateFigures(rate=36.0, held_seconds=37.0),
        )

    def addresses(self) -> list[Address]:
        return [address for address in self.listening() if not address.is_wildcard]

    def listening(self) -> list[Address]:
        return [Address.parse(text) for text in self.listens]


def disk_full() -> StoreFull:
    return StoreFull("the disk is full; make room")


def served(node: FakeNode) -> ServedNode:
    """Here mypy holds the fakes against the types of what they stand for."""
    return node
