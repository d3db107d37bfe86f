"""Addresses at which a feed's peers were heard of. Key: feed key, address."""

import json
from dataclasses import dataclass

from hyperbloom.store.limits import MAX_ADDRESS_BYTES, MAX_PEERS_PER_FEED
from hyperbloom.store.lmdb.layout import KEY_BYTES
from hyperbloom.store.lmdb.transaction import WriteTransaction
from hyperbloom.store.operations import OVERHEAD_BYTES, check_key, check_time
from hyperbloom.store.records import PeerRecord

__all__ = ["DropPeer", "PutPeer", "parse_peer_record"]


def parse_peer_record(key: bytes, data: bytes) -> PeerRecord:
    """A record of the peers database; ValueError or KeyError if it is none."""
    fields = json.loads(data)
    return PeerRecord(
        address=key[KEY_BYTES:].decode(),
        feed_key=key[:KEY_BYTES],
        key=None if fields["key"] is None else bytes.fromhex(fields["key"]),
        last_seen=int(fields["last_seen"]),
        source=str(fields["source"]),
        failures=int(fields["failures"]),
    )


@dataclass(frozen=True, slots=True)
class PutPeer:
    """Keep a peer's address, or what is newly known of it; a feed need not be there. Result: None.

    Beyond MAX_PEERS_PER_FEED the one seen longest ago goes.
    """

    record: PeerRecord

    def __post_init__(self) -> None:
        record = self.record
        check_key("feed_key", record.feed_key)
        check_time("last_seen", record.last_seen)
        if record.key is not None:
            check_key("key", record.key)
        _check_address(record.address)
        if len(record.source) > MAX_ADDRESS_BYTES:
            raise ValueError("a peer's source is one word")

    @property
    def size(self) -> int:
        return OVERHEAD_BYTES

    def apply(self, transaction: WriteTransaction) -> None:
        record = self.record
        key = record.feed_key + record.address.encode()
        fields = {
            "key": None if record.key is None else record.key.hex(),
            "last_seen": record.last_seen,
            "source": record.source,
            "failures": record.failures,
        }
        is_new = transaction.get("peers", key) is None
        transaction.put("peers", key, json.dumps(fields, separators=(",", ":")).encode())
        if is_new:
            self._make_room(transaction)

    def _make_room(self, transaction: WriteTransaction) -> None:
        peers = list(transaction.scan("peers", self.record.feed_key))
        surplus = len(peers) - MAX_PEERS_PER_FEED
        if surplus > 0:
            ages = sorted((parse_peer_record(key, data).last_seen, key) for key, data in peers)
            for _, key in ages[:surplus]:
                transaction.delete("peers", key)


@dataclass(frozen=True, slots=True)
class DropPeer:
    """Forget a peer's address. Result: whether it was there."""

    feed_key: bytes
    address: str

    def __post_init__(self) -> None:
        check_key("feed_key", self.feed_key)
        _check_address(self.address)

    @property
    def size(self) -> int:
        return OVERHEAD_BYTES

    def apply(self, transaction: WriteTransaction) -> bool:
        return transaction.delete("peers", self.feed_key + self.address.encode())


def _check_address(address: str) -> None:
    if not 0 < len(address.encode()) <= MAX_ADDRESS_BYTES:
        raise ValueError(f"an address has 1 to {MAX_ADDRESS_BYTES} bytes: {address[:40]!r}")
