"""Multicast DNS: where it is used, and what becomes of what is heard."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from random import Random

import pytest
from threadless import Threadless
from twisted.internet.selectreactor import SelectReactor
from zeroconf import BadTypeInNameException, ServiceStateChange

from hyperbloom.addresses import Address
from hyperbloom.discovery.announcer import swarm_hash
from hyperbloom.discovery.lan import OPEN_SECONDS, SERVICE_TYPE, LanDiscovery, interfaces_for
from hyperbloom.discovery.limits import MAX_LAN_ADDRESSES, MAX_LAN_ASKED, MAX_LAN_SERVICES
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
        self.loop = asyncio.new_event_loop()
        self.asked = []
        self.registered = []
        self.names = []
        self.closed = False
        self.services = {}
        self.silent = set()
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

    async def async_get_service_info(self, service_type, name, milliseconds):
        self.asked.append(name)
        if name in self.silent:
            await asyncio.sleep(milliseconds / 1_000)
        return self.services.get(name)

    def cancel(self):
        pass

    def close(self):
        self.closed = True

    def announce(self, name, *hosts):
        """Somebody says that a service is at these addresses."""
        self.services[name] = Info(hosts)
        self.browser(self, SERVICE_TYPE, name, ServiceStateChange.Added)
        self.turn()

    def invent(self, name):
        """Somebody says that there is a service which nobody answers for."""
        self.silent.add(name)
        self.browser(self, SERVICE_TYPE, name, ServiceStateChange.Added)
        self.turn()

    def end(self):
        """Nothing is asked any more."""
        self.turn()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.turn()
        self.loop.close()

    def turn(self):
        """Let zeroconf's event loop do what is due."""
        for _ in range(3):
            self.loop.run_until_complete(asyncio.sleep(0))


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
    yield network
    network.end()


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
    assert network.asked == [], "nobody here wants to know"
    lan.serve([one])
    lan.serve([one])
    network.turn()
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
    network.turn()
    assert (first.told, len(last.told)) == ([], 1)


class TestInventedServices:
    """Names that nobody answers for must not keep the services that are there from being heard."""

    def test_they_are_asked_for_side_by_side(self, lan, network):
        one = Searched(b"a" * 32)
        lan.serve([one])
        for number in range(20):
            network.invent(service(b"a" * 32, f"{number:08x}"))
        network.announce(service(b"a" * 32), "192.168.1.9")
        assert one.told == [(*at("192.168.1.9"), "lan")]

    def test_those_of_other_feeds_are_not_asked_for(self, lan, network):
        lan.serve([Searched(b"a" * 32)])
        for number in range(20):
            network.invent(service(b"%032d" % number))
        assert network.asked == []

    def test_those_under_way_are_bounded(self, lan, network):
        one = Searched(b"a" * 32)
        lan.serve([one])
        for number in range(MAX_LAN_ASKED + 1):
            network.invent(service(b"a" * 32, f"{number:08x}"))
        waiting = [task for task in asyncio.all_tasks(network.loop) if not task.done()]
        assert len(waiting) == MAX_LAN_ASKED
        network.announce(service(b"a" * 32), "192.168.1.9")
        assert one.told == [(*at("192.168.1.9"), "lan")]

    def test_they_push_out_none_of_a_served_feed(self, lan, network):
        lan.serve([Searched(b"a" * 32)])
        network.announce(service(b"a" * 32), "192.168.1.9")
        for number in range(2 * MAX_LAN_SERVICES):
            network.invent(service(b"%032d" % number))
        late = Searched(b"a" * 32)
        lan.serve([])
        lan.serve([late])
        assert late.told == [(*at("192.168.1.9"), "lan")]

    def test_a_name_that_is_no_service(self, lan, network):
        lan.serve([Searched(b"a" * 32)])

        async def refuse(service_type, name, milliseconds):
            raise BadTypeInNameException

        network.async_get_service_info = refuse
        network.announce(service(b"a" * 32), "192.168.1.9")
        assert lan.status().problem is None

    def test_on_a_real_network(self, capfd):
        """Twenty invented ones, then a peer: datagrams by hand, zeroconf and 127.0.0.1 for real."""
        reactor, one = SelectReactor(), Searched(b"a" * 32)
        reactor.startRunning(installSignalHandlers=False)
        lan = lan_on("127.0.0.1", reactor=reactor)
        lan.start()
        told = 0.0
        try:
            run_until(reactor, lambda: lan._browser is not None or lan.status().problem, 10)
            if lan.status().problem:
                pytest.skip(f"no multicast on 127.0.0.1: {lan.status().problem}")
            lan.serve([one])
            for number in range(20):
                say(pointer(service(b"a" * 32, f"{number:08x}")))
            run_until(reactor, lambda: lan.status().heard == 20, 1)
            began = time.monotonic()
            peer = service(b"a" * 32)
            say(pointer(peer), place(peer, 4365), text(peer), at_host("127.0.0.1"))
            run_until(reactor, lambda: one.told, 10)
            told = time.monotonic() - began
        finally:
            ended, began = [], time.monotonic()
            lan.stop().addBoth(ended.append)
            run_until(reactor, lambda: ended, 90)
            stopped = time.monotonic() - began
            reactor.fireSystemEvent("shutdown")
            reactor.iterate(0)
        assert one.told == [(Address("127.0.0.1", 4365), "lan")]
        assert told < 1.5
        assert stopped < 3.0
        assert "Task was destroyed" not in capfd.readouterr().err


def run_until(reactor, is_so, seconds):
    ends = time.monotonic() + seconds
    while not is_so() and time.monotonic() < ends:
        reactor.iterate(0.02)


# Multicast DNS by hand (RFC 1035, RFC 6762)


def named(name):
    labels = name.rstrip(".").split(".")
    return b"".join(bytes([len(label)]) + label.encode() for label in labels) + b"\0"


def record(name, kind, data, *, flush=0x8000):
    return named(name) + struct.pack(">HHIH", kind, 1 | flush, 120, len(data)) + data


def pointer(name):
    return record(SERVICE_TYPE, 12, named(name), flush=0)


def place(name, port):
    return record(name, 33, struct.pack(">HHH", 0, 0, port) + named("peer.local."))


def text(name):
    return record(name, 16, b"\0")


def at_host(host):
    return record("peer.local.", 1, socket.inet_aton(host))


def say(*records):
    """An answer that nobody asked for, to everybody on 127.0.0.1."""
    head = struct.pack(">HHHHHH", 0, 0x8400, 0, len(records), 0, 0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
        sock.bind(("127.0.0.1", 0))
        sock.sendto(head + b"".join(records), ("224.0.0.251", 5353))
