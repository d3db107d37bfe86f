"""What a protected stream costs: the handshake, and a first replication with and without it."""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from writes import FEED, MEMBER, OWNER, member_links, random_values, replicate

from hyperbloom.trust import owner_chain, verify_chain
from hyperbloom.wire import Credentials, Session
from hyperbloom.wire.events import Waiting
from hyperbloom.wire.extensions.noise import EPHEMERAL_BYTES
from hyperbloom.wire.states import State

__all__ = ["PROTECTION_CASES"]

Figures = dict[str, Any]

HANDSHAKES = 500
TURNS = 3


class Side:
    """One side of a connection in memory, which says what it has to as soon as it may."""

    def __init__(self, credentials: Credentials, *, dialled: bool, noise: bool) -> None:
        self.session = Session(dialled=dialled)
        self.credentials, self.noise = credentials, noise
        self.seconds = 0.0

    def turn(self, data: bytes) -> bytes:
        """Take bytes; what is said to them."""
        begun = time.process_time()
        session = self.session
        said = self._open() if session.state is State.IDLE and not data else b""
        session.receive_data(data)
        while True:
            if session.state is State.OPEN_RECEIVED:
                said += self._open()
            if session.state is State.OPENED:
                said += session.send_handshake(peer_id=bytes(32))
            if session.noise_is_due:
                said += session.send_noise(ephemeral=os.urandom(EPHEMERAL_BYTES))
            if isinstance(session.next_event(now=time.time()), Waiting) and not self._is_due():
                break
        self.seconds += time.process_time() - begun
        return said

    def _is_due(self) -> bool:
        state = self.session.state
        return state in (State.OPEN_RECEIVED, State.OPENED) or self.session.noise_is_due

    def _open(self) -> bytes:
        return self.session.send_open(
            self.credentials, nonce=os.urandom(24), speaks_noise=self.noise
        )


def shake(noise: bool) -> tuple[float, float, int]:
    """Two sides become secure: processor seconds of the dialler and the other, flights until the
    dialler may ask."""
    chain = verify_chain(FEED, [member_links(OWNER, MEMBER)[0].raw], now=time.time())
    member = Credentials(feed_key=FEED, identity=MEMBER, chain=chain)
    owner = Credentials(feed_key=FEED, identity=OWNER, chain=owner_chain(OWNER))
    dialler = Side(member, dialled=True, noise=noise)
    other = Side(owner, dialled=False, noise=noise)
    flights = 0
    said = dialler.turn(b"")
    while dialler.session.state is not State.SECURE:
        said = other.turn(said) if flights % 2 == 0 else dialler.turn(said)
        flights += 1
    if said:
        other.turn(said)
    return dialler.seconds, other.seconds, flights


def handshake_case(folder: Path, scale: float) -> Figures:
    """What Noise adds to a handshake: processor time a side, round trips."""
    runs: dict[bool, list[tuple[float, float, int]]] = {True: [], False: []}
    for _ in range(int(HANDSHAKES * scale) + 1):
        for noise, taken in runs.items():
            taken.append(shake(noise))

    def middle(noise: bool, part: int) -> float:
        return statistics.fmean(run[part] for run in runs[noise])

    added = [(middle(True, part) - middle(False, part)) * 1e3 for part in (0, 1)]
    trips = (runs[True][0][2] - runs[False][0][2]) / 2
    return {
        "added_cpu_ms": {"dialler": added[0], "other": added[1]},
        "without_ms": {"dialler": middle(False, 0) * 1e3, "other": middle(False, 1) * 1e3},
        "added_round_trips": trips,
        "must": "1 round trip, <= 2 ms a side",
        "ok": trips == 1 and max(added) <= 2,
    }


def protected_replication_case(folder: Path, scale: float) -> Figures:
    """A first replication with a protected stream against one without, in turns."""
    values = random_values(int(1_000_000 * scale), 2)
    rates: dict[str, list[float]] = {"prefer": [], "off": []}
    stalls = []
    for turn in range(TURNS):
        for noise, taken in rates.items():
            place = folder / f"{noise}{turn}"
            figures = replicate(place, values, read_back=False, noise=noise)
            taken.append(figures["values_per_s"])
            stalls += figures["stall_ms"]
            shutil.rmtree(place)
    ratio = statistics.median(rates["prefer"]) / statistics.median(rates["off"])
    return {
        "values": len(values),
        "protected_per_s": rates["prefer"],
        "unprotected_per_s": rates["off"],
        "ratio": ratio,
        "stall_ms": max(stalls),
        "must": ">= 0.85",
        "ok": ratio >= 0.85,
    }


PROTECTION_CASES: dict[str, Callable[[Path, float], Figures]] = {
    "noise-handshake": handshake_case,
    "noise-replication": protected_replication_case,
}
