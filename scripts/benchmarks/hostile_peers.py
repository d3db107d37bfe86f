"""One hostile process: PORT KIND CONNECTIONS FEED KEYS [SEED LINK]; says `attacking` once it is.

It speaks the protocol with the attacker of the tests, not with the package. Each connection has a
thread; one that the node ends is made anew. A member has the seed of a key and a link to it; a
stranger knows the feed's key at most. KEYS is `own`, or `new`: then the member makes a key below
its own for each connection, and makes it anew after `LIFE_SECONDS`. It goes on until standard input
ends.

In life an attacker has a processor of its own. Here it has only what the nodes leave: it is
scheduled while a processor is idle (SCHED_IDLE; where there is no such thing, at nice 19, which
still makes a node wait for its turn now and then), and makes what it sends once, or in large
pieces.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "attacks"))

from attacker import (
    DATA,
    MAGIC,
    REQUEST,
    SYNC,
    Connection,
    Ended,
    KeyPair,
    field,
    hashed,
    varint,
)

ADDRESSES = 49
#: The longest filter that fits a frame, every bit set, with as many functions as nodes allow.
FILTER = b"\xff" * 255_000
HASH_FUNCTIONS = 64
TINY_VALUES = 40_000
LOWEST_PRIORITY = 19
DRIP_SECONDS = 1.0
RETRY_SECONDS = 0.5
LIFE_SECONDS = 1.0
#: Seconds after which the attack has begun, though some that are turned away have not tried yet.
LONGEST_BEGINNING = 5.0


def framed(message_id: int, body: bytes) -> bytes:
    """A message with its length."""
    content = varint(message_id) + body
    return varint(len(content)) + content


FOUR_SYNCS = 4 * framed(
    SYNC, field(1, FILTER) + field(2, 8 * len(FILTER)) + field(3, HASH_FUNCTIONS) + field(4, 0)
)
MANY_REQUESTS = 10_000 * framed(REQUEST, field(1, b""))


def read_on(wire: Connection) -> None:
    """Take what comes and drop it."""
    buffer = bytearray(1 << 18)
    try:
        while wire.socket.recv_into(buffer):
            pass
    except OSError:
        return


def in_background(call: Callable[[Connection], None], wire: Connection) -> None:
    wire.socket.settimeout(None)
    threading.Thread(target=call, args=(wire,), daemon=True).start()


# Members


def ask_expensive(wire: Connection) -> None:
    """The most expensive Syncs: nothing is missing, and every function is looked at to know."""
    in_background(read_on, wire)
    while True:
        wire.send_frame(FOUR_SYNCS)


def ask_and_not_read(wire: Connection) -> None:
    """Ask for everything, again and again, and read nothing."""
    wire.socket.settimeout(None)
    while True:
        wire.send_frame(MANY_REQUESTS)


def send_tiny(wire: Connection) -> None:
    """Frames full of new values of four bytes."""
    assert wire.key is not None
    in_background(read_on, wire)
    row = np.empty((TINY_VALUES, 6), np.uint8)
    row[:, 0], row[:, 1] = 0x0A, 4
    while True:
        values = np.frombuffer(os.urandom(TINY_VALUES * 4), np.uint8).reshape(-1, 4)
        row[:, 2:] = values
        signed = wire.feed + TINY_VALUES.to_bytes(8, "big") + values.tobytes()
        wire.send(DATA, row.tobytes() + field(2, wire.key.sign(hashed(signed))))


def connect_again(wire: Connection) -> None:
    """Be secure, ask once, leave, and come again."""
    wire.send_sync(FILTER, n=HASH_FUNCTIONS)
    time.sleep(0.05)


# Strangers


def stay_silent(wire: Connection) -> None:
    """Say nothing."""
    wire.socket.recv(1)


def drip(wire: Connection) -> None:
    """One byte of an Open a second."""
    for byte in MAGIC + varint(60):
        wire.write(bytes([byte]))
        time.sleep(DRIP_SECONDS)


def send_garbage(wire: Connection) -> None:
    """Bytes that mean nothing."""
    wire.write(os.urandom(4_096))
    wire.socket.recv(1)


def open_only(wire: Connection) -> None:
    """A proper Open, and then nothing."""
    wire.send_open()
    while wire.socket.recv(65_536):
        pass


def claim_much(wire: Connection) -> None:
    """An Open, and the beginning of a frame as long as the longest."""
    wire.send_open()
    wire.receive_open()
    wire.send_frame(varint(262_144) + bytes(200_000))
    while wire.socket.recv(65_536):
        pass


MEMBERS: dict[str, Callable[[Connection], None]] = {
    "filters": ask_expensive,
    "requests": ask_and_not_read,
    "tiny": send_tiny,
    "reconnects": connect_again,
}
STRANGERS: tuple[Callable[[Connection], None], ...] = (
    stay_silent,
    drip,
    send_garbage,
    open_only,
    claim_much,
)


def attack(number: int, begun: threading.Semaphore) -> None:
    """One connection, again and again."""
    port, kind, feed = int(sys.argv[1]), sys.argv[2], bytes.fromhex(sys.argv[4])
    has_new_keys = sys.argv[5] == "new"
    doing = MEMBERS.get(kind) or STRANGERS[number % len(STRANGERS)]
    told = False
    while True:
        try:
            source = f"127.0.1.{1 + number % ADDRESSES}"
            with Connection.dial(("127.0.0.1", port), source=source) as wire:
                if kind in MEMBERS:
                    key, chain = KeyPair(bytes.fromhex(sys.argv[6])), [bytes.fromhex(sys.argv[7])]
                    if has_new_keys:
                        below = KeyPair.random()
                        key, chain = below, [*chain, key.link(below.public)]
                    wire.shake_hands(feed, key, chain, extensions=[b"split-replies"])
                    if has_new_keys:
                        leave_later(wire)
                else:
                    wire.use(feed)
                if not told:
                    told = True
                    begun.release()
                doing(wire)
        except (Ended, OSError, AssertionError):
            if not told and number:
                # All that the node lets in are at it; those that it turns away go on trying.
                told = True
                begun.release()
            if not has_new_keys:
                time.sleep(RETRY_SECONDS)


def leave_later(wire: Connection) -> None:
    """End a connection after a while, whatever it waits for."""

    def leave() -> None:
        with contextlib.suppress(OSError):
            wire.socket.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(LIFE_SECONDS, leave)
    timer.daemon = True
    timer.start()


def give_way() -> None:
    """Run only while nobody else wants the processor."""
    os.nice(LOWEST_PRIORITY)
    if hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def main() -> None:
    """Attack until standard input ends."""
    give_way()
    count = int(sys.argv[3])
    begun = threading.Semaphore(0)
    threading.stack_size(256 * 1024)
    for number in range(count):
        threading.Thread(target=attack, args=(number, begun), daemon=True).start()
    deadline = time.monotonic() + LONGEST_BEGINNING
    for _ in range(count):
        begun.acquire(timeout=max(0.0, deadline - time.monotonic()))
    sys.stdout.write("attacking\n")
    sys.stdout.flush()
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
