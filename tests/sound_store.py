"""What a sound store is filled with that has something of everything a store keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from hyperbloom.store import AppendValues, PutFeed
from hyperbloom.store.records import LinkRecord, PeerRecord
from hyperbloom.store.tables.denied import DenyKey
from hyperbloom.store.tables.links import PutLinks
from hyperbloom.store.tables.names import NameKey
from hyperbloom.store.tables.noise import RememberNoise
from hyperbloom.store.tables.peers import PutPeer
from hyperbloom.store.tables.pending import PutPending
from hyperbloom.store.values.ordered_index import PART_BYTES
from hyperbloom.store.values.refused import RememberRefused

__all__ = ["FEED", "ORIGIN", "OTHER", "STEM", "VALUES", "fill"]

FEED, OTHER, ORIGIN = b"f" * 32, b"g" * 32, b"o" * 32
STEM: Final = b"s" * PART_BYTES
VALUES: Final = [b"a", b"b", STEM + b"1", STEM + b"2", STEM * 3 + b"1", STEM * 3 + b"2", b"l" * 600]


def fill(run: Callable[[Any], object]) -> None:
    """Two feeds, values long and short, each small table; `run` does an operation."""
    run(PutFeed(FEED, {}))
    run(PutFeed(OTHER, {"alias": "other"}))
    run(AppendValues(FEED, VALUES, ORIGIN, 7))
    run(AppendValues(OTHER, VALUES[:3], ORIGIN, 7))
    link = LinkRecord(
        issuer=FEED,
        trustee=b"t" * 32,
        expires=9.5,
        first_seen=1,
        introduced_by=ORIGIN,
        raw=b"link",
    )
    run(PutLinks(FEED, [link]))
    run(PutPeer(PeerRecord(address="127.0.0.1:1", feed_key=FEED)))
    run(RememberRefused(FEED, [(b"bad", "policy")], 5))
    run(DenyKey(b"d" * 32, 6, "spam"))
    run(RememberNoise(ORIGIN, 7))
    run(NameKey(ORIGIN, "alice", 8))
    run(PutPending(FEED, b"t" * 32, 9))
