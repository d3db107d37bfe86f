"""What the connections of a pool share: everything that is not pure comes in here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from hyperbloom.connections.workers import InThread
from hyperbloom.objects.pool import ObjectPool
from hyperbloom.objects.settings import ObjectsSettings
from hyperbloom.objects.wire.payloads import Identify

__all__ = ["Decide", "PoolContext", "let_in"]

Decide = Callable[[Identify, str], "bool | Deferred[bool]"]
"""The application's decision whether a peer is let in, by what it says and its address."""


def let_in(identify: Identify, address: str) -> bool:
    """The decision where the application makes none: everybody is let in."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolContext:
    """What the connections share.

    now: seconds since 1970. node_id: a random word by which this process knows itself. passphrase:
    that of the AES flag, None for the flag NIL.
    """

    pool: ObjectPool
    settings: ObjectsSettings
    clock: IReactorTime
    now: Callable[[], float]
    random_bytes: Callable[[int], bytes]
    in_thread: InThread
    node_id: str
    passphrase: str | None = None
    decide: Decide = let_in
