"""The API of a node as services: on its control socket always, on a TCP port if it is wanted.

Here the API's parts come together: the table of routes, what the endpoints share, the metrics.
"""

# mypy: disallow-untyped-calls=False
# (twisted.application has few annotations)
from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger

from hyperbloom.api.control_socket import SocketError, free_unix, private_files, unix_address
from hyperbloom.api.endpoints.status_stream import StatusFrames
from hyperbloom.api.http.access import Access
from hyperbloom.api.http.channel import ApiSite
from hyperbloom.api.http.request import Context
from hyperbloom.api.http.server import ApiResource
from hyperbloom.api.limits import BACKLOG, MAX_CONNECTIONS
from hyperbloom.api.monitoring.history import History
from hyperbloom.api.monitoring.metrics import NodeCollector, make_registry
from hyperbloom.api.monitoring.reactor_lag import LagMeter
from hyperbloom.api.monitoring.work import Work
from hyperbloom.api.routes import ROUTER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prometheus_client.registry import Collector

    from hyperbloom.api.monitoring.recent_errors import RecentErrors
    from hyperbloom.api.served import (
        ServedDiscovery,
        ServedIntegrations,
        ServedNode,
        ServedObjects,
    )

__all__ = ["ControlService", "TcpService"]

log = Logger()


class _Listening(Service):
    """Holds `site` and, while it listens, `_port`."""

    site: ApiSite
    _port: Any = None

    def stopService(self) -> Deferred[None]:
        """Takes no more connections and closes those that are open."""
        super().stopService()
        port, self._port = self._port, None
        if port is None:
            return succeed(None)
        closed: Deferred[None] = maybeDeferred(port.stopListening)
        return closed.addBoth(self._closed)

    def _closed(self, result: Any) -> Any:
        self.site.close()
        return result


class ControlService(_Listening):
    """Listens on the control socket of a node.

    reactor: a reactor with `adoptStreamPort` and threads. collectors: of metrics, beside those of
    the node. recent: what the log said last. save_history keeps what the page shows of the past,
    and `history` is what it was given last. Its start raises `SocketBusy` or `SocketError`
    (`hyperbloom.api.control_socket`); its stop closes every connection, open watches included.
    """

    def __init__(
        self,
        node: ServedNode,
        path: Path,
        *,
        reactor: Any,
        discovery: ServedDiscovery | None = None,
        objects: ServedObjects | None = None,
        integrations: ServedIntegrations | None = None,
        reload: Callable[[], Deferred[Any]] | None = None,
        access: Access | None = None,
        collectors: Iterable[Collector] = (),
        recent: RecentErrors | None = None,
        history: bytes = b"",
        save_history: Callable[[bytes], object] = lambda _: None,
    ) -> None:
        self.setName("control")
        self._path = path
        self._reactor = reactor
        self._lag = LagMeter(reactor)
        self._history = History(node, self._lag, clock=reactor, state=history, save=save_history)
        own = NodeCollector(
            node, lag=self._lag, discovery=discovery, objects=objects, integrations=integrations
        )
        self.context = Context(
            node=node,
            clock=reactor,
            now=node.context.now,
            in_thread=self._in_thread,
            discovery=discovery,
            objects=objects,
            integrations=integrations,
            reload=reload,
            access=access,
            registry=make_registry((own, *collectors)),
            work=Work(reactor.seconds),
            status_frames=StatusFrames(
                node,
                discovery=discovery,
                objects=objects,
                integrations=integrations,
                recent=recent,
                arrived=self._history.arrived,
                clock=reactor,
            ),
            history=self._history,
        )
        self.site = ApiSite(ApiResource(self.context, ROUTER), reactor=reactor)
        #: What the socket's address needs while it is listened on.
        self._open = ExitStack()

    def _in_thread(self, blocking: Callable[[], Any]) -> Deferred[Any]:
        return deferToThreadPool(self._reactor, self._reactor.getThreadPool(), blocking)

    def startService(self) -> None:
        """Makes the socket and listens on it."""
        super().startService()
        free_unix(self._path)
        try:
            address = self._open.enter_context(unix_address(self._path))
            with private_files():
                self._port = self._reactor.listenUNIX(
                    address, self.site, backlog=BACKLOG, mode=0o600
                )
        except (OSError, CannotListenError) as error:
            self._open.close()
            reason = getattr(error, "socketError", error)
            raise SocketError(f"the control socket {self._path} cannot be made: {reason}") from None
        self._lag.start()
        self._history.start()

    def stopService(self) -> Deferred[None]:
        """Takes no more connections and closes those that are open."""
        self._history.stop()
        self._lag.stop()
        return super().stopService()

    def _closed(self, result: Any) -> Any:
        self._open.close()
        return super()._closed(result)


class TcpService(_Listening):
    """The same API, guarded by `access`, on the TCP port of its address.

    Its start raises `CannotListenError`.
    """

    def __init__(self, context: Context, access: Access, *, reactor: Any) -> None:
        self.setName("api")
        self._address = access.address
        self._reactor = reactor
        self.site = ApiSite(
            ApiResource(context, ROUTER),
            reactor=reactor,
            access=access,
            most=MAX_CONNECTIONS,
        )

    def startService(self) -> None:
        """Listens."""
        super().startService()
        host, port = self._address
        self._port = self._reactor.listenTCP(port, self.site, backlog=BACKLOG, interface=host)
        log.info("The API is at {address}", address=str(self._address))
