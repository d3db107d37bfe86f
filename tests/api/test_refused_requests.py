"""What a request may not be: its values, its sizes, and what is no HTTP at all."""

from __future__ import annotations

import contextlib
import json
import socket

import pytest

from hyperbloom.api.limits import (
    LATEST_EXPIRY,
    MAX_BODY_BYTES,
    MAX_FEED_PEERS,
    MAX_FEED_RANGES,
    MAX_FETCH_SECONDS,
    MAX_HEAD_BYTES,
    MAX_LINKS,
    MAX_OFFSET,
    MAX_QUERY_FIELDS,
    MAX_SYNCED_PEERS,
    MAX_SYNCED_SECONDS,
    MAX_VALUES,
)
from hyperbloom.keys import Identity

VALUES = "/v1/feeds/-/values"
KEY = Identity(b"o" * 32).public_key.hex()

REFUSED = [
    # method, path, body, status, end of the type, part of the detail
    ("GET", "/nothing", None, 404, "not-found", "nothing at this path"),
    ("GET", "/v1", None, 404, "not-found", "nothing at this path"),
    ("GET", "/v1/", None, 404, "not-found", "nothing at this path"),
    ("GET", "/v2/ping", None, 404, "not-found", "nothing at this path"),
    ("GET", "/v1/ping/more", None, 404, "not-found", "nothing at this path"),
    ("GET", "/v1/feeds//values", None, 404, "not-found", "nothing at this path"),
    ("GET", "/v1/feeds/-/", None, 404, "not-found", "nothing at this path"),
    ("PUT", VALUES, {}, 405, "method-not-allowed", "GET, POST only"),
    ("GET", "/v1/feeds/nobody", None, 404, "unknown-feed", "no feed 'nobody'"),
    ("POST", VALUES, b"{", 400, "bad-request", "not JSON"),
    ("POST", VALUES, b"\xff", 400, "bad-request", "not JSON"),
    ("POST", VALUES, b"[" * 100_000, 400, "bad-request", "not JSON"),
    ("POST", VALUES, b'{"values":["\\uD800"]}', 400, "bad-request", "not JSON"),
    ("POST", VALUES, b'{"\\udfff":1}', 400, "bad-request", "not JSON"),
    ("POST", VALUES, b'{"values":["\\ud83d\\ude00"]}', 400, "bad-request", "hex digits"),
    ("POST", VALUES, None, 400, "bad-request", "not JSON"),
    ("POST", VALUES, [], 400, "bad-request", "a JSON object"),
    ("POST", VALUES, {}, 400, "bad-request", "values is missing: it must be a list"),
    ("POST", VALUES, {"values": "61"}, 400, "bad-request", "values must be a list"),
    ("POST", VALUES, {"values": []}, 400, "bad-request", "at least one"),
    ("POST", VALUES, {"values": [1]}, 400, "bad-request", "hex digits"),
    ("POST", VALUES, {"values": ["6"]}, 400, "bad-request", "hex digits"),
    ("POST", VALUES, {"values": ["zz"]}, 400, "bad-request", "hex digits"),
    ("POST", VALUES, {"values": [""]}, 400, "bad-request", "at least one byte"),
    ("POST", VALUES, {"values": ["61"] * (MAX_VALUES + 1)}, 400, "bad-request",
     "values may hold 10,000, these are 10,001; send fewer"),
    ("POST", VALUES, {"values": ["61"], "if": "new"}, 400, "bad-request", "'if' is not known"),
    ("POST", "/v1/feeds/-/has", {"values": [None]}, 400, "bad-request", "hex digits"),
    ("POST", "/v1/feeds/-/has", {"values": ["61"], "A": 1}, 400, "bad-request", "'A' is not"),
    ("GET", VALUES + "?limit=0", None, 400, "bad-request", "limit must be a whole number"),
    ("GET", VALUES + "?limit=-1", None, 400, "bad-request", "limit must be a whole number"),
    ("GET", VALUES + "?limit=1e3", None, 400, "bad-request", "limit must be a whole number"),
    ("GET", VALUES + "?limit=99999", None, 400, "bad-request", "from 1 to 10,000"),
    ("GET", VALUES + "?limit=" + "9" * 5000, None, 400, "bad-request", "from 1 to 10,000"),
    ("GET", VALUES + "?limit=" + "0" * 19 + "1" + "0" * 9, None, 400, "bad-request", "10,000"),
    ("GET", VALUES + "?limit=" + "0" * 19 + "1" * 5000, None, 400, "bad-request", "10,000"),
    ("GET", "/v1/feeds/-/watch?after=" + "1" * 21, None, 400, "bad-request", "after must be"),
    ("POST", "/v1/snapshots", {"target": "/a\0b"}, 400, "bad-request", "NUL"),
    ("GET", VALUES + "?start=z", None, 400, "bad-request", "start must be a text of hex"),
    ("GET", VALUES + "?start=61&start=62", None, 400, "bad-request", "there twice"),
    ("GET", VALUES + "?begin=61", None, 400, "bad-request", "no query parameter 'begin'"),
    ("GET", VALUES + "?" + "a=1&" * 40, None, 400, "bad-request", "cannot be read"),
    ("GET", "/v1/feeds/-/watch?after=x", None, 400, "bad-request", "after must be"),
    ("POST", "/v1/feeds/-/synced", {}, 400, "bad-request", "peers is missing"),
    ("POST", "/v1/feeds/-/synced", {"peers": []}, 400, "bad-request", "at least one"),
    ("POST", "/v1/feeds/-/synced", {"peers": [1]}, 400, "bad-request", "peers must be a text"),
    ("POST", "/v1/feeds/-/synced", {"peers": ["a"] * (MAX_SYNCED_PEERS + 1)}, 400, "bad-request",
     "peers may hold 64"),
    ("POST", "/v1/feeds/-/synced", {"peers": ["a"], "for": 1}, 400, "bad-request", "'for'"),
    ("POST", "/v1/feeds/-/synced", {"peers": ["a"], "timeout": 0}, 400, "bad-request", "timeout"),
    ("POST", "/v1/feeds/-/fetch", {"timeout": 0}, 400, "bad-request", "timeout must be"),
    ("POST", "/v1/feeds/-/fetch", {"timeout": True}, 400, "bad-request", "timeout must be"),
    ("POST", "/v1/feeds/-/fetch", {"timeout": "soon"}, 400, "bad-request", "not a duration"),
    ("POST", "/v1/feeds/-/fetch", {"limit": 0}, 400, "bad-request", "at least 1"),
    ("POST", "/v1/feeds/-/fetch", {"limits": 1}, 400, "bad-request", "'limits' is not known"),
    ("POST", "/v1/feeds", {}, 400, "bad-request", "key is missing"),
    ("POST", "/v1/feeds", {"key": 1}, 400, "bad-request", "key must be a public key"),
    ("POST", "/v1/feeds", {"key": "61"}, 400, "bad-request", "64 hex digits"),
    ("POST", "/v1/feeds", {"key": KEY, "mode": "x"}, 400, "bad-request", "mode must be one of"),
    ("POST", "/v1/feeds", {"key": KEY, "mode": "range"}, 400, "bad-request", "ranges"),
    ("POST", "/v1/feeds", {"key": KEY, "alias": "-"}, 400, "bad-request", "no alias"),
    ("POST", "/v1/feeds", {"key": KEY, "alias": 3}, 400, "bad-request", "alias must be a text"),
    ("POST", "/v1/feeds", {"key": KEY, "dialect": "9"}, 400, "bad-request", "dialect must be"),
    ("POST", "/v1/feeds", {"key": KEY, "peers": ["x"]}, 400, "bad-request", "HOST:PORT"),
    ("POST", "/v1/feeds", {"key": KEY, "peers": [1]}, 400, "bad-request", "must be a text"),
    ("POST", "/v1/feeds", {"key": KEY, "peers": "x"}, 400, "bad-request", "a list"),
    ("POST", "/v1/feeds", {"key": KEY, "ranges": [["61"]]}, 400, "bad-request", "start and end"),
    ("POST", "/v1/feeds", {"key": KEY, "ranges": ["61"]}, 400, "bad-request", "start and end"),
    ("POST", "/v1/feeds", {"key": KEY, "peers": ["h:1"] * (MAX_FEED_PEERS + 1)}, 400,
     "bad-request", "peers may hold 64"),
    ("POST", "/v1/feeds", {"key": KEY, "ranges": [["61", "62"]] * (MAX_FEED_RANGES + 1)}, 400,
     "bad-request", "64"),
    ("POST", "/v1/feeds/-/fetch", {"timeout": MAX_FETCH_SECONDS + 1}, 400, "bad-request",
     "timeout must be"),
    ("POST", "/v1/feeds/-/synced", {"peers": ["a"], "timeout": MAX_SYNCED_SECONDS + 1}, 400,
     "bad-request", "timeout must be"),
    ("GET", f"/v1/peers?offset={MAX_OFFSET + 1}", None, 400, "bad-request", "offset must be"),
    ("GET", VALUES + "?" + "&".join(f"n{n}=1" for n in range(MAX_QUERY_FIELDS + 1)), None, 400,
     "bad-request", "cannot be read"),
    ("POST", "/v1/feeds/-/links", {"trustee": KEY, "expires": LATEST_EXPIRY + 1}, 400,
     "bad-request", "seconds since 1970"),
    ("POST", "/v1/feeds", {"key": KEY, "peer": []}, 400, "bad-request", "'peer' is not known"),
    ("POST", "/v1/feeds/-/links", {"expires": 1}, 400, "bad-request", "trustee is missing"),
    ("POST", "/v1/feeds/-/links", {"trustee": KEY}, 400, "bad-request", "expires is missing"),
    ("POST", "/v1/feeds/-/links", b'{"trustee":"%s","expires":NaN}' % KEY.encode(), 400,
     "bad-request", "seconds since 1970"),
    ("POST", "/v1/feeds/-/links", {"trustee": KEY, "expires": 1e300}, 400, "bad-request",
     "seconds since 1970"),
    ("POST", "/v1/feeds/-/chains", {"links": []}, 400, "bad-request", "at least one"),
    ("POST", "/v1/feeds/-/chains", {"links": ["61"] * (MAX_LINKS + 1)}, 400, "bad-request",
     "may hold 64"),
    ("POST", "/v1/feeds/-/invitations", {"trustee": KEY, "expires": 9e9, "addresses": ["x"]}, 400,
     "bad-request", "HOST:PORT"),
    ("POST", "/v1/feeds/-/invitations", {"trustee": KEY, "expires": 9e9, "addresses": "x"}, 400,
     "bad-request", "addresses must be a list"),
    ("POST", "/v1/invitations", {"invitation": 1}, 400, "bad-request", "must be a text"),
    ("POST", "/v1/snapshots", {"target": "relative"}, 400, "bad-request", "absolute path"),
    ("POST", "/v1/snapshots", {}, 400, "bad-request", "target is missing"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "kind", "part"),
    REFUSED,
    ids=[f"{case[0]} {case[1][:40]} {str(case[2])[:40]}" for case in REFUSED],
)
def test_what_is_refused(served, method, path, body, status, kind, part):
    found, headers, form = served.ask(method, path, body)
    assert headers["content-type"] == "application/problem+json"
    assert form["type"] == f"urn:hyperbloom:problem:{kind}"
    assert form["status"] == status == found
    assert part in form["detail"]
    assert form["title"]
    assert "Traceback" not in form["detail"]
    assert not served.node.calls or served.node.calls[0][0] == "insert"
    if status == 405:
        assert headers["allow"] == "GET, POST"


def test_a_body_at_its_bound_and_beyond(served):
    room = MAX_BODY_BYTES - len('{"values":[""]}')
    # "61" in white space: the body is as long as it may be.
    body = b'{"values":["61"' + b" " * (room - 2) + b"]}"
    assert len(body) == MAX_BODY_BYTES
    assert served.ask("POST", VALUES, body)[0] == 200
    connection = served.connection()
    connection.request("POST", VALUES, body + b" ")
    response = connection.getresponse()
    form = json.loads(response.read())
    assert (response.status, form["type"]) == (413, "urn:hyperbloom:problem:too-large")
    # The connection can go on.
    connection.request("GET", "/v1/ping")
    assert connection.getresponse().status == 200
    connection.close()


def test_a_body_without_a_length_is_bounded_too(served):
    parts = (b'{"values":["' if n == 0 else b"61" * 32_768 for n in range(40))
    connection = served.connection()
    connection.request("POST", VALUES, parts, encode_chunked=True)
    response = connection.getresponse()
    assert response.status == 413
    response.read()
    connection.close()


def test_a_head_at_its_bound_and_beyond(served):
    def status(length):
        with served.connection().sock as sender:
            sender.settimeout(240)
            head = b"GET /v1/ping HTTP/1.1\r\nHost: x\r\nX-Long: "
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                sender.sendall(head + b"x" * length + b"\r\n\r\n")
            try:
                return sender.recv(12)
            except ConnectionResetError:
                return b""

    assert status(MAX_HEAD_BYTES - 1_000) == b"HTTP/1.1 200"
    assert b"200" not in status(MAX_HEAD_BYTES + 1)


def test_a_sender_that_never_stops_is_cut(served):
    with served.connection().sock as sender:
        sender.sendall(
            b"POST /v1/feeds HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999999\r\n\r\n"
        )
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            sender.sendall(bytes(1 << 28))


def test_what_is_not_http_is_turned_away(served):
    with served.connection().sock as sender:
        sender.sendall(b"\x00\x01\x02 nonsense\r\n\r\n")
        sender.shutdown(socket.SHUT_WR)
        assert sender.recv(100).startswith(b"HTTP/1.1 400")
    assert served.client().ping()
