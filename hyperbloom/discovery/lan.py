"""Peers of the same network by multicast DNS (RFC 6762, DNS-SD RFC 6763), through zeroconf.

Each feed is a service instance of type `_hyperbloom._tcp`, whose name begins with the feed's swarm
hash in hex (SHA-1 of the discovery key: a label has no room for more). Who does not know the feed
learns that two machines share one, and which two, nothing else; that is why it is used on private
networks only unless the operator wants otherwise.

Anybody on the network can name any address. Taken are those of the scopes of the interfaces that
are used, so that nobody has this node dial itself, or the rest of the network dial a stranger.

zeroconf has a thread of its own. It is called in threads of the reactor's pool, one call after the
other, for its calls wait for the network; what it finds comes back through `callFromThread`. Where
services are, zeroconf's event loop asks side by side: one that was made up, which nobody answers
for, holds up no other. And only services of feeds served here are asked for.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, DeferredLock
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.failure import Failure

from hyperbloom.addresses import Address, scope_of
from hyperbloom.discovery.announcer import swarm_hash
from hyperbloom.discovery.feeds import SearchedFeed
from hyperbloom.discovery.limits import MAX_LAN_ADDRESSES, MAX_LAN_ASKED, MAX_LAN_SERVICES
from hyperbloom.discovery.settings import DiscoverySettings, Lan

if TYPE_CHECKING:
    from zeroconf import ServiceBrowser, ServiceInfo, ServiceStateChange, Zeroconf
    from zeroconf.asyncio import AsyncServiceInfo

__all__ = ["SERVICE_TYPE", "LanDiscovery", "LanStatus", "interfaces_for", "machine_addresses"]

SERVICE_TYPE = "_hyperbloom._tcp.local."

#: How long a service that was heard of may take to say where it is.
ANSWER_MILLISECONDS = 3_000

#: How long after it could not be opened, as on a machine that is up before its network, multicast
#: DNS is tried again, in seconds.
OPEN_SECONDS = 30.0

#: Random bytes of an instance's name, so that two nodes of a feed have different names.
NONCE_BYTES = 4

#: Digits of an instance's name that stand for its feed: a swarm hash in hex.
_HASH_DIGITS = 40

log = Logger()


def interfaces_for(lan: Lan, interface: str, own: Sequence[str]) -> list[str]:
    """The addresses of this machine on which multicast DNS is used.

    `interface` is the one that discovery is bound to, empty for all; `own` are those there are.
    """
    if lan == "off":
        return []
    wanted = [address for address in own if interface in ("", "0.0.0.0", "::", address)]  # noqa: S104
    if interface:
        return wanted
    outside = [address for address in wanted if not ipaddress.ip_address(address).is_loopback]
    if lan == "on":
        return outside
    return [address for address in outside if ipaddress.ip_address(address).is_private]


def machine_addresses() -> list[str]:
    """The IPv4 addresses of this machine's interfaces."""
    import ifaddr

    found = (ip.ip for adapter in ifaddr.get_adapters() for ip in adapter.ips)
    return [address for address in found if isinstance(address, str)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LanStatus:
    """Multicast DNS at a glance: on which addresses, how many feeds are told of and heard of."""

    interfaces: tuple[str, ...]
    announced: int
    heard: int
    problem: str | None

    def as_json(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


class LanDiscovery:
    """Tells the network of the served feeds and hears of those of others, `start` to `stop`.

    `own_addresses` gives the IPv4 addresses of this machine, each time multicast DNS is opened.
    """

    def __init__(
        self,
        *,
        lan: Lan,
        interface: str,
        announce: bool,
        reactor: Any,
        random: Random,
        own_addresses: Callable[[], Sequence[str]] = machine_addresses,
    ) -> None:
        self._lan: Lan = lan
        self._interface = interface
        self._announce = announce
        self._reactor = reactor
        self._own_addresses = own_addresses
        self._nonce = random.randbytes(NONCE_BYTES).hex()
        self._lock = DeferredLock()
        self._interfaces: list[str] = []
        self._zeroconf: Zeroconf | None = None
        self._browser: ServiceBrowser | None = None
        self._feeds: dict[str, SearchedFeed] = {}
        self._told: set[str] = set()
        self._infos: dict[str, ServiceInfo] = {}
        #: Services by name, and where each is; no address while nobody has said it.
        self._heard: OrderedDict[str, list[Address]] = OrderedDict()
        self._asked: OrderedDict[str, Future[AsyncServiceInfo | None]] = OrderedDict()
        self._running = False
        self._opening_again: IDelayedCall | None = None
        self._problem: str | None = None

    @classmethod
    def for_settings(
        cls, settings: DiscoverySettings, *, reactor: Any, random: Random
    ) -> LanDiscovery | None:
        """As the settings say; None where it is off."""
        if settings.lan == "off":
            return None
        return cls(
            lan=settings.lan,
            interface=settings.interface,
            announce=settings.announce,
            reactor=reactor,
            random=random,
        )

    def start(self) -> None:
        """Begin; returns at once."""
        self._running = True
        self._begin_to_open()

    def stop(self) -> Deferred[None]:
        """Take back what was told, and end; fires when that is done."""
        self._running = False
        if self._opening_again is not None and self._opening_again.active():
            self._opening_again.cancel()
        for asking in self._asked.values():
            asking.cancel()
        self._asked.clear()
        return self._in_turn(self._close)

    def serve(self, feeds: Sequence[SearchedFeed]) -> None:
        """Tell of these feeds from now on, and of no others; to be called again and again."""
        wanted = {swarm_hash(feed.discovery_key).hex(): feed for feed in feeds}
        fresh = wanted.keys() - self._feeds.keys()
        gone = self._feeds.keys() - wanted.keys()
        self._feeds = wanted
        for name in gone:
            self._told.discard(name)
            self._in_turn(self._unregister, name)
        if self._announce and self._zeroconf is not None:
            for name in wanted.keys() - self._told:
                self._announce_feed(name, wanted[name].own_port())
        for name in fresh:
            for service, heard in list(self._heard.items()):
                if not service.startswith(name):
                    continue
                if heard:
                    self._tell(wanted[name], heard)
                else:
                    self._ask(service)

    def status(self) -> LanStatus:
        """How it is doing."""
        return LanStatus(
            interfaces=tuple(self._interfaces),
            announced=len(self._infos),
            heard=len(self._heard),
            problem=self._problem,
        )

    def _announce_feed(self, name: str, port: int | None) -> None:
        if port is not None:
            self._told.add(name)
            self._in_turn(self._register, name, port)

    def _begin_to_open(self) -> None:
        def opened(_: None) -> None:
            if self._running and self._zeroconf is None:
                later = self._reactor.callLater(OPEN_SECONDS, self._begin_to_open)
                self._opening_again = later

        self._in_turn(self._open).addCallback(opened)

    def _in_turn(self, call: Callable[..., None], *arguments: Any) -> Deferred[None]:
        """Call in a thread when the calls before have ended; what fails is told in the status."""

        def run() -> Deferred[None]:
            return deferToThreadPool(self._reactor, self._reactor.getThreadPool(), call, *arguments)

        ended: Deferred[None] = self._lock.run(run)
        return ended.addErrback(self._failed)

    def _failed(self, failure: Failure) -> None:
        problem = failure.getErrorMessage()
        if problem != self._problem:
            log.warn("Multicast DNS does not work: {why}", why=problem)
        self._problem = problem

    # In a thread

    def _open(self) -> None:
        from zeroconf import ServiceBrowser, Zeroconf

        self._interfaces = interfaces_for(self._lan, self._interface, self._own_addresses())
        if not self._interfaces:
            return
        self._zeroconf = Zeroconf(interfaces=self._interfaces)
        self._problem = None
        self._browser = ServiceBrowser(self._zeroconf, SERVICE_TYPE, handlers=[self._changed])

    def _close(self) -> None:
        if self._browser is not None:
            self._browser.cancel()
        if self._zeroconf is not None:
            self._zeroconf.close()

    def _register(self, name: str, port: int) -> None:
        from zeroconf import ServiceInfo

        if self._zeroconf is None:
            return
        instance = f"{name}-{self._nonce}"
        info = ServiceInfo(
            SERVICE_TYPE,
            f"{instance}.{SERVICE_TYPE}",
            port=port,
            server=f"hyperbloom-{self._nonce}.local.",
            parsed_addresses=self._interfaces,
        )
        self._zeroconf.register_service(info)
        self._infos[name] = info

    def _unregister(self, name: str) -> None:
        info = self._infos.pop(name, None)
        if self._zeroconf is not None and info is not None:
            self._zeroconf.unregister_service(info)

    def _changed(
        self,
        zeroconf: Zeroconf,
        service_type: str,
        name: str,
        state_change: ServiceStateChange,
    ) -> None:
        """Called by zeroconf, in the browser's thread."""
        from zeroconf import ServiceStateChange

        if state_change is ServiceStateChange.Removed:
            self._reactor.callFromThread(self._heard.pop, name, None)
        else:
            self._reactor.callFromThread(self._hear, name)

    # In the reactor's thread again

    def _hear(self, name: str) -> None:
        """A service has this name, or is somewhere else now."""
        if not self._running or name.partition(".")[0].endswith(self._nonce):
            return
        self._heard.setdefault(name, [])
        self._heard.move_to_end(name)
        if len(self._heard) > MAX_LAN_SERVICES:
            self._forget_one()
        if self._feed_of(name) is not None:
            self._ask(name)

    def _forget_one(self) -> None:
        """The service heard of longest ago, of a feed that is not served if there is one."""
        unserved = (name for name in self._heard if self._feed_of(name) is None)
        del self._heard[next(unserved, next(iter(self._heard)))]

    def _feed_of(self, service: str) -> SearchedFeed | None:
        return self._feeds.get(service[:_HASH_DIGITS])

    def _ask(self, name: str) -> None:
        """Let zeroconf find out where a service is; the one asked for longest makes room."""
        zeroconf = self._zeroconf
        if zeroconf is None or zeroconf.loop is None or name in self._asked:
            return
        if len(self._asked) >= MAX_LAN_ASKED:
            self._asked.popitem(last=False)[1].cancel()
        asking = asyncio.run_coroutine_threadsafe(
            zeroconf.async_get_service_info(SERVICE_TYPE, name, ANSWER_MILLISECONDS), zeroconf.loop
        )
        self._asked[name] = asking
        asking.add_done_callback(
            lambda asked: self._reactor.callFromThread(self._answered, name, asked)
        )

    def _answered(self, name: str, asked: Future[AsyncServiceInfo | None]) -> None:
        from zeroconf import Error

        if self._asked.get(name) is asked:
            del self._asked[name]
        if asked.cancelled() or not self._running:
            return
        try:
            info = asked.result()
        except Error as error:
            # A pointer may name anything.
            log.debug("A name heard by multicast DNS is no service's: {why}", why=str(error))
            return
        if info is None or not info.port or name not in self._heard:
            return
        scopes = {scope_of(interface) for interface in self._interfaces}
        hosts = info.parsed_addresses()[:MAX_LAN_ADDRESSES]
        heard = [Address(host, info.port) for host in hosts]
        near = self._heard[name] = [address for address in heard if address.scope in scopes]
        feed = self._feed_of(name)
        if feed is not None:
            self._tell(feed, near)

    @staticmethod
    def _tell(feed: SearchedFeed, heard: Sequence[Address]) -> None:
        for address in heard:
            feed.found(address, source="lan")
