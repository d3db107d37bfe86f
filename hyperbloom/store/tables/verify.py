"""Are the small tables as they should be?"""

import struct
from collections.abc import Callable

from hyperbloom.store.lmdb.layout import FeedState
from hyperbloom.store.lmdb.transaction import ReadTransaction
from hyperbloom.store.tables.denied import parse_denied_record
from hyperbloom.store.tables.links import link_key, parse_link_record
from hyperbloom.store.tables.names import verify_names
from hyperbloom.store.tables.noise import verify_noise
from hyperbloom.store.tables.peers import parse_peer_record
from hyperbloom.store.tables.pending import parse_pending_record

__all__ = ["verify_links", "verify_records"]


def verify_links(
    transaction: ReadTransaction, state: FeedState, problem: Callable[[str], None]
) -> None:
    """Links lie under the keys that their contents give, and are as many as the feed counts."""
    count = 0
    for key, data in transaction.scan("links", state.prefix):
        count += 1
        try:
            link = parse_link_record(key, data)
        except struct.error:
            problem(f"the link at {key.hex()} cannot be read")
            continue
        if key != link_key(state.prefix, link.issuer, link.raw):
            problem(f"the link at {key.hex()} is not the one that belongs there")
        if link.expires < state.link_expiry:
            problem(f"the link at {key.hex()} expires before the earliest known expiry")
    if count != state.links:
        problem(f"its number of links is kept as {state.links} and comes to {count}")


def verify_records(transaction: ReadTransaction, problem: Callable[[str], None]) -> None:
    """Addresses of peers, keys that are denied, named, invited or speak Noise can be read."""
    for key, data in transaction.scan("peers"):
        try:
            parse_peer_record(key, data)
        except (ValueError, KeyError, TypeError):
            problem(f"peers: the record {key!r} cannot be read")
    for key, data in transaction.scan("denied"):
        try:
            parse_denied_record(key, data)
        except (ValueError, struct.error):
            problem(f"denied: the record {key.hex()} cannot be read")
    for key, data in transaction.scan("pending"):
        try:
            parse_pending_record(key, data)
        except (ValueError, struct.error):
            problem(f"pending: the record {key.hex()} cannot be read")
    verify_names(transaction, problem)
    verify_noise(transaction, problem)
