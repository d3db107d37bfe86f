"""Everything a stranger can make a DHT node hold, send or do, with its bound and the reason for it.

What an operator may want otherwise is in `hyperbloom.discovery.dht.settings`. Numbers are bytes
unless their names say otherwise.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "ASKED_AT_ONCE",
    "BUCKET_NODES",
    "CLOSEST_NODES",
    "CLOSEST_PER_SITE",
    "MAX_ADDRESSES_WATCHED",
    "MAX_BOOTSTRAP_ADDRESSES",
    "MAX_CANDIDATES",
    "MAX_DELAYED",
    "MAX_DEPTH",
    "MAX_INFO_HASHES",
    "MAX_LOOKUP_ASKED",
    "MAX_OPERATIONS",
    "MAX_OUTSTANDING",
    "MAX_PACKET_BYTES",
    "MAX_PEERS_FOUND",
    "MAX_PEERS_PER_HASH",
    "MAX_PEERS_TOLD",
    "MAX_PROVED_SITES",
    "MAX_PUT_NODES",
    "MAX_SPARES",
    "MAX_TOKEN_BYTES",
    "MAX_TRANSACTION_BYTES",
    "MAX_VALUE_BYTES",
    "MAX_VOTERS",
    "NODES_TOLD",
    "PACKETS_PER_SECOND_OUT",
    "PEERS_PER_NETWORK",
    "PROVED_EXCESS_BURST",
    "PROVED_EXCESS_PER_SECOND",
    "PROVED_PER_SITE",
    "SITE_SHARES",
    "TABLE_NODES_PER_SITE",
    "TRIES_PER_NETWORK",
    "UNPROVED_EXCESS_BURST",
    "UNPROVED_EXCESS_PER_SECOND",
    "UNPROVED_NETWORK_BURST",
    "UNPROVED_NETWORK_PER_SECOND",
    "UNPROVED_SITE_SHARES",
    "VOTERS_PER_SITE",
]

MAX_PACKET_BYTES: Final = 2_048
"""A datagram, either way. The longest that the protocols need, a get's answer, is below 1,600; a
longer one is dropped before anything of it is read."""

MAX_DEPTH: Final = 10
"""Lists and dictionaries within each other in one packet. Messages need 3, the rest is for v."""

MAX_TOKEN_BYTES: Final = 256
"""A token that we are given, to be sent back with a value. Deployed nodes use 4 to 20; a node with
a longer one is not put to."""

MAX_TRANSACTION_BYTES: Final = 32
"""A transaction id of somebody's query, which is kept until it is answered and echoed. Deployed
nodes use 1 to 8."""

MAX_VALUE_BYTES: Final = 1_005
"""A bencoded v: 1,000 bytes of a byte string and its length before them. Nodes read the limit of
BEP-44 in two ways: mainline (Rust) counts the bytes within, libtorrent all 1,000 with the length,
so that it refuses what has more than 996 within. A longer one is refused with error 205."""

BUCKET_NODES: Final = 20
"""Nodes of one bucket of the routing table: k of the Kademlia paper, and of deployed nodes."""

MAX_SPARES: Final = 8
"""Nodes that wait for a place in a full bucket, newest first."""

CLOSEST_NODES: Final = 20
"""Nodes that a lookup must hear from (of either kind, see `lookup`), and that a put goes to."""

MAX_PUT_NODES: Final = 2 * CLOSEST_NODES
"""Nodes that one put goes to at most: the closest, and as many more with ids that follow from their
addresses (BEP-42) where those are not among them."""

NODES_TOLD: Final = 8
"""Nodes in one of our replies (BEP-5)."""

CLOSEST_PER_SITE: Final = CLOSEST_NODES // 2
"""Of the closest nodes of a lookup, those of one site (a /48, or a /24 of IPv4). Who has one can
make ids that fit its /64s as close to a target as he likes."""

TRIES_PER_NETWORK: Final = 4
"""Nodes that a lookup keeps of one network (a /64, or an IPv4 address), and asks one after the
other until one answers. With one alone, a false id or address that is told first would hide the
node that is there."""

TABLE_NODES_PER_SITE: Final = BUCKET_NODES
"""Nodes of one site in the routing table, which holds some 160. Tunnels with a /48, which has
65,536 networks, are free."""

ASKED_AT_ONCE: Final = 8
"""Queries of one lookup under way at once, not counting those already waited for too long."""

MAX_CANDIDATES: Final = 400
"""Nodes that one lookup keeps, the closest. A reply names up to 78, true or made up."""

MAX_LOOKUP_ASKED: Final = 300
"""Nodes that one lookup asks. One among honest nodes asks about 40; who makes up nodes that are
closer and closer gets no further than this."""

MAX_PEERS_FOUND: Final = 500
"""Peers that one lookup collects. A reply names up to 100 of them, true or made up."""

PEERS_PER_NETWORK: Final = 4
"""Of those, peers of one network of the internet: behind one IPv4 address there may be some."""

MAX_OPERATIONS: Final = 256
"""Lookups and puts under way at once. A further one fails at once."""

MAX_OUTSTANDING: Final = 4_096
"""Queries whose answers are awaited. None is sent beyond it until some are answered or too late."""

MAX_DELAYED: Final = 2_048
"""Queries held back so that no address gets too many in a second. One beyond it counts as not
answered."""

MAX_VOTERS: Final = 64
"""Nodes whose word on this node's address is kept; the oldest is forgotten."""

VOTERS_PER_SITE: Final = 4
"""Of those, nodes of one site; of one network one."""

MAX_INFO_HASHES: Final = 1_000
"""Info hashes (BEP-5) whose peers are kept; the one announced longest ago is forgotten."""

MAX_PEERS_PER_HASH: Final = 100
"""Peers kept of one info hash; the one announced longest ago is forgotten."""

MAX_PEERS_TOLD: Final = 50
"""Peers in one of our replies: 400 bytes of compact IPv4 addresses."""

MAX_ADDRESSES_WATCHED: Final = 10_000
"""Networks, and sites, whose rates are kept, about 0.2 KiB each; the one not heard of longest is
forgotten. Forged senders can have some forgotten, and so gain their bursts anew: a packet each.
What all networks share is never forgotten."""

SITE_SHARES: Final = 16
"""Networks' worth of answers that one site (a /48, or a /24 of IPv4) is sent: 256 KiB at once, then
64 KiB a second. Beyond that it is sent nothing."""

UNPROVED_NETWORK_BURST: Final = 4_096
"""Bytes beyond the lengths of its queries that a network of the internet is sent at once before it
has shown that it receives them: 15 answers with eight nodes, or three of the longest."""

UNPROVED_NETWORK_PER_SECOND: Final = 512
"""And then each second: two answers with eight nodes, or a record of the topic tracker every two
seconds, which is as often as a read-only node asks for it."""

UNPROVED_SITE_SHARES: Final = 4
"""Networks' worth of that for one site."""

UNPROVED_EXCESS_BURST: Final = 131_072
"""Bytes beyond the lengths of their queries that all unproved networks are sent at once."""

UNPROVED_EXCESS_PER_SECOND: Final = 32_768
"""And then each second: some 150 answers with eight nodes. libtorrent sends 8,000 bytes a second in
all."""

PROVED_EXCESS_BURST: Final = 524_288
"""The same for all networks that have proved themselves: whose addresses these are can be known, so
that they can be forged as well."""

PROVED_EXCESS_PER_SECOND: Final = 131_072
"""And then each second: some 600 answers with eight nodes."""

MAX_PROVED_SITES: Final = 2_048
"""Sites with networks that have proved themselves, 0.5 to 3 KiB each; the one that did so longest
ago is forgotten, and counts as unproved."""

PROVED_PER_SITE: Final = 16
"""Networks remembered of one of them, so that nobody with a /48 pushes others out."""

MAX_BOOTSTRAP_ADDRESSES: Final = 64
"""Addresses that one bootstrap asks."""

PACKETS_PER_SECOND_OUT: Final = 4
"""Packets to one address in any second. libtorrent bans an address from 5 a second on; queries
beyond it wait."""
