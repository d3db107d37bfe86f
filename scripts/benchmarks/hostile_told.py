"""What ids told by one member's many keys cost a node: forty connections of ten keys of his making.

They tell ids of nothing as fast as the node takes them, for some seconds, then all leave at once.
The member signs a link for each of the keys, so to the node they are one branch. Measured are the
node's processor time, how late its reactor was, and how late an answer of the control socket.

Run as a program this module is the attackers: PORT FEED SEED LINK, until standard input ends. They
run while a processor is idle and no longer, like those of `hostile_peers`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "attacks"))

from attacker import Connection, KeyPair
from hostile_peers import framed, give_way, in_background, read_on

__all__ = ["HOSTILE_TOLD_CASES"]

KEYS = 10
CONNECTIONS = 40
SECONDS = 20.0
#: Looked at for so long after all have left.
AFTER_SECONDS = 5.0
PING_SECONDS = 0.02

#: Behind the TAC of `nodes`: the longest turn of the reactor in seconds of the processor, within a
#: tick. Other work of the machine makes it no longer. The file `busy` has it.
BUSY = """
class BusyMeter(StallMeter):
    def startService(self):
        self.worst, self.last = 0.0, time.thread_time()
        self.call = LoopingCall(self.tick)
        self.call.start(TICK)
    def tick(self):
        used = time.thread_time() - self.last
        self.last += used
        if used > self.worst or not os.path.exists("busy"):
            self.worst = used if os.path.exists("busy") else 0.0
            Path("busy.new").write_text(str(self.worst))
            os.replace("busy.new", "busy")
BusyMeter().setServiceParent(application)
"""

VALUES_TOLD = 4370
IDS = 4_096
FRAMES = 60
SPEAKS = (b"split-replies", b"set-digest-1", b"reconcile-1", b"broadcast-tree-1")


def told() -> bytes:
    """As many ids of nothing as a message has."""
    ids = sorted(os.urandom(16) for _ in range(IDS))
    return framed(VALUES_TOLD, b"".join(ids))


def tell_without_end(wire: Connection, frames: list[bytes], first: int) -> None:
    """One frame after the other, from another one on each connection."""
    in_background(read_on, wire)
    number = first
    while True:
        wire.send_frame(frames[number % len(frames)])
        number += 1


def attack(port: int, feed: bytes, member: KeyPair, link: bytes) -> None:
    """All connections, at it until standard input ends."""
    give_way()
    frames = [told() for _ in range(FRAMES)]
    keys = [KeyPair.random() for _ in range(KEYS)]
    for number in range(CONNECTIONS):
        key = keys[number % KEYS]
        wire = Connection.dial(("127.0.0.1", port), source=f"127.0.8.{number + 1}")
        wire.shake_hands(feed, key, [link, member.link(key.public)], extensions=SPEAKS)
        work = (wire, frames, number * FRAMES // CONNECTIONS)
        threading.Thread(target=tell_without_end, args=work, daemon=True).start()
    sys.stdout.write("attacking\n")
    sys.stdout.flush()
    sys.stdin.read()
    os._exit(0)


class Pings(threading.Thread):
    """Asks the control socket again and again, and notes the longest that an answer took."""

    def __init__(self, node: Any) -> None:
        super().__init__()
        self.node = node
        self.worst = 0.0
        self.done = threading.Event()

    def run(self) -> None:
        with self.node.client() as client:
            while not self.done.wait(PING_SECONDS):
                begun = time.perf_counter()
                client.ping()
                self.worst = max(self.worst, time.perf_counter() - begun)

    @classmethod
    def during(cls, node: Any, seconds: float) -> float:
        """The worst of so long."""
        pings = cls(node)
        pings.start()
        time.sleep(seconds)
        pings.done.set()
        pings.join()
        return pings.worst


def longest_turn(folder: Path) -> float:
    """The longest turn of the reactor since the last call, in seconds of the processor."""
    seconds = float((folder / "busy").read_text())
    (folder / "busy").unlink()
    time.sleep(0.1)
    return seconds


def told_case(folder: Path, scale: float) -> dict[str, Any]:
    """One row: a node alone, with the attackers, and when they have gone."""
    from hostile import FEED, HOSTILE, OWNER
    from nodes import BenchNode, member_links, running

    owner = BenchNode(folder / "owner", OWNER, FEED)
    owner.prepare()
    with (owner.folder / "bench.tac").open("a") as tac:
        tac.write(BUSY)
    seconds = SECONDS * scale
    command = [sys.executable, __file__, str(owner.port), FEED.hex(), HOSTILE.seed.hex()]
    command.append(member_links(OWNER, HOSTILE)[0].raw.hex())
    with running(owner):
        time.sleep(1)
        owner.stall()
        alone = Pings.during(owner, seconds / 4)
        stall_alone, turn_alone = owner.stall(), longest_turn(owner.folder)
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdout is not None
        try:
            if process.stdout.readline().strip() != b"attacking":
                raise RuntimeError("the attackers could not begin")
            with owner.client() as client:
                joined = len(client.peers())
            owner.stall()
            longest_turn(owner.folder)
            resident, used = owner.resident_bytes(), owner.cpu_seconds()
            ping = Pings.during(owner, seconds)
            used = owner.cpu_seconds() - used
            stall, grown = owner.stall(), owner.resident_bytes() - resident
            turn = longest_turn(owner.folder)
        finally:
            process.kill()
            process.wait()
        left = Pings.during(owner, AFTER_SECONDS)
        stall_left, turn_left = owner.stall(), longest_turn(owner.folder)
    return {
        "connections": joined,
        "seconds": seconds,
        "cpu_s": used,
        "ping_ms_alone": alone * 1e3,
        "ping_ms": ping * 1e3,
        "ping_ms_leaving": left * 1e3,
        "stall_ms_alone": stall_alone * 1e3,
        "stall_ms": stall * 1e3,
        "stall_ms_leaving": stall_left * 1e3,
        "turn_cpu_ms_alone": turn_alone * 1e3,
        "turn_cpu_ms": turn * 1e3,
        "turn_cpu_ms_leaving": turn_left * 1e3,
        "grown_mb": grown / 1e6,
        "must": "cpu <= a quarter of the time, pings <= 50 ms",
        "ok": joined == CONNECTIONS and used <= seconds / 4 and max(ping, left) <= 0.05,
    }


HOSTILE_TOLD_CASES = {"hostile-told-branch": told_case}

if __name__ == "__main__":
    attack(
        int(sys.argv[1]),
        bytes.fromhex(sys.argv[2]),
        KeyPair(bytes.fromhex(sys.argv[3])),
        bytes.fromhex(sys.argv[4]),
    )
