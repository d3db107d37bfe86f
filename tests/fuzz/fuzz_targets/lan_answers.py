"""Multicast DNS: whatever anybody on the network answers, as zeroconf hands it on.

zeroconf reads the packets and keeps what they say; it is not measured. The names, ports and
addresses that come out of it are anybody's, and what is done with them is ours.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any
from unittest.mock import patch

import zeroconf
from choices import Choices, piece
from threadless import Threadless
from zeroconf import DNSAddress, DNSCache, DNSIncoming, DNSOutgoing, DNSPointer, DNSService, DNSText

from hyperbloom.addresses import Address, Scope
from hyperbloom.discovery.announcer import swarm_hash
from hyperbloom.discovery.lan import SERVICE_TYPE, LanDiscovery
from hyperbloom.discovery.limits import MAX_LAN_ADDRESSES, MAX_LAN_SERVICES

MAX_BYTES = 2_048
RUNS = 20

#: Stands in an input for the name that a peer of the served feed has.
NAME = "N"
_INTERFACE = "127.0.0.1"
_POINTER, _TEXT, _SERVICE, _A, _AAAA, _IN, _RESPONSE = 12, 16, 33, 1, 28, 1, 0x8400
_KEY = b"k" * 32
_OWN = f"{swarm_hash(_KEY).hex()}-0a0b0c0d.{SERVICE_TYPE}"
_EVENTS = 16
_LOOP = asyncio.new_event_loop()


class _Swarm:
    """The served feed; what it is told must be of use."""

    discovery_key = _KEY

    def __init__(self) -> None:
        self.told = 0

    def own_port(self) -> None:
        return None

    def found(self, address: Address, *, source: str) -> None:
        assert address.scope is Scope.LOOPBACK
        assert 0 < address.port < 1 << 16
        assert source == "lan"
        self.told += 1


class _Zeroconf:
    """What was heard, with zeroconf's own memory and its own way to answer from it; no socket."""

    def __init__(self, interfaces: list[str]) -> None:
        assert interfaces == [_INTERFACE]
        self.cache = DNSCache()
        self.loop = _LOOP

    async def async_get_service_info(
        self, service_type: str, name: str, milliseconds: int
    ) -> zeroconf.ServiceInfo | None:
        info = zeroconf.ServiceInfo(service_type, name)
        return info if info.load_from_cache(self) else None

    def close(self) -> None:
        pass


class _Browser:
    """Calls who listens, as zeroconf's browser does for each pointer of its type."""

    def __init__(self, network: _Zeroconf, service_type: str, handlers: list[Any]) -> None:
        self._network = network
        self._type = service_type
        (self._tell,) = handlers
        _browsers.append(self)

    def hear(self, records: list[Any]) -> None:
        self._network.cache.async_add_records(records)
        for record in records:
            if isinstance(record, DNSPointer) and record.name.lower().endswith(self._type):
                change = zeroconf.ServiceStateChange
                self._tell(
                    zeroconf=self._network,
                    service_type=self._type,
                    name=record.alias,
                    state_change=change.Added if record.ttl else change.Removed,
                )

    def cancel(self) -> None:
        pass


_browsers: list[_Browser] = []


def fuzz(data: bytes) -> bool:
    """Packets as they stand in the input, or the records of a service made of its pieces."""
    choices = Choices(data)
    lan = LanDiscovery(
        lan="on",
        interface=_INTERFACE,
        announce=False,
        reactor=Threadless(),
        random=random.Random(7),
    )
    with (
        patch.object(zeroconf, "Zeroconf", _Zeroconf),
        patch.object(zeroconf, "ServiceBrowser", _Browser),
    ):
        lan.start()
    browser, swarm = _browsers.pop(), _Swarm()
    lan.serve([swarm])
    for _ in range(_EVENTS):
        how, body = choices.number(), choices.piece()
        if not body:
            break
        before = swarm.told
        browser.hear(_records(how, body))
        for _ in range(3):
            _LOOP.run_until_complete(asyncio.sleep(0))
        assert swarm.told - before <= MAX_LAN_ADDRESSES * _EVENTS
        assert lan.status().heard <= MAX_LAN_SERVICES
    lan.stop()
    status = lan.status()
    assert status.problem is None, status.problem
    return swarm.told > 0


def _records(how: int, body: bytes) -> list[Any]:
    if how == 0:
        packet = DNSIncoming(body.replace(NAME.encode() * 8, _OWN.encode()))
        return list(packet.answers()) if packet.valid else []
    choices = Choices(body)
    ttl, port = choices.number(), int.from_bytes(choices.take(2), "big")
    name = choices.piece().decode("utf-8", "replace").replace(NAME, _OWN)
    host = choices.piece().decode("utf-8", "replace")
    records: list[Any] = [DNSPointer(SERVICE_TYPE, _POINTER, _IN, ttl, name)]
    records.append(DNSService(name, _SERVICE, _IN, ttl, 0, 0, port, host))
    records.append(DNSText(name, _TEXT, _IN, ttl, b""))
    for address in choices.pieces(2 * MAX_LAN_ADDRESSES):
        kind = _AAAA if len(address) == 16 else _A
        records.append(DNSAddress(host, kind, _IN, ttl, address))
    return records[::-1] if how & 1 else records[: how & 7]


def _service(name: str, *addresses: bytes, how: int = 1, ttl: int = 120) -> bytes:
    body = bytes([ttl]) + (4_365).to_bytes(2, "big") + piece(name.encode()) + piece(b"h.local.")
    return bytes([how]) + piece(body + b"".join(map(piece, addresses)))


def seeds() -> dict[str, bytes]:
    """A packet of a peer, peers near and far, one that goes, and names that are none."""
    near, far = bytes([127, 0, 0, 9]), bytes([192, 0, 2, 1])
    packet = DNSOutgoing(_RESPONSE)
    for record in (
        DNSPointer(SERVICE_TYPE, _POINTER, _IN, 120, _OWN),
        DNSService(_OWN, _SERVICE, _IN, 120, 0, 0, 4_365, "h.local."),
        DNSText(_OWN, _TEXT, _IN, 120, b""),
        DNSAddress("h.local.", _A, _IN, 120, near),
    ):
        packet.add_answer_at_time(record, 0)
    (sent,) = packet.packets()
    return {
        "packet": b"\x00" + piece(sent),
        "peer": _service(NAME, near),
        "far": _service(NAME, far, bytes(15) + b"\x01", far, near, near, near),
        "goes": _service(NAME, near) + _service(NAME, ttl=0) + _service("x." + SERVICE_TYPE, near),
        "refused-other-type": _service("evil.example.", near),
        "refused-no-name": _service("", near),
        "refused-no-address": _service(NAME, how=2),
    }
