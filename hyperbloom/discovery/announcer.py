"""The swarm of the npm packages: a BEP-5 announcement of SHA-1(discovery key), and its lookup.

npm `hyperbloom` announces and looks up the SHA-1 of a feed's discovery key on the Mainline DHT, so
that its nodes and ours find each other there. Such an announcement names no node: who is at an
address shows in the handshake.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from random import Random
from typing import Any, Protocol

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from hyperbloom.addresses import Address
from hyperbloom.discovery.dht.common.errors import LocalProtocolError
from hyperbloom.discovery.dht.reports import AnnounceReport, PeerLookup
from hyperbloom.discovery.settings import SwarmSettings

__all__ = ["UNREACHED_SECONDS", "Announcer", "AnnouncerStatus", "PeerStore", "swarm_hash"]

#: The part of an interval that is added at random, so that nodes started together spread out.
JITTER = 0.2

#: How long to wait after a lookup in which no node of the DHT answered, in seconds: at a start the
#: DHT is not reached yet, and nobody was told or asked anything.
UNREACHED_SECONDS = 3.0

log = Logger()


def swarm_hash(discovery_key: bytes) -> bytes:
    """The info hash of a feed, 20 bytes: SHA-1 of its discovery key, as npm `hyperbloom` has it."""
    return hashlib.sha1(discovery_key, usedforsecurity=False).digest()


class PeerStore(Protocol):
    """Peers of the DHT (BEP-5), as one of its nodes reaches them."""

    def get_peers(self, info_hash: bytes) -> Deferred[PeerLookup]:
        """Look the peers of an info hash up."""
        ...

    def announce_peer(self, info_hash: bytes, port: int) -> Deferred[AnnounceReport]:
        """Tell the closest nodes that this host is a peer at `port`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncerStatus:
    """How the announcer is doing. Times are seconds since 1970, None: not yet."""

    info_hash: bytes
    peers_found: int
    announced_to: int
    last_announce: float | None
    last_lookup: float | None

    def as_json(self) -> dict[str, Any]:
        """The same as a dict that `json` takes: bytes as hex."""
        return {**asdict(self), "info_hash": self.info_hash.hex()}


class Announcer:
    """Announces one feed and looks its peers up, from `start` to `stop`.

    `port` gives the TCP port to announce, None for none; `found` is called with each address;
    `is_joined` tells whether there are peers already, so that the lookups can take their time.
    `now` gives seconds since 1970.
    """

    def __init__(
        self,
        discovery_key: bytes,
        *,
        peers: PeerStore,
        port: Callable[[], int | None],
        found: Callable[[Address], None],
        is_joined: Callable[[], bool],
        settings: SwarmSettings,
        clock: IReactorTime,
        now: Callable[[], float],
        random: Random,
    ) -> None:
        self._info_hash = swarm_hash(discovery_key)
        self._peers = peers
        self._port = port
        self._found = found
        self._is_joined = is_joined
        self._settings = settings
        self._clock = clock
        self._now = now
        self._random = random
        self._running: Deferred[None] | None = None
        self._peers_found = self._announced_to = 0
        self._last_announce: float | None = None
        self._last_lookup: float | None = None

    def start(self) -> None:
        """Begin; returns at once."""
        self._running = Deferred.fromCoroutine(self._run())
        self._running.addErrback(self._ended)

    def stop(self) -> Deferred[None]:
        """End; fires when nothing goes on any more."""
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
        return succeed(None)

    def status(self) -> AnnouncerStatus:
        """How it is doing."""
        return AnnouncerStatus(
            info_hash=self._info_hash,
            peers_found=self._peers_found,
            announced_to=self._announced_to,
            last_announce=self._last_announce,
            last_lookup=self._last_lookup,
        )

    async def _run(self) -> None:
        while True:
            is_reached = True
            try:
                await self._announce()
                is_reached = await self._look_up()
            except LocalProtocolError as error:
                # With many feeds there may be too many lookups at once; the next turn may do.
                log.debug("The swarm was not asked: {error}", error=error)
            await deferLater(
                self._clock, self._waiting(is_reached) * (1 + self._random.uniform(0, JITTER))
            )

    def _waiting(self, is_reached: bool) -> float:
        settings = self._settings
        if not is_reached:
            return min(UNREACHED_SECONDS, settings.retry_interval)
        return settings.announce_interval if self._is_joined() else settings.retry_interval

    async def _announce(self) -> None:
        port, last = self._port(), self._last_announce
        if port is None:
            return
        if last is not None and self._now() - last < self._settings.announce_interval:
            return
        report = await self._peers.announce_peer(self._info_hash, port)
        self._announced_to = report.stored
        if report.stored:
            self._last_announce = self._now()

    async def _look_up(self) -> bool:
        """Whether a node of the DHT answered."""
        lookup = await self._peers.get_peers(self._info_hash)
        self._last_lookup = self._now()
        self._peers_found = len(lookup.peers)
        for address in lookup.peers:
            self._found(address)
        return lookup.answered > 0

    def _ended(self, failure: Failure) -> None:
        if not failure.check(CancelledError):
            log.failure("The announcer met an error of its own", failure=failure)
