"""Real twistd nodes for the benchmarks: prefilled stores, processes, figures of a process.

Each node runs from a tac file that adds a stall meter to the ordinary service: it notes by how
much the reactor was late, from 5 ms ticks.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from hyperbloom.api.control_socket import connect_unix
from hyperbloom.client.client import Client
from hyperbloom.keys import Identity, create_key_file
from hyperbloom.replication.feeds import settle_feeds
from hyperbloom.replication.settings import FeedSettings
from hyperbloom.store import AppendValues, Store, WriterInline
from hyperbloom.store.records import LinkRecord
from hyperbloom.store.sketches.writing import SketchPiece
from hyperbloom.store.tables.links import PutLinks
from hyperbloom.trust import issue_link

__all__ = ["BenchNode", "free_port", "member_links", "memory_of", "prefill", "running"]

TAC = '''
import json, os, sys, time
from pathlib import Path
from twisted.application.service import Application, Service
from twisted.internet import reactor
from twisted.internet.task import LoopingCall
from hyperbloom.config import load_config
from hyperbloom.keys import load_key_file
from hyperbloom.service.node_service import NodeService

TICK = 0.005

class StallMeter(Service):
    """Writes the longest stall, in seconds, to stalls.json when the file `mark` changes."""
    def startService(self):
        self.worst, self.last = 0.0, time.perf_counter()
        self.call = LoopingCall(self.tick)
        self.call.start(TICK)
    def tick(self):
        now = time.perf_counter()
        self.worst = max(self.worst, now - self.last - TICK)
        self.last = now
        if os.path.exists("mark"):
            os.unlink("mark")
            Path("stalls.new").write_text(json.dumps(self.worst))
            os.replace("stalls.new", "stalls.json")
            self.worst = 0.0

config = load_config(Path("hyperbloom.toml").resolve())
application = Application("bench")
node = NodeService(config, load_key_file(config.identity), reactor=reactor)
node.setServiceParent(application)
StallMeter().setServiceParent(application)
'''

#: Behind TAC: rounds of synchronization are begun and measured in the node itself.
ROUNDS = f"""
sys.path.insert(0, {str(Path(__file__).resolve().parent)!r})
from round_meter import RoundMeter
RoundMeter(node, config.feeds[0].key).setServiceParent(application)
"""


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody uses at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def prefill(
    folder: Path,
    identity: Identity,
    feed: bytes,
    values: Iterable[list[bytes]],
    *,
    links: tuple[LinkRecord, ...] = (),
) -> None:
    """Make a node's store with a feed's values and links in it, batch by batch."""
    store = Store.open(folder / "store", durable=False)
    writer = WriterInline(store)
    settle_feeds(store, identity.public_key, [FeedSettings(key=feed)])
    problems: list[object] = []

    def done(outcome: object) -> None:
        if isinstance(outcome, BaseException):
            problems.append(outcome)

    for batch in values:
        writer.submit(
            AppendValues(feed_key=feed, values=batch, origin=identity.public_key, received_at=1),
            done,
        )
    if links:
        writer.submit(PutLinks(feed_key=feed, links=links), done)
    # A node does this in quiet times.
    while (work := store.begin_piece(feed)) is not None:
        operation = None if isinstance(work, SketchPiece) else work
        while operation is None:
            operation = work.step()
        writer.submit(operation, done)
    store.close()
    # What was written here must not be what the node's first commits wait for.
    os.sync()
    if problems:
        raise RuntimeError(str(problems[0]))


def member_links(owner: Identity, member: Identity) -> tuple[LinkRecord, ...]:
    """A chain of one link from owner to member, as the store keeps it."""
    link = issue_link(owner, member.public_key, expires=time.time() + 86_400, nonce=os.urandom(32))
    return (
        LinkRecord(
            issuer=owner.public_key,
            trustee=member.public_key,
            expires=link.expires,
            first_seen=1,
            introduced_by=owner.public_key,
            raw=link.to_bytes(),
        ),
    )


def memory_of(pid: int, name: str) -> int:
    """A figure of `/proc/PID/status` in bytes; RuntimeError where there is none, or OSError."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no {name} of the process")


class BenchNode:
    """A node in its folder: made, started, asked, measured, stopped by process id."""

    def __init__(self, folder: Path, identity: Identity, feed: bytes, *, peers: str = "") -> None:
        self.folder = folder
        self.identity = identity
        self.feed = feed
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        #: Addresses that it dials.
        self.peers = [peers] if peers else []

    def prepare(
        self,
        *,
        limits: str = "",
        sync: str = "",
        rounds: bool = False,
        noise: str = "prefer",
        more: str = "",
    ) -> None:
        """Write key, configuration and tac; with `rounds` the node has a `RoundMeter`.

        more: other tables of the configuration.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        create_key_file(self.folder / "identity.key", self.identity.seed)
        (self.folder / "bench.tac").write_text(TAC + ROUNDS if rounds else TAC)
        peers = f"peers = {json.dumps(self.peers)}\n" if self.peers else ""
        # Rounds are measured with what users have set; other cases would wait for it.
        sync = "" if rounds else f"[sync]\nanswer_wait = 0.2\nretry_first = 0.1\n{sync}\n\n"
        (self.folder / "hyperbloom.toml").write_text(
            f'[node]\nlisten = ["tcp:{self.port}:interface=127.0.0.1"]\nnoise = "{noise}"\n\n'
            f"[limits]\n{limits}\n\n{sync}"
            f'[[feeds]]\nkey = "{self.feed.hex()}"\n{peers}{more}'
        )

    def start(self, *, tac: bool = True) -> float:
        """Start twistd and wait until the node answers; the seconds until it listened."""
        twistd = Path(sys.executable).with_name("twistd")
        command = [str(twistd), "-n", "--pidfile=", "-l", "node.log"]
        command += ["-y", "bench.tac"] if tac else ["hyperbloom", "-c", "hyperbloom.toml"]
        listening: float | None = None
        begun = time.perf_counter()
        self.process = subprocess.Popen(command, cwd=self.folder)
        while True:
            with contextlib.suppress(OSError):
                if listening is None:
                    socket.create_connection(("127.0.0.1", self.port), 1).close()
                    listening = time.perf_counter() - begun
                connect_unix(self.folder / "control.sock", 1).close()
                return listening
            if self.process.poll() is not None or time.perf_counter() - begun > 30:
                raise RuntimeError((self.folder / "node.log").read_text()[-2000:])
            time.sleep(0.005)

    def client(self) -> Client:
        """A client of the control socket."""
        return Client(self.folder / "control.sock")

    def count(self) -> int:
        """How many values the feed has."""
        with self.client() as client:
            count: int = client.count(feed=self.feed.hex())["count"]
        return count

    def stall(self) -> float:
        """The longest time the reactor was late since the last call, in seconds."""
        report = self.folder / "stalls.json"
        report.unlink(missing_ok=True)
        (self.folder / "mark").touch()
        deadline = time.perf_counter() + 10
        while not report.exists() and time.perf_counter() < deadline:
            time.sleep(0.01)
        worst: float = json.loads(report.read_text())
        return worst

    def cpu_seconds(self) -> float:
        """Processor time the node has used so far, user and system."""
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self) -> int:
        """Resident memory of the process that is its own (without file pages of the map)."""
        return self._memory("RssAnon")

    def resident_all_bytes(self) -> int:
        """Resident memory of the process, pages of the map and of libraries included."""
        return self._memory("VmRSS")

    def _memory(self, name: str) -> int:
        assert self.process is not None
        return memory_of(self.process.pid, name)

    def children(self) -> list[int]:
        """The processes that the node has started and that run, by their ids."""
        assert self.process is not None
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        found: list[int] = []
        for task in tasks:
            with contextlib.suppress(OSError):
                found += map(int, task.read_text().split())
        return found

    def stop(self) -> None:
        """End the process; it gets ten seconds to do so by itself."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None


@contextlib.contextmanager
def running(*nodes: BenchNode, tac: bool = True) -> Iterator[None]:
    """Start nodes one after the other; all are stopped at the end.

    Without `tac` there is no stall meter, which takes a processor's second a minute itself.
    """
    try:
        for node in nodes:
            node.start(tac=tac)
        yield
    finally:
        for node in nodes:
            node.stop()
