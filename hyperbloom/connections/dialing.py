"""Dialling an address once, and how long to wait before the next time.

Twisted's `ClientService` is not for this: it counts a connection as a success as soon as it is
made, and takes the end of one that did not get ready for the end of the next. Here an attempt is a
success when the connection was ready for a while, so that a peer that accepts and then turns us
away, or ends every connection, is backed off from as well; and the next begins when the last is
closed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar, cast

from twisted.internet.defer import CancelledError
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import Factory

from hyperbloom.addresses import Address
from hyperbloom.connections.close_reason import CloseReason
from hyperbloom.connections.connection import PeerConnection

__all__ = ["STEADY_SECONDS", "dial_once", "endpoint_of", "retry_wait"]

#: Growth of the wait from one failed attempt to the next.
BACKOFF_FACTOR: Final = 1.7

#: A connection that was ready for this many seconds counts as a success.
STEADY_SECONDS: Final = 5.0

#: An address that does not answer is given up on after this many seconds.
CONNECT_SECONDS: Final = 20.0

C = TypeVar("C", bound=PeerConnection)


def retry_wait(failures: int, *, first: float, longest: float) -> float:
    """Seconds to wait after so many failures in a row; `first` after none or one."""
    # Above 100 the power is beyond any `longest`, and would overflow in the end.
    return float(min(longest, first * BACKOFF_FACTOR ** min(max(0, failures - 1), 100)))


def endpoint_of(clock: IReactorTime, address: Address) -> HostnameEndpoint:
    """The endpoint that dials an address, whose host may be a name."""
    return HostnameEndpoint(clock, address.host, address.port, timeout=CONNECT_SECONDS)


async def dial_once(
    endpoint: HostnameEndpoint,
    factory: Factory,
    clock: IReactorTime,
    *,
    connected: Callable[[C], None],
    ready: Callable[[C], None],
    failed: Callable[[Exception], None],
) -> float:
    """Dial and stay until the connection is lost; the seconds that it was ready.

    `failed` is told why it came to nothing, and 0 returned: a `CloseReason` once there was a
    connection. Only `CancelledError` is raised.
    """
    try:
        connection = cast(C, await endpoint.connect(factory))
    except CancelledError:
        raise
    except Exception as error:
        failed(error)
        return 0.0
    connected(connection)
    try:
        await connection.when_ready()
    except CloseReason as why:
        failed(why)
        await connection.when_lost()
        return 0.0
    ready(connection)
    since = clock.seconds()
    await connection.when_lost()
    return clock.seconds() - since
