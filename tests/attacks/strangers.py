"""A crowd of strangers: many connections that know the feed's key and have no link, of five kinds.

- `silent`: nothing is sent.
- `dripping`: an Open, a byte now and then.
- `garbage`: 64 KiB of random bytes.
- `opened`: an Open, and then nothing.
- `huge`: an Open, and the longest frame that the protocol has but for its last byte.

What the node closes is opened anew, from one of 49 addresses. One thread holds them all.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from attacker import BIND_ADDRESS_NO_PORT, MAGIC, KeyStream, hashed, varint
from attacker import field as protobuf_field

KINDS = ("silent", "dripping", "garbage", "opened", "huge")
SOURCES = tuple(f"127.77.{number}.1" for number in range(49))

#: Seconds between two bytes of a dripping connection, and before a lost one is opened anew.
DRIP_SECONDS = 0.5
RENEWAL_SECONDS = 0.25

LONGEST_FRAME = 262_144


def opening(feed: bytes) -> tuple[bytes, KeyStream]:
    """An Open about a feed, and the cipher of what follows it."""
    nonce = os.urandom(24)
    body = protobuf_field(1, hashed(feed)) + protobuf_field(2, nonce)
    return MAGIC + varint(len(body)) + body, KeyStream(feed, nonce)


def said_by(kind: str, feed: bytes) -> bytes:
    """All that a stranger of this kind would say."""
    if kind == "silent":
        return b""
    if kind == "garbage":
        return os.urandom(65_536)
    opened, cipher = opening(feed)
    if kind != "huge":
        return opened
    return opened + cipher.apply(varint(LONGEST_FRAME) + b"\x63" + bytes(LONGEST_FRAME - 2))


@dataclass(eq=False)
class Stranger:
    """One connection after the other, from one address."""

    kind: str
    source: str
    socket: socket.socket | None = None
    left: memoryview = field(default_factory=lambda: memoryview(b""))
    due: float = 0.0


class Strangers:
    """So many connections to a port of 127.0.0.1, held until the end. A context manager.

    `opened` counts connections that came about, `ended` those that the node ended.
    """

    def __init__(
        self,
        port: int,
        feed: bytes,
        count: int,
        *,
        kinds: tuple[str, ...] = KINDS,
        sources: tuple[str, ...] = SOURCES,
        renewal: float = RENEWAL_SECONDS,
    ) -> None:
        self._renewal = renewal
        self._port, self._feed = port, feed
        self._said = {kind: said_by(kind, feed) for kind in kinds}
        self._strangers = [
            Stranger(kinds[number % len(kinds)], sources[number // len(kinds) % len(sources)])
            for number in range(count)
        ]
        self._selector = selectors.DefaultSelector()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="strangers", daemon=True)
        self.opened = self.ended = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._thread.join(30)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping.is_set():
            now = time.monotonic()
            for stranger in self._strangers:
                if stranger.due <= now:
                    self._go_on(stranger, now)
            for key, _ in self._selector.select(0.05):
                self._read(key.data)
        for stranger in self._strangers:
            if stranger.socket is not None:
                stranger.socket.close()
        self._selector.close()

    def _go_on(self, stranger: Stranger, now: float) -> None:
        if stranger.socket is None:
            self._connect(stranger, now)
            return
        drips = stranger.kind == "dripping"
        try:
            sent = stranger.socket.send(stranger.left[: 1 if drips else None])
        except BlockingIOError:
            sent = 0
        except OSError:
            self._lost(stranger)
            return
        stranger.left = stranger.left[sent:]
        pause = DRIP_SECONDS if drips else 0.0 if sent else 0.05
        stranger.due = now + pause if stranger.left else float("inf")

    def _connect(self, stranger: Stranger, now: float) -> None:
        sock = socket.socket()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_IP, BIND_ADDRESS_NO_PORT, 1)
        sock.bind((stranger.source, 0))
        with contextlib.suppress(BlockingIOError):
            sock.connect(("127.0.0.1", self._port))
        self._selector.register(sock, selectors.EVENT_READ, stranger)
        stranger.socket = sock
        stranger.left = memoryview(self._said[stranger.kind])
        stranger.due = now + 0.05 if stranger.left else float("inf")
        self.opened += 1

    def _read(self, stranger: Stranger) -> None:
        sock = stranger.socket
        if sock is None:
            return
        try:
            ended = not sock.recv(65_536)
        except BlockingIOError:
            return
        except OSError:
            ended = True
        if ended:
            self._lost(stranger)

    def _lost(self, stranger: Stranger) -> None:
        if stranger.socket is not None:
            self._selector.unregister(stranger.socket)
            stranger.socket.close()
        stranger.socket = None
        stranger.due = time.monotonic() + self._renewal
        self.ended += 1
