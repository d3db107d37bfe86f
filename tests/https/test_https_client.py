"""What a server can do to the https client: nothing but one sentence, in the time that was set.

The servers are real, on 127.0.0.1, with certificates that the test makes.
"""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tls_servers import Answering, Authority, TlsServer, moved, plainly, saying, tunnel

from hyperbloom import __version__
from hyperbloom.https import RequestFailed, destinations, request
from hyperbloom.https.limits import MAX_ADDRESSES, MAX_REDIRECTS

CEILING = 60.0
OK = b"HTTP/1.1 200 OK\r\n"
LIST = b"one.example\ntwo.example\n"

pytestmark = pytest.mark.usefixtures("trust")


Serve = Callable[..., TlsServer]


@pytest.fixture
def serve(authority: Authority) -> Iterator[Serve]:
    begun: list[TlsServer] = []

    def server(answer: Answering, *names: str, tls: bool = True, **options: Any) -> TlsServer:
        context = authority.context(*(names or ("127.0.0.1",)), **options) if tls else None
        begun.append(TlsServer(answer, context).__enter__())
        return begun[-1]

    yield server
    for one in begun:
        one.__exit__(None, None, None)


def fetched(
    url: str, *, seconds: float = CEILING, max_bytes: int = 1_000_000, **more: Any
) -> bytes:
    into = io.BytesIO()
    answer = request("GET", url, seconds=seconds, into=into, max_bytes=max_bytes, **more)
    assert answer.status == 200
    return into.getvalue()


def refused(url: str, match: str, **more: Any) -> str:
    with pytest.raises(RequestFailed, match=match) as caught:
        fetched(url, **more)
    sentence = str(caught.value)
    assert sentence.isprintable()
    assert "\n" not in sentence
    return sentence


def answers_of_names(monkeypatch: pytest.MonkeyPatch, names: dict[str, list[str]]) -> list[str]:
    """Has the resolver answer these, and lists the names that it was asked for."""
    real = socket.getaddrinfo
    asked: list[str] = []

    def getaddrinfo(host: str, port: int, *args: Any, **named: Any) -> Any:
        if host not in names:
            return real(host, port, *args, **named)
        asked.append(host)
        return [found for it in names[host] for found in real(it, port, *args, **named)]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return asked


class TestAnswers:
    def test_a_list(self, serve: Serve) -> None:
        server = serve(plainly(LIST, b'ETag: "v1"'))
        into = io.BytesIO()
        answer = request(
            "GET",
            server.url("/list?a=b"),
            seconds=CEILING,
            headers={"If-None-Match": '"v0"'},
            into=into,
            max_bytes=len(LIST),
        )
        assert into.getvalue() == LIST
        assert answer.headers["etag"] == '"v1"'
        head = server.requests[0].decode()
        assert head.startswith("GET /list?a=b HTTP/1.1\r\n")
        assert f"Host: 127.0.0.1:{server.port}\r\n" in head
        assert f"User-Agent: hyperbloom/{__version__}\r\n" in head
        assert 'If-None-Match: "v0"\r\n' in head
        assert "Accept-Encoding: identity\r\n" in head

    def test_a_name_is_checked_against_the_certificate(
        self, serve: Serve, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = answers_of_names(monkeypatch, {"list.test": ["127.0.0.1"]})
        server = serve(plainly(LIST), "list.test")
        assert fetched(server.url(host="list.test")) == LIST
        assert asked == ["list.test"]
        assert f"Host: list.test:{server.port}\r\n".encode() in server.requests[0]

    def test_post(self, serve: Serve) -> None:
        server = serve(plainly(b"thanks", status=b"202 Accepted"), tls=False)
        answer = request(
            "POST",
            server.url("/hook"),
            seconds=CEILING,
            headers={"Content-Type": "application/x-ndjson"},
            body=b'{"value":"a"}\n',
            http_on_loopback=True,
        )
        assert answer.status == 202
        assert b"Content-Length: 14\r\n" in server.requests[0]
        assert server.requests[0].endswith(b'\r\n\r\n{"value":"a"}\n')

    def test_post_follows_no_redirect(self, serve: Serve) -> None:
        server = serve(moved("https://127.0.0.1/", 307))
        with pytest.raises(RequestFailed, match="redirects, which only GET follows"):
            request("POST", server.url(), seconds=CEILING, body=b"secret")
        assert len(server.requests) == 1

    def test_a_body_that_nobody_asked_for_is_not_read(self, serve: Serve) -> None:
        server = serve(saying(b"HTTP/1.1 500 Oops\r\nContent-Length: 1000000000\r\n\r\n"))
        assert request("GET", server.url(), seconds=CEILING, into=io.BytesIO()).status == 500

    def test_another_address_of_the_name_is_tried(
        self, serve: Serve, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        server = serve(plainly(LIST), "list.test")
        # Nobody listens on the first.
        answers_of_names(monkeypatch, {"list.test": ["127.0.0.9", "127.0.0.1"]})
        assert fetched(server.url(host="list.test")) == LIST

    def test_addresses_beyond_the_limit_are_not_tried(
        self, serve: Serve, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        server = serve(plainly(LIST), "list.test")
        dead = [f"127.0.1.{number}" for number in range(1, MAX_ADDRESSES + 1)]
        answers_of_names(monkeypatch, {"list.test": [*dead[1:], "127.0.0.1"]})
        assert fetched(server.url(host="list.test")) == LIST
        answers_of_names(monkeypatch, {"list.test": [*dead, "127.0.0.1"]})
        refused(server.url(host="list.test"), "cannot be reached")


class TestBodies:
    @pytest.mark.parametrize("tail", [b"", b"Trailer: x\r\n"])
    def test_chunks(self, serve: Serve, tail: bytes) -> None:
        raw = (
            OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\none\r\n1\r\n\n\r\n0\r\n" + tail + b"\r\n"
        )
        assert fetched(serve(saying(raw)).url()) == b"one\n"

    def test_a_body_that_ends_with_the_connection(self, serve: Serve) -> None:
        assert fetched(serve(saying(OK + b"\r\n" + LIST)).url()) == LIST

    @pytest.mark.parametrize(
        ("raw", "match"),
        [
            (b"Content-Length: 100\r\n\r\nshort", "broke off"),
            (b"Transfer-Encoding: chunked\r\n\r\n64\r\nshort", "broke off"),
            (b"Transfer-Encoding: chunked\r\n\r\n3\r\none\r\n", "broke off"),
            (b"Transfer-Encoding: chunked\r\n\r\nzz\r\none\r\n", "broke off"),
            (b"Transfer-Encoding: chunked\r\n\r\n" + b"1" * 200_000, "broke off"),
            (b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", "broke off|does not speak"),
            (b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nabcde", "compressed"),
            (b"Content-Length: 101\r\n\r\n", "more than 100 bytes"),
            (b"Content-Length: " + b"9" * 4_000 + b"\r\n\r\n", "more than 100 bytes"),
            (b"\r\n" + b"a" * 101, "more than 100 bytes"),
            (b"Transfer-Encoding: chunked\r\n\r\n65\r\n" + b"a" * 101, "broke off|more than"),
            (b"X: y\r\n" * 200 + b"\r\n", "does not speak"),
            (b"X: " + b"y" * 100_000 + b"\r\n\r\n", "does not speak"),
        ],
    )
    def test_bodies_and_heads_that_are_refused(self, serve: Serve, raw: bytes, match: str) -> None:
        refused(serve(saying(OK + raw)).url(), match, max_bytes=100)

    def test_a_body_of_the_greatest_length(self, serve: Serve) -> None:
        assert fetched(serve(plainly(b"a" * 100)).url(), max_bytes=100) == b"a" * 100

    @pytest.mark.parametrize(
        "raw", [b"", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 ", b"HTTP/9 x y\r\n\r\n"]
    )
    def test_no_http(self, serve: Serve, raw: bytes) -> None:
        refused(serve(saying(raw)).url(), "does not speak HTTP")

    def test_an_end_that_tls_did_not_announce_is_no_end(self, serve: Serve) -> None:
        def cut(connection: socket.socket, _: bytes) -> None:
            connection.sendall(OK + b"\r\n" + LIST)
            connection.shutdown(socket.SHUT_RDWR)

        refused(serve(cut).url(), "broke the connection off")

    def test_an_endless_body(self, serve: Serve) -> None:
        def endless(connection: socket.socket, _: bytes) -> None:
            connection.sendall(OK + b"\r\n")
            while not server.ended.is_set():
                connection.sendall(b"a" * 65_536)

        server = serve(endless)
        refused(server.url(), "more than 1000000 bytes")

    def test_what_cannot_be_written(self, serve: Serve) -> None:
        url = serve(plainly(LIST)).url()
        with (
            Path("/dev/full").open("wb", buffering=0) as full,
            pytest.raises(RequestFailed, match="cannot be written: No space left"),
        ):
            request("GET", url, seconds=CEILING, into=full, max_bytes=99)


class TestTime:
    """Each server here would go on for ever."""

    @pytest.mark.parametrize(
        "before",
        [None, b"", b"HTTP/1.1 100 Continue\r\n\r\n", OK + b"X: ", OK + b"\r\n"],
        ids=["handshake", "nothing", "continues", "header", "body"],
    )
    def test_a_server_that_drips(self, serve: Serve, before: bytes | None) -> None:
        def drip(connection: socket.socket, _: bytes) -> None:
            while not server.ended.wait(0.02):
                connection.sendall(b"a" if before != b"HTTP/1.1 100 Continue\r\n\r\n" else before)

        def begin(connection: socket.socket, head: bytes) -> None:
            connection.sendall(before or b"")
            drip(connection, head) if before else server.ended.wait(CEILING)

        if before is None:
            server = serve(begin, tls=False)
            url = server.url().replace("http:", "https:")
        else:
            server = serve(begin)
            url = server.url()
        refused(url, "no whole answer within 0.5 s|took too long|does not answer", seconds=0.5)

    def test_a_resolver_that_hangs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        ended = socket.socketpair()
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: ended[0].recv(1))
        begun = time.monotonic()
        refused("https://slow.test/", "no whole answer within 0.2 s", seconds=0.2)
        assert time.monotonic() - begun < CEILING
        for end in ended:
            end.shutdown(socket.SHUT_RDWR)
            end.close()


class TestTrust:
    def test_a_certificate_of_another_name(self, serve: Serve) -> None:
        sentence = refused(serve(plainly(LIST), "other.test").url(), "certificate of 127.0.0.1")
        assert "IP address mismatch" in sentence

    def test_a_certificate_that_nobody_signed(self, serve: Serve) -> None:
        refused(serve(plainly(LIST), "127.0.0.1", self_signed=True).url(), "self-signed")

    def test_a_certificate_of_an_unknown_authority(
        self, serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("SSL_CERT_FILE", str(Authority.make(tmp_path).file))
        refused(serve(plainly(LIST)).url(), "name the CA's file in SSL_CERT_FILE")

    def test_no_tls(self, serve: Serve) -> None:
        server = serve(plainly(LIST), tls=False)
        refused(server.url().replace("http:", "https:"), "check that this port speaks https")

    def test_nobody_listens(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = listening.getsockname()[1]
        refused(f"https://127.0.0.1:{port}/", "cannot be reached: Connection refused")

    def test_a_name_that_is_not_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def getaddrinfo(*_: Any, **__: Any) -> Any:
            raise socket.gaierror(socket.EAI_NONAME, "\x1b[31mwhat the system says")

        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
        refused("https://nothing.invalid/", "nothing.invalid has no address")


PRIVATE = [
    "127.0.0.1", "127.1", "2130706433", "0x7f.1", "0", "10.0.0.1", "172.16.0.1", "192.168.1.1",
    "169.254.169.254", "100.64.0.1", "224.0.0.1", "255.255.255.255", "240.0.0.1", "[::1]", "[::]",
    "[::ffff:127.0.0.1]", "[::ffff:a00:1]", "[64:ff9b::7f00:1]", "[64:ff9b:1::1]",
    "[2002:7f00:1::]",
    "[fe80::1]", "[fc00::1]", "[fec0::1]", "[ff02::1]", "[::7f00:1]", "localhost", "a.localhost",
]  # fmt: skip


class TestRedirects:
    def test_one_to_the_same_server(self, serve: Serve) -> None:
        def answer(connection: socket.socket, head: bytes) -> None:
            reply = plainly(LIST) if b"GET /there?x" in head else moved("/there?x")
            reply(connection, head)

        assert fetched(serve(answer).url()) == LIST

    def test_in_a_circle(self, serve: Serve) -> None:
        server = serve(moved("/"))
        refused(server.url(), "more than 5 redirects")
        assert len(server.requests) == MAX_REDIRECTS + 1

    def test_as_many_as_are_allowed(self, serve: Serve) -> None:
        def answer(connection: socket.socket, head: bytes) -> None:
            last = len(server.requests) > MAX_REDIRECTS
            (plainly(LIST) if last else moved("/"))(connection, head)

        server = serve(answer)
        assert fetched(server.url()) == LIST

    @pytest.mark.parametrize(
        "location",
        [
            "http://example.com/", "http://127.0.0.1/", "ftp://example.com/", "file:///etc/passwd",
            "https://a b/", "https://u:p@example.com/", "https://example.com:0/",
            "https://[::1/", "https://example.com:99999/", "javascript:x",
        ],
    )  # fmt: skip
    def test_to_what_is_no_https(self, serve: Serve, location: str) -> None:
        refused(serve(moved(location)).url(), "redirects to what is no https:// URL")

    def test_without_a_location(self, serve: Serve) -> None:
        server = serve(plainly(b"", status=b"302 Found"))
        assert request("GET", server.url(), seconds=CEILING).status == 302

    @pytest.mark.parametrize("host", PRIVATE)
    def test_to_what_only_the_node_reaches(self, serve: Serve, host: str) -> None:
        inner = serve(plainly(b"secret"))
        outer = serve(moved(f"https://{host}:{inner.port}/"))
        refused(outer.url(), "no machine of the public internet")
        assert inner.requests == []

    @pytest.mark.parametrize("host", PRIVATE)
    def test_to_the_same_behind_a_proxy(
        self, serve: Serve, host: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        outer = serve(moved(f"https://{host}/"))
        asked: list[bytes] = []
        proxy = serve(tunnel(outer, asked), tls=False)
        monkeypatch.setenv("https_proxy", proxy.url())
        refused(outer.url(), "no machine of the public internet")
        assert len(asked) == 1

    def test_to_a_name_of_which_one_address_is_private(
        self, serve: Serve, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        inner = serve(plainly(b"secret"), "inner.test")
        asked = answers_of_names(monkeypatch, {"inner.test": ["192.0.2.1", "127.0.0.1"]})
        outer = serve(moved(inner.url(host="inner.test")))
        refused(outer.url(), "inner.test, which is no machine of the public internet")
        assert (asked, inner.requests) == (["inner.test"], [])

    def test_the_connection_goes_to_the_address_that_was_checked(
        self, serve: Serve, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A resolver that answers otherwise the second time is not asked a second time."""
        there = serve(plainly(LIST), "there.test")
        asked = answers_of_names(monkeypatch, {"there.test": ["127.0.0.1"]})
        checked: list[str] = []

        def is_public(address: str) -> bool:
            checked.append(address)
            return True

        monkeypatch.setattr(destinations, "is_public", is_public)
        outer = serve(moved(there.url(host="there.test")))
        assert fetched(outer.url()) == LIST
        assert (asked, checked) == (["there.test"], ["127.0.0.1"])

    def test_another_port_of_the_same_host_is_looked_at(self, serve: Serve) -> None:
        other = serve(plainly(b"secret"))
        refused(serve(moved(other.url())).url(), "no machine of the public internet")

    @pytest.mark.parametrize("address", ["8.8.8.8", "2001:4860:4860::8888", "2002:808:808::"])
    def test_the_public_internet(self, address: str) -> None:
        assert destinations.is_public(address)


class TestProxies:
    def test_the_proxy_of_the_environment(
        self, serve: Serve, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        server = serve(plainly(LIST), "far.test")
        asked: list[bytes] = []
        proxy = serve(tunnel(server, asked), tls=False)
        monkeypatch.setenv("https_proxy", proxy.url().replace("//", "//me:word@"))
        # Nobody but the proxy knows the name.
        assert fetched("https://far.test/list") == LIST
        assert asked[0].startswith(b"CONNECT far.test:443 HTTP/1.")
        assert b"roxy-" in asked[0]
        assert b"me:word" not in server.requests[0]

    def test_a_host_of_no_proxy(self, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert fetched(serve(plainly(LIST)).url()) == LIST

    def test_a_proxy_sees_no_request_to_this_machine(
        self, serve: Serve, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        server = serve(plainly(LIST), tls=False)
        assert fetched(server.url(), http_on_loopback=True) == LIST

    @pytest.mark.parametrize(
        ("proxy", "match"),
        [
            ("http://127.0.0.1:1", "the proxy cannot be reached: Connection refused"),
            ("socks5://127.0.0.1:1", "names no proxy"),
            ("http://", "names no proxy"),
        ],
    )
    def test_a_proxy_that_is_none(
        self, monkeypatch: pytest.MonkeyPatch, proxy: str, match: str
    ) -> None:
        monkeypatch.setenv("https_proxy", proxy)
        refused("https://far.test/", match)

    def test_what_a_proxy_says_is_not_passed_on(
        self, serve: Serve, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        proxy = serve(saying(b"HTTP/1.1 407 \x1b[31mgo away\r\n\r\n"), tls=False)
        monkeypatch.setenv("https_proxy", proxy.url())
        assert "go away" not in refused("https://far.test/", "refuses to connect, with 407")


@pytest.mark.parametrize(
    "url", ["http://example.com/", "http://127.0.0.1/", "ftp://x/", "x", "", "https://u@x/"]
)
def test_what_is_no_https(url: str) -> None:
    refused(url, "no URL|is not followed|no user name")


@pytest.mark.parametrize("url", ["http://example.com/", "http://10.0.0.1/", "http://0.0.0.0/"])
def test_http_goes_to_this_machine_alone(url: str) -> None:
    refused(url, "is not followed", http_on_loopback=True)


def test_a_localhost_that_is_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    answers_of_names(monkeypatch, {"localhost": ["192.0.2.1"]})
    refused("http://localhost/", "write 127.0.0.1", http_on_loopback=True)
