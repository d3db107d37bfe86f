"""Node ids that follow from the node's address (BEP-42), so that nobody picks a place in the DHT.

The first 21 bits of an id are those of a CRC-32C over the masked address and three random bits,
which the id repeats in its last byte; the rest is random. Local addresses are exempt, since many
nodes may share one there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from hyperbloom.addresses import Scope, scope_of
from hyperbloom.discovery.dht.common.compact import packed_host
from hyperbloom.discovery.dht.common.contact import ID_BYTES

__all__ = ["is_secure", "make_node_id"]

_MASK: Final = bytes.fromhex("030f3fff")
_MASK6: Final = bytes.fromhex("0103070f1f3f7fff")
_PREFIX_MASK: Final = 0xFFFFF8  # 21 bits of 24
_CASTAGNOLI: Final = 0x82F63B78


def make_node_id(host: str, random_bytes: Callable[[int], bytes]) -> bytes:
    """A new id for a node at this address, an IPv4 or IPv6 one."""
    random_id = random_bytes(ID_BYTES)
    crc = _crc_of(host, random_id[-1] & 7)
    third = (crc >> 8) & 0xF8 | random_id[2] & 7
    return bytes((crc >> 24, (crc >> 16) & 0xFF, third)) + random_id[3:]


def is_secure(node_id: bytes, host: str, *, exempt_local: bool = True) -> bool:
    """Whether an id fits the address; any does for a local one, unless those are not exempt."""
    if exempt_local and scope_of(host) is not Scope.GLOBAL:
        return True
    claimed = int.from_bytes(node_id[:3], "big") & _PREFIX_MASK
    return claimed == _crc_of(host, node_id[-1] & 7) >> 8 & _PREFIX_MASK


@lru_cache(maxsize=8_192)
def _crc_of(host: str, three_bits: int) -> int:
    mask = _MASK6 if ":" in host else _MASK
    # IPv6 counts with its first half, a network's worth; zip ends with the mask.
    masked = bytearray(a & b for a, b in zip(packed_host(host), mask, strict=False))
    masked[0] |= three_bits << 5
    return _crc32c(bytes(masked))


def _crc32c(data: bytes) -> int:
    """CRC-32C, bit by bit: 4 or 8 bytes an address do not pay for a table or a package."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (_CASTAGNOLI if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
