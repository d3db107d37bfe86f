"""What the API needs of a node and its feeds: everything else of them is hidden from it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from twisted.internet.defer import Deferred

    from hyperbloom.addresses import Address
    from hyperbloom.integrations.status import IntegrationStatus, Kind
    from hyperbloom.keys import Identity
    from hyperbloom.objects.classes.declarations import Declaration
    from hyperbloom.replication.feed.forgetting import Selection, Step
    from hyperbloom.replication.settings import FeedSettings
    from hyperbloom.replication.status import NodeTraffic, PeerStatus
    from hyperbloom.replication.sync.wait_synced import InSync
    from hyperbloom.store import Store
    from hyperbloom.store.objects.records import ObjectRecord, Outcome
    from hyperbloom.store.records import (
        Appended,
        CountSlice,
        DeniedRecord,
        FeedRecord,
        ForgottenFigures,
        LinkRecord,
        LogSlice,
        NameRecord,
        NoiseRecord,
        OriginSlice,
        RangeSlice,
        SnapshotInfo,
        VerifyReport,
    )
    from hyperbloom.trust import Chain, Member, TrustLink

__all__ = [
    "HasJson",
    "ServedContext",
    "ServedDiscovery",
    "ServedFeed",
    "ServedForgetting",
    "ServedFound",
    "ServedIntegration",
    "ServedIntegrations",
    "ServedNames",
    "ServedNode",
    "ServedObjects",
    "ServedOwnership",
    "ServedPool",
    "ServedStore",
    "ServedTrust",
    "ServedValues",
]


class HasJson(Protocol):
    """A status: frozen, with a JSON form whose byte strings are hex."""

    def as_json(self) -> dict[str, Any]: ...


class ServedStore(Protocol):
    """The store's slow operations; they are called in threads."""

    def snapshot(
        self, target: Path, progress: Callable[[int, int], None] | None = None
    ) -> SnapshotInfo: ...

    def forgotten_slice(
        self, feed_key: bytes, start: bytes, end: bytes | None, *, limit: int, max_bytes: int
    ) -> RangeSlice: ...

    def origin_slice(
        self, feed_key: bytes, origin: bytes, after_seq: int, *, limit: int, max_bytes: int
    ) -> OriginSlice: ...

    def verify(self, progress: Callable[[int, int], None] | None = None) -> VerifyReport: ...


class ServedForgetting(Protocol):
    """`hyperbloom.replication.feed.forgetting.Forgetting`, as far as the API uses it."""

    def figures(self) -> ForgottenFigures: ...

    async def step(
        self,
        selection: Selection,
        position: bytes | int | None,
        *,
        erase: bool = False,
        dry_run: bool = False,
    ) -> Step: ...

    async def undo_step(
        self, selection: Selection, position: bytes | int | None, *, dry_run: bool = False
    ) -> Step: ...

    async def drop_hashes(self) -> None: ...


class ServedValues(Protocol):
    """`hyperbloom.replication.feed.values.FeedValues`, as far as the API uses it."""

    @property
    def top_seq(self) -> int: ...

    def record(self) -> FeedRecord: ...

    def has(self, values: Sequence[bytes]) -> list[bool]: ...

    def read(
        self, start: bytes, end: bytes | None, *, limit: int, max_bytes: int
    ) -> Deferred[RangeSlice]: ...

    def count_slice(
        self, start: bytes, end: bytes | None, *, limit: int
    ) -> Deferred[CountSlice]: ...

    def log_after(self, seq: int, *, limit: int, max_bytes: int) -> Deferred[LogSlice]: ...

    def life(self) -> tuple[int, int]: ...

    def subscribe(self, subscriber: Callable[..., None]) -> Callable[[], None]: ...


class ServedTrust(Protocol):
    """`hyperbloom.replication.feed.trust.FeedTrust`, as far as the API uses it."""

    @property
    def identity(self) -> Identity: ...

    @property
    def chain(self) -> Chain | None: ...

    def invite(self, trustee: bytes, *, expires: float) -> Deferred[TrustLink]: ...

    def invited(self) -> Mapping[bytes, float]: ...

    def add_links(self, raw: Sequence[bytes]) -> Deferred[Chain]: ...

    def members(self) -> list[Member]: ...

    def links(self) -> list[LinkRecord]: ...


class ServedFeed(Protocol):
    """`hyperbloom.replication.feed.feed.Feed`, as far as the API uses it."""

    @property
    def key(self) -> bytes: ...

    @property
    def discovery_key(self) -> bytes: ...

    @property
    def settings(self) -> FeedSettings: ...

    @property
    def values(self) -> ServedValues: ...

    @property
    def trust(self) -> ServedTrust: ...

    @property
    def forgetting(self) -> ServedForgetting: ...

    def insert(self, values: Sequence[bytes]) -> Deferred[Appended]: ...

    def take_interest(self, start: bytes, end: bytes | None) -> Callable[[], None]: ...


class ServedTypes(Protocol):
    """`hyperbloom.objects.classes.types.Types`, as far as the API uses it."""

    @property
    def configured(self) -> frozenset[str]: ...

    def declarations(self) -> list[Declaration]: ...


class ServedPool(Protocol):
    """`hyperbloom.objects.pool.ObjectPool`, as far as the API uses it."""

    @property
    def store(self) -> Store: ...

    @property
    def types(self) -> ServedTypes: ...

    def declare(self, declaration: Declaration) -> Deferred[None]: ...

    def undeclare(self, name: str) -> Deferred[None]: ...

    def put_fields(
        self, fields: Mapping[str, Any], type_name: str | None = None, *, number: int | None = None
    ) -> Deferred[ObjectRecord]: ...

    def change_fields(
        self, number: int, fields: Mapping[str, Any], *, changed: int | None = None
    ) -> Deferred[ObjectRecord]: ...

    def remove_hash(self, number: int) -> Deferred[None]: ...

    def subscribe(self, subscriber: Callable[[Outcome, object], None]) -> Callable[[], None]: ...


class ServedObjects(Protocol):
    """`hyperbloom.objects.service.ObjectsService`, as far as the API uses it."""

    @property
    def pool(self) -> ServedPool: ...

    def status(self) -> HasJson: ...


class ServedContext(Protocol):
    """`hyperbloom.replication.context.FeedContext`, as far as the API uses it."""

    @property
    def now(self) -> Callable[[], float]: ...

    @property
    def leeway(self) -> float: ...

    def is_own(self, key: bytes) -> bool: ...


class ServedIntegration(Protocol):
    """`hyperbloom.integrations.integration.Integration`, as far as the API uses it."""

    def run(self, *, force: bool = False) -> Deferred[None]: ...

    def status(self) -> IntegrationStatus: ...


class ServedIntegrations(Protocol):
    """`hyperbloom.integrations.service.IntegrationsService`, as far as the API uses it."""

    def statuses(self) -> Sequence[IntegrationStatus]: ...

    def find(self, kind: Kind, name: str) -> ServedIntegration | None: ...


class ServedDiscovery(Protocol):
    """`hyperbloom.discovery.service.DiscoveryService`, as far as the API uses it."""

    def status(self) -> HasJson: ...


class ServedFound(Protocol):
    """`hyperbloom.replication.net.discovered_peers.DiscoveredPeers`, as far as the API uses it."""

    def status(self) -> Sequence[HasJson]: ...


class ServedOwnership(Protocol):
    """`hyperbloom.replication.ownership.Ownership`, as far as the API uses it."""

    def create(self, *, alias: str, dialect: str) -> Deferred[Any]: ...

    def read_keys(self) -> Deferred[Any]: ...

    def release(self, feed: Any, *, expires: float) -> Deferred[TrustLink]: ...

    async def copy_step(self, source: Any, target: Any, after: int) -> tuple[int, int | None]: ...


class ServedNames(Protocol):
    """`hyperbloom.replication.petnames.Petnames`, as far as the API uses it."""

    def get(self, key: bytes | None) -> str | None: ...

    def named(self, word: str) -> bytes | None: ...

    def records(self) -> list[NameRecord]: ...

    def check_new(self, key: bytes, name: str) -> None: ...

    async def name(self, key: bytes, name: str) -> str | None: ...

    async def unname(self, key: bytes) -> str | None: ...

    async def find(
        self, word: str, among: Collection[bytes] | None = None, *, those: str = ""
    ) -> bytes: ...


class ServedNode(Protocol):
    """`hyperbloom.replication.node.Node`, as far as the API uses it."""

    @property
    def context(self) -> ServedContext: ...

    @property
    def store(self) -> ServedStore: ...

    @property
    def identity(self) -> Identity: ...

    @property
    def feeds(self) -> Mapping[bytes, ServedFeed]: ...

    @property
    def names(self) -> ServedNames: ...

    @property
    def discovered(self) -> Mapping[bytes, ServedFound]: ...

    @property
    def ownership(self) -> ServedOwnership: ...

    def resolve(self, name: str | None) -> ServedFeed: ...

    def join(self, settings: FeedSettings) -> Deferred[Any]: ...

    def leave(self, feed_key: bytes, *, delete_key: bool = False) -> Deferred[None]: ...

    def peers(self) -> Sequence[PeerStatus]: ...

    def wait_synced(
        self, feed_key: bytes, names: Sequence[str], *, timeout: float
    ) -> Deferred[list[InSync]]: ...

    def fetch(
        self,
        feed_key: bytes,
        start: bytes,
        end: bytes | None,
        *,
        limit: int | None,
        timeout: float,
    ) -> Deferred[int]: ...

    def status(self) -> HasJson: ...

    def store_problem(self) -> str | None: ...

    def traffic(self) -> NodeTraffic: ...

    async def deny(self, key: bytes, reason: str = "") -> bool: ...

    async def allow(self, key: bytes) -> bool: ...

    def denied(self) -> list[DeniedRecord]: ...

    async def forget_noise(self, key: bytes) -> bool: ...

    def noise_keys(self) -> list[NoiseRecord]: ...

    def addresses(self) -> list[Address]: ...

    def listening(self) -> list[Address]: ...
