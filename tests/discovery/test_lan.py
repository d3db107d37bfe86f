"""Multicast DNS: where it is used, and what becomes of what is heard."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

import pytest
from threadless import Threadless
from zeroconf import ServiceInfo, ServiceStateChange

from hyperbloom.addresses import Address
from hyperbloom.discovery.announcer import swarm_hash
from hyperbloom.discovery.lan import (
    OPEN_SECONDS,
    SERVICE_TYPE,
    LanDiscovery,
    interfaces_for,
)
from hyperbloom.discovery.limits import MAX_LAN_ADDRESSES, MAX_LAN_SERVICES
from hyperbloom.discovery.settings import DiscoverySettings

OWN = ["127.0.0.1", "192.168.1.5", "10.0.0.7", "93.184.215.14"]


@pytest.mark.parametrize(
    ("lan", "interface", "used"),
    [
        ("off", "", []),
        ("private", "", ["192.168.1.5", "10.0.0.7"]),
        ("on", "", ["192.168.1.5", "10.0.0.7", "93.184.215.14"]),
        ("private", "10.0.0.7", ["10.0.0.7"]),
        ("on", "127.0.0.1", ["127.0.0.1"]),
        ("on", "192.0.2.1", []),
    ],
)
def test_it_is_used_where_the_settings_say(lan, interface, used):
    assert interfaces_for(lan, interface, OWN) == used


def test_off_is_nothing_at_all():
    assert (
        LanDiscovery.for_settings(DiscoverySettings(lan="off"), reactor=None, random=None) is None
    )


class Searched:
    def __init__(self, key):
        self.discovery_key = key
        self.told = []

    def own_port(self):
        return None

    def found(self, address, *, source):
        self.told.append((address, source))


def at(*hosts):
    return [Address(host, 4365) for host in hosts]


@pytest.fixture
def lan():
    """Hears what the test says; no socket is opened, for nothing is announced."""
    one = LanDiscovery(
        lan="on", interface="127.0.0.1", announce=False, reactor=None, random=Random(1)
    )
    one._running = True
    one._interfaces = ["192.168.1.5"]
    return one


def service(key, nonce="01020304"):
    return f"{swarm_hash(key).hex()}-{nonce}.{SERVICE_TYPE}"


def test_a_service_of_a_served_feed_is_told(lan):
    one, other = Searched(b"a" * 32), Searched(b"b" * 32)
    lan.serve([one, other])
    lan._hear(service(b"a" * 32), at("192.168.1.9", "fd00::1"))
    assert one.told == [(address, "lan") for address in at("192.168.1.9", "fd00::1")]
    assert other.told == []


@pytest.mark.parametrize(
    ("interface", "told"),
    [
        ("192.168.1.5", ["10.0.0.1"]),
        ("169.254.7.7", ["169.254.169.254"]),
        ("127.0.0.1", ["127.0.0.1"]),
        ("93.184.215.14", ["9.9.9.9"]),
    ],
)
def test_only_addresses_as_near_as_the_interface_are_told(lan, interface, told):
    lan._interfaces = [interface]
    one, late = Searched(b"a" * 32), Searched(b"a" * 32)
    lan.serve([one])
    hosts = ("127.0.0.1", "169.254.169.254", "10.0.0.1", "9.9.9.9", "224.0.0.1", "0.0.0.0")
    lan._hear(service(b"a" * 32), at(*hosts))
    assert [address.host for address, _ in one.told] == told
    lan.serve([])
    lan.serve([late])
    assert late.told == one.told


class Everywhere:
    """A zeroconf whose only service has one address too many."""

    port = 4365

    def get_service_info(self, *_, **__):
        return self

    def parsed_addresses(self):
        return [f"192.168.1.{number}" for number in range(1, MAX_LAN_ADDRESSES + 2)]


def test_of_one_service_few_addresses_are_taken(lan):
    lan._reactor = SimpleNamespace(callFromThread=lambda call, *a: call(*a))
    one = Searched(b"a" * 32)
    lan.serve([one])
    lan._changed(Everywhere(), SERVICE_TYPE, service(b"a" * 32), ServiceStateChange.Added)
    assert len(one.told) == MAX_LAN_ADDRESSES


class AsHeard(Everywhere):
    """A zeroconf that looks at a name as the real one does."""

    def get_service_info(self, service_type, name, **_):
        ServiceInfo(service_type, name)
        return self


@pytest.mark.parametrize(
    "name", ["evil.example.", "", "x" * 300, f".{SERVICE_TYPE}", "_x._udp.local."]
)
def test_a_name_that_is_no_services_does_not_end_the_browsers_thread(lan, name):
    lan._reactor = Threadless()
    one = Searched(b"a" * 32)
    lan.serve([one])
    lan._changed(AsHeard(), SERVICE_TYPE, name, ServiceStateChange.Added)
    assert one.told == []
    lan._changed(AsHeard(), SERVICE_TYPE, service(b"a" * 32), ServiceStateChange.Added)
    assert len(one.told) == MAX_LAN_ADDRESSES


class Opened:
    """A zeroconf that remembers what is registered."""

    def __init__(self, interfaces):
        if interfaces == ["10.9.9.9"]:
            raise OSError("no such device")
        self.registered = []
        self.closed = False

    def register_service(self, info):
        self.registered.append((info.port, info.parsed_addresses()))

    def close(self):
        self.closed = True


@pytest.mark.parametrize("before", [[], ["10.9.9.9"]])
def test_a_machine_that_is_up_before_its_network_is_told_of_later(monkeypatch, before):
    monkeypatch.setattr("zeroconf.Zeroconf", Opened)
    monkeypatch.setattr(
        "zeroconf.ServiceBrowser", lambda *_, **__: SimpleNamespace(cancel=lambda: None)
    )
    monkeypatch.setattr("hyperbloom.discovery.lan._own_addresses", lambda: before)
    reactor, one = Threadless(), Searched(b"a" * 32)
    one.own_port = lambda: 4365
    lan = LanDiscovery(
        lan="private", interface="", announce=True, reactor=reactor, random=Random(1)
    )
    lan.start()
    lan.serve([one])
    assert lan.status().announced == 0
    monkeypatch.setattr("hyperbloom.discovery.lan._own_addresses", lambda: ["192.168.1.5"])
    reactor.advance(OPEN_SECONDS)
    lan.serve([one])
    lan.serve([one])
    assert (lan.status().announced, lan.status().problem) == (1, None)
    opened = lan._zeroconf
    assert opened.registered == [(4365, ["192.168.1.5"])]
    lan.stop()
    assert opened.closed
    assert reactor.getDelayedCalls() == []


def test_a_node_that_listens_later_is_told_of_then(lan):
    lan._reactor, lan._announce, lan._zeroconf = Threadless(), True, Opened(["192.168.1.5"])
    one = Searched(b"a" * 32)
    lan.serve([one])
    one.own_port = lambda: 4365
    lan.serve([one])
    assert lan._zeroconf.registered == [(4365, ["192.168.1.5"])]


def test_what_was_heard_before_a_feed_was_joined_is_told_then(lan):
    lan._hear(service(b"a" * 32), at("192.168.1.9"))
    one = Searched(b"a" * 32)
    lan.serve([one])
    lan.serve([one])
    assert one.told == [(*at("192.168.1.9"), "lan")]


def test_this_node_does_not_hear_itself(lan):
    one = Searched(b"a" * 32)
    lan.serve([one])
    lan._hear(service(b"a" * 32, lan._nonce), at("192.168.1.9"))
    assert one.told == []


def test_a_loud_network_is_forgotten_in_part(lan):
    for number in range(MAX_LAN_SERVICES + 1):
        lan._hear(service(b"%032d" % number), at("192.168.1.9"))
    assert lan.status().heard == MAX_LAN_SERVICES
    first, last = Searched(b"%032d" % 0), Searched(b"%032d" % MAX_LAN_SERVICES)
    lan.serve([first, last])
    assert (first.told, len(last.told)) == ([], 1)
