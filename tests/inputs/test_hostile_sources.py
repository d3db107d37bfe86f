"""A server that attacks who reads a list of it: over https, by the process that the node starts.

What the https client withstands by itself is in tests/https; here is what becomes of a reading.
"""

from __future__ import annotations

import gzip
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tls_servers import Answering, Authority, TlsServer, moved, plainly, saying

from hyperbloom.inputs.reading import Request, answer_to

OK = b"HTTP/1.1 200 OK\r\n"
LIST = b"# names\none.example\ntwo.example\n"
CEILING = 60.0

pytestmark = pytest.mark.usefixtures("trust")


class Source:
    """A server whose answer a test changes, and the folder of an input that reads it."""

    def __init__(self, folder: Path, server: Callable[[Answering], TlsServer]) -> None:
        self.known = folder / "known"
        self.folder = folder / "out"
        self.folder.mkdir()
        self.answer: Answering = plainly(LIST)
        self.server = server(lambda connection, request: self.answer(connection, request))
        self.last: dict[str, Any] = {"etag": None, "last_modified": None}

    def request(self, **options: Any) -> dict[str, Any]:
        return {
            "url": self.server.url("/secret/path?token=x"),
            "max_bytes": 100_000,
            "seconds": CEILING,
            "known": str(self.known),
            "folder": str(self.folder),
            **self.last,
            **options,
        }

    def read(self, answer: Answering, **options: Any) -> dict[str, Any]:
        self.answer = answer
        got = answer_to(Request(**self.request(**options)), now=time.monotonic())
        if got["outcome"] == "read":
            (self.folder / "next").rename(self.known)
        if got["outcome"] != "failed":
            self.last = {key: got[key] for key in self.last}
        return got

    def fails(self, answer: Answering, **options: Any) -> str:
        """A reading fails, and nothing is there that could be taken for one."""
        got = self.read(answer, **options)
        assert set(got) == {"outcome", "problem"}
        assert not (self.folder / "next").exists() or not self.known.exists()
        sentence = str(got["problem"])
        assert sentence.isprintable()
        assert "secret" not in sentence
        assert ";" in sentence, "it says what to do"
        return sentence


@pytest.fixture
def source(authority: Authority, tmp_path: Path) -> Iterator[Source]:
    begun: list[TlsServer] = []

    def server(answer: Answering) -> TlsServer:
        begun.append(TlsServer(answer, authority.context("127.0.0.1")).__enter__())
        return begun[0]

    yield Source(tmp_path, server)
    for one in begun:
        one.__exit__(None, None, None)


class TestVersions:
    DATE = b"Sun, 22 Nov 2026 04:00:00 GMT"

    def test_a_version_that_is_known_is_not_sent_again(self, source: Source) -> None:
        first = plainly(LIST, b'ETag: W/"1 a"', b"Last-Modified: " + self.DATE)
        assert source.read(first)["outcome"] == "read"
        assert b"If-" not in source.server.requests[0]
        for _ in range(2):
            got = source.read(plainly(b"", status=b"304 Not Modified"))
            assert (got["outcome"], got["values"]) == ("unchanged", 2)
            assert b'If-None-Match: W/"1 a"\r\n' in source.server.requests[-1]
            assert b"If-Modified-Since: " + self.DATE + b"\r\n" in source.server.requests[-1]

    def test_the_same_bytes_without_any_version(self, source: Source) -> None:
        source.read(plainly(LIST))
        assert source.read(plainly(LIST))["outcome"] == "unchanged"
        assert b"If-" not in source.server.requests[1]

    def test_a_new_version(self, source: Source) -> None:
        source.read(plainly(LIST, b'ETag: "1"'))
        got = source.read(plainly(b"two.example\n", b'ETag: "2"'))
        assert (got["outcome"], got["new"], got["gone"]) == ("read", 0, 1)
        source.read(plainly(b"", status=b"304 Not Modified"))
        assert b'If-None-Match: "2"\r\n' in source.server.requests[-1]

    @pytest.mark.parametrize("changes", [{"format": "hosts"}, {"known": "/nowhere/known"}])
    def test_nothing_is_asked_about_what_is_not_here(
        self, source: Source, changes: dict[str, str]
    ) -> None:
        """Else 304 would say that nothing has changed which was never read."""
        source.read(plainly(LIST, b'ETag: "1"'))
        source.fails(plainly(b"", status=b"304 Not Modified"), **changes)
        assert b"If-" not in source.server.requests[-1]

    @pytest.mark.parametrize("tag", [b'"' + b"x" * 300 + b'"', b'"\xe9"', b'"a\x1b[31m"'])
    def test_versions_that_are_not_kept(self, source: Source, tag: bytes) -> None:
        source.read(plainly(LIST, b"ETag: " + tag))
        assert source.read(plainly(LIST))["outcome"] == "unchanged"
        assert b"If-" not in source.server.requests[-1]


@pytest.mark.parametrize(
    ("status", "match"),
    [
        (b"304 Not Modified", "304"),
        (b"401 \x1b[31mWho", "401 (Unauthorized): it asks who you are"),
        (b"403 No", "403 (Forbidden): it does not give this to everybody"),
        (b"404 No", "404 (Not Found): there is nothing at this URL"),
        (b"410 No", "the list is no more"),
        (b"429 No", "raise `every`"),
        (b"206 Partial", "206 (Partial Content): that is no list"),
        (b"500 Oops", "500 (Internal Server Error): the server has trouble"),
        (b"599 Oops", "127.0.0.1 answers 599: the server has trouble"),
        (b"302 Found", "302 (Found)"),
    ],
)
def test_other_answers_than_a_list(source: Source, status: bytes, match: str) -> None:
    assert match in source.fails(plainly(LIST, status=status))


def cut(connection: socket.socket, _: bytes) -> None:
    connection.sendall(OK + b"\r\n" + LIST)
    connection.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        (saying(OK + b"Content-Length: 1000\r\n\r\n" + LIST), "broke off"),
        (saying(OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\none.e"), "broke off"),
        (cut, "broke the connection off"),
        (plainly(b"a" * 100_001), "more than 100000 bytes"),
        (saying(OK + b"\r\n" + b"a\n" * 50_001), "more than 100000 bytes"),
        (plainly(gzip.compress(b"\0" * 50_000_000), b"Content-Encoding: gzip"), "compressed"),
        (plainly(b"", b"Content-Encoding: br"), "compressed"),
        (moved("http://127.0.0.1/"), "redirects to what is no https"),
        (moved("https://10.0.0.1/"), "no machine of the public internet"),
        (moved("https://169.254.169.254/latest/meta-data"), "no machine of the public internet"),
        (moved("https://[::ffff:127.0.0.1]/"), "no machine of the public internet"),
        (moved("/secret/again"), "more than 5 redirects"),
    ],
)
def test_what_is_no_whole_list(source: Source, answer: Answering, match: str) -> None:
    source.read(plainly(LIST))
    known = source.known.read_bytes()
    assert match in source.fails(answer)
    assert source.known.read_bytes() == known
    assert source.read(plainly(LIST))["outcome"] == "unchanged"


@pytest.mark.parametrize(
    ("form", "body", "left_out"),
    [
        ("lines", b"x" * 90_000 + b"\nok.example", {}),
        ("lines", b"\xff\xfea\0.\0b\0\n\0", {"line_end_or_nul": 2}),
        ("hosts", b"\x1f\x8b\x08 not asked for \n0.0.0.0 a.example", {"no_address": 1}),
        ("adblock", b"<!doctype html>\n<title>Moved</title>\n", {"pattern": 2}),
    ],
)
def test_what_is_no_list_but_bytes(
    source: Source, form: str, body: bytes, left_out: dict[str, int]
) -> None:
    assert source.read(plainly(body), format=form)["left_out"] == left_out


def test_json_that_is_deep(source: Source) -> None:
    deep = plainly(b"[" * 50_000)
    assert "nested in more than 100 levels" in source.fails(deep, format="json")


class TestProcess:
    """The same by the process that the node starts."""

    def read(self, source: Source, **options: Any) -> dict[str, Any]:
        ended = subprocess.run(
            [sys.executable, "-P", "-m", "hyperbloom.inputs.reading"],
            input=json.dumps(source.request(**options)).encode(),
            capture_output=True,
            timeout=120,
            check=True,
            env=dict(os.environ),
        )
        assert ended.stderr == b""
        answer: dict[str, Any] = json.loads(ended.stdout)
        return answer

    def test_a_list(self, source: Source) -> None:
        assert self.read(source)["values"] == 2
        assert (source.folder / "next").read_bytes() == b"one.example\ntwo.example\n"

    @pytest.mark.parametrize("head", [b"", OK + b"X: ", OK + b"\r\n"])
    def test_a_server_that_never_ends(self, source: Source, head: bytes) -> None:
        """The process ends in time and as it should, though a thread of it still waits."""

        def drip(connection: socket.socket, _: bytes) -> None:
            connection.sendall(head)
            while not source.server.ended.wait(0.02):
                if head:
                    connection.sendall(b"a")

        source.answer = drip
        got = self.read(source, seconds=0.7)
        assert got["outcome"] == "failed"
        # On a machine with other work the time may be over before the server is reached.
        assert any(it in got["problem"] for it in ("allow it more time", "does not answer"))

    def test_a_certificate_of_nobody(self, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("SSL_CERT_FILE")
        assert "certificate of 127.0.0.1 is not valid" in self.read(source)["problem"]

    def test_an_endless_body_stays_within_the_memory(self, source: Source) -> None:
        """It is counted as it comes, and is on the disk until it is too long."""

        def endless(connection: socket.socket, _: bytes) -> None:
            connection.sendall(OK + b"\r\n")
            while not source.server.ended.is_set():
                connection.sendall(b"a" * 65_536)

        source.answer = endless
        program = (
            "from hyperbloom.inputs.reading import main\nmain()\n"
            "print(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0])"
        )
        ended = subprocess.run(
            [sys.executable, "-P", "-c", program],
            input=json.dumps(source.request(max_bytes=200 << 20)).encode(),
            capture_output=True,
            timeout=120,
            check=True,
        )
        answer, peak = ended.stdout.splitlines()
        assert b"more than 209715200 bytes" in answer
        assert int(peak) < 100_000, "KiB"
