"""Real nodes for tests: twistd processes in temporary folders on 127.0.0.1.

They are controlled by the command and by the client of the control socket.

A node is ready when its control socket answers; it is stopped by its process id. When a test fails
the logs are printed (`Nodes.logs`).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import forked

from hyperbloom.client.client import Client, NodeUnreachable
from hyperbloom.feed_keys import FeedKeys
from hyperbloom.keys import Identity, create_key_file
from hyperbloom.replication.feeds import settle_feeds
from hyperbloom.replication.settings import FeedSettings
from hyperbloom.store import Store

#: Ceilings are there so that what hangs ends, and say nothing of how fast it should be: where other
#: work is done, everything takes several times as long. Each is at least `CEILING` seconds, and
#: `SLACK` times what an idle machine has at most needed.
CEILING = 120.0
SLACK = 4.0
READY_SECONDS = CEILING
STOP_SECONDS = CEILING
TWISTD = str(Path(sys.executable).with_name("twistd"))
HYPERBLOOM = str(Path(sys.executable).with_name("hyperbloom"))


#: Below the ports that the kernel gives away: nobody gets one of these between asking and binding.
_PORTS = range(12_000, 32_000)
_ports = itertools.count(random.SystemRandom().randrange(len(_PORTS)))


def free_port() -> int:
    """A port of 127.0.0.1 that nobody uses at this moment, by TCP or UDP; another one each time."""
    for number in itertools.islice(_ports, len(_PORTS)):
        port = _PORTS[number % len(_PORTS)]
        tcp, udp = socket.socket(), socket.socket(type=socket.SOCK_DGRAM)
        with contextlib.suppress(OSError), tcp, udp:
            tcp.bind(("127.0.0.1", port))
            udp.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port of 127.0.0.1 is free")


def wait_until(
    reached: Callable[[], object], seconds: float, what: str, *, longest_pause: float = 0.1
) -> None:
    """Poll until `reached()` is true; an AssertionError names `what` when it takes too long.

    `seconds` is what an idle machine needs at most; it is waited for as `CEILING` and `SLACK` say.
    The pauses grow: to ask a node takes it, and the test, some milliseconds of a processor.
    """
    seconds = max(CEILING, SLACK * seconds)
    deadline = time.monotonic() + seconds
    pause = 0.02
    while not reached():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(min(pause, longest_pause))
        pause *= 1.1


def make_store_from_before(path: Path, own_key: bytes) -> None:
    """A store as nodes made it while each had a feed whose key was its own."""
    store = Store.open(path, durable=False)
    settle_feeds(store, own_key, [FeedSettings(key=own_key)])
    store.close()


class RealNode:
    """One node: its folder, its process, its client.

    With `feed` it owns a feed of that name, whose key `feed_key` (of `pair`, or a new one) is not
    the node's, as `init` makes one. Without, it is a node from before there were such: its feed has
    the node's own key.
    """

    def __init__(
        self,
        folder: Path,
        *,
        seed: bytes | None = None,
        config: str = "",
        node: str = "",
        feed: str | None = None,
        pair: Identity | None = None,
    ) -> None:
        self.folder = folder
        self.pair: Identity | None = None
        self.identity = Identity(seed or os.urandom(32))
        self.port = free_port()
        self.process: subprocess.Popen | forked.Forked | None = None
        folder.mkdir(mode=0o700, parents=True)
        create_key_file(folder / "identity.key", self.identity.seed)
        if feed is not None:
            self.pair = pair or Identity(os.urandom(32))
            FeedKeys(folder / "feed-keys").write(self.pair, feed)
        self.config_path = folder / "hyperbloom.toml"
        self.config_path.write_text(
            f'[node]\nlisten = ["tcp:{self.port}:interface=127.0.0.1"]\nlog_level = "debug"\n'
            f"{node}\n{config}\n"
        )

    @property
    def key(self) -> bytes:
        """The node's public key."""
        return self.identity.public_key

    @property
    def feed_key(self) -> bytes:
        """The key of the feed that this node owns."""
        return self.key if self.pair is None else self.pair.public_key

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    @property
    def log_path(self) -> Path:
        """What the process printed."""
        return self.folder / "node.log"

    def start(self, **popen: object) -> RealNode:
        """Start twistd and wait until the control socket answers.

        It is forked (see `forked`); with arguments for `subprocess.Popen` it starts from nothing.
        """
        if self.pair is None and not (self.folder / "store").exists():
            make_store_from_before(self.folder / "store", self.key)
        command = [TWISTD, "-n", "--pidfile=", "hyperbloom", "-c", str(self.config_path)]
        begin = subprocess.Popen if popen else forked.Forked
        with self.log_path.open("ab") as log, open(os.devnull, "rb") as nothing:
            self.process = begin(
                command, stdin=nothing, stdout=log, stderr=log, cwd=self.folder, **popen
            )
        wait_until(self._answers, READY_SECONDS, f"{self.folder.name} is ready")
        return self

    def _answers(self) -> bool:
        assert self.process.poll() is None, f"the node ended: {self.log_path.read_text()[-2000:]}"
        try:
            with self.client() as client:
                return client.ping()["pid"] == self.process.pid
        except NodeUnreachable:
            return False

    def client(self, timeout: float = CEILING) -> Client:
        """A client of its control socket."""
        return Client(self.folder / "control.sock", timeout=timeout)

    def stop(self) -> bool:
        """End it by SIGTERM; whether it ended in order.

        twistd stops its services and then ends by the same signal.
        """
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(STOP_SECONDS)
        self.process = None
        return code == -signal.SIGTERM and "Stopped: everything" in self.log_path.read_text()

    def kill(self) -> None:
        """End it with −9, as a power cut would."""
        self.process.kill()
        self.process.wait()
        self.process = None

    def command(
        self, *arguments: str, stdin: bytes | None = None, timeout: float = SLACK * 60.0
    ) -> subprocess.CompletedProcess:
        """Run the `hyperbloom` command on this node."""
        return forked.run(
            [HYPERBLOOM, "-c", str(self.config_path), *arguments],
            stdin=stdin if stdin is not None else b"",
            timeout=timeout,
        )

    def put(self, *values: bytes, feed: bytes | None = None) -> int:
        """Insert values; how many were new."""
        with self.client() as client:
            return client.put(list(values), feed=(feed or self.feed_key).hex())["new"]

    def values(self, feed: bytes | None = None) -> list[bytes]:
        """All values of a feed in order."""
        with self.client() as client:
            return list(client.range(feed=(feed or self.feed_key).hex()))

    def count(self, feed: bytes | None = None) -> int:
        """How many values a feed has."""
        with self.client() as client:
            return client.count(feed=(feed or self.feed_key).hex())["count"]

    def digest(self, feed: bytes) -> str:
        """The digest of a feed."""
        with self.client() as client:
            return client.feed(feed.hex())["digest"]

    def peers(self, feed: bytes | None = None) -> list[dict]:
        """The secure connections, of one feed or all."""
        with self.client() as client:
            return [p for p in client.peers() if feed is None or p["feed"] == feed.hex()]

    def wait_for_count(self, feed: bytes, count: int, seconds: float = 30.0) -> None:
        """Until a feed has that many values."""
        wait_until(lambda: self.count(feed) >= count, seconds, f"{count} values")

    def wait_for_peers(self, feed: bytes, count: int, seconds: float = 30.0) -> None:
        """Until a feed has exactly that many secure peers."""
        wait_until(lambda: len(self.peers(feed)) == count, seconds, f"{count} peers")


class Nodes:
    """Makes nodes and ends them all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made: list[RealNode] = []

    def make(self, name: str, **more: object) -> RealNode:
        """A node that is not started yet."""
        node = RealNode(self.folder / name, **more)
        self.made.append(node)
        return node

    def invited(
        self,
        owner: RealNode,
        name: str,
        *,
        expires: str = "30d",
        start: bool = True,
        **more: object,
    ) -> RealNode:
        """A started node that has joined the owner's feed by an invitation."""
        member = self.make(name, **more)
        if start:
            member.start()
        invitation = owner.command("invite", member.key.hex(), "--expires", expires)
        assert invitation.returncode == 0, invitation.stderr
        joined = member.command("join", "-", stdin=invitation.stdout)
        assert joined.returncode == 0, joined.stderr
        return member

    def logs(self) -> str:
        """The last lines of every node's log."""
        parts = []
        for node in self.made:
            if node.log_path.exists():
                lines = node.log_path.read_text(errors="replace").splitlines()[-40:]
                parts.append("\n".join([f"--- {node.folder.name}", *lines]))
        return "\n".join(parts)

    def close(self) -> None:
        """End every process that still runs."""
        for node in self.made:
            if node.process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    node.process.terminate()
                    node.process.wait(5)
                node.process.kill()
                node.process.wait()
                node.process = None


@contextlib.contextmanager
def real_nodes(folder: Path) -> Iterator[Nodes]:
    """Nodes that are ended at the end; their logs are printed, for pytest to show on failure."""
    nodes = Nodes(folder)
    try:
        yield nodes
    finally:
        nodes.close()
        print(nodes.logs())
