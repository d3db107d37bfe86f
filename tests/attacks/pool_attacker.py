"""Somebody who speaks PPPP 2 by himself: what tests attack the pools of real nodes with.

Nothing here comes from the package: a socket that blocks, msgpack, and LZ4's own frames.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from typing import Any, Self

import lz4.frame
import msgpack

LATEST = 2**63 - 1
IDENTIFY, OK, PING, PONG, KICK, INITIALIZE, CREATION, CHANGE, REMOVAL = 0, 1, 3, 4, 5, 6, 7, 8, 9


def now() -> int:
    return int(time.time() * 1_000)


def frame(found: dict[str, Any]) -> bytes:
    """A message as it goes over the wire, without the AES flag."""
    data = lz4.frame.compress(msgpack.packb(found))
    return struct.pack(">BI", 0, len(data)) + data


class PoolPeer:
    """One connection; `kin` has it say that it is a node of the attacked kind."""

    def __init__(self, port: int, *, source: str = "127.0.0.1", kin: bool = True) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 30, (source, 0))
        self._buffer = b""
        about = {"hyperbloom": 1, "id": "attacker"} if kin else {}
        self.send(frame({"t": now(), "op": IDENTIFY, "v": 1, "d": about}))
        self.wait_for(OK)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_until(self, data: bytes, seconds: float) -> int:
        """Send what the node reads within so long; how many bytes that were."""
        deadline, sent = time.monotonic() + seconds, 0
        self.socket.settimeout(0.2)
        while sent < len(data) and time.monotonic() < deadline:
            with contextlib.suppress(TimeoutError):
                sent += self.socket.send(data[sent : sent + 65_536])
        self.socket.settimeout(30)
        return sent

    def receive(self) -> dict[str, Any]:
        """The next message; ConnectionError at the end."""
        while True:
            if len(self._buffer) >= 5:
                length = struct.unpack_from(">BI", self._buffer)[1]
                if len(self._buffer) >= 5 + length:
                    data, self._buffer = self._buffer[5 : 5 + length], self._buffer[5 + length :]
                    plain = lz4.frame.decompress(data)
                    found: dict[str, Any] = msgpack.unpackb(plain, strict_map_key=False)
                    return found
            came = self.socket.recv(65_536)
            if not came:
                raise ConnectionError("the node has closed")
            self._buffer += came

    def wait_for(self, op: int) -> dict[str, Any]:
        """The next message of a kind; PINGs are answered meanwhile."""
        while (found := self.receive())["op"] != op:
            if found["op"] == PING:
                self.send(frame({"t": now(), "op": PONG}))
        return found

    def settle(self) -> None:
        """Wait until the node has taken what was sent: it answers in order."""
        self.send(frame({"t": now(), "op": PING}))
        self.wait_for(PONG)
