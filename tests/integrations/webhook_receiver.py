"""A web server that is sent batches, and answers as the test wants it to."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Received:
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes


#: What answers a request: it writes to the handler, or does something else to its connection.
Answer = Callable[[Any], None]


@dataclass
class Receiver:
    """Requests in their order; `answers` are used up one by one, the last one stays."""

    port: int = 0
    requests: list[Received] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def url(self, path: str = "/secret/path?token=private") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def answer(self, handler: Any) -> None:
        given = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        given(handler)


def status(code: int, **headers: str) -> Answer:
    """An answer without a body."""

    def send(handler: Any) -> None:
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return send


def endless(handler: Any) -> None:
    """A body without an end behind the head of a good answer."""
    handler.send_response(200)
    handler.end_headers()
    while not handler.server.receiver.over.is_set():
        handler.wfile.write(b"x" * 65_536)


def endless_head(handler: Any) -> None:
    """Headers without an end."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    while not handler.server.receiver.over.is_set():
        handler.wfile.write(b"X-More: %s\r\n" % (b"x" * 10_000))


def drip(handler: Any) -> None:
    """A byte every tenth of a second, so that no single read takes long."""
    while not handler.server.receiver.over.is_set():
        handler.wfile.write(b"H")
        time.sleep(0.1)


def close(handler: Any) -> None:
    """No answer."""
    handler.connection.shutdown(socket.SHUT_RDWR)


def garbage(handler: Any) -> None:
    """No HTTP."""
    handler.wfile.write(b"\x00\xff\x1b[31mnot http\r\n\r\n")


def later(seconds: float, then: Answer) -> Answer:
    """The same after a while."""

    def send(handler: Any) -> None:
        handler.server.receiver.over.wait(seconds)
        then(handler)

    return send


class _OneRequest(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        receiver = self.server.receiver
        body = self.rfile.read(int(self.headers["Content-Length"]))
        receiver.requests.append(Received(self.path, dict(self.headers.items()), body))
        with suppress(OSError):  # who asked has gone
            receiver.answer(self)
        self.close_connection = True

    do_GET = do_POST

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def receiving(*answers: Answer) -> Iterator[Receiver]:
    """A receiver on 127.0.0.1 that gives these answers; 204 where there is none."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _OneRequest)
    server.daemon_threads = True
    server.receiver = Receiver(server.server_address[1], answers=[*answers] or [status(204)])
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server.receiver
    finally:
        server.receiver.over.set()
        server.shutdown()
        thread.join()
        server.server_close()
