"""The node under systemd: what it tells its supervisor, and the ports it is handed.

Notices go to the datagram socket that NOTIFY_SOCKET names, as lines `NAME=value` (sd_notify(3)).
Where WATCHDOG_USEC is set, a ping goes out twice in each of its periods, from the reactor itself:
a reactor that hangs sends none, and systemd starts the node again. Listening sockets come as
descriptors from 3 on, counted by LISTEN_FDS (sd_listen_fds(3)). Without systemd none of the
variables is there, and nothing of this happens.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import AdoptedStreamServerEndpoint, serverFromString
from twisted.internet.interfaces import IStreamServerEndpoint
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from hyperbloom.errors import ErrorKind, HyperbloomError

__all__ = [
    "INHERITED",
    "NoInheritedPort",
    "Notifier",
    "Supervision",
    "listening_endpoints",
    "watchdog_seconds",
]

#: The entry of `[node] listen` that stands for every port systemd hands over.
INHERITED = "systemd"

#: Pings in one period of the watchdog; sd_watchdog_enabled(3) advises two.
PINGS_PER_PERIOD = 2

log = Logger()


class Notifier:
    """Sends notices to the service manager at `address`; None: nobody listens.

    An address that begins with @ or / is a Unix socket, abstract or of the file system; another is
    not used.
    """

    def __init__(self, address: str | None) -> None:
        usable = address is not None and address[:1] in ("@", "/")
        self._address = address.replace("@", "\0", 1) if usable and address is not None else None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Notifier:
        """The one that NOTIFY_SOCKET names."""
        return cls(environment.get("NOTIFY_SOCKET"))

    def send(self, *lines: str) -> bool:
        """Send lines such as `READY=1` in one notice; whether it was taken. Never blocks."""
        if self._address is None:
            return False
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            log.debug("The service manager takes no notice: {why}", why=str(error))
            return False
        return True

    def ready(self) -> None:
        """The node serves, or serves again with another configuration."""
        self.send("READY=1", f"MAINPID={os.getpid()}")

    def reloading(self) -> None:
        """The configuration is read anew; `ready` follows, whatever comes of it."""
        self.send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1_000}")

    def stopping(self) -> None:
        """The node closes its connections and drains its writer."""
        self.send("STOPPING=1")


def watchdog_seconds(environment: Mapping[str, str] = os.environ) -> float | None:
    """The watchdog's period, None where nobody waits for pings of this process."""
    period = environment.get("WATCHDOG_USEC", "")
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    return int(period) / 1e6 if period.isdecimal() and int(period) > 0 else None


class Supervision(Service):
    """Tells systemd how the node fares, and has SIGHUP read its configuration anew.

    To be started behind the node's own service, whose start may fail, and so be stopped before it.
    `reload` is called in the reactor's thread; what it fails of it has logged.
    """

    def __init__(
        self,
        notifier: Notifier,
        *,
        reactor: Any,
        reload: Callable[[], Deferred[Any]],
        watchdog: float | None = None,
    ) -> None:
        self._notifier = notifier
        self._reactor = reactor
        self._reload = reload
        self._watchdog = watchdog
        self._ping = LoopingCall(notifier.send, "WATCHDOG=1")
        self._ping.clock = reactor
        self._hang_up_before: Any = None

    def startService(self) -> None:
        """Be ready once the reactor runs: not before could anybody be served."""
        super().startService()
        self._hang_up_before = signal.signal(signal.SIGHUP, self._hang_up)
        self._reactor.callWhenRunning(self._ready)

    def stopService(self) -> None:
        """Say that the node stops; systemd waits for no ping from here on."""
        super().stopService()
        if self._ping.running:
            self._ping.stop()
        self._notifier.stopping()
        signal.signal(signal.SIGHUP, self._hang_up_before or signal.SIG_DFL)

    def _ready(self) -> None:
        if not self.running:
            return
        self._notifier.ready()
        if self._watchdog is not None:
            self._ping.start(self._watchdog / PINGS_PER_PERIOD).addErrback(self._failed)

    def _hang_up(self, number: int, frame: object) -> None:
        self._reactor.callFromThread(self._begin_reload)

    def _begin_reload(self) -> None:
        if self.running:
            # It has logged what is wrong.
            self._reload().addErrback(lambda _: None)

    def _failed(self, failure: Failure) -> None:
        log.failure("The watchdog's pings ended", failure=failure)


class NoInheritedPort(HyperbloomError):
    """`listen` names ports of systemd's and there are none, or they are not TCP's."""

    kind = ErrorKind.BAD_CONFIG


def listening_endpoints(reactor: Any, listen: Sequence[str]) -> list[IStreamServerEndpoint]:
    """An endpoint for each entry of `[node] listen`; raises `NoInheritedPort`.

    The entry `systemd` stands for all listening sockets that were handed over.
    """
    endpoints: list[IStreamServerEndpoint] = []
    for text in listen:
        if text == INHERITED:
            endpoints += _inherited(reactor)
        else:
            endpoints.append(serverFromString(reactor, text))
    return endpoints


def _inherited(reactor: Any) -> list[IStreamServerEndpoint]:
    endpoints: list[IStreamServerEndpoint] = []
    while (descriptor := _descriptor(reactor, len(endpoints))) is not None:
        endpoints.append(AdoptedStreamServerEndpoint(reactor, descriptor, _tcp_family(descriptor)))
    if not endpoints:
        raise NoInheritedPort(
            'listen says "systemd", and systemd has handed over no port; start the node by '
            "systemd with hyperbloom.socket enabled, or name tcp:PORT"
        )
    return endpoints


def _descriptor(reactor: Any, index: int) -> int | None:
    """One of those that were handed over, counted from 0.

    Twisted has read the variables by now, and removed them: only its own endpoint knows them. Its
    family has to be named beforehand, and is found out afterwards.
    """
    try:
        endpoint: Any = serverFromString(reactor, f"systemd:domain=INET:index={index}")
    except IndexError:
        return None
    descriptor: int = endpoint.fileno
    return descriptor


def _tcp_family(descriptor: int) -> socket.AddressFamily:
    """Its family, if the descriptor is a listening TCP socket."""
    # Otherwise children of this process would hold the port, too.
    os.set_inheritable(descriptor, False)
    try:
        with socket.socket(fileno=os.dup(descriptor)) as port:
            family = socket.AddressFamily(port.family)
            listens = port.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError:
        listens, family = 0, socket.AF_UNSPEC
    if not listens or family not in (socket.AF_INET, socket.AF_INET6):
        raise NoInheritedPort(
            "a socket that systemd has handed over does not listen for TCP; hyperbloom.socket "
            "may have ListenStream=ADDRESS:PORT only"
        )
    return family
