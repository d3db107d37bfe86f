"""One connection of the API: how much of it is read, how long it may take, and who goes first.

Over TCP a connection is a stranger's until a request on it shows the token, or a session. A
stranger gets one answer and ten seconds, and its connection is the first to go when others want in.
So no number of strangers keeps out who has the token.

Everything that is read is counted as work: so many requests a turn of the reactor, and no more once
the turn has taken its time. Who has shown the token and who has not take turns. The control socket
counts by itself, so that nothing that comes over TCP holds it up.
"""

# mypy: disallow-untyped-calls=False
# (twisted.web has no annotations on its requests and services)
from __future__ import annotations

import json
from io import BytesIO
from typing import Any

from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel
from twisted.web.resource import Resource
from twisted.web.server import Request, Site

from hyperbloom.api.http.access import Access, Rights
from hyperbloom.api.limits import (
    HEAD_SECONDS,
    IDLE_SECONDS,
    MAX_BODY_BYTES,
    MAX_HEAD_BYTES,
    MAX_HEADERS,
    MAX_LENGTH_DIGITS,
    MAX_OPEN_BODY_BYTES,
    MAX_OPEN_REFUSED_BYTES,
    MAX_REFUSED_BYTES,
    REQUESTS_PER_TURN,
    TURN_SECONDS,
)
from hyperbloom.api.problems import PROBLEM_MEDIA_TYPE, Problem
from hyperbloom.connections.reactor_budget import ReactorBudget
from hyperbloom.errors import ErrorKind

__all__ = ["ApiChannel", "ApiRequest", "ApiSite"]

_REASONS = {
    411: "Length Required",
    413: "Content Too Large",
    431: "Request Header Fields Too Large",
}


class ApiRequest(Request):
    """A request whose body is kept in memory up to a bound, and dropped beyond it."""

    gone = False
    received = 0
    content: BytesIO
    channel: ApiChannel
    #: What it may, and why it may nothing at all.
    rights = Rights.ALL
    refusal: Problem | None = None

    @property
    def most(self) -> int:
        """Bytes that its body may have."""
        return MAX_BODY_BYTES if self.rights else MAX_OPEN_BODY_BYTES

    def parseCookies(self) -> None:
        """Reads no cookies: nothing here looks at one, and a head can hold thousands."""

    def find_rights(self, access: Access) -> None:
        """Called when the headers are here, before the body."""
        try:
            self.rights = access.rights(self.requestHeaders)
        except Problem as problem:
            self.rights, self.refusal = Rights.NONE, problem

    def gotLength(self, length: int | None) -> None:
        """Called when the headers are here, before the body; None: it comes in chunks."""
        self.content = BytesIO()
        if self.rights:
            return
        if length is None:
            self.channel.refuse(411, "say the length of the body: without the token, no chunks")
        elif length > MAX_OPEN_REFUSED_BYTES:
            self.channel.refuse(413, f"no body has more than {MAX_BODY_BYTES:,} bytes; send parts")

    def handleContentChunk(self, data: bytes) -> None:
        """Called with each part of the body."""
        self.received += len(data)
        if self.received <= self.most:
            self.content.write(data)
        elif self.received > MAX_REFUSED_BYTES:
            self.channel.loseConnection()
        elif self.content.tell():
            self.content = BytesIO()

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        """Called when all of it is here. The query and the body are the endpoint's to read.

        twisted.web's own would read them as a form, at the cost of a body full of fields.
        """
        self.content.seek(0)
        self.args: dict[bytes, list[bytes]] = {}
        self.method, self.uri, self.clientproto = command, path, version
        self.path = path.partition(b"?")[0]
        self.process()

    def connectionLost(self, reason: Failure) -> None:
        """The client went before it was answered."""
        self.gone = True
        super().connectionLost(reason)


class ApiChannel(HTTPChannel):
    """One connection; its site knows it while it is open."""

    site: ApiSite
    MAX_LENGTH = MAX_HEAD_BYTES
    totalHeadersSize = MAX_HEAD_BYTES
    maxHeaders = MAX_HEADERS

    def __init__(self) -> None:
        super().__init__()
        #: Whether a request on it had the rights to anything.
        self.is_proved = False
        #: What came and waits for a turn of the reactor.
        self._unread = bytearray()
        self._is_waiting = self._is_answering = self._is_clogged = False
        self._head_bytes = 0
        self._deadline: Any = None

    # Its time

    def connectionMade(self) -> None:
        """Called when a client has connected."""
        super().connectionMade()
        self.is_proved = self.site.access is None
        if not self.site.admit(self):
            self.abort()
        elif not self.is_proved:
            self._set_deadline()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Called when the connection is over."""
        self._unread.clear()
        self._drop_deadline()
        self.site.channels.pop(self, None)
        super().connectionLost(reason)

    def abort(self) -> None:
        """Ends the connection at once. Nothing is logged: anybody can bring this about."""
        transport: Any = self.transport
        transport.abortConnection()

    def timeoutConnection(self) -> None:
        """Called when nothing came for long. Nothing is logged: any client could fill the log."""
        self.abort()

    def _set_deadline(self) -> None:
        if self._deadline is None:
            self._deadline = self.site.clock.callLater(HEAD_SECONDS, self._too_late)

    def _drop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        self._deadline = None
        self.abort()

    # Its turns

    def dataReceived(self, data: bytes) -> None:
        """Called with what came, of any length."""
        self._unread += data
        if not (self._is_waiting or self._is_answering):
            self._read()

    def _read(self) -> None:
        if self._is_clogged or not self.site.reactor_budget.take((self.is_proved,)):
            self._wait()
            return
        if self.line_mode:
            self._set_deadline()
        data = bytes(self._unread)
        self._unread.clear()
        super().dataReceived(data)

    def _wait(self) -> None:
        """Waits for the next turn; the system keeps what comes until then."""
        transport: Any = self.transport
        transport.pauseProducing()
        if not self._is_clogged:
            self._is_waiting = True
            self.site.reactor_budget.wait((self.is_proved,), self._go_on)

    def _go_on(self) -> None:
        self._is_waiting = False
        if self._unread:
            transport: Any = self.transport
            transport.resumeProducing()
            self._read()

    def requestDone(self, request: Any) -> None:
        """Called when a request is answered; the one behind it has the next turn."""
        self._unread[:0] = self.clearLineBuffer()
        self._is_answering = True
        super().requestDone(request)  # calls `dataReceived` with what it kept meanwhile
        self._is_answering = False
        if not self.persistent:
            self._unread.clear()
        elif self._unread and not self._is_waiting:
            self._wait()

    def pauseProducing(self) -> None:
        """Called when the client does not read its answers."""
        self._is_clogged = True
        super().pauseProducing()

    def resumeProducing(self) -> None:
        """Called when it does again."""
        self._is_clogged = False
        super().resumeProducing()
        if self._unread and not self._is_waiting:
            self._wait()

    # Its heads

    def lineReceived(self, line: bytes) -> None:
        """Called with each line of a head."""
        self._head_bytes += len(line) + len(self.delimiter)
        if self._head_bytes > MAX_HEAD_BYTES:
            self.lineLengthExceeded(line)
        else:
            super().lineReceived(line)

    def lineLengthExceeded(self, line: bytes) -> None:
        """Called with the beginning of a line that is too long."""
        self.refuse(
            431,
            f"the request line and the headers have more than {MAX_HEAD_BYTES:,} bytes; ranges of"
            " long values go into the body of a POST, see docs/api.md",
        )

    def headerReceived(self, line: bytes) -> bool:
        """Called with each header; False when the request is refused."""
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and len(value.strip()) > MAX_LENGTH_DIGITS:
            self.refuse(431, "no body has a length of so many digits")
            return False
        return bool(super().headerReceived(line))

    def checkPersistence(self, request: Any, version: bytes) -> bool:
        """Called when a head is here: whether the connection outlives its request."""
        self._head_bytes = 0
        if self.site.access is not None:
            request.find_rights(self.site.access)
        if request.rights and not self.is_proved:
            self.is_proved = True
        if self.is_proved:
            self._drop_deadline()
            return bool(super().checkPersistence(request, version))
        request.responseHeaders.setRawHeaders(b"connection", [b"close"])
        return False

    def refuse(self, status: int, sentence: str) -> None:
        """Answers a request that is not read to its end, and closes."""
        form = Problem(ErrorKind.BAD_REQUEST, sentence).as_json() | {"status": status}
        body = json.dumps(form).encode()
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {PROBLEM_MEDIA_TYPE}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self.write(head.encode() + body)
        self.loseConnection()


class ApiSite(Site):
    """twisted.web's factory without its access log, which would name feeds and ranges."""

    protocol: Any = ApiChannel
    noisy = False
    displayTracebacks = False

    def __init__(
        self,
        resource: Resource,
        *,
        reactor: Any,
        access: Access | None = None,
        most: int | None = None,
    ) -> None:
        super().__init__(resource, requestFactory=ApiRequest, timeout=IDLE_SECONDS, reactor=reactor)
        self.clock = reactor
        #: None: the transport is guarded already.
        self.access = access
        #: Connections at a time; None: any number.
        self.most = most
        #: In the order in which they came; the values say nothing.
        self.channels: dict[ApiChannel, None] = {}
        self.reactor_budget = ReactorBudget(reactor, most=REQUESTS_PER_TURN, seconds=TURN_SECONDS)

    def admit(self, channel: ApiChannel) -> bool:
        """Whether a new connection may stay; for it the oldest that has proved nothing goes."""
        if self.most is not None and len(self.channels) >= self.most:
            oldest = next((one for one in self.channels if not one.is_proved), None)
            if oldest is None:
                return False
            del self.channels[oldest]
            oldest.abort()
        self.channels[channel] = None
        return True

    def log(self, request: Any) -> None:
        """Called by each request at its end."""

    def close(self) -> None:
        """Closes every open connection; what was written is still sent."""
        for channel in list(self.channels):
            transport: Any = channel.transport
            transport.loseConnection()
