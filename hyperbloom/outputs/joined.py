"""Networks joined: sorted, without what stands in a larger one, neighbours made one.

The whole set has to be known first. It is kept packed, 5 bytes for one of IPv4 and 17 of IPv6: the
first address, then the length of the prefix, so that the order of the bytes is that of the ranges.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator

import numpy as np

from hyperbloom.outputs.networks import FAMILY, WIDTH

__all__ = ["JoinedNetworks", "joined"]


class JoinedNetworks:
    """The networks and addresses of one version of IP."""

    def __init__(self, version: int) -> None:
        self.version = version
        self._width = WIDTH[version]
        self._packed = bytearray()

    def add(self, entries: Iterable[str]) -> None:
        """Takes addresses and networks as `hyperbloom.outputs.entries` spells them."""
        family, whole = FAMILY[self.version], 8 * self._width
        parts = []
        for entry in entries:
            address, _, length = entry.partition("/")
            parts.append(socket.inet_pton(family, address))
            parts.append((int(length) if length else whole).to_bytes(1))
        self._packed += b"".join(parts)

    def ranges(self) -> Iterator[tuple[int, int]]:
        """First and last address of each range, in order; no two overlap or touch."""
        step, bits = self._width + 1, 8 * self._width
        # Sorted where they are; numpy compares such items as bytes, over their whole length.
        np.frombuffer(self._packed, f"S{step}").sort()
        data = self._packed
        first = end = -1
        for at in range(0, len(data), step):
            begin = int.from_bytes(data[at : at + self._width])
            if begin > end:
                if end >= 0:
                    yield first, end - 1
                first = begin
            end = max(end, begin + (1 << (bits - data[at + self._width])))
        if end >= 0:
            yield first, end - 1


def joined(slices: Iterable[list[bytes]]) -> tuple[JoinedNetworks, JoinedNetworks]:
    """All entries of IPv4 and all of IPv6."""
    four, six = JoinedNetworks(4), JoinedNetworks(6)
    for entries in slices:
        texts = [entry.decode("ascii") for entry in entries]
        four.add(text for text in texts if ":" not in text)
        six.add(text for text in texts if ":" in text)
    return four, six
