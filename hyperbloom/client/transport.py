"""One connection to a node, and the requests and answers on it.

Standard library only, so that a command starts fast; the connection is kept open between requests,
and belongs to one thread.
"""

from __future__ import annotations

import http.client
import json
import math
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self, cast

from hyperbloom.addresses import Address
from hyperbloom.api.control_socket import connect_unix
from hyperbloom.api.limits import SILENT_SECONDS
from hyperbloom.client.requests import (
    Closing,
    EventReader,
    NodeTimeout,
    NodeUnreachable,
    answer_of,
    problem_of,
)
from hyperbloom.passphrase import load_passphrase

__all__ = ["Transport"]

#: Read at once from a watch.
_STREAM_BYTES = 65_536


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout: float | None) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path
        self.headers: dict[str, str] = {}

    def connect(self) -> None:
        self.sock = connect_unix(self._path, self.timeout)


class _TcpConnection(http.client.HTTPConnection):
    def __init__(self, host: str, port: int, timeout: float | None, token: str) -> None:
        super().__init__(host, port, timeout=timeout)
        self.headers = {"Authorization": f"Bearer {token}"}


class Transport(Closing):
    """Asks the node whose control socket is at `path`.

    timeout: seconds to wait for each answer, None for as long as it takes. run_command: what a
    person types to start the node, for the message when it does not run.
    """

    def __init__(
        self, path: Path, *, timeout: float | None = None, run_command: str = "hyperbloom run"
    ) -> None:
        self._path = path
        self._where = f"on {path}"
        self._timeout = timeout
        self._hint = f"no node runs on {path.parent}; start it with `{run_command}`"
        self._connection: _Connection | _TcpConnection = _Connection(path, timeout)

    @classmethod
    def over_tcp(cls, address: str, token: Path, *, timeout: float | None = None) -> Self:
        """A client of the node whose `[api] listen` is `address` and whose token file is `token`.

        Raises `ValueError` for an address that is not HOST:PORT, `PassphraseError` for a token
        that cannot be read.
        """
        host, port = Address.parse(address)
        client = cls(Path(address), timeout=timeout)
        client._hint = f'no node answers at {address}; start it with [api] listen = "{address}"'
        text = load_passphrase(token, what="token")
        client._connection = _TcpConnection(host, port, timeout, text)
        return client

    def close(self) -> None:
        """Closes the connection; another request opens a new one."""
        self._connection.close()

    def ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> Mapping[str, Any]:
        """Any request of the API: the JSON of its answer.

        Raises `Problem`, `NodeUnreachable` and `NodeTimeout`.
        """
        return cast("Mapping[str, Any]", self._result(self._send(method, path, body)))

    def steps(self, path: str, body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """The answers of a request that is done in steps; each is asked when it is read."""
        after: dict[str, Any] = {}
        while True:
            answer = self.ask("POST", path, {**body, **after})
            yield answer
            if answer["next"] is None:
                return
            after = {"after": answer["next"]}
            if "by" in body:  # whatever that name means by the next step
                after["by"] = answer.get("by") or body["by"]

    def events(
        self, method: str, path: str, body: Mapping[str, Any] | None, seconds: float | None
    ) -> Iterator[tuple[str, dict[str, Any]] | None]:
        """None once a watch has begun, then kind and data of each event within `seconds`.

        Raises `Problem`, `NodeUnreachable` and `NodeTimeout` (the node hangs).
        """
        response = self._send(method, path, body)
        if response.status != 200:
            self._result(response)
        reader = EventReader(where=self._where)
        try:
            yield None
            for part in self._parts(response, seconds):
                for kind, form in reader.take(part):
                    if kind == "problem":
                        raise problem_of(form)
                    yield kind, form
        finally:
            self.close()  # what is left of the answer is in the way of the next request

    def _parts(self, response: http.client.HTTPResponse, seconds: float | None) -> Iterator[bytes]:
        """What comes within `seconds`."""
        connection = cast("socket.socket", self._connection.sock)
        deadline = math.inf if seconds is None else time.monotonic() + seconds
        while True:
            left = deadline - time.monotonic()
            try:
                if left <= 0:
                    raise TimeoutError
                connection.settimeout(min(left, SILENT_SECONDS))
                part = response.read1(_STREAM_BYTES)
            except TimeoutError:
                self.close()
                if left <= SILENT_SECONDS:
                    return
                raise NodeTimeout(
                    f"the node has been silent for {SILENT_SECONDS:g} s: it hangs"
                ) from None
            except (OSError, http.client.HTTPException):
                part = b""
            if not part:
                raise NodeUnreachable("the node has stopped")
            yield part

    def _send(
        self, method: str, path: str, body: Mapping[str, Any] | None
    ) -> http.client.HTTPResponse:
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        headers = dict(self._connection.headers)
        if data is not None:
            headers["Content-Type"] = "application/json"
        reused = self._connection.sock is not None
        try:
            self._connection.request(method, path, data, headers)
            return self._connection.getresponse()
        except TimeoutError:
            self.close()
            raise self._too_slow() from None
        except (ConnectionError, http.client.HTTPException, OSError) as error:
            self.close()
            if reused and isinstance(error, (ConnectionError, http.client.RemoteDisconnected)):
                # The node closes idle connections. Asking again is safe: putting twice, joining
                # twice or leaving twice is the same as once, and a second link is only a link.
                return self._send(method, path, body)
            raise self._unreachable(error) from None

    def _too_slow(self) -> NodeTimeout:
        return NodeTimeout(
            f"the node did not answer within {self._timeout:g} s; it may still do what was asked"
        )

    def _unreachable(self, error: Exception) -> NodeUnreachable:
        if isinstance(error, (FileNotFoundError, ConnectionRefusedError, NotADirectoryError)):
            return NodeUnreachable(self._hint)
        if isinstance(error, PermissionError):
            return NodeUnreachable(
                f"{self._path} belongs to another user; run this as the user of the node"
            )
        return NodeUnreachable(f"the node on {self._path} broke off ({error})")

    def _result(self, response: http.client.HTTPResponse) -> Any:
        try:
            data = response.read()
        except TimeoutError:
            self.close()
            raise self._too_slow() from None
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise self._unreachable(error) from None
        return answer_of(response.status, data, where=self._where)
