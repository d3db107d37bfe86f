"""Everything a topic record can make grow, with its bound and the reason for it.

They follow from the DHT and from deployed peers, so none is for setting.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "ITEMS_PER_TURN",
    "MAX_ADDRESSES_PER_NODE",
    "MAX_CANDIDATES",
    "MAX_CONTENT_BYTES",
    "MAX_ENCRYPTED_RECORD_BYTES",
    "MAX_ITEMS_READ",
    "MAX_RECORD_BYTES",
    "MAX_TRAILER_BYTES",
    "MAX_VALUE_BYTES",
    "PUBLISHED_ANYWAY",
]

MAX_VALUE_BYTES: Final = 996
"""An encrypted record that is published. A DHT node holds 1,000 bytes of bencoded value, and the
length of a byte string and its colon take four of them (BEP-44)."""

MAX_ENCRYPTED_RECORD_BYTES: Final = 2_048
"""An encrypted record that is read: what deployed peers take. Longer ones are refused by their
length, before anything is decrypted."""

MAX_RECORD_BYTES: Final = MAX_VALUE_BYTES - 148
"""A published record before it is sealed: sealing adds 4 bytes of length, 56 to the record, and
its one-time key in 88."""

MAX_CONTENT_BYTES: Final = MAX_RECORD_BYTES - 136
"""Its content: topic, minute, publisher and signature take the rest."""

MAX_TRAILER_BYTES: Final = MAX_CONTENT_BYTES - 320
"""The address trailer: what the content's two arrays leave."""

MAX_ADDRESSES_PER_NODE: Final = 4
"""Addresses of one node taken from or put in a trailer: IPv4 and IPv6, public and local. Each costs
a dial."""

MAX_ITEMS_READ: Final = 128
"""Items of one lookup that are opened. A lookup asks some tens of nodes, each holds one value, and
anyone who has seen the topic's hash can sign items; an opening costs about 0.5 ms."""

ITEMS_PER_TURN: Final = 8
"""Items opened in one turn of the reactor, a few milliseconds, so that it never blocks for long."""

MAX_CANDIDATES: Final = 64
"""Nodes taken from the records of one lookup for joining; ten full records name 60."""

PUBLISHED_ANYWAY: Final = 8
"""Of so many records that are superfluous, since there are enough of others, one is published all
the same: some of the others may be made up. A node tries twice a minute at most."""
