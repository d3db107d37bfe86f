"""Waiting until peers are in sync: for scripts that must not go on before.

A peer is named by its whole key or an address; what shorter words mean has been looked up before
(`Petnames.find`), so that nobody who comes meanwhile is taken for it. What counts is seen after the
waiting began: by digest, or by Sync alone where the peer lacks the extension (see sync_state.py).
Meanwhile the peers that are not there yet are asked again and again, without the interval.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IDelayedCall

from hyperbloom.errors import ErrorKind, HyperbloomError
from hyperbloom.replication.feed.feed import Feed
from hyperbloom.replication.feed.peers import FeedPeer
from hyperbloom.replication.limits import MAX_WAITS
from hyperbloom.replication.status import SyncSource
from hyperbloom.store.records import Holding

__all__ = ["InSync", "NotInSync", "TooManyWaits", "UnknownPeer", "wait_synced"]

#: How often the peers are looked at, in seconds.
LOOK_SECONDS = 0.1


class UnknownPeer(HyperbloomError):
    """The feed has no peer by that name, connected, dialled or a member; the text says so."""

    kind = ErrorKind.UNKNOWN_PEER


class NotInSync(HyperbloomError, TimeoutError):
    """The time is up; the text says what is missing."""

    kind = ErrorKind.NOT_IN_SYNC


class TooManyWaits(HyperbloomError):
    """As many calls wait as may; try again later."""

    kind = ErrorKind.TOO_MANY


@dataclass(frozen=True, slots=True, kw_only=True)
class InSync:
    """A peer that held the same `at` a moment (seconds since 1970), as `source` showed."""

    name: str
    key: bytes
    address: str
    at: float
    source: SyncSource


def wait_synced(
    feed: Feed,
    names: Sequence[str],
    *,
    timeout: float,
    dialled: Callable[[], Mapping[str, FeedPeer | None]],
) -> Deferred[list[InSync]]:
    """Fires when each of the named peers was in sync; `dialled`: addresses, and who answers there.

    names: keys of 64 hex digits, and addresses. Fails with `UnknownPeer`, `ValueError` (this node
    keeps nothing of the feed), `TooManyWaits`, or after `timeout` seconds `NotInSync`.
    """
    if not feed.kept:
        return fail(ValueError("this node keeps no values of the feed (mode light) to compare"))
    if feed.peers.waits >= MAX_WAITS:
        return fail(TooManyWaits(f"{MAX_WAITS} calls wait already; try again later"))
    try:
        for name in names:
            _check_known(feed, name, dialled())
    except UnknownPeer as error:
        return fail(error)
    return _Wait(feed, names, timeout, dialled).result


def _check_known(feed: Feed, name: str, dialled: Mapping[str, FeedPeer | None]) -> None:
    """Raises `UnknownPeer`."""
    keys = feed.peers.keys | {one.key for one in feed.trust.members()} | {feed.key}
    names = {key.hex() for key in keys if not feed.context.is_own(key)}
    if name not in names | {peer.name for peer in feed.peers} | set(dialled):
        raise UnknownPeer(
            f"the feed has no peer {name!r}: none is connected, dialled or a member by that key "
            "or address"
        )


def _in_words(holding: Holding) -> str:
    forgotten = holding.settled.count - holding.here.count
    values = "1 value" if holding.here.count == 1 else f"{holding.here.count:,} values"
    return values + (f", {forgotten:,} forgotten" if forgotten else "")


class _Wait:
    """One call that waits; `result` fires or fails once."""

    def __init__(
        self,
        feed: Feed,
        names: Sequence[str],
        timeout: float,
        dialled: Callable[[], Mapping[str, FeedPeer | None]],
    ) -> None:
        self.result: Deferred[list[InSync]] = Deferred(lambda _: self._stop())
        self._feed = feed
        self._dialled = dialled
        self._begun = feed.context.now()
        self._missing = list(dict.fromkeys(names))
        self._found: dict[str, InSync] = {}
        self._seconds = timeout
        feed.peers.waits += 1
        clock = feed.context.clock
        self._timeout: IDelayedCall = clock.callLater(timeout, self._give_up)
        self._look_call: IDelayedCall = clock.callLater(0, self._look)

    def _stop(self) -> None:
        self._feed.peers.waits -= 1
        for call in (self._timeout, self._look_call):
            if call.active():
                call.cancel()

    def _peers(self, name: str) -> list[FeedPeer]:
        at = self._dialled().get(name)
        return [
            peer
            for peer in self._feed.peers
            if peer is at or name in (peer.name, peer.remote_key.hex())
        ]

    def _look(self) -> None:
        for name in list(self._missing):
            for peer in self._peers(name):
                known = peer.sync_state
                if known is not None and known.in_sync and known.at >= self._begun:
                    self._missing.remove(name)
                    self._found[name] = InSync(
                        name=name,
                        key=peer.remote_key,
                        address=peer.name,
                        at=known.at,
                        source=known.source,
                    )
                    break
                peer.hurry()
        if self._missing:
            self._look_call = self._feed.context.clock.callLater(LOOK_SECONDS, self._look)
        else:
            self._stop()
            self.result.callback(list(self._found.values()))

    def _erased(self) -> str:
        """Hashes are in no digest: a difference by them alone stays, and Sync cannot end it."""
        hashes = self._feed.forgetting.figures().hashes
        return f" and keeps {hashes:,} out by their hashes alone" if hashes else ""

    def _give_up(self) -> None:
        self._stop()
        reasons = "; ".join(f"{name} {self._reason(name)}" for name in self._missing)
        self.result.errback(NotInSync(f"not in sync within {self._seconds:g} s: {reasons}"))

    def _reason(self, name: str) -> str:
        peers = self._peers(name)
        if not peers:
            return "is not connected"
        told = peers[0].told
        if told is not None:
            there, here = map(_in_words, told)
            return f"differs (it had {there}, this node {here}{self._erased()})"
        if peers[0].can_compare:
            return "has not answered, or has no digest yet, or keeps nothing that this node keeps"
        left = self._feed.values.record().digest_left
        own = (
            f"this node is still computing its digest ({left:,} values to go)"
            if left
            else ("it has no digest to compare")
        )
        return f"cannot be compared with ({own}), and Sync has not shown both sides the same yet"
