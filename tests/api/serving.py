"""A control socket served in a thread: a reactor of its own, a recording node, a real socket."""

from __future__ import annotations

import http.client
import json
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fake_integrations import FakeIntegrations
from fake_node import FakeNode
from nodes import free_port
from twisted.internet.defer import maybeDeferred
from twisted.internet.epollreactor import EPollReactor

from hyperbloom.addresses import Address
from hyperbloom.api.control_socket import connect_unix
from hyperbloom.api.http.access import Access, load_token
from hyperbloom.api.service import ControlService, TcpService
from hyperbloom.client.client import Client

PATIENCE = 120.0


class ReactorThread:
    """A reactor that is not the process's, in a thread of its own."""

    def __init__(self) -> None:
        self.reactor = EPollReactor()
        self.thread = threading.Thread(
            target=self.reactor.run, kwargs={"installSignalHandlers": False}, daemon=True
        )
        self.thread.start()

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Calls it in the reactor's thread and waits for its result or its Deferred's."""
        done = threading.Event()
        outcome: list[Any] = []

        def finished(result: Any) -> None:
            outcome.append(result)
            done.set()

        self.reactor.callFromThread(lambda: maybeDeferred(function, *args).addBoth(finished))
        if not done.wait(PATIENCE):
            raise TimeoutError("the reactor did not answer")
        result = outcome[0]
        if hasattr(result, "raiseException"):
            result.raiseException()
        return result

    def stop(self) -> None:
        self.reactor.callFromThread(self.reactor.stop)
        self.thread.join(PATIENCE)


class Served:
    """A fake node behind a control socket in a folder of its own."""

    def __init__(
        self, reactor: ReactorThread, folder: Path | None = None, *, objects: Any = None
    ) -> None:
        self.made = None if folder else Path(tempfile.mkdtemp(prefix="hb-"))
        self.folder = folder or self.made
        self.path = self.folder / "control.sock"
        self.thread = reactor
        self.node = FakeNode()
        self.integrations = FakeIntegrations()
        self.objects = objects
        self.service = self.make_service()
        self.clients: list[Client] = []
        reactor.call(self.service.startService)

    def make_service(self) -> ControlService:
        return ControlService(self.node, self.path, reactor=self.thread.reactor, **self.shown())

    def shown(self) -> dict[str, Any]:
        """What the service shows beside the node."""
        return {"objects": self.objects, "integrations": self.integrations}

    def client(self, timeout: float | None = PATIENCE) -> Client:
        self.clients.append(Client(self.path, timeout=timeout))
        return self.clients[-1]

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        return self.thread.call(function, *args)

    def connection(self) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("localhost")
        connection.sock = connect_unix(self.path, PATIENCE)
        return connection

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, http.client.HTTPMessage, Any]:
        """A bare request: status, headers, JSON (None for an empty body)."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection = self.connection()
        try:
            connection.request(method, path, data, headers or {})
            response = connection.getresponse()
            text = response.read()
            return response.status, response.headers, json.loads(text) if text else None
        finally:
            connection.close()

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.call(self.service.stopService)
        if self.made is not None:
            shutil.rmtree(self.made)


class ServedOverTcp(Served):
    """The same, and on a TCP port of 127.0.0.1 with a token."""

    def __init__(
        self, reactor: ReactorThread, folder: Path | None = None, *, objects: Any = None
    ) -> None:
        self.port = free_port()
        self.tcp: TcpService | None = None
        super().__init__(reactor, folder, objects=objects)

    def make_service(self) -> ControlService:
        self.token_path = self.folder / "api.token"
        self.token = load_token(self.token_path)
        clock = self.thread.reactor
        self.metrics_token = load_token(self.folder / "metrics.token")
        self.access = Access(
            Address("127.0.0.1", self.port),
            self.token,
            metrics_token=self.metrics_token,
            clock=clock.seconds,
            now=time.time,
        )
        control = ControlService(
            self.node, self.path, reactor=self.thread.reactor, access=self.access, **self.shown()
        )
        self.tcp = TcpService(control.context, self.access, reactor=self.thread.reactor)
        self.thread.call(self.tcp.startService)
        return control

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def tcp_connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)

    def ask_tcp(
        self,
        path: str,
        method: str = "GET",
        body: Any = None,
        *,
        token: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        """A bare request over TCP: status, headers, body."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent = dict(headers or {})
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        connection = self.tcp_connection()
        try:
            connection.request(method, path, data, sent)
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()

    def close(self) -> None:
        if self.tcp is not None:
            self.call(self.tcp.stopService)
        super().close()
