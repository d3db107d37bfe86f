"""What a node stores for others: items (BEP-44) and peers of info hashes (BEP-5), all in memory.

Each kind is bounded in count. When it is full, the site (a /48, or a /24 of IPv4) that has put most
loses what was used longest ago: one site fills what room there is, and takes nobody else's. Each
thing is forgotten when nobody has renewed it for its time. The token of a put or an announcement is
checked before.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from itertools import islice
from typing import Final, Generic, TypeVar

from hyperbloom.addresses import Address
from hyperbloom.discovery.dht.common.errors import ErrorCode, QueryRefused
from hyperbloom.discovery.dht.common.groups import Group, in_turn, site_key
from hyperbloom.discovery.dht.common.items import MAX_SALT_BYTES, MutableItem, immutable_target
from hyperbloom.discovery.dht.common.messages import PutImmutable, PutMutable
from hyperbloom.discovery.dht.limits import (
    MAX_INFO_HASHES,
    MAX_PEERS_PER_HASH,
    MAX_PEERS_TOLD,
    MAX_VALUE_BYTES,
)
from hyperbloom.discovery.dht.settings import EqualSeq

__all__ = ["ITEM_SECONDS", "PEER_SECONDS", "Storage"]

ITEM_SECONDS: Final = 7_200.0
"""An item that was not put again for so long may go (BEP-44)."""

PEER_SECONDS: Final = 2_700.0
"""A peer that was not announced again for so long is not told any more."""

T = TypeVar("T")


class Storage:
    """Items and peers. `now` is in seconds of any clock that does not go back; `sender` has put."""

    def __init__(self, *, equal_seq: EqualSeq, max_items: int) -> None:
        self._equal_seq = equal_seq
        self._mutable: _Shared[MutableItem] = _Shared(max_items, ITEM_SECONDS)
        self._immutable: _Shared[bytes] = _Shared(max_items, ITEM_SECONDS)
        self._peers: _Shared[_Shared[Address]] = _Shared(MAX_INFO_HASHES, PEER_SECONDS)

    @property
    def items(self) -> int:
        """How many items there are, of both kinds."""
        return len(self._mutable) + len(self._immutable)

    @property
    def info_hashes(self) -> int:
        """How many info hashes have peers."""
        return len(self._peers)

    # -- items

    def mutable(self, target: bytes, *, now: float) -> MutableItem | None:
        """The mutable item stored under a target."""
        return self._mutable.get(target, now=now)

    def immutable(self, target: bytes, *, now: float) -> bytes | None:
        """The bencoded value stored under its hash."""
        return self._immutable.get(target, now=now)

    def put_immutable(self, put: PutImmutable, sender: Address, *, now: float) -> None:
        """Store a value; raises QueryRefused 205 for one too big, 203 for one of another target."""
        _check_size(put.value)
        target = immutable_target(put.value)
        _check_target(put.target, target)
        self._immutable.set(target, put.value, site_key(sender), now=now)

    def put_mutable(self, put: PutMutable, sender: Address, *, now: float) -> None:
        """Store a version of an item; raises QueryRefused, in this order:

        205 value too big, 207 salt too big, 206 wrong signature, 203 not its target, 301 `cas` is
        not the stored sequence number, 302 the stored one is greater (or equal, see `EqualSeq`).
        """
        _check_size(put.value)
        if len(put.salt) > MAX_SALT_BYTES:
            raise QueryRefused(ErrorCode.SALT_TOO_BIG, f"salt of more than {MAX_SALT_BYTES} bytes")
        item = MutableItem(
            public_key=put.public_key,
            salt=put.salt,
            seq=put.seq,
            value=put.value,
            signature=put.signature,
        )
        if not item.is_authentic():
            raise QueryRefused(ErrorCode.BAD_SIGNATURE, "invalid signature")
        _check_target(put.target, item.target)
        stored = self._mutable.get(item.target, now=now)
        if stored is None or self._replaces(put, stored):
            self._mutable.set(item.target, item, site_key(sender), now=now)

    def _replaces(self, put: PutMutable, stored: MutableItem) -> bool:
        if put.cas is not None and put.cas != stored.seq:
            raise QueryRefused(ErrorCode.CAS_MISMATCH, "cas is not the stored sequence number")
        if put.seq < stored.seq:
            raise QueryRefused(ErrorCode.SEQ_TOO_LOW, "sequence number below the stored one")
        if put.seq > stored.seq or put.value == stored.value:
            return True
        if self._equal_seq is EqualSeq.REJECT:
            raise QueryRefused(ErrorCode.SEQ_TOO_LOW, "sequence number equal to the stored one")
        return self._equal_seq is EqualSeq.OVERWRITE

    # -- peers

    def announce(self, info_hash: bytes, address: Address, *, now: float) -> None:
        """A peer of an info hash is at this address."""
        peers = self._peers.get(info_hash, now=now)
        if peers is None:
            peers = _Shared(MAX_PEERS_PER_HASH, PEER_SECONDS)
        site = site_key(address)
        peers.set(address, address, site, now=now)
        self._peers.set(info_hash, peers, site, now=now)

    def peers(self, info_hash: bytes, *, now: float) -> tuple[Address, ...]:
        """Up to `MAX_PEERS_TOLD` peers, the sites in turn, of each those announced last first."""
        peers = self._peers.get(info_hash, now=now)
        return () if peers is None else peers.newest(MAX_PEERS_TOLD, now=now)


class _Shared(Generic[T]):
    """A bounded dictionary that sites share, see the module's text.

    What two sites put counts as that of the one which has less: so nobody draws the things of
    others to himself by putting them again, to lose them with his own.
    """

    def __init__(self, size: int, seconds: float) -> None:
        self._size, self._seconds = size, seconds
        self._entries: OrderedDict[object, tuple[T, float, Group]] = OrderedDict()
        self._counts: Counter[Group] = Counter()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: object, *, now: float) -> T | None:
        found = self._entries.get(key)
        if found is None:
            return None
        value, set_at, _ = found
        if now - set_at > self._seconds:
            self._drop(key)
            return None
        self._entries.move_to_end(key)
        return value

    def set(self, key: object, value: T, site: Group, *, now: float) -> None:
        before = self._entries.get(key)
        if before is not None:
            self._drop(key)
            site = min(before[2], site, key=self._counts.__getitem__)
        self._entries[key] = (value, now, site)
        self._counts[site] += 1
        if len(self._entries) > self._size:
            most = max(self._counts.values())
            counts = self._counts
            self._drop(next(k for k, (_, _, s) in self._entries.items() if counts[s] == most))

    def newest(self, count: int, *, now: float) -> tuple[T, ...]:
        """Up to so many, the sites in turn."""
        by_site: dict[Group, list[T]] = {}
        for value, set_at, site in reversed(self._entries.values()):
            if now - set_at > self._seconds:
                break
            by_site.setdefault(site, []).append(value)
        return tuple(islice(in_turn(by_site.values()), count))

    def _drop(self, key: object) -> None:
        site = self._entries.pop(key)[2]
        self._counts[site] -= 1
        if not self._counts[site]:
            del self._counts[site]


def _check_size(value: bytes) -> None:
    if len(value) > MAX_VALUE_BYTES:
        raise QueryRefused(ErrorCode.VALUE_TOO_BIG, f"v of more than {MAX_VALUE_BYTES} bytes")


def _check_target(claimed: bytes | None, true: bytes) -> None:
    if claimed is not None and claimed != true:
        raise QueryRefused(ErrorCode.PROTOCOL, "target is not that of the item")
