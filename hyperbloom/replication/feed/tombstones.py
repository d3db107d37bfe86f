"""Tombstones: values that ask the nodes of a feed to forget another value.

The protocol has no removal. By this convention, which a node follows only where its settings say
so, a value of this form in the feed asks for one::

    hyperbloom-forget:1:SIGNER:SIGNATURE:VALUE        (ASCII; the three parts are lower-case hex)

SIGNER is an Ed25519 public key, SIGNATURE its signature over
Hash("hyperbloom-forget:1" ‖ feed key ‖ VALUE), with the protocol's Hash. A value of a feed has no
author, and who passes a tombstone on proves nothing by that; so it is signed by itself, and for one
feed only. The value is named whole: a hash would have every node read the whole feed for it.

A node follows the feed's own key or nobody. Values that are not here yet are kept from coming, too.
Members are not followed: who made a value is not known, and who brought it here first may have
copied it. What a tombstone had forgotten, `forget --undo` brings back, and the
tombstone is not followed again: the log is read once, in the order of arrival, from where the
reader stopped. What this node put itself behind a tombstone is its operator's later word, and stays
here. A tombstone is a value like any other and stays in the feed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from hyperbloom.feed_words import TOMBSTONE
from hyperbloom.keys import Identity, keyed_hash, parse_public_key, verify_signature
from hyperbloom.replication.feed.background_task import BackgroundTask
from hyperbloom.replication.feed.feed import Feed
from hyperbloom.replication.limits import SLICE_BYTES, TOMBSTONE_SLICE
from hyperbloom.store import PutMeta
from hyperbloom.store.records import LogRecord
from hyperbloom.store.values.forgotten import BroughtLater

__all__ = ["TOMBSTONE", "Tombstone", "TombstoneReader", "make_tombstone", "parse_tombstone"]

_DOMAIN = b"hyperbloom-forget:1"


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
        self._task = BackgroundTask(self._run, "following tombstones")
        kept = feed.context.store.get_meta(_meta_name(feed.key))
        self._seq = 0 if kept is None else int(kept)

    def look(self) -> None:
        """Read what has arrived, unless that goes on already or is not wanted."""
        if self._feed.settings.tombstones != "off" and self._seq < self._feed.values.top_seq:
            self._task.begin()

    def stop(self) -> None:
        """Read no further."""
        self._task.stop()

    @staticmethod
    def forget_position(feed_key: bytes) -> PutMeta:
        """What has a feed read from its beginning when it is joined again."""
        return PutMeta(name=_meta_name(feed_key), value=None)

    async def _run(self) -> None:
        feed = self._feed
        while self._seq < feed.values.top_seq:
            top = feed.values.top_seq
            piece = await feed.values.log_after(
                self._seq, limit=TOMBSTONE_SLICE, max_bytes=SLICE_BYTES
            )
            found = await feed.context.own_work(partial(self._read, piece.records))
            if found:
                await self._follow(found)
            self._seq = piece.last_seq if piece.records else top
            feed.context.write(PutMeta(name=_meta_name(feed.key), value=b"%d" % self._seq))

    def _read(self, records: Sequence[LogRecord]) -> dict[bytes, int]:
        """In a thread, as a signature takes 0.1 ms: the values that the owner wants forgotten.

        With the number under which the tombstone has come. Others' are not even verified.
        """
        of_owner = TOMBSTONE + self._feed.key.hex().encode("ascii")
        asked: dict[bytes, int] = {}
        for record in records:
            if record.value.startswith(of_owner):
                tombstone = parse_tombstone(self._feed.key, record.value)
                if tombstone is not None:
                    asked[tombstone.value] = record.seq
        return asked

    async def _follow(self, asked: Mapping[bytes, int]) -> None:
        """In one transaction. A feed whose key is denied has no owner to follow."""
        feed = self._feed
        if feed.trust.membership.writers_among((feed.key,), now=feed.context.now()):
            spare = BroughtLater(origin=feed.context.identity.public_key, than=asked)
            await feed.forgetting.forget(list(asked), absent=True, spare=spare)


def _meta_name(feed_key: bytes) -> str:
    return f"tombstones.{feed_key.hex()}"
