"""Many members of a feed in one process; they keep counts, sums and delays, and no values.

A line of JSON on standard input says what to do (`Task`); it says `secure` on standard output when
all connections are. Then the line `report` is answered with a line of JSON, `leave` ends all
connections, and the end of standard input ends the process.

Each connection is a member with a key and an address of its own, and its stream is protected by
Noise, as between all nodes of ours. All that comes is decrypted, cut into frames and checked: a
chain and a signature over both nonces, and each Data's signature, once for equal bodies of one
sender. A value that begins with MARK carries the time it was put (`marked_value`). It asks as a
node with an empty store does: for the other's digest, then with an empty filter. It compares again
a second after the last value, and every minute; comparisons are answered with what really came.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import selectors
import socket
import sys
import time
from collections import Counter, OrderedDict
from dataclasses import asdict, dataclass, field
from typing import Any

from hyperbloom.digests import SUM_MODULUS, element_sum, set_digest
from hyperbloom.keys import Identity
from hyperbloom.trust import issue_link, verify_chain
from hyperbloom.wire import Credentials, Data, Digest, DigestRequest, Range, Sync
from hyperbloom.wire.extensions.noise import EPHEMERAL_BYTES, NoiseMessage
from hyperbloom.wire.extensions.set_digest import SET_DIGEST
from hyperbloom.wire.framing import FrameReader, encode_frame, split_frame
from hyperbloom.wire.messages import Handshake, Open
from hyperbloom.wire.opening import Opening
from hyperbloom.wire.records import RecordWriter
from hyperbloom.wire.stream_cipher import XSalsa20Stream
from hyperbloom.wire.verification import judge_data

MARK = b"put at: "
#: Bodies whose signature is known to hold.
KNOWN_BODIES = 64
READ_BYTES = 1 << 18
#: Seconds between two comparisons, and after the last value; a node has the same by default.
INTERVAL, JITTER, DOUBT_SECONDS = 60.0, 0.2, 1.0
#: Seconds between two looks at who is to compare.
LOOK_SECONDS = 0.25
EVERYTHING = Range(start=b"", end=None)


def marked_value(length: int = 64) -> bytes:
    """A new value that says when it was made, by the clock that all processes share."""
    head = MARK + time.perf_counter_ns().to_bytes(8, "big")
    return head + os.urandom(max(0, length - len(head)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Whom to connect to and as whom.

    `owner` is the seed of the feed's key, in hex. Members are numbered from `first`. With `asks`
    each asks for all values, with an empty filter; with `compares` each announces `set-digest`.
    """

    port: int
    owner: str
    count: int
    first: int = 0
    asks: bool = True
    compares: bool = True

    def to_line(self) -> bytes:
        """What the process is told first."""
        return json.dumps(asdict(self)).encode() + b"\n"


@dataclass(slots=True)
class Checked:
    """What a Data's body holds."""

    values: int
    total: int
    marked: list[tuple[bytes, int]]


@dataclass(slots=True)
class Figures:
    """What all members of this process have seen.

    `delays` counts by whole milliseconds; `arrived` has for each marked value how many have it and
    the longest delay in seconds.
    """

    frames: int = 0
    delays: Counter[int] = field(default_factory=Counter)
    arrived: dict[bytes, list[float]] = field(default_factory=dict)
    known: OrderedDict[bytes, Checked] = field(default_factory=OrderedDict)


class LightPeer:
    """One connection of one member."""

    def __init__(self, task: Task, number: int, figures: Figures) -> None:
        owner = Identity(bytes.fromhex(task.owner))
        seed = hashlib.sha256(b"light peer %d" % number).digest()
        self.identity = Identity(seed)
        link = issue_link(
            owner, self.identity.public_key, expires=time.time() + 86_400, nonce=os.urandom(32)
        )
        self.feed = owner.public_key
        chain = verify_chain(self.feed, [link.to_bytes()], now=time.time())
        self.credentials = Credentials(feed_key=self.feed, identity=self.identity, chain=chain)
        self.task, self.figures = task, figures
        self.opening = Opening(dialled=True, leeway=0, refuses=lambda key: None)
        sent = self.opening.open(self.credentials, nonce=os.urandom(24), speaks_noise=True)
        self.outgoing: XSalsa20Stream | RecordWriter = self.opening.outgoing(self.credentials)
        self.frames = FrameReader()
        self.opened: Open | None = None
        self.remote: Any = None
        self.values = self.total = self.bytes_in = self.compared = 0
        self.is_asked = self.is_ended = self.is_secure = False
        #: When it compares again; never before it has asked.
        self.due = math.inf
        source = f"127.{1 + number // 60_000}.{number // 250 % 250}.{1 + number % 250}"
        self.socket = socket.create_connection(
            ("127.0.0.1", task.port), timeout=60, source_address=(source, 0)
        )
        self.socket.sendall(sent)

    def read(self) -> bool:
        """Take what has come; whether the connection goes on."""
        try:
            data = self.socket.recv(READ_BYTES)
        except OSError:
            return False
        self.bytes_in += len(data)
        self.frames.feed(data)
        if self.opened is None:
            body = self.frames.next_open()
            if body is not None:
                self._open(Open.decode(body))
        while self.opened is not None and (frame := self.frames.next_frame()) is not None:
            self._take(frame)
        return bool(data)

    def send(self, message: Any) -> None:
        """Send a message; what members send is short."""
        frame = encode_frame(message.message_id, message.encode())
        self.socket.sendall(self.outgoing.process(frame))

    def _open(self, opened: Open) -> None:
        self.opened = opened
        self.opening.take_open(opened, self.credentials)
        self.frames.decrypt_with(XSalsa20Stream(self.feed, opened.nonce))
        names = ("split-replies", SET_DIGEST) if self.task.compares else ("split-replies",)
        self.send(
            self.opening.handshake(self.credentials, peer_id=os.urandom(32), extensions=names)
        )

    def _take(self, frame: bytes) -> None:
        message_id, body = split_frame(frame)
        self.figures.frames += 1
        if message_id == Data.message_id:
            self._take_data(body)
        elif message_id == Handshake.message_id:
            self._take_handshake(Handshake.decode(body))
        elif message_id == NoiseMessage.message_id:
            self.opening.take_noise(NoiseMessage.decode(body))
            self.outgoing, reader = self.opening.ciphers()
            self.frames.read_records(reader)
            self._begin()
        elif message_id == Digest.message_id:
            self._take_digest(Digest.decode(body))
        elif message_id == DigestRequest.message_id:
            request = DigestRequest.decode(body)
            digest = set_digest(self.values, self.total)
            self.send(
                Digest(
                    number=request.number,
                    count=self.values,
                    digest=digest,
                    settled_count=self.values,
                    settled_digest=digest,
                    ranges=request.ranges,
                )
            )

    def _take_handshake(self, handshake: Handshake) -> None:
        seen = self.frames.end_transcript()
        self.remote = self.opening.take_handshake(
            handshake, self.credentials, seen=seen, now=time.time()
        )
        if self.opening.has_noise:
            self.send(self.opening.noise_message(ephemeral=os.urandom(EPHEMERAL_BYTES)))
        else:
            self._begin()

    def _begin(self) -> None:
        self.is_secure = True
        if self.task.asks and self.task.compares:
            self.compare()
        elif self.task.asks:
            self._ask()

    def compare(self) -> None:
        """Ask what the owner holds."""
        self.compared += 1
        self.due = time.perf_counter() + INTERVAL * (1 + JITTER * random.uniform(-1, 1))
        self.send(DigestRequest(number=self.compared, ranges=(EVERYTHING,)))

    def _take_digest(self, digest: Digest) -> None:
        is_same = digest.digest == set_digest(self.values, self.total)
        if not (is_same or self.is_asked):
            self._ask()

    def _ask(self) -> None:
        self.is_asked = True
        self.send(Sync(filter=bytes(8), size=64, n=1, seed=0))

    def _take_data(self, body: bytes) -> None:
        if self.compared == 1:
            self.due = time.perf_counter() + DOUBT_SECONDS
        known = self.figures.known
        checked = known.get(body)
        if checked is None:
            checked = known[body] = self._check(body)
            if len(known) > KNOWN_BODIES:
                known.popitem(last=False)
        self.values += checked.values
        self.total = (self.total + checked.total) % SUM_MODULUS
        if checked.marked:
            now = time.perf_counter_ns()
            for value, put_at in checked.marked:
                delay = (now - put_at) / 1e9
                self.figures.delays[int(delay * 1e3)] += 1
                seen = self.figures.arrived.setdefault(value, [0, 0.0])
                seen[0] += 1
                seen[1] = max(seen[1], delay)

    def _check(self, body: bytes) -> Checked:
        judged = judge_data(body, self.credentials, self.remote, now=time.time(), leeway=0)
        if not hasattr(judged, "values"):
            raise RuntimeError(f"a Data does not hold: {judged}")
        values = judged.values
        start = len(MARK)
        return Checked(
            values=len(values),
            total=element_sum(values),
            marked=[
                (value, int.from_bytes(value[start : start + 8], "big"))
                for value in values
                if value.startswith(MARK)
            ],
        )


class Crowd:
    """All members of this process, in one loop."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.figures = Figures()
        self.selector = selectors.DefaultSelector()
        self.peers: list[LightPeer] = []
        self.lost = 0
        self._input = b""
        self._look_at = 0.0

    def run(self) -> None:
        """Connect, say so, and serve until standard input ends."""
        for number in range(self.task.first, self.task.first + self.task.count):
            peer = LightPeer(self.task, number, self.figures)
            self.peers.append(peer)
            self.selector.register(peer.socket, selectors.EVENT_READ, peer)
            self._serve(0)
        while any(not peer.is_secure for peer in self.peers) and not self.lost:
            self._serve(1)
        sys.stdout.write(f"secure, {self.lost} lost\n")
        sys.stdout.flush()
        os.set_blocking(0, False)
        self.selector.register(0, selectors.EVENT_READ, None)
        while self._serve(LOOK_SECONDS):
            self._compare()

    def _compare(self) -> None:
        now = time.perf_counter()
        if now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            for peer in self.peers:
                if peer.due <= now and not peer.is_ended:
                    peer.compare()

    def _serve(self, timeout: float | None) -> bool:
        for key, _ in self.selector.select(timeout):
            if key.data is None:
                if not self._command():
                    return False
            elif not key.data.read():
                self.lost += 1
                self._end(key.data)
        return True

    def _end(self, peer: LightPeer) -> None:
        peer.is_ended = True
        self.selector.unregister(peer.socket)
        peer.socket.close()

    def _command(self) -> bool:
        data = os.read(0, 65_536)
        self._input += data
        *lines, self._input = self._input.split(b"\n")
        for line in lines:
            if line == b"report":
                sys.stdout.write(json.dumps(self.report()) + "\n")
                sys.stdout.flush()
            elif line == b"leave":
                for key in list(self.selector.get_map().values()):
                    if key.data is not None:
                        self._end(key.data)
        return bool(data)

    def report(self) -> dict[str, Any]:
        """What was seen until now."""
        sets = Counter((peer.values, peer.total) for peer in self.peers)
        return {
            "frames": self.figures.frames,
            "compared": sum(peer.compared for peer in self.peers),
            "lost": self.lost,
            "bytes_in": sum(peer.bytes_in for peer in self.peers),
            "sets": {set_digest(*one).hex(): count for one, count in sets.items()},
            "fewest": min((peer.values for peer in self.peers), default=0),
            "most": max((peer.values for peer in self.peers), default=0),
            "delays": dict(self.figures.delays),
            "arrived": {value.hex(): seen for value, seen in self.figures.arrived.items()},
            "cpu_s": time.process_time(),
        }


if __name__ == "__main__":
    Crowd(Task(**json.loads(sys.stdin.buffer.readline()))).run()
