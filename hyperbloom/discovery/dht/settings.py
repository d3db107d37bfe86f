"""What an operator may set about the DHT node."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from hyperbloom.addresses import Address

__all__ = ["PUBLIC_ROUTERS", "DhtSettings", "EqualSeq"]

PUBLIC_ROUTERS = (
    "router.bittorrent.com:6881",
    "router.utorrent.com:6881",
    "dht.transmissionbt.com:6881",
    "dht.libtorrent.org:25401",
    "relay.pkarr.org:6881",
)
"""Well-known nodes of the public Mainline DHT. Nothing asks them unless they are set."""


class EqualSeq(Enum):
    """What becomes of a put with the stored sequence number and another value.

    BEP-44 leaves it to the storing node, and deployed nodes differ. The same value again is a
    renewal under each of them.
    """

    OVERWRITE = "overwrite"
    """The new value is stored, as mainline (Rust) does."""
    KEEP = "keep"
    """The old value stays and the answer is that all is well, as with libtorrent."""
    REJECT = "reject"
    """The old value stays and the answer is error 302, as with bittorrent-dht. Publishers of the
    Rust crate give up after some tries where many nodes do so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DhtSettings:
    """Settings of one node. Raises `ValueError` for what cannot be.

    server: answers queries and stores; else read-only (BEP-43), which asks and answers nobody.
    bootstrap: `HOST:PORT` of nodes that are asked first. equal_seq: see `EqualSeq`. max_items:
    mutable and immutable items stored, each. query_seconds: how long an answer is waited for.
    lookup_seconds: how long a lookup lasts at most. packets_per_second, packet_burst: what one
    address (of IPv6: one /64) may send. reply_bytes_per_second, reply_burst: what one address, or
    /64, is sent in answers.
    exempt_local: nodes at local addresses count as valid whatever their id is (BEP-42).
    """

    server: bool = True
    bootstrap: tuple[str, ...] = ()
    equal_seq: EqualSeq = EqualSeq.OVERWRITE
    max_items: int = 1_000
    query_seconds: float = 2.0
    lookup_seconds: float = 10.0
    packets_per_second: float = 50.0
    packet_burst: float = 200.0
    reply_bytes_per_second: float = 4_096.0
    reply_burst: float = 16_384.0
    exempt_local: bool = True

    def __post_init__(self) -> None:
        for address in self.bootstrap:
            Address.parse(address)
        positive = (
            self.max_items, self.query_seconds, self.lookup_seconds, self.packets_per_second,
            self.reply_bytes_per_second,
        )  # fmt: skip
        if min(positive) <= 0:
            raise ValueError("numbers of the DHT's settings are above 0")
        if self.packet_burst < 1 or self.reply_burst < 2_048:
            raise ValueError("a burst has room for one packet: 1, and 2,048 bytes of replies")
