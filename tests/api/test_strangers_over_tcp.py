"""What somebody without the token can do to the server at the TCP port, with raw sockets."""

from __future__ import annotations

import contextlib
import json
import threading
import time

import pytest
from serving import PATIENCE
from stranger import Stranger, request
from twisted.logger import globalLogPublisher
from twisted.web.http_headers import Headers

from hyperbloom.api.http import channel as channels
from hyperbloom.api.http.server import ApiResource
from hyperbloom.api.limits import (
    HEAD_SECONDS,
    MAX_BODY_BYTES,
    MAX_CONNECTIONS,
    MAX_HEAD_BYTES,
    MAX_HEADERS,
    MAX_LENGTH_DIGITS,
    MAX_OPEN_BODY_BYTES,
    MAX_OPEN_REFUSED_BYTES,
    MAX_TARGET_BYTES,
    REQUESTS_PER_TURN,
)
from hyperbloom.client.client import Client
from hyperbloom.connections.reactor_budget import ReactorBudget

CLAIM = "/v1/sessions/claim"


@pytest.fixture
def logged():
    """What is logged meanwhile."""
    events = []
    globalLogPublisher.addObserver(events.append)
    yield events
    globalLogPublisher.removeObserver(events.append)


@pytest.fixture
def ticks(over_tcp, monkeypatch):
    """The turn of the reactor in which each request was answered."""
    reactor = over_tcp.thread.reactor
    turn = [0]
    found = []

    def tick():
        turn[0] += 1
        if turn[0] >= 0:
            reactor.callLater(0, tick)

    def render(self, request):
        found.append(turn[0])
        return whole(self, request)

    whole = ApiResource.render
    monkeypatch.setattr(ApiResource, "render", render)
    over_tcp.call(tick)
    yield found
    turn[0] = -(1 << 60)


def works(over_tcp, **more):
    return over_tcp.ask_tcp("/v1/ping", token=over_tcp.token, **more)[0] == 200


# Heads


def test_a_head_without_end_is_cut_off(over_tcp):
    """Each part of a line costs a copy of what is there of it, so that it must not grow long."""
    with Stranger(over_tcp.port, b"GET /" + b"x" * (MAX_HEAD_BYTES - 100)) as below:
        below.look(0.5)
        assert (below.got, below.ended) == (b"", False)
        below.send(b"x" * 200)
        assert below.wait().startswith(b"HTTP/1.1 431 Request Header Fields Too Large")
    assert works(over_tcp)


@pytest.mark.parametrize("line", [b"a: b\r\n", b"a: " + b"b" * 9_000 + b"\r\n", b" x\r\n"])
def test_headers_without_end_are_cut_off(over_tcp, line):
    head = request("GET", "/health", over_tcp.port)[:-2]
    with Stranger(over_tcp.port, head + line * (2 * MAX_HEAD_BYTES // len(line))) as one:
        one.wait()
        assert b"200" not in one.got[:16]


def test_one_header_more_than_there_may_be(over_tcp):
    head = request("GET", "/health", over_tcp.port)[:-2]
    with Stranger(over_tcp.port, head + b"a: b\r\n" * (MAX_HEADERS - 1) + b"\r\n") as one:
        assert one.wait().startswith(b"HTTP/1.1 200")
    with Stranger(over_tcp.port, head + b"a: b\r\n" * MAX_HEADERS + b"\r\n") as one:
        assert one.wait().startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("digits", [MAX_LENGTH_DIGITS + 1, 5_000])
def test_a_length_of_too_many_digits(over_tcp, logged, digits):
    rest = f"Content-Length: {'9' * digits}\r\n"
    with Stranger(over_tcp.port, request("POST", CLAIM, over_tcp.port, rest=rest)) as one:
        assert one.wait().startswith(b"HTTP/1.1 431")
    assert [event for event in logged if "log_failure" in event] == []


def test_what_is_refused_says_why(over_tcp):
    with Stranger(over_tcp.port, b"GET /" + b"x" * MAX_HEAD_BYTES) as one:
        head, _, body = one.wait().partition(b"\r\n\r\n")
    assert b"application/problem+json" in head
    assert json.loads(body)["status"] == 431
    assert "into the body of a POST" in json.loads(body)["detail"]


def test_a_cookie_of_thousands_is_not_read(over_tcp):
    """One that looks at each of them would be kept busy by a head that is full of them."""
    many = Headers({"cookie": [";" * (MAX_HEAD_BYTES - 200)]})
    assert channels.ApiRequest.parseCookies.__qualname__.startswith("ApiRequest")
    rest = f"Cookie: {many.getRawHeaders('cookie')[0]}\r\n"
    with Stranger(over_tcp.port, request("GET", "/health", over_tcp.port, rest=rest)) as one:
        assert one.wait().startswith(b"HTTP/1.1 200")


# Time


@pytest.mark.parametrize(
    ("first", "drip"),
    [
        pytest.param(b"", b"", id="silent"),
        pytest.param(b"GET /he", b"x", id="request line"),
        pytest.param(b"GET / HTTP/1.1\r\n", b"a: b\r\n", id="headers"),
        pytest.param(b"POST %s HTTP/1.1\r\nHost: HERE\r\nContent-Length: 9999\r\n\r\n", b"x",
                     id="body"),
    ],
)  # fmt: skip
def test_slow_strangers_are_ended(over_tcp, logged, monkeypatch, first, drip):
    """Whatever they send, and however often: no byte of theirs buys them more time."""
    monkeypatch.setattr(channels, "HEAD_SECONDS", 1.0)
    first = first.replace(b"%s", CLAIM.encode()).replace(b"HERE", b"127.0.0.1:%d" % over_tcp.port)
    began = time.monotonic()
    with Stranger(over_tcp.port, first) as one:
        while not one.look(0.05):
            one.send(drip)
            assert time.monotonic() - began < 240.0, "the connection is still open"
        assert one.got == b""
    assert works(over_tcp)
    # Nobody who can connect may fill the log.
    assert [event for event in logged if "client" in str(event.get("log_format"))] == []


def test_who_has_the_token_may_take_time(over_tcp, monkeypatch):
    """A head must come soon; then the connection stays, with a slow body and between requests."""
    assert HEAD_SECONDS == 10.0
    monkeypatch.setattr(channels, "HEAD_SECONDS", 1.0)
    body = b'{"values":["61"]}'
    head = request(
        "POST", "/v1/feeds/-/values", over_tcp.port, token=over_tcp.token,
        rest=f"Content-Length: {len(body)}\r\n",
    )  # fmt: skip
    with Stranger(over_tcp.port, head) as one:
        for byte in body:
            assert not one.look(0.15)
            one.send(bytes([byte]))
        one.look(1.5)
        assert one.got.startswith(b"HTTP/1.1 200")
        one.send(request("GET", "/v1/ping", over_tcp.port, token=over_tcp.token))
        one.look(1.5)
        assert one.got.count(b"HTTP/1.1 200") == 2
        one.send(b"GET /v1/pi")
        one.wait(240)


# Crowds


def test_a_crowd_of_strangers_keeps_nobody_out(over_tcp):
    strangers = []
    try:
        for _ in range(MAX_CONNECTIONS + 50):
            strangers.append(Stranger(over_tcp.port, b"GET / HT"))
        assert works(over_tcp)
        assert over_tcp.client().ping()
        assert sum(one.look() for one in strangers) >= 50
        # The oldest went.
        assert all(one.look(PATIENCE) for one in strangers[:50])
    finally:
        for one in strangers:
            one.close()


def test_who_has_proved_something_is_not_ended_for_strangers(over_tcp):
    over_tcp.tcp.site.most = 4
    kept = [over_tcp.tcp_connection() for _ in range(3)]
    for connection in kept:
        connection.request("GET", "/v1/ping", headers={"Authorization": f"Bearer {over_tcp.token}"})
        connection.getresponse().read()
    with Stranger(over_tcp.port, b"GET") as first, Stranger(over_tcp.port, b"GET") as second:
        first.wait()
        assert not second.look(0.2)
        assert works(over_tcp)
        second.wait()
    for connection in kept:
        connection.request("GET", "/v1/ping", headers={"Authorization": f"Bearer {over_tcp.token}"})
        assert connection.getresponse().read()
        connection.close()


def is_answered(over_tcp):
    try:
        return works(over_tcp)
    except ConnectionError:
        return False


def test_connections_that_never_end(over_tcp):
    """While somebody opens one after the other, the owner's requests are answered all the same.

    A connection goes if as many newer ones as there may be come before its head is read; so one
    in a row of three may be lost on a machine that is busy.
    """
    stop = threading.Event()
    opened = []

    def crowd():
        while not stop.is_set() and len(opened) < 20_000:
            opened.append(Stranger(over_tcp.port, b"GET / HTTP/1.1\r\n"))
            if len(opened) > 200:
                opened[len(opened) - 200].close()

    thread = threading.Thread(target=crowd, daemon=True)
    thread.start()
    try:
        for _ in range(20):
            assert any(is_answered(over_tcp) for _ in range(3))
            assert over_tcp.ask("GET", "/v1/ping")[0] == 200
    finally:
        stop.set()
        thread.join(PATIENCE)
        for one in opened:
            with contextlib.suppress(OSError):
                one.close()


# Requests behind each other, and bodies


def test_a_stranger_gets_one_answer(over_tcp, ticks):
    with Stranger(over_tcp.port, request("GET", "/health", over_tcp.port) * 1_000) as one:
        one.wait()
    assert len(ticks) == 1
    assert one.got.count(b"HTTP/1.1 ") <= 1  # the reset may overtake it


def test_requests_in_a_row_fill_no_turn(over_tcp, ticks):
    head = request("GET", "/v1/ping", over_tcp.port, token=over_tcp.token)
    with Stranger(over_tcp.port, head * 200) as one:
        while one.got.count(b"HTTP/1.1 200") < 200:
            assert not one.look(1.0)
    assert len(ticks) == 200
    assert max(map(ticks.count, ticks)) <= REQUESTS_PER_TURN


def test_all_together_have_so_many_a_turn(over_tcp, ticks):
    reactor = over_tcp.thread.reactor
    over_tcp.tcp.site.reactor_budget = ReactorBudget(reactor, most=8, seconds=60.0)
    # In their thread nothing is read until all have asked.
    held = threading.Event()
    reactor.callFromThread(held.wait, PATIENCE)
    head = request("GET", "/health", over_tcp.port)
    strangers = [Stranger(over_tcp.port, head) for _ in range(60)]
    held.set()
    for one in strangers:
        assert one.wait().startswith(b"HTTP/1.1 200")
        one.close()
    assert len(ticks) == 60
    assert max(map(ticks.count, ticks)) <= 8


def test_a_client_that_reads_nothing_is_asked_for_patience(over_tcp, ticks):
    """Its answers wait in memory, so its further requests wait in the system's."""
    head = request("GET", "/v1/openapi.json", over_tcp.port, token=over_tcp.token)
    with Stranger(over_tcp.port, head * 200) as one:
        count = -1
        while count != len(ticks):
            count = len(ticks)
            time.sleep(0.5)
        assert count < 150
        while one.got.count(b"HTTP/1.1 200") < 200:
            assert not one.look(1.0)
    assert len(ticks) == 200


def test_chunks_are_for_who_has_the_token(over_tcp):
    rest = "Transfer-Encoding: chunked\r\n"
    with Stranger(over_tcp.port, request("POST", CLAIM, over_tcp.port, rest=rest)) as one:
        assert one.wait().startswith(b"HTTP/1.1 411 Length Required")
    head = request("POST", "/v1/feeds/-/values", over_tcp.port, token=over_tcp.token, rest=rest)
    body = b"".join(b"1\r\n%c\r\n" % byte for byte in b'{"values":["61"]}') + b"0\r\n\r\n"
    with Stranger(over_tcp.port, head + body) as one:
        one.look(1.0)
        assert one.got.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("body", [b"5;" + b"x" * 5_000 + b"\r\n", b"0\r\n" + b"a: b\r\n" * 20_000])
def test_extensions_and_trailers_of_chunks_are_bounded(over_tcp, body):
    rest = "Transfer-Encoding: chunked\r\n"
    head = request("POST", "/v1/feeds/-/values", over_tcp.port, token=over_tcp.token, rest=rest)
    with Stranger(over_tcp.port, head + body) as one:
        assert one.wait().startswith((b"HTTP/1.1 400", b""))
    assert works(over_tcp)


def test_a_long_body_without_the_token(over_tcp):
    """So much is read that who has a wrong token comes to know it, and no more."""
    assert MAX_OPEN_BODY_BYTES < MAX_BODY_BYTES <= MAX_OPEN_REFUSED_BYTES

    def sent(length, body):
        rest = f"Content-Length: {length}\r\n"
        head = request("POST", "/v1/feeds/-/values", over_tcp.port, token="no", rest=rest)
        with Stranger(over_tcp.port, head + body) as one:
            return one.wait()

    most = MAX_OPEN_REFUSED_BYTES
    assert sent(most, b"x" * most).startswith(b"HTTP/1.1 401")
    assert sent(most + 1, b"").startswith(b"HTTP/1.1 413")


def test_a_form_is_not_read_as_one(over_tcp):
    """A body full of fields would cost a second to take apart."""
    rest = "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 5\r\n"
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        whole = ApiResource.render
        patch.setattr(
            ApiResource, "render", lambda self, one: (seen.append(one.args), whole(self, one))[1]
        )
        head = request("POST", CLAIM + "?a=b", over_tcp.port, rest=rest)
        with Stranger(over_tcp.port, head + b"a=b&c") as one:
            assert one.wait().startswith(b"HTTP/1.1 400")
    assert seen == [{}]


# Ranges too long for a head


@pytest.mark.parametrize("length", [MAX_TARGET_BYTES // 8, 300_000])
def test_ranges_of_long_values(over_tcp, length):
    """The next page begins with a value that no head could hold."""
    values = [bytes([97 + n]) * length for n in range(4)]
    token = over_tcp.token_path
    with Client.over_tcp(f"127.0.0.1:{over_tcp.port}", token, timeout=PATIENCE) as client:
        for value in values:
            client.put([value])
        assert [one for page in client.pages(page=1) for one in page] == values
        assert list(client.range(start=values[1], end=values[3])) == values[1:3]
        watch = client.watch(start=values[1], end=values[3], after=0)
        assert next(watch) is None
        assert [next(watch).value, next(watch).value] == values[1:3]
        watch.close()
        assert client.forgotten_page(start=values[1], end=values[2])[0] == []


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ({"start": 1}, "start must be a text"),
        ({"limit": "1"}, "limit must be"),
        ({"limit": True}, "limit must be"),
        ({"limit": 0}, "limit must be at least 1"),
        ({"begin": ""}, "begin"),
        ({"start": "zz"}, "hex digits"),
        ([], "a JSON object"),
    ],
)
def test_ranges_that_are_refused(served, body, part):
    status, _, form = served.ask("POST", "/v1/feeds/-/values/range", body)
    assert status == 400
    assert part in form["detail"]
