"""Somebody on the path between two nodes who knows the feed's key: a process of its own.

    python man_in_the_middle.py --feed HEX --port PORT --target PORT --folder FOLDER --do WHAT

It listens on a port of 127.0.0.1 and passes each connection on to another. It reads all that the
feed's key opens, knows where each frame and each record begins, and does one thing (`WHAT`; see
`ATTACKS`). It speaks with code of its own (attacker.py, noise_by_hand.py), and runs until it is
ended by its process id.

In the folder it leaves `read-N-D.bin` for connection N, direction D ("dialler" or "target"): all
that came from there, with the feed's keystream taken off from the Open's end to the end. What goes
wrong for the connections is no error of his; what he did he says on his output, "ready" first, then
"done N" for each time.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from attacker import DATA, HANDSHAKE, REQUEST, KeyStream, field, fields_of, varint

sys.path.append(str(Path(__file__).resolve().parents[1]))

from noise_by_hand import (
    NAME,
    NOISE_MESSAGE,
    Keys,
    NoiseMachine,
    prologue_of,
    psk_of,
    x25519_public,
)

SIDES = ("dialler", "target")


class Way:
    """What comes from one side, cut into Open, frames and records."""

    def __init__(self, feed: bytes, reads: Path) -> None:
        self._feed = feed
        self._reads = reads.open("wb")
        self._buffer = b""
        self._keystream: KeyStream | None = None
        #: For what goes on to the other side, in place of what came.
        self.onward: KeyStream | None = None
        self._spying: KeyStream | None = None
        self.clear = b""
        self.key = feed
        self.in_records = False
        self.records = 0

    def take(self, data: bytes) -> Iterator[tuple[str, bytes]]:
        """The next bytes; the pieces that are whole: ("open" | "frame" | "record", bytes).

        Frames come without the keystream and with their length, records as they are. What a piece
        is depends on what was done about the one before it.
        """
        if self._spying is not None:
            self._reads.write(self._spying.apply(data))
            self._reads.flush()
        if self._keystream is not None and not self.in_records:
            data = self._keystream.apply(data)
        self._buffer += data
        while (piece := self._next()) is not None:
            yield piece

    def _next(self) -> tuple[str, bytes] | None:
        if self.in_records:
            if len(self._buffer) < 2:
                return None
            return self._cut("record", 2 + int.from_bytes(self._buffer[:2], "big"))
        start = 4 if self._keystream is None else 0
        length = shift = 0
        for at in range(start, len(self._buffer)):
            length |= (self._buffer[at] & 0x7F) << shift
            shift += 7
            if self._buffer[at] < 0x80:
                return self._cut("frame" if start == 0 else "open", at + 1 + length)
        return None

    def _cut(self, kind: str, count: int) -> tuple[str, bytes] | None:
        if len(self._buffer) < count:
            return None
        piece, self._buffer = self._buffer[:count], self._buffer[count:]
        if kind == "open":
            self.begin_keystream(dict(fields_of(piece[5:]))[2])
        if kind == "record":
            self.records += 1
        return kind, piece

    def begin_keystream(self, nonce: object) -> None:
        """Behind the Open: what is read, what is passed on, and what is left on disk."""
        assert isinstance(nonce, bytes)
        self._keystream, self.onward, self._spying = (
            KeyStream(self._feed, nonce) for _ in range(3)
        )
        self._reads.write(self._spying.apply(self._buffer))
        self._buffer = self._keystream.apply(self._buffer)

    def begin_records(self) -> None:
        """The old keystream has ended."""
        if self.in_records or self._keystream is None:
            return
        self.in_records = True
        self._keystream.position -= len(self._buffer)
        self._buffer = self._keystream.apply(self._buffer)


class Relay:
    """One connection through the man. What an attack changes is in its methods."""

    def __init__(self, man: Man, number: int, dialler: socket.socket) -> None:
        self.man, self.number = man, number
        target = socket.create_connection(("127.0.0.1", man.target), timeout=30)
        self.sockets = {"dialler": dialler, "target": target}
        for sock in self.sockets.values():
            sock.settimeout(None)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.ways = {
            side: Way(man.feed, man.folder / f"read-{number}-{side}.bin") for side in SIDES
        }
        self.noise_messages = 0
        self.chance = random.Random(man.seed * 1_000 + number)
        self._lock = threading.Lock()

    def run(self) -> None:
        """Until one side has ended."""
        threads = [threading.Thread(target=self._carry, args=(side,)) for side in SIDES]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for sock in self.sockets.values():
            sock.close()

    def _carry(self, side: str) -> None:
        with contextlib.suppress(OSError):
            while data := self.sockets[side].recv(1 << 16):
                with self._lock:
                    for kind, piece in self.ways[side].take(data):
                        self.piece(side, kind, piece)
        with contextlib.suppress(OSError), self._lock:
            self.ended(side)
        for sock in self.sockets.values():
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    # What an attack may change

    def piece(self, side: str, kind: str, piece: bytes) -> None:
        """A whole piece came from one side; pass it on to the other."""
        way = self.ways[side]
        if kind == "open":
            self.opened(side, piece)
        elif kind == "record":
            self.record(side, piece)
        else:
            message_id, body = _split(piece)
            if message_id == HANDSHAKE:
                links = [value for tag, value in fields_of(body) if tag == 4]
                way.key = bytes(links[-1])[1:33] if links else self.man.feed
            if message_id == NOISE_MESSAGE:
                self.noise(side, body)
                self.noise_messages += 1
                if self.noise_messages == 2:
                    for each in self.ways.values():
                        each.begin_records()
            else:
                if self.noise_messages == 0:
                    way.clear += piece
                self.frame(side, message_id, piece)

    def opened(self, side: str, piece: bytes) -> None:
        """An Open."""
        self.ways[side].clear += piece
        self.send(_other(side), piece)

    def frame(self, side: str, message_id: int, piece: bytes) -> None:
        """A frame with its length that is not a NoiseMessage."""
        self.send_frame(_other(side), piece)

    def noise(self, side: str, body: bytes) -> None:
        """A NoiseMessage."""
        self.send_frame(_other(side), _frame(NOISE_MESSAGE, body))

    def record(self, side: str, piece: bytes) -> None:
        """A record with its length."""
        self.send(_other(side), piece)

    def ended(self, side: str) -> None:
        """A side has closed."""

    # What attacks do

    def send(self, side: str, data: bytes) -> None:
        """To a side, bytes as they are."""
        self.sockets[side].sendall(data)

    def send_frame(self, side: str, piece: bytes) -> None:
        """To a side, in the keystream in which the other would send it."""
        onward = self.ways[_other(side)].onward
        assert onward is not None
        self.send(side, onward.apply(piece))

    def cut(self) -> None:
        """End both connections as a network would."""
        for sock in self.sockets.values():
            sock.shutdown(socket.SHUT_RDWR)

    def done(self) -> None:
        """Say that the attack has been carried out."""
        self.man.say(f"done {self.number}")


def _other(side: str) -> str:
    return SIDES[1 - SIDES.index(side)]


def _frame(message_id: int, body: bytes) -> bytes:
    content = varint(message_id) + body
    return varint(len(content)) + content


def _split(piece: bytes) -> tuple[int, bytes]:
    """Message id and body of a frame with its length."""
    numbers = []
    at = 0
    for _ in range(2):
        number = shift = 0
        while True:
            number |= (piece[at] & 0x7F) << shift
            shift += 7
            at += 1
            if piece[at - 1] < 0x80:
                break
        numbers.append(number)
    return numbers[1], piece[at:]


# The attacks


class Strip(Relay):
    """Strike the announcement out of both Handshakes."""

    def frame(self, side: str, message_id: int, piece: bytes) -> None:
        """The Handshake without the name."""
        if message_id != HANDSHAKE:
            super().frame(side, message_id, piece)
            return
        fields = fields_of(_split(piece)[1])
        kept = [it for it in fields if it != (2, NAME.encode())]
        body = b"".join(field(tag, value) for tag, value in kept)
        self.send_frame(_other(side), _frame(HANDSHAKE, body))
        if len(kept) < len(fields):
            self.done()


class StripOne(Strip):
    """Strike it out of what the target says alone."""

    def frame(self, side: str, message_id: int, piece: bytes) -> None:
        """The dialler's goes on as it is."""
        if side == "target":
            super().frame(side, message_id, piece)
        else:
            Relay.frame(self, side, message_id, piece)


class FlipHandshake(Relay):
    """Flip one bit of a Handshake: of its id, an extension's name, its signature or its chain."""

    def frame(self, side: str, message_id: int, piece: bytes) -> None:
        """One of the two, with one bit changed, by chance."""
        if message_id == HANDSHAKE and side == SIDES[self.number % 2]:
            head = len(piece) - len(_split(piece)[1])
            piece = _flipped(piece, self.chance.randrange(8 * head, 8 * len(piece)))
            self.done()
        super().frame(side, message_id, piece)


class FlipNoise(Relay):
    """Flip one bit of a NoiseMessage."""

    def noise(self, side: str, body: bytes) -> None:
        """One of the two."""
        if side == SIDES[self.number % 2]:
            body = _flipped(body, self.chance.randrange(8 * len(body)))
            self.done()
        super().noise(side, body)


class FlipRecord(Relay):
    """Flip one bit of a record, of its length too."""

    def record(self, side: str, piece: bytes) -> None:
        """The second of a side: a first one has to have been good."""
        if side == SIDES[self.number % 2] and self.ways[side].records == 2:
            piece = self._changed(piece)
            self.done()
        super().record(side, piece)

    def _changed(self, piece: bytes) -> bytes:
        """Of the length, only bits that are set: for a longer record the node would wait."""
        if self.chance.random() < 0.25:
            length = int.from_bytes(piece[:2], "big")
            shorter = length ^ 1 << self.chance.choice(
                [bit for bit in range(16) if length >> bit & 1]
            )
            return shorter.to_bytes(2, "big") + piece[2:]
        return _flipped(piece, self.chance.randrange(16, 8 * len(piece)))


class Replay(Relay):
    """Send a record twice."""

    def record(self, side: str, piece: bytes) -> None:
        """The second."""
        super().record(side, piece)
        if side == SIDES[self.number % 2] and self.ways[side].records == 2:
            super().record(side, piece)
            self.done()


class ReplayAcross(Relay):
    """Send the records of an earlier connection in place of a later one's."""

    def record(self, side: str, piece: bytes) -> None:
        """Keep those of the first connection; later give them back, from the first on."""
        kept = self.man.kept[side]
        if self.number == 0:
            kept.append(piece)
            super().record(side, piece)
            if all(len(self.man.kept[each]) >= 2 for each in SIDES):
                self.cut()
        else:
            super().record(side, kept[0])
            self.done()


class ReplayNoise(Relay):
    """Send an earlier connection's NoiseMessages in place of a later one's."""

    def noise(self, side: str, body: bytes) -> None:
        """As ReplayAcross."""
        kept = self.man.kept[side]
        if self.number == 0:
            kept.append(body)
            super().noise(side, body)
        else:
            super().noise(side, kept[0])
            self.done()

    def record(self, side: str, piece: bytes) -> None:
        """Behind the handshake, end."""
        self.cut()


class Reflect(Relay):
    """Send a record back to its sender."""

    def record(self, side: str, piece: bytes) -> None:
        """The first; it is the first that its sender reads."""
        if side == SIDES[self.number % 2] and self.ways[side].records == 1:
            self.send(side, piece)
            self.done()
        else:
            super().record(side, piece)


class ReflectNoise(Relay):
    """Send the dialler's NoiseMessage back to the dialler."""

    def noise(self, side: str, body: bytes) -> None:
        """As if it were the target's."""
        self.send_frame(side, _frame(NOISE_MESSAGE, body))
        self.done()


class Reorder(Relay):
    """Swap two records of one side."""

    held = b""

    def record(self, side: str, piece: bytes) -> None:
        """The second waits for the third."""
        if side != SIDES[self.number % 2]:
            super().record(side, piece)
        elif self.ways[side].records == 2:
            self.held = piece
        else:
            super().record(side, piece)
            if self.held:
                super().record(side, self.held)
                self.held = b""
                self.done()


class Drop(Relay):
    """Leave one record out."""

    def record(self, side: str, piece: bytes) -> None:
        """The second; what follows shows it."""
        if side == SIDES[self.number % 2] and self.ways[side].records == 2:
            self.done()
        else:
            super().record(side, piece)


class DropEnd(Relay):
    """Keep each end to himself, and close in its place."""

    def record(self, side: str, piece: bytes) -> None:
        """An end is a record of a tag alone: its length tells."""
        if len(piece) == 18:
            self.done()
        else:
            super().record(side, piece)


class CutAtBorder(Relay):
    """Close both connections behind a whole record."""

    def record(self, side: str, piece: bytes) -> None:
        """The third of one side."""
        super().record(side, piece)
        if side == SIDES[self.number % 2] and self.ways[side].records == 3:
            self.done()
            self.cut()


class CutInside(Relay):
    """Close both connections inside a record."""

    def record(self, side: str, piece: bytes) -> None:
        """The second of one side."""
        if side == SIDES[self.number % 2] and self.ways[side].records == 2:
            self.send(_other(side), piece[: self.chance.randrange(1, len(piece))])
            self.done()
            self.cut()
        else:
            super().record(side, piece)


class OwnHandshake(Relay):
    """Run a Noise handshake with each side, with keys of his own in place of both nodes'."""

    def noise(self, side: str, body: bytes) -> None:
        """He answers the dialler, and begins with the target, though he lacks what they have."""
        prologue = prologue_of(*(self.ways[each].clear for each in SIDES))
        for face, initiator in (("dialler", False), ("target", True)):
            if face == "target" and side == "target":
                continue
            keys = Keys(
                initiator=initiator,
                ephemeral=os.urandom(32),
                prologue=prologue,
                static=os.urandom(32),
                remote_static=x25519_public(self.ways[face].key),
                psks=[psk_of(self.man.feed)],
            )
            machine = NoiseMachine(keys)
            if not initiator:
                with contextlib.suppress(Exception):
                    machine.read(body)
            self.send_frame(face, _frame(NOISE_MESSAGE, machine.write()))
        self.done()


class OwnEphemeral(Relay):
    """Put a key of his own in the place of an ephemeral one."""

    def noise(self, side: str, body: bytes) -> None:
        """The tag stays: he cannot make another."""
        machine_key = os.urandom(32)
        if side == SIDES[self.number % 2]:
            body = x25519_public(machine_key) + body[32:]
            self.done()
        super().noise(side, body)


class CarryProof(Relay):
    """Show each side the other's proof, and go on by himself in the old keystream."""

    def frame(self, side: str, message_id: int, piece: bytes) -> None:
        """Behind each Handshake, ask its receiver for all values, and give it one."""
        super().frame(side, message_id, piece)
        if message_id != HANDSHAKE:
            return
        self.send_frame(_other(side), _frame(REQUEST, field(1, b"")))
        self.send_frame(_other(side), _frame(DATA, field(1, b"forged") + field(2, bytes(64))))
        self.done()

    def noise(self, side: str, body: bytes) -> None:
        """Nothing more of what they say is passed on."""

    record = noise


ATTACKS: dict[str, type[Relay]] = {
    "pass": Relay,
    "strip": Strip,
    "strip-one": StripOne,
    "flip-handshake": FlipHandshake,
    "flip-noise": FlipNoise,
    "flip-record": FlipRecord,
    "replay": Replay,
    "replay-across": ReplayAcross,
    "replay-noise": ReplayNoise,
    "reflect": Reflect,
    "reflect-noise": ReflectNoise,
    "reorder": Reorder,
    "drop": Drop,
    "drop-end": DropEnd,
    "cut-at-border": CutAtBorder,
    "cut-inside": CutInside,
    "own-handshake": OwnHandshake,
    "own-ephemeral": OwnEphemeral,
    "carry-proof": CarryProof,
}


def _flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


class Man:
    """He listens, and does the same to every connection."""

    def __init__(
        self,
        *,
        feed: bytes,
        port: int,
        target: int,
        folder: Path,
        attack: type[Relay],
        seed: int,
    ) -> None:
        self.feed, self.target, self.folder, self.seed = feed, target, folder, seed
        self._attack: Callable[[Man, int, socket.socket], Relay] = attack
        #: What an attack keeps of one connection for another, by side.
        self.kept: dict[str, list[bytes]] = {side: [] for side in SIDES}
        self._listener = socket.create_server(("127.0.0.1", port))
        self._lock = threading.Lock()

    def say(self, line: str) -> None:
        """A line for who has started the process."""
        with self._lock:
            print(line, flush=True)

    def run(self) -> None:
        """Until the process is ended."""
        self.say("ready")
        number = 0
        while True:
            dialler, _ = self._listener.accept()
            try:
                relay = self._attack(self, number, dialler)
            except OSError:  # the target is not there
                dialler.close()
                continue
            number += 1
            threading.Thread(target=relay.run, daemon=True).start()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--feed", type=bytes.fromhex, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--target", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--do", choices=sorted(ATTACKS), required=True)
    parser.add_argument("--seed", type=int, default=1)
    told = parser.parse_args()
    Man(
        feed=told.feed,
        port=told.port,
        target=told.target,
        folder=told.folder,
        attack=ATTACKS[told.do],
        seed=told.seed,
    ).run()


if __name__ == "__main__":
    main()
