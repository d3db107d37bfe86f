"""Multicast DNS: where it is used, and what becomes of what is heard."""

from __future__ import annotations

from random import Random

import pytest
from threadless import Threadless
from zeroconf import ServiceStateChange

from hyperbloom.addresses import Address
from hyperbloom.discovery.announcer import swarm_hash
from hyperbloom.discovery.lan import OPEN_SECONDS, SERVICE_TYPE, LanDiscovery, interfaces_for
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
    """A feed that peers are searched for; what it is told is kept."""

    def __init__(self, key, port=None):
        self.discovery_key = key
        self.port = port
        self.told = []

    def own_port(self):
        return self.port

    def found(self, address, *, source):
        self.told.append((address, source))


class Network:
    """What zeroconf is to this node: it keeps what is registered, and others answer by it."""

    def __init__(self):
        self.registered = []
        self.names = []
        self.closed = False
        self.services = {}
        self.browser = None

    def open(self, interfaces):
        if list(interfaces) == ["10.9.9.9"]:
            raise OSError("no such device")
        return self

    def browse(self, zeroconf, service_type, handlers):
        (self.browser,) = handlers
        return self

    def register_service(self, info):
        self.names.append(info.name)
        self.registered.append((info.port, info.parsed_addresses()))

    def get_service_info(self, service_type, name, timeout):
        return self.services.get(name)

    def cancel(self):
        pass

    def close(self):
        self.closed = True

    def announce(self, name, *hosts):
        """Somebody says that a service is at these addresses."""
        self.services[name] = Info(hosts)
        self.browser(self, SERVICE_TYPE, name, ServiceStateChange.Added)


class Info:
    port = 4365

    def __init__(self, hosts):
        self.hosts = hosts

    def parsed_addresses(self):
        return list(self.hosts)


@pytest.fixture
def network(monkeypatch):
    network = Network()
    monkeypatch.setattr("zeroconf.Zeroconf", lambda interfaces: network.open(interfaces))
    monkeypatch.setattr("zeroconf.ServiceBrowser", network.browse)
    return network


def lan_on(*addresses, reactor=None, announce=False):
    return LanDiscovery(
        lan="on",
        interface=addresses[0] if addresses == ("127.0.0.1",) else "",
        announce=announce,
        reactor=reactor or Threadless(),
        random=Random(1),
        own_addresses=lambda: list(addresses),
    )


@pytest.fixture
def lan(network):
    """Opened on 192.168.1.5; announces nothing."""
    one = lan_on("192.168.1.5")
    one.start()
    return one


def service(key, nonce="01020304"):
    return f"{swarm_hash(key).hex()}-{nonce}.{SERVICE_TYPE}"


def at(*hosts):
    return [Address(host, 4365) for host in hosts]


def test_a_service_of_a_served_feed_is_told(lan, network):
    one, other = Searched(b"a" * 32), Searched(b"b" * 32)
    lan.serve([one, other])
    network.announce(service(b"a" * 32), "192.168.1.9", "fd00::1")
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
def test_only_addresses_as_near_as_the_interface_are_told(network, interface, told):
    lan = lan_on(interface)
    lan.start()
    one, late = Searched(b"a" * 32), Searched(b"a" * 32)
    lan.serve([one])
    near_and_far = ["127.0.0.1", "169.254.169.254", "10.0.0.1", "9.9.9.9"]
    for number, host in enumerate([*near_and_far, "224.0.0.1", "0.0.0.0"]):
        network.announce(service(b"a" * 32, f"0102030{number}"), host)
    assert [address.host for address, _ in one.told] == told
    lan.serve([])
    lan.serve([late])
    assert late.told == one.told


def test_of_one_service_few_addresses_are_taken(lan, network):
    one = Searched(b"a" * 32)
    lan.serve([one])
    network.announce(
        service(b"a" * 32), *(f"192.168.1.{n}" for n in range(1, MAX_LAN_ADDRESSES + 2))
    )
    assert len(one.told) == MAX_LAN_ADDRESSES


@pytest.mark.parametrize("before", [[], ["10.9.9.9"]])
def test_a_machine_that_is_up_before_its_network_is_told_of_later(network, before):
    reactor, one, own = Threadless(), Searched(b"a" * 32, 4365), list(before)
    lan = LanDiscovery(
        lan="private",
        interface="",
        announce=True,
        reactor=reactor,
        random=Random(1),
        own_addresses=lambda: own,
    )
    lan.start()
    lan.serve([one])
    assert lan.status().announced == 0
    own[:] = ["192.168.1.5"]
    reactor.advance(OPEN_SECONDS)
    lan.serve([one])
    lan.serve([one])
    assert (lan.status().announced, lan.status().problem) == (1, None)
    assert network.registered == [(4365, ["192.168.1.5"])]
    lan.stop()
    assert network.closed
    assert reactor.getDelayedCalls() == []


def test_a_node_that_listens_later_is_told_of_then(network):
    lan, one = lan_on("192.168.1.5", announce=True), Searched(b"a" * 32)
    lan.start()
    lan.serve([one])
    one.port = 4365
    lan.serve([one])
    assert network.registered == [(4365, ["192.168.1.5"])]


def test_what_was_heard_before_a_feed_was_joined_is_told_then(lan, network):
    network.announce(service(b"a" * 32), "192.168.1.9")
    one = Searched(b"a" * 32)
    lan.serve([one])
    lan.serve([one])
    assert one.told == [(*at("192.168.1.9"), "lan")]


def test_this_node_does_not_hear_itself(network):
    lan, one = lan_on("192.168.1.5", announce=True), Searched(b"a" * 32, 4365)
    lan.start()
    lan.serve([one])
    (name,) = network.names
    network.announce(name, "192.168.1.9")
    assert one.told == []
    network.announce(service(b"a" * 32), "192.168.1.9")
    assert len(one.told) == 1


def test_a_loud_network_is_forgotten_in_part(lan, network):
    for number in range(MAX_LAN_SERVICES + 1):
        network.announce(service(b"%032d" % number), "192.168.1.9")
    assert lan.status().heard == MAX_LAN_SERVICES
    first, last = Searched(b"%032d" % 0), Searched(b"%032d" % MAX_LAN_SERVICES)
    lan.serve([first, last])
    assert (first.told, len(last.told)) == ([], 1)
