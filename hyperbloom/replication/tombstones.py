"""Tombstones: values that ask the nodes of a feed to forget another value.

The protocol has no removal. By this convention, which a node follows only where its settings say
so, a value of this form in the feed asks for one::

    hyperbloom-forget:1:SIGNER:SIGNATURE:VALUE        (ASCII; the three parts are lower-case hex)

SIGNER is an Ed25519 public key, SIGNATURE its signature over
Hash("hyperbloom-forget:1" ‖ feed key ‖ VALUE), with the protocol's Hash. A value of a feed has no
author, and who passes a tombstone on proves nothing by that; so it is signed by itself, and for one
feed only. The value is named whole: a hash would have every node read the whole feed for it.

Whom a node follows bounds what can be done to it:

- ``owner``: only the feed's own key. Values that are not here yet are kept from coming, too.
- ``members``: also members by an unexpired chain, but each for those values alone that the member's
  own node brought here. A member can take back what it said, and nothing that others said.

A denied key is not followed. What a tombstone had forgotten, `forget --undo` brings back, and the
tombstone is not followed again: the log is read once, in the order of arrival, from where the
reader stopped. A tombstone is a value like any other and stays in the feed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from hyperbloom.keys import Identity, keyed_hash, parse_public_key, verify_signature
from hyperbloom.replication.limits import SLICE_BYTES, TOMBSTONE_SLICE
from hyperbloom.store import LogRecord, NoSuchFeed, PutMeta

if TYPE_CHECKING:
    from hyperbloom.replication.feed import Feed

__all__ = ["TOMBSTONE", "Tombstone", "TombstoneReader", "make_tombstone", "parse_tombstone"]

TOMBSTONE: Final = b"hyperbloom-forget:1:"
"""What every tombstone begins with."""

_DOMAIN = b"hyperbloom-forget:1"

log = Logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """A tombstone whose signature holds: who asks for which value to be forgotten."""

    signer: bytes
    value: bytes


def make_tombstone(identity: Identity, feed_key: bytes, value: bytes) -> bytes:
    """The value that asks to forget `value` in the feed; it is twice as long and 200 bytes more."""
    signature = identity.sign(keyed_hash(_DOMAIN, feed_key, value))
    parts = (identity.public_key.hex(), signature.hex(), value.hex())
    return TOMBSTONE + ":".join(parts).encode("ascii")


def parse_tombstone(feed_key: bytes, data: bytes) -> Tombstone | None:
    """The tombstone that a value of this feed is; None for any other value or a forged one."""
    if not data.startswith(TOMBSTONE):
        return None
    try:
        signer_hex, signature_hex, value_hex = data[len(TOMBSTONE) :].decode("ascii").split(":")
        signer = parse_public_key(signer_hex)
        signature, value = bytes.fromhex(signature_hex), bytes.fromhex(value_hex)
    except ValueError:
        return None
    if not value or not verify_signature(signer, keyed_hash(_DOMAIN, feed_key, value), signature):
        return None
    return Tombstone(signer=signer, value=value)


class TombstoneReader:
    """Follows the tombstones of one feed as its settings say; `look` when something was stored."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._name = f"tombstones.{feed.key.hex()}"
        self._running: Deferred[None] | None = None
        kept = feed.context.store.get_meta(self._name)
        self._seq = 0 if kept is None else int(kept)

    def look(self) -> None:
        """Read what has arrived, unless that goes on already or is not wanted."""
        feed = self._feed
        if feed.settings.tombstones == "off" or self._running is not None:
            return
        if self._seq < feed.top_seq:
            self._running = Deferred.fromCoroutine(self._run())
            self._running.addBoth(self._over)

    def stop(self) -> None:
        """Read no further."""
        if self._running is not None:
            self._running.cancel()

    def _over(self, result: object) -> None:
        self._running = None
        if isinstance(result, Failure) and not result.check(CancelledError, NoSuchFeed):
            log.failure("Tombstones could not be followed", failure=result)

    async def _run(self) -> None:
        feed, before = self._feed, self._seq
        while self._seq < feed.top_seq:
            top = feed.top_seq
            piece = await feed.log_after(self._seq, limit=TOMBSTONE_SLICE, max_bytes=SLICE_BYTES)
            found = await feed.context.in_thread(partial(self._read, piece.records))
            for tombstone in found:
                await self._follow(tombstone)
            self._seq = piece.last_seq if piece.records else top
        if self._seq != before:
            feed.write(PutMeta(name=self._name, value=b"%d" % self._seq))

    def _read(self, records: Sequence[LogRecord]) -> list[Tombstone]:
        """In a thread: a signature takes 0.1 ms."""
        found = (parse_tombstone(self._feed.key, record.value) for record in records)
        return [tombstone for tombstone in found if tombstone is not None]

    async def _follow(self, tombstone: Tombstone) -> None:
        feed, signer = self._feed, tombstone.signer
        if signer in feed.context.denied:
            return
        if signer == feed.key:
            await feed.forgetting.forget([tombstone.value], absent=True)
        elif feed.settings.tombstones == "members" and self._is_member(signer):
            await feed.forgetting.forget([tombstone.value], brought_by=signer)

    def _is_member(self, key: bytes) -> bool:
        now = self._feed.context.now()
        return self._feed.membership.shortest_chain(key, now=now) is not None
