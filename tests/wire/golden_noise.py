"""The golden transcripts of docs/extensions/noise.md, and two sessions that make them anew."""

from __future__ import annotations

from pathlib import Path

from wire_peers import (
    FEED,
    LOCAL_EPHEMERAL,
    LOCAL_NONCE,
    REMOTE_EPHEMERAL,
    REMOTE_NONCE,
    credentials_of,
    events,
    hashed,
)

from hyperbloom.wire import Request, Session
from hyperbloom.wire.stream_cipher import XSalsa20Stream

PAGE = Path(__file__).parents[2] / "docs" / "extensions" / "noise.md"

MANY = 65_536


def golden() -> dict[str, str]:
    """Name to hexadecimal digits, as the page has them; a value goes on in indented lines."""
    _, _, block = PAGE.read_text().partition("## Golden transcripts")
    found: dict[str, str] = {}
    name = ""
    for line in block.splitlines():
        if line.startswith("    ") and "=" in line:
            name, _, digits = line.strip().partition(" = ")
            found[name] = digits
        elif line.startswith("      ") and name:
            found[name] += line.strip()
    return found


class Clear:
    """What a side sends in the old keystream, taken out of it, and what is hashed of it."""

    def __init__(self, opened: bytes) -> None:
        self.cipher = XSalsa20Stream(FEED, opened[-24:])
        self.seen = opened

    def take(self, sent: bytes) -> bytes:
        clear = self.cipher.process(sent)
        self.seen += clear
        return clear


def played() -> dict[str, str]:
    """The same of two sessions: a member (key pair 2) dials the owner (key pair 1)."""
    dialler, other = Session(dialled=True), Session()
    told: dict[str, bytes] = {}
    told["dialler open"] = dialler.send_open(
        credentials_of(2), nonce=LOCAL_NONCE, speaks_noise=True
    )
    other.receive_data(told["dialler open"])
    events(other)
    told["other open"] = other.send_open(credentials_of(), nonce=REMOTE_NONCE, speaks_noise=True)
    dialler.receive_data(told["other open"])
    events(dialler)
    ours, theirs = Clear(told["dialler open"]), Clear(told["other open"])
    sent = dialler.send_handshake(peer_id=b"\x01" * 32)
    answer = other.send_handshake(peer_id=b"\x02" * 32)
    dialler.receive_data(answer)
    events(dialler)
    other.receive_data(sent)
    events(other)
    told["dialler handshake"], told["other handshake"] = ours.take(sent), theirs.take(answer)
    told["H dialler"], told["H other"] = hashed(ours.seen), hashed(theirs.seen)
    first = dialler.send_noise(ephemeral=LOCAL_EPHEMERAL)
    other.receive_data(first)
    events(other)
    second = other.send_noise(ephemeral=REMOTE_EPHEMERAL)
    dialler.receive_data(second)
    events(dialler)
    told["first message"], told["second message"] = ours.take(first), theirs.take(second)
    told["dialler record"] = dialler.send_request(Request(start=b""))
    told["other record"] = other.send_data([b"one"])
    told["other end"] = other.send_end()
    for _ in range(MANY - 1):
        dialler.send_request(Request(start=b""))
    told["dialler record after rekey"] = dialler.send_request(Request(start=b""))
    return {name: value.hex() for name, value in told.items()}
