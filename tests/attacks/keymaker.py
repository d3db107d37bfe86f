"""A member who makes keys by the thousand: each is linked below his own link, and proves itself.

    mallory = Keymaker(owner.key, KeyPair(seed_of_owner))
    for sub in mallory.subs(750):
        with mallory.connect(owner.port, sub) as wire: ...

Everything is `attacker`'s: nothing of the package that is attacked is imported here.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from attacker import DATA, LINK, Connection, Ended, KeyPair


@dataclass(frozen=True)
class Sub:
    """One of his keys, and the links that lead to it from the feed's key."""

    key: KeyPair
    chain: tuple[bytes, ...]

    def below(self, *, expires: float | None = None) -> Sub:
        """A key of this one's own making."""
        key = KeyPair.random()
        return Sub(key, (*self.chain, self.key.link(key.public, expires=expires)))


@dataclass
class Keymaker:
    """A member of the feed with this key, whom the owner (or another member) has invited."""

    feed: bytes
    inviter: KeyPair
    invited_by: tuple[bytes, ...] = ()
    key: KeyPair = field(default_factory=KeyPair.random)

    def __post_init__(self) -> None:
        link = self.inviter.link(self.key.public)
        self.member = Sub(self.key, (*self.invited_by, link))
        self._sources = itertools.count(1)

    def subs(self, count: int, *, depth: int = 1, expires: float | None = None) -> Iterator[Sub]:
        """So many new keys, each `depth` links below the member's own."""
        for _ in range(count):
            sub = self.member
            for _ in range(depth):
                sub = sub.below(expires=expires)
            yield sub

    def connect(
        self, port: int, sub: Sub, *, extensions: tuple[bytes, ...] = (b"split-replies",)
    ) -> Connection:
        """Be secure as this key, from another address each time; `Ended` if it is not let in."""
        number = next(self._sources) % 60_000
        source = f"127.50.{number // 250}.{number % 250 + 1}"
        wire = Connection.dial(("127.0.0.1", port), source=source)
        try:
            self.host = wire.shake_hands(self.feed, sub.key, sub.chain, extensions=extensions)
        except BaseException:
            wire.close()
            raise
        return wire

    def shortened(self, port: int, sub: Sub, *, seconds: float = 10.0) -> Sub:
        """The same key with the link that the node gives it; TimeoutError if it gives none."""
        with self.connect(port, sub) as wire:
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                for message_id, body in wire.drain(0.2):
                    if message_id == LINK:
                        # One field, the link, which goes on from the node's own chain.
                        return Sub(sub.key, (*self.host.chain, body[-137:]))
        raise TimeoutError("no link came")

    def is_let_in(self, port: int, sub: Sub) -> bool:
        """Whether the key sends a value of its own and gets values."""
        try:
            with self.connect(port, sub) as wire:
                wire.send_data([b"of " + sub.key.public])
                wire.drain(0.5)
                wire.send_request(start=b"")
                return any(message_id == DATA for message_id, _ in wire.drain(0.5))
        except Ended:
            return False
