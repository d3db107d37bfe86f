"""What never comes out, whoever put it in: the entries of an allow list.

An allowed domain covers what is below it and the mail addresses of both; an allowed network covers
its addresses and smaller networks. A network that holds something allowed comes out without it, as
the networks that are left.
"""

from __future__ import annotations

import ipaddress
from bisect import bisect_right
from collections.abc import Iterable, Iterator

from hyperbloom.outputs.entries import LeftOut, entry_of, kind_of, name_of
from hyperbloom.outputs.networks import first_and_last, networks_of

__all__ = ["Allowed"]


class Allowed:
    """The entries of an allow list; false where there are none.

    ``lines``: an entry each; empty lines and those that begin with # are none. What is no domain,
    address, network or mail address holds back values that are the same bytes, and is counted in
    ``of_no_kind``.
    """

    def __init__(self, lines: Iterable[bytes] = ()) -> None:
        self._names: set[bytes] = set()
        self._others: set[bytes] = set()
        networks: dict[int, list[tuple[int, int]]] = {4: [], 6: []}
        self.of_no_kind = 0
        for line in map(bytes.strip, lines):
            if line and not line.startswith(b"#"):
                self._add(line, networks)
        self._ranges = {version: _joined(found) for version, found in networks.items()}

    def _add(self, line: bytes, networks: dict[int, list[tuple[int, int]]]) -> None:
        self._others.add(line)
        # Here a network may be as large as one likes, and be written by any of its addresses.
        try:
            network = ipaddress.ip_network(line.decode("ascii"), strict=False)
            first, last = network.network_address, network.broadcast_address
            networks[network.version].append((int(first), int(last)))
            return
        except ValueError:
            pass
        try:
            if b"@" in line:
                self._others.add(entry_of(line)[1])
            else:
                self._names.add(name_of(line.removeprefix(b"*").removeprefix(b".")))
        except LeftOut:
            self.of_no_kind += 1

    def __bool__(self) -> bool:
        return bool(self._names or self._others or self._ranges[4][0] or self._ranges[6][0])

    @property
    def names(self) -> list[bytes]:
        """The allowed domains in order: exceptions, where a blocked one covers what is below it."""
        return sorted(self._names)

    @property
    def mails(self) -> list[bytes]:
        """The allowed mail addresses in order: exceptions, where a domain covers its addresses."""
        return sorted(other for other in self._others if _is_mail(other))

    def covers(self, value: bytes) -> bool:
        """Whether a value, of any bytes, may not come out as text."""
        if value in self._others:
            return True
        try:
            network = ipaddress.ip_network(value.decode("ascii"), strict=False)
            first, last = int(network.network_address), int(network.broadcast_address)
            return not any(self._left(network.version, first, last))
        except ValueError:
            pass
        try:
            local, at, name = value.rpartition(b"@")
            name = name_of(name)
        except LeftOut:
            return False
        return self._holds_name(name) or local + at + name in self._others

    def without(self, entry: bytes) -> list[bytes]:
        """What of an entry comes out: itself, nothing, or of a network what is left of it."""
        if entry in self._others:
            return []
        kind = kind_of(entry)
        if kind in ("domain", "mail"):
            return [] if self._holds_name(entry.rpartition(b"@")[2]) else [entry]
        version = 6 if b":" in entry else 4
        first, last = first_and_last(version, entry.decode("ascii"))
        left = list(self._left(version, first, last))
        if left == [(first, last)]:
            return [entry]
        return [
            network.encode("ascii")
            for begin, end in left
            for network in networks_of(version, begin, end)
        ]

    def _holds_name(self, name: bytes) -> bool:
        while name not in self._names:
            _, _, name = name.partition(b".")
            if not name:
                return False
        return True

    def _left(self, version: int, first: int, last: int) -> Iterator[tuple[int, int]]:
        """The ranges of addresses from `first` to `last` that are not allowed."""
        firsts, lasts = self._ranges[version]
        for index in range(max(0, bisect_right(firsts, first) - 1), len(firsts)):
            if firsts[index] > last:
                break
            if lasts[index] >= first:
                if firsts[index] > first:
                    yield first, firsts[index] - 1
                first = lasts[index] + 1
        if first <= last:
            yield first, last


def _is_mail(entry: bytes) -> bool:
    try:
        return entry_of(entry) == ("mail", entry)
    except LeftOut:
        return False


def _joined(ranges: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """The firsts and the lasts of ranges that neither overlap nor touch, in order."""
    firsts: list[int] = []
    lasts: list[int] = []
    for first, last in sorted(ranges):
        if lasts and first <= lasts[-1] + 1:
            lasts[-1] = max(lasts[-1], last)
        else:
            firsts.append(first)
            lasts.append(last)
    return firsts, lasts
