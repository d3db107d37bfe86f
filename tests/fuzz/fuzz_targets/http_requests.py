"""The API: heads, queries and bodies of HTTP, in front of a node in memory.

A request that ends in an answer of 500, or in a failure in the log, is a finding.
"""

from __future__ import annotations

import json
import tempfile
import zlib
from pathlib import Path
from typing import Any

from choices import Choices, piece
from fake_node import FakeNode
from threadless import Threadless
from twisted.internet.testing import StringTransport
from twisted.logger import globalLogPublisher

from hyperbloom.addresses import Address
from hyperbloom.api.http.access import Access
from hyperbloom.api.http.channel import ApiSite
from hyperbloom.api.http.server import ApiResource
from hyperbloom.api.limits import MAX_HEAD_BYTES
from hyperbloom.api.routes import ROUTER, ROUTES
from hyperbloom.api.service import ControlService

MAX_BYTES = 8_192
RUNS = 30

_TOKEN = "t" * 43
_PORT = 4366
_FOLDER = Path(tempfile.mkdtemp(prefix="hb-"))
#: The routes whose answer does not go on for ever.
_ROUTES = [route for route in ROUTES if route.media_types != ("text/event-stream",)]
_SAID = 4_000_000


def _name_of(method: str, path: str) -> bytes:
    """The three bytes that name a route in an input, whatever other routes there are."""
    return zlib.crc32(f"{method} {path}".encode()).to_bytes(4, "big")[:3]


_BY_NAME = {_name_of(route.method, route.path): route for route in _ROUTES}


_failures: list[str] = []


def _observe(event: dict[str, Any]) -> None:
    if event.get("log_failure") is not None:
        _failures.append(event["log_failure"].getTraceback())


globalLogPublisher.addObserver(_observe)


def fuzz(data: bytes) -> bool:
    """Requests on one connection; bytes as they are, or a body for one of the routes."""
    choices = Choices(data)
    clock = Threadless()
    service = ControlService(FakeNode(), _FOLDER / "control.sock", reactor=clock)
    guarded = choices.one_of((False, True))
    access = None
    if guarded:
        address, now = Address("127.0.0.1", _PORT), clock.seconds
        access = Access(address, _TOKEN, clock=clock.seconds, now=now)
    site = ApiSite(ApiResource(service.context, ROUTER), reactor=clock, access=access)
    channel = site.buildProtocol(None)
    transport = StringTransport()
    channel.makeConnection(transport)
    del _failures[:]
    for _ in range(16):
        if transport.disconnecting:
            break
        sent = _bytes_of(choices)
        if not sent:
            break
        channel.dataReceived(sent)
        clock.advance(0.01)
    said = transport.value()
    transport.loseConnection()
    channel.connectionLost(_gone())
    clock.advance(3_600)
    assert not _failures, _failures[0]
    assert b"HTTP/1.1 500 " not in said, said[-2_000:]
    assert len(said) <= _SAID
    assert not site.channels
    return said.startswith(b"HTTP/1.1 2")


def _gone() -> Any:
    from twisted.internet.error import ConnectionDone
    from twisted.python.failure import Failure

    return Failure(ConnectionDone())


def _bytes_of(choices: Choices) -> bytes:
    """Bytes as they stand in the input; or, behind a number, a whole request for a route."""
    how = choices.number()
    if how == 0:
        return choices.piece()
    name = choices.take(3)
    route = _BY_NAME.get(name) or _ROUTES[sum(name) % len(_ROUTES)]
    argument, query, body = choices.piece(), choices.piece(), choices.piece()
    path = route.path
    for name in ("{feed}", "{key}", "{hash}"):
        path = path.replace(name, argument.hex() if name == "{hash}" else "-")
    if argument and argument[0] & 1:
        path = route.path.replace("{feed}", "own").replace("{key}", argument.hex())
    head = f"{route.method} {path}".encode() + (b"?" + query if query else b"")
    head = head.replace(b"\r", b"").replace(b"\n", b"")[: MAX_HEAD_BYTES // 2]
    return (
        head + b" HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAuthorization: Bearer %b\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        % (_PORT, _TOKEN.encode(), len(body)) + body
    )  # fmt: skip


def _request(path: str, body: Any = None, *, query: bytes = b"", method: str = "POST") -> bytes:
    data = b"" if body is None else json.dumps(body).encode()
    return b"\x01" + _name_of(method, path) + piece(b"") + piece(query) + piece(data)


def seeds() -> dict[str, bytes]:
    """A request of each kind: heads as clients write them, and the bodies of the forms."""
    key = "3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29"
    friend = "8a88e3dd7409f195fd52db2d3cba5d72ca6709bf1d94121bf3748801b40f6f5c"
    get = b"GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1:4366\r\nAccept: */*\r\n\r\n"
    post = (
        b"POST /v1/feeds/-/has HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"10\r\n{\"values\":[\"61\"]\r\n1\r\n}\r\n0\r\n\r\n"
    )  # fmt: skip
    feed = "/v1/feeds/{feed}"
    found = {
        "head": b"\x00\x00" + piece(get),
        "twice": b"\x00\x00" + piece(get + get),
        "chunked": b"\x00\x00" + piece(post),
        "guarded": b"\x01" + _request("/v1/ping", method="GET"),
        "values": b"\x00" + _request(f"{feed}/values", {"values": ["61", "6262"]}),
        "range": b"\x00" + _request(
            f"{feed}/values", query=b"start=61&end=7a&limit=3", method="GET"
        ),
        "has": b"\x00" + _request(f"{feed}/has", {"values": ["61"]}),
        "deny": b"\x00" + _request("/v1/denied", {"key": key, "reason": "spam"}),
        "name": b"\x00" + _request("/v1/names", {"key": friend, "name": "alice"}),
        "join": b"\x00" + _request("/v1/feeds", {"key": key, "alias": "x"}),
        "links": b"\x00" + _request(f"{feed}/links", {"trustee": friend, "expires": 4e9}),
        "refused-chains": b"\x01" + _request(f"{feed}/chains", {"links": ["00" * 137]}),
        "synced": b"\x00" + _request(f"{feed}/synced", {"peers": ["x:1"], "timeout": "5s"}),
        "forget": b"\x00" + _request(f"{feed}/forget", {"values": ["61"]}),
        "fetch": b"\x00" + _request(f"{feed}/fetch", {"start": "61", "timeout": 5}),
        "peers": b"\x00" + _request("/v1/peers", query=b"offset=0&limit=5", method="GET"),
        "metrics": b"\x00" + _request("/metrics", method="GET"),
    }  # fmt: skip
    found["invite"] = b"\x00" + _request(
        f"{feed}/invitations", {"trustee": friend, "expires": 4e9, "addresses": ["192.0.2.2:1"]}
    )
    found["refused-accept"] = b"\x00" + _request(
        "/v1/invitations", {"invitation": "hyperbloom:AeGI"}
    )
    return found
