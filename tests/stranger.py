"""Somebody with an account on the machine and no token: raw sockets to the API's TCP port."""

from __future__ import annotations

import socket
import time
from typing import Self

PATIENCE = 120.0


class Stranger:
    """One connection; what came back is in `got`, and `ended` says that the node closed it."""

    def __init__(self, port: int, data: bytes = b"", *, host: str = "127.0.0.1") -> None:
        self.got = bytearray()
        self.ended = False
        try:
            self._socket = socket.create_connection((host, port), timeout=PATIENCE)
        except ConnectionResetError:
            self._socket, self.ended = socket.socket(), True
        self.send(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        """Sends all of it, unless the node ends the connection before."""
        if self.ended or not data:
            return
        try:
            self._socket.sendall(data)
        except (ConnectionResetError, BrokenPipeError):
            self.ended = True

    def look(self, seconds: float = 0.0) -> bool:
        """Takes what has come within this time; whether the connection is ended."""
        while not self.ended:
            self._socket.settimeout(max(seconds, 0.001))
            try:
                data = self._socket.recv(1 << 16)
            except TimeoutError:
                break
            except ConnectionResetError:
                data = b""
            self.got += data
            self.ended = not data
        return self.ended

    def wait(self, seconds: float = PATIENCE) -> bytearray:
        """All that comes until the node ends the connection; raises TimeoutError if it does not."""
        deadline = time.monotonic() + seconds
        while not self.look(0.2):
            if time.monotonic() > deadline:
                raise TimeoutError("the node did not end the connection")
        return self.got

    def close(self) -> None:
        self._socket.close()


def request(
    method: str, path: str, port: int, *, token: str | None = None, rest: str = ""
) -> bytes:
    """The head of a request."""
    given = "" if token is None else f"Authorization: Bearer {token}\r\n"
    return f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{given}{rest}\r\n".encode()
