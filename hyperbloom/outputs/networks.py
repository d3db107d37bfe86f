"""Addresses and networks as numbers, and as text again."""

from __future__ import annotations

import socket
from collections.abc import Iterator

__all__ = ["FAMILY", "WIDTH", "address_text", "first_and_last", "networks_of"]

#: Bytes of an address, by version.
WIDTH = {4: 4, 6: 16}
FAMILY = {4: socket.AF_INET, 6: socket.AF_INET6}


def first_and_last(version: int, text: str) -> tuple[int, int]:
    """The first and the last address of an address or a network as `entries` spells them."""
    address, _, length = text.partition("/")
    first = int.from_bytes(socket.inet_pton(FAMILY[version], address))
    free = 8 * WIDTH[version] - int(length) if length else 0
    return first, first + (1 << free) - 1


def address_text(version: int, address: int) -> str:
    """An address as text (RFC 5952)."""
    return socket.inet_ntop(FAMILY[version], address.to_bytes(WIDTH[version]))


def networks_of(version: int, first: int, last: int) -> Iterator[str]:
    """The fewest networks that are a range; one of a single address is that address alone."""
    bits = 8 * WIDTH[version]
    while first <= last:
        aligned = (first & -first).bit_length() - 1 if first else bits
        free = min(aligned, (last - first + 1).bit_length() - 1)
        text = address_text(version, first)
        yield f"{text}/{bits - free}" if free else text
        first += 1 << free
