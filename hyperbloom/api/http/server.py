"""The API over the control socket and a TCP port: twisted.web around the table of routes.

A request is read whole (bounded), routed, answered in JSON. What an endpoint raises becomes a
problem (RFC 9457); what nobody foresaw is logged here and told to the client without its details.
What a request may is decided by its headers (`access`) before its body is kept; over the control
socket it may everything. What a connection may is in `channel`.
"""

# mypy: disallow-untyped-calls=False
# (twisted.web has no annotations on its requests and services)
from __future__ import annotations

import inspect
import json
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request

from hyperbloom.addresses import format_host_port
from hyperbloom.api.control_socket import SocketError, free_unix, private_files, unix_address
from hyperbloom.api.endpoints.routes import ROUTER, MethodNotAllowed, Route
from hyperbloom.api.http.access import Access, Rights
from hyperbloom.api.http.channel import ApiRequest, ApiSite
from hyperbloom.api.http.request import STREAMED, Answer, Call, Context, Result
from hyperbloom.api.limits import BACKLOG, MAX_CONNECTIONS
from hyperbloom.api.monitoring.metrics import NodeCollector, make_registry
from hyperbloom.api.monitoring.reactor_lag import LagMeter
from hyperbloom.api.problems import PROBLEM_MEDIA_TYPE, Problem, ProblemKind
from hyperbloom.objects.wire.errors import LocalProtocolError, ObjectError, ObjectGone, PoolFull
from hyperbloom.replication.feed.fetch import TooManyFetches
from hyperbloom.replication.feed.membership import NotTrusted
from hyperbloom.replication.node import UnknownFeed
from hyperbloom.replication.sync.wait_synced import NotInSync, TooManyWaits, UnknownPeer
from hyperbloom.store import NoSuchFeed, StoreError, StoreFull
from hyperbloom.trust import ChainError, ChainExpired

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prometheus_client.registry import Collector

    from hyperbloom.api.monitoring.recent_errors import RecentErrors
    from hyperbloom.api.served import ServedDiscovery, ServedNode, ServedObjects

__all__ = [
    "ApiResource",
    "ControlService",
    "TcpService",
    "problem_of",
]

log = Logger()

#: What a browser is to know about every answer: it is what it says it is, is not to be kept, and
#: is for our own page.
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
)

#: The first that fits is taken: subclasses come before their base.
_KINDS: tuple[tuple[type[BaseException], ProblemKind], ...] = (
    (UnknownFeed, ProblemKind.UNKNOWN_FEED),
    (NoSuchFeed, ProblemKind.UNKNOWN_FEED),
    (TooManyFetches, ProblemKind.TOO_MANY),
    (ObjectGone, ProblemKind.UNKNOWN_OBJECT),
    (PoolFull, ProblemKind.TOO_MANY),
    (ObjectError, ProblemKind.CONFLICT),
    (LocalProtocolError, ProblemKind.BAD_REQUEST),
    (TooManyWaits, ProblemKind.TOO_MANY),
    (UnknownPeer, ProblemKind.UNKNOWN_PEER),
    (NotInSync, ProblemKind.NOT_IN_SYNC),
    (NotTrusted, ProblemKind.NOT_TRUSTED),
    (ChainExpired, ProblemKind.EXPIRED),
    (ChainError, ProblemKind.BAD_CHAIN),
    (StoreFull, ProblemKind.STORE_FULL),
    (StoreError, ProblemKind.STORE),
    (TimeoutError, ProblemKind.TIMEOUT),
)


def problem_of(error: BaseException) -> Problem | None:
    """The problem that an error of the node is to the client; None for an unexpected one."""
    if isinstance(error, Problem):
        return error
    if type(error) is LookupError:  # its subclasses are mistakes in the code
        return Problem(ProblemKind.UNKNOWN_FEED, str(error))
    for kind_of_error, kind in _KINDS:
        if isinstance(error, kind_of_error):
            return Problem(kind, str(error))
    return None


class ApiResource(Resource):
    """All of the API: a leaf, because the table of routes knows the paths below it."""

    isLeaf = True

    def __init__(self, context: Context) -> None:
        super().__init__()
        self._context = context

    def render(self, request: Request) -> int:
        """Twisted's entry: answers now or later, always by itself."""
        call = Call(request, [], self._context)
        try:
            answer = self._answer(cast("ApiRequest", request), call)
        except Exception:
            self._refuse(Failure(), call)
        else:
            if isinstance(answer, Deferred):
                answer.addCallback(self._send, call).addErrback(self._refuse, call)
            else:
                self._send(answer, call)
        return NOT_DONE_YET

    def _answer(self, request: ApiRequest, call: Call) -> Result | Deferred[Any]:
        if request.refusal is not None:
            raise request.refusal
        path, method = request.path.decode("latin-1"), request.method.decode("latin-1")
        route, call.arguments = ROUTER.find(method, path)
        _check_rights(request, route)
        if request.received > request.most:
            raise Problem(
                ProblemKind.TOO_LARGE, f"a body has at most {request.most:,} bytes; send parts"
            )
        answer: Answer = route.endpoint(call)
        if inspect.iscoroutine(answer):
            return Deferred.fromCoroutine(answer)
        return cast("Result | Deferred[Any]", answer)

    def _send(self, result: Result, call: Call) -> None:
        if result is STREAMED:
            return
        if result is None:
            _respond(call, 204, b"", None)
            return
        body = result if isinstance(result, bytes) else _dump(result)
        _respond(call, call.status, body, call.media_type)

    def _refuse(self, failure: Failure, call: Call) -> None:
        problem = problem_of(cast("BaseException", failure.value))
        if problem is None:
            log.failure("A request to {path} failed", failure, path=call.request.path)
            problem = Problem(
                ProblemKind.UNEXPECTED, "the node met an unexpected error; its log has the details"
            )
        if isinstance(problem, MethodNotAllowed):
            call.request.responseHeaders.setRawHeaders(b"allow", [", ".join(problem.allowed)])
        if problem.kind is ProblemKind.UNAUTHORIZED:  # RFC 9110, 11.6.1
            call.request.responseHeaders.setRawHeaders(b"www-authenticate", [b"Bearer"])
        _respond(call, problem.kind.status, _dump(problem.as_json()), PROBLEM_MEDIA_TYPE.encode())


def _check_rights(request: ApiRequest, route: Route) -> None:
    if request.channel.site.access is None or route.is_page:
        return
    Access.check_page(request.requestHeaders)
    if request.rights >= route.needs:
        return
    if request.rights is Rights.NONE:
        raise Problem(
            ProblemKind.UNAUTHORIZED, "send the node's token: `Authorization: Bearer TOKEN`"
        )
    raise Problem(ProblemKind.FORBIDDEN, "a browser's session may read, and nothing else")


def _dump(result: object) -> bytes:
    return json.dumps(result, separators=(",", ":"), allow_nan=False).encode()


def _respond(call: Call, status: int, body: bytes, media_type: bytes | None) -> None:
    request = cast("ApiRequest", call.request)
    if request.gone:
        return
    request.setResponseCode(status)
    headers = request.responseHeaders
    for name, value in _HEADERS:
        if not headers.hasHeader(name):
            headers.setRawHeaders(name, [value])
    if media_type is not None:
        headers.setRawHeaders(b"content-type", [media_type])
        headers.setRawHeaders(b"content-length", [b"%d" % len(body)])
    if body:
        request.write(body)
    request.finish()


class _Listening(Service):
    """Holds `_site` and, while it listens, `_port`."""

    _site: ApiSite
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
        self._site.close()
        return result


class ControlService(_Listening):
    """Listens on the control socket of a node.

    reactor: a reactor with `adoptStreamPort` and threads. collectors: of metrics, beside those of
    the node. recent: what the log said last. Its start raises `SocketBusy` or
    `SocketError` (`hyperbloom.api.control_socket`); its stop closes every connection, open watches
    included.
    """

    def __init__(
        self,
        node: ServedNode,
        path: Path,
        *,
        reactor: Any,
        discovery: ServedDiscovery | None = None,
        objects: ServedObjects | None = None,
        reload: Callable[[], Deferred[Any]] | None = None,
        access: Access | None = None,
        collectors: Iterable[Collector] = (),
        recent: RecentErrors | None = None,
    ) -> None:
        self.setName("control")
        self._path = path
        self._reactor = reactor
        self._lag = LagMeter(reactor)
        own = NodeCollector(node, lag=self._lag, discovery=discovery, objects=objects)
        self.context = Context(
            node=node,
            clock=reactor,
            now=node.context.now,
            in_thread=self._in_thread,
            discovery=discovery,
            objects=objects,
            reload=reload,
            access=access,
            registry=make_registry((own, *collectors)),
            recent=recent,
        )
        self._site = ApiSite(ApiResource(self.context), reactor=reactor)
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
                    address, self._site, backlog=BACKLOG, mode=0o600
                )
        except (OSError, CannotListenError) as error:
            self._open.close()
            reason = getattr(error, "socketError", error)
            raise SocketError(f"the control socket {self._path} cannot be made: {reason}") from None
        self._lag.start()

    def stopService(self) -> Deferred[None]:
        """Takes no more connections and closes those that are open."""
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
        self._site = ApiSite(
            ApiResource(context), reactor=reactor, access=access, most=MAX_CONNECTIONS
        )

    def startService(self) -> None:
        """Listens."""
        super().startService()
        host, port = self._address
        self._port = self._reactor.listenTCP(port, self._site, backlog=BACKLOG, interface=host)
        log.info("The API is at {address}", address=format_host_port(host, port))
