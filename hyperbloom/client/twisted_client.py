"""A client of a running node for Twisted programs: the same requests, answered by Deferreds.

What `hyperbloom.client.client.Client` does and waits for, this does without holding the reactor.
The forms, the paths and the problems are the same; the methods that a long-lived program needs are
here, and `ask` is there for every other path.
"""

# mypy: disallow-untyped-calls=False
# (twisted.web's agents and endpoints have few annotations)
from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.endpoints import HostnameEndpoint, UNIXClientEndpoint
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import Agent, HTTPConnectionPool, ResponseDone
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgentEndpointFactory, IBodyProducer, IResponse
from zope.interface import implementer

from hyperbloom.addresses import Address
from hyperbloom.api.control_socket import unix_address
from hyperbloom.client.requests import (
    Arrival,
    EventReader,
    NodeUnreachable,
    RangeCount,
    answer_of,
    arrival_of,
    feed_path,
    hex_list,
    key_path,
    key_word,
    page_of,
    problem_of,
    range_request,
    with_query,
)
from hyperbloom.passphrase import load_passphrase
from hyperbloom.value_ranges import narrowed

if TYPE_CHECKING:
    from hyperbloom.api.schemas.answers import (
        CountForm,
        FeedForm,
        KeyFoundForm,
        KeyNamedForm,
        LinkForm,
        MemberForm,
        NamedKeyForm,
        PingForm,
        PutForm,
    )
    from hyperbloom.api.schemas.status import NodeStatusForm, PeerStatusForm

__all__ = ["TwistedClient", "Watch"]


@implementer(IAgentEndpointFactory)
class _OneEndpoint:
    """Every address is the one node."""

    def __init__(self, endpoint: Any) -> None:
        self._endpoint = endpoint

    def endpointForURI(self, uri: object) -> Any:
        """Called by the agent."""
        return self._endpoint


@implementer(IStreamClientEndpoint)
class _SocketOfAnyPath:
    """Connects to a Unix socket, also where its path is longer than an address."""

    def __init__(self, reactor: Any, path: Path) -> None:
        self._reactor = reactor
        self._path = path

    def connect(self, factory: Any) -> Deferred[Any]:
        """Called by the agent."""
        opened = ExitStack()
        try:
            address = opened.enter_context(unix_address(self._path))
        except OSError:
            return fail(Failure())
        # The address is used only in a later turn of the reactor.
        connecting: Deferred[Any] = UNIXClientEndpoint(self._reactor, address).connect(factory)

        def close(outcome: Any) -> Any:
            opened.close()
            return outcome

        return connecting.addBoth(close)


@implementer(IBodyProducer)
class _Given:
    """A request's body. (`FileBodyProducer` would use the global reactor.)"""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.length = len(data)

    def startProducing(self, consumer: Any) -> Deferred[None]:
        """Called by the agent."""
        consumer.write(self._data)
        return succeed(None)

    def pauseProducing(self) -> None:
        """Called by the agent; all is written."""

    def resumeProducing(self) -> None:
        """The same."""

    def stopProducing(self) -> None:
        """The same."""


class _Body(Protocol):
    """An answer's body, whole."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.read: Deferred[bytes] = Deferred()

    def dataReceived(self, data: bytes) -> None:
        """Called with each part."""
        self._parts.append(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Called at the end of the body, or of the connection before it."""
        if reason.check(ResponseDone):
            self.read.callback(b"".join(self._parts))
        else:
            self.read.errback(reason)


class Watch(Protocol):
    """An open watch: `arrived` is called with each value, in the order of arrival.

    `ended` fires when the watch is over: with None when it was stopped here, and fails with
    `Problem` (the feed was left) or `NodeUnreachable` (the node has stopped).
    """

    def __init__(self, arrived: Callable[[Arrival], None]) -> None:
        self._arrived = arrived
        self._events = EventReader(where="there")
        self._outcome: Any = NodeUnreachable("the node has stopped")
        self._is_over = False
        self.ended: Deferred[None] = Deferred()

    def stop(self) -> Deferred[None]:
        """Watch no more."""
        self._end(None)
        return self.ended

    def dataReceived(self, data: bytes) -> None:
        """Called with parts of the stream; the transport is read no faster than `arrived` takes."""
        try:
            events = self._events.take(data)
        except NodeUnreachable as problem:
            self._end(problem)
            return
        for kind, form in events:
            if self._is_over:
                return
            if kind == "problem":
                self._end(problem_of(form))
            else:
                self._arrived(arrival_of(form))

    def _end(self, outcome: BaseException | None) -> None:
        if self._is_over:
            return
        self._is_over, self._outcome = True, outcome
        transport: Any = self.transport
        if transport is not None:
            transport.loseConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Called at the end of the answer, for whatever reason."""
        if self._outcome is None:
            self.ended.callback(None)
        else:
            self.ended.errback(self._outcome)


class TwistedClient:
    """Asks one node; connections are kept and shared by requests.

    Deferreds fail with `Problem` where the node refuses and `NodeUnreachable` where none answers;
    `feed` is as for `Client`. Cancelling a Deferred closes its connection.
    """

    def __init__(self, reactor: Any, endpoint: Any, *, host: str, token: str | None = None) -> None:
        self._pool = HTTPConnectionPool(reactor)
        self._agent = Agent.usingEndpointFactory(reactor, _OneEndpoint(endpoint), self._pool)
        self._url = f"http://{host}"
        self._token = token

    @classmethod
    def over_unix(cls, reactor: Any, path: Path) -> TwistedClient:
        """A client of the node whose control socket is at `path`."""
        return cls(reactor, _SocketOfAnyPath(reactor, path), host="localhost")

    @classmethod
    def over_tcp(cls, reactor: Any, address: str, token: Path) -> TwistedClient:
        """A client of the node whose `[api] listen` is `address` and whose token file is `token`.

        Raises `ValueError` for an address that is not HOST:PORT, `PassphraseError` for a token
        that cannot be read.
        """
        host, port = Address.parse(address)
        endpoint = HostnameEndpoint(reactor, host, port)
        return cls(reactor, endpoint, host=address, token=load_passphrase(token, what="token"))

    def close(self) -> Deferred[None]:
        """Close what is idle; fires when it is closed."""
        return cast("Deferred[None]", self._pool.closeCachedConnections())

    # The node and its feeds

    def ping(self) -> Deferred[PingForm]:
        """pid, version and identity of the node."""
        return self.ask("GET", "/v1/ping")

    def status(self) -> Deferred[NodeStatusForm]:
        """The node's status."""
        return self.ask("GET", "/v1/status")

    def feeds(self) -> Deferred[list[FeedForm]]:
        """Every feed of the node."""
        return self.ask("GET", "/v1/feeds").addCallback(lambda answer: answer["feeds"])

    def peers(self, feed: str | None = None) -> Deferred[list[PeerStatusForm]]:
        """Every peer, or those of one feed."""
        asked = self.ask("GET", with_query("/v1/peers", feed=feed))
        return asked.addCallback(lambda answer: answer["peers"])

    # Values

    def put(self, values: Sequence[bytes], *, feed: str | None = None) -> Deferred[PutForm]:
        """Stores 1 to 10,000 values; fires once they are on disk."""
        body = {"values": hex_list(values)}
        return self.ask("POST", feed_path(feed, "/values"), body)

    def range_page(
        self,
        *,
        feed: str | None = None,
        start: bytes = b"",
        end: bytes | None = None,
        prefix: bytes | None = None,
        limit: int | None = None,
    ) -> Deferred[tuple[list[bytes], bytes | None]]:
        """A page of values in byte order, and where the next one starts (None: no more).

        prefix: only those that begin with it.
        """
        request = range_request(feed, "/values", start, end, prefix, limit=limit)
        return self.ask(*request).addCallback(page_of)

    def has(self, values: Sequence[bytes], *, feed: str | None = None) -> Deferred[list[bool]]:
        """Which of 1 to 10,000 values are there."""
        body = {"values": hex_list(values)}
        asked = self.ask("POST", feed_path(feed, "/has"), body)
        return asked.addCallback(lambda answer: answer["has"])

    def count(self, *, feed: str | None = None) -> Deferred[CountForm]:
        """count, bytes and digest."""
        return self.ask("GET", feed_path(feed, "/count"))

    def count_range(
        self,
        *,
        feed: str | None = None,
        start: bytes = b"",
        end: bytes | None = None,
        prefix: bytes | None = None,
    ) -> Deferred[RangeCount]:
        """How many values with start <= value < end there are, or that begin with prefix, too."""
        return Deferred.fromCoroutine(self._count(feed, *narrowed(start, end, prefix)))

    async def _count(self, feed: str | None, start: bytes, end: bytes | None) -> RangeCount:
        count = size = 0
        following: bytes | None = start
        while following is not None:
            answer = await self.ask(*range_request(feed, "/values/count", following, end))
            count, size = count + answer["count"], size + answer["bytes"]
            following = None if answer["next"] is None else bytes.fromhex(answer["next"])
        return RangeCount(count, size)

    def watch(
        self,
        arrived: Callable[[Arrival], None],
        *,
        feed: str | None = None,
        start: bytes = b"",
        end: bytes | None = None,
        prefix: bytes | None = None,
        after: int | None = None,
    ) -> Deferred[Watch]:
        """Calls `arrived` with values as they arrive; fires when nothing is missed from then on.

        after: arrival number to begin behind (0: everything), default what arrives from now on.
        start, end, prefix: only values of this range, which the node itself picks out.
        """

        def opened(response: IResponse) -> Watch | Deferred[Any]:
            if response.code != 200:
                return self._read(response)
            watch = Watch(arrived)
            response.deliverBody(watch)
            return watch

        request = range_request(feed, "/watch", start, end, prefix, after=after)
        return self._send(*request).addCallback(opened)

    # Trust

    def find_key(self, key: str) -> Deferred[KeyFoundForm]:
        """The key that is meant by its beginning or its name: `key`, `name`."""
        return self.ask("GET", key_path("/v1/keys", key))

    def names(self) -> Deferred[list[NamedKeyForm]]:
        """What the node's operator calls keys."""
        return self.ask("GET", "/v1/names").addCallback(lambda answer: answer["names"])

    def name_key(self, key: bytes | str, name: str) -> Deferred[KeyNamedForm]:
        """Calls a key so on the node; `key`, `name`, and what it `was` called."""
        return self.ask("POST", "/v1/names", {"key": key_word(key), "name": name})

    def unname_key(self, key: bytes | str) -> Deferred[KeyNamedForm]:
        """Calls a key by no name any more; `was` is null if it had none."""
        return self.ask("DELETE", key_path("/v1/names", key))

    def links(self, *, feed: str | None = None) -> Deferred[list[LinkForm]]:
        """Every link stored for the feed."""
        asked = self.ask("GET", feed_path(feed, "/links"))
        return asked.addCallback(lambda answer: answer["links"])

    def members(self, *, feed: str | None = None) -> Deferred[list[MemberForm]]:
        """Who may write."""
        asked = self.ask("GET", feed_path(feed, "/members"))
        return asked.addCallback(lambda answer: answer["members"])

    # The request

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Deferred[Any]:
        """Any request of the API: the JSON of its answer, None for an empty one."""
        return self._send(method, path, body).addCallback(self._read)

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None) -> Deferred[Any]:
        headers = Headers()
        if self._token is not None:
            headers.setRawHeaders(b"authorization", [b"Bearer " + self._token.encode()])
        producer = None
        if body is not None:
            headers.setRawHeaders(b"content-type", [b"application/json"])
            producer = _Given(json.dumps(body).encode())
        url = f"{self._url}{path}".encode("ascii")
        sent: Deferred[Any] = self._agent.request(method.encode("ascii"), url, headers, producer)
        return sent.addErrback(_unreachable)

    def _read(self, response: IResponse) -> Deferred[Any]:
        body = _Body()
        response.deliverBody(body)
        whole: Deferred[Any] = body.read
        return whole.addErrback(_unreachable).addCallback(
            lambda data: answer_of(response.code, data, where="there")
        )


def _unreachable(failure: Failure) -> Failure:
    """Failures of the connection are one kind to callers; mistakes in code stay what they are."""
    if failure.check(TypeError, ValueError):
        return failure
    raise NodeUnreachable(f"no node answers ({failure.getErrorMessage()})") from None
