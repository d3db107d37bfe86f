"""The life of one connection, of whichever protocol: a Twisted Protocol to derive from.

It is admitted, has its time for the handshake, and closes in two stages: what is buffered is
flushed, and after `close_seconds` the connection is cut.

Frames are taken one at a time. While the connection is behind (what has come waits for the disk,
say) none is taken and the transport is paused, so that TCP slows the peer. No turn of the reactor
takes more than its share (`reactor_budget`): what else is buffered waits for a later one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from typing import Any, Self, cast
from typing import Protocol as Interface

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.tcp import Connection as TCPConnection
from twisted.python.failure import Failure

from hyperbloom.addresses import network_of
from hyperbloom.connections.bandwidth import Bandwidth
from hyperbloom.connections.close_reason import CloseReason
from hyperbloom.connections.pacing import Paced, Source
from hyperbloom.connections.registry import Registry

__all__ = ["ConnectionTimes", "PeerConnection"]


class ConnectionTimes(Interface):
    """The settings of a connection's life, in seconds."""

    @property
    def handshake_seconds(self) -> float:
        """What the handshake may take."""
        ...

    @property
    def close_seconds(self) -> float:
        """What flushing may take when the connection is closed."""
        ...


class PeerConnection(Protocol, ABC):
    """One connection; `outgoing` tells who dialled.

    A protocol derives from it, overrides what stands under "What a protocol does", calls
    `became_ready` when the handshake is done, and `_take_frames` when there may be frames.
    `times` gives the settings of the moment.
    """

    #: What holds the connection to the rates of `use_bandwidth`; None: there are none.
    paced: Paced | None = None
    #: Whether the peer sends nothing more: nothing is read.
    input_ended = False

    def __init__(
        self,
        registry: Registry[Any],
        clock: IReactorTime,
        times: Callable[[], ConnectionTimes],
        *,
        outgoing: bool,
    ) -> None:
        self.outgoing = outgoing
        self.close_reason: CloseReason | None = None
        #: Whether the handshake has been done, and whether the connection is gone.
        self.is_ready = self.is_lost = False
        self.network = self.address = "unknown"
        self.bytes_in = self.bytes_out = 0
        self._registry = registry
        self._clock = clock
        self._times = times
        #: Whether the transport is paused for what waits, and whether for its turn.
        self._is_held = self._awaits_turn = False
        # Most are empty most of the time, and an empty tuple costs nothing.
        self._timers: tuple[IDelayedCall, ...] = ()
        self._await_ready: tuple[Deferred[Any], ...] = ()
        self._await_end: tuple[Deferred[None], ...] = ()

    @property
    def wire(self) -> TCPConnection:
        """The transport."""
        return cast(TCPConnection, self.transport)

    @property
    def is_ending(self) -> bool:
        """Whether no frame is taken and none sent any more."""
        return self.is_lost or self.close_reason is not None

    # What a protocol does

    def _greet(self) -> None:
        """The connection is admitted: whoever dialled speaks first."""

    def _turn_away(self, why: CloseReason) -> None:
        """The connection is not admitted."""
        self.abort(why)

    @abstractmethod
    def _receive(self, data: bytes) -> None:
        """Take bytes that came; a connection that is ending gets none."""

    @abstractmethod
    def _take_next(self) -> bool:
        """Take a frame; whether there may be another one."""

    def _look_for_frames(self) -> None:
        """There may be frames that can be taken."""
        self._take_frames()

    def _wait_for_room(self) -> None:
        """The connection is behind: have `look_again` called when that may have changed."""

    def _stop(self) -> None:
        """Drop what is under way: nothing is taken and nothing sent any more. May come twice."""

    @property
    def _is_behind(self) -> bool:
        """Whether nothing is read for now."""
        return False

    @property
    def _whose(self) -> tuple[Hashable, ...]:
        """The path by which this connection has its turns; a stranger's is its network."""
        return (self.network,)

    # Life

    def connectionMade(self) -> None:
        """Have the connection admitted, and give the peer its time for the handshake."""
        peer = self.wire.getPeer()
        host = str(getattr(peer, "host", "local"))
        self.network = network_of(host)
        self.address = f"{host}:{getattr(peer, 'port', 0)}"
        if hasattr(self.wire, "setTcpNoDelay"):
            self.wire.setTcpNoDelay(True)
        why = self._registry.admit(self)
        if why is not None:
            self._turn_away(why)
            return
        self._registry.awaits_handshake(self, self._times().handshake_seconds)
        self._greet()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Stop every timer and tell who waits."""
        self.is_lost = True
        for call in self._timers:
            if call.active():
                call.cancel()
        self._stop()
        self._stop_pacing(is_cut=True)
        self._registry.forget(self)
        self._fail_ready(self.close_reason or CloseReason("lost", "the connection was lost"))
        waiting, self._await_end = self._await_end, ()
        for deferred in waiting:
            deferred.callback(None)

    def close(self, why: CloseReason) -> None:
        """Flush, then cut after `close_seconds`; no frame is taken any more."""
        if self.is_ending:
            return
        self._give_up(why)
        self._stop_pacing()
        if not self.input_ended:
            self.wire.resumeProducing()
        self.wire.loseConnection()
        self.later(self._times().close_seconds, self.wire.abortConnection)

    def abort(self, why: CloseReason) -> None:
        """Cut at once."""
        if not self.is_lost:
            if self.close_reason is None:
                self._give_up(why)
            self._stop_pacing(is_cut=True)
            self.wire.abortConnection()

    def _give_up(self, why: CloseReason) -> None:
        self.close_reason = why
        self._registry.closing(self, why)
        self._stop()
        self._fail_ready(why)

    def became_ready(self) -> None:
        """The handshake is done: tell who waits for it."""
        self.is_ready = True
        self._registry.shook_hands(self)
        waiting, self._await_ready = self._await_ready, ()
        for deferred in waiting:
            deferred.callback(self)

    def when_ready(self) -> Deferred[Self]:
        """Fires when the handshake is done; fails with `CloseReason` where it comes to nothing."""
        deferred: Deferred[Self] = Deferred()
        if self.is_ending:
            deferred.errback(self.close_reason or CloseReason("lost", "the connection was lost"))
        elif self.is_ready:
            deferred.callback(self)
        else:
            self._await_ready += (deferred,)
        return deferred

    def when_lost(self) -> Deferred[None]:
        """Fires when the connection is gone, for whatever reason."""
        deferred: Deferred[None] = Deferred()
        if self.is_lost:
            deferred.callback(None)
        else:
            self._await_end += (deferred,)
        return deferred

    def _fail_ready(self, why: CloseReason) -> None:
        waiting, self._await_ready = self._await_ready, ()
        for deferred in waiting:
            deferred.errback(why)

    def later(
        self, seconds: float, call: Callable[..., object], *arguments: object
    ) -> IDelayedCall:
        """Call after so many seconds, unless the connection is gone."""
        timer = self._clock.callLater(seconds, call, *arguments)
        self._timers = (*(known for known in self._timers if known.active()), timer)
        return timer

    # Bytes

    def dataReceived(self, data: bytes) -> None:
        """Count the bytes and hand them on."""
        if not self.is_ending:
            self.bytes_in += len(data)
            self._receive(data)
            if self.paced is not None:
                self.paced.received(len(data))

    def write(self, data: bytes) -> None:
        """Send bytes; those of a connection that is ending are dropped."""
        if not self.is_ending:
            self.bytes_out += len(data)
            if self.paced is None:
                self.wire.write(data)
            else:
                self.paced.write(data)

    def use_bandwidth(self, bandwidth: Bandwidth, source: Source) -> None:
        """Register `source` as the transport's producer, and hold to the rates, if there are any.

        To be called again when they have changed. Before the first call nothing is held back: a
        handshake is small, and has its time.
        """
        if self.paced is not None:
            self.paced.rates_changed()
            return
        if bandwidth.is_on:
            self.paced = Paced(
                bandwidth, self.wire, source, whose=self._whose, read_on=self._read_on
            )
        if self.wire.producer is not None:
            self.wire.unregisterProducer()
        self.wire.registerProducer(self.paced or source, True)

    def _stop_pacing(self, *, is_cut: bool = False) -> None:
        if self.paced is not None:
            if not is_cut:
                self.paced.flush()
            self.paced.stop()
            self.paced = None

    def look_again(self) -> None:
        """Go on taking frames, if the connection was behind and is so no longer."""
        if self._is_held and not self.is_ending:
            self._look_for_frames()

    def _take_frames(self) -> None:
        budget = self._registry.reactor_budget
        while not self.is_ending and not self._hold():
            whose = self._whose
            if not budget.take(whose):
                self._awaits_turn = True
                self.wire.pauseProducing()
                budget.wait(whose, self._next_turn, is_stranger=not self.is_ready)
                return
            if not self._take_next():
                return

    def _next_turn(self) -> None:
        self._awaits_turn = False
        if not self.is_ending:
            self._read_on()
            self._look_for_frames()

    def _read_on(self) -> None:
        """Read the transport, unless something else keeps it paused."""
        is_slowed = self.paced is not None and self.paced.is_slowed
        if not (self._is_held or self._awaits_turn or is_slowed or self.input_ended):
            self.wire.resumeProducing()

    def _end_input(self) -> None:
        """The peer sends nothing more."""
        self.input_ended = True
        self.wire.pauseProducing()

    def _hold(self) -> bool:
        """Whether no frame may be taken now; pauses and resumes the transport on a change."""
        hold = self._is_behind
        if hold:
            self._wait_for_room()
        if hold != self._is_held:
            self._is_held = hold
            if hold:
                self.wire.pauseProducing()
            else:
                self._read_on()
        return hold or self._awaits_turn
