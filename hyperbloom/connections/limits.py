"""What bounds the connections of a node, of whichever protocol, with the reason for each bound.

What an operator may want otherwise is a setting of the protocol (`[limits]`, `[objects]`).
"""

from __future__ import annotations

__all__ = [
    "ACTIVE_SECONDS",
    "BEGINNING_SECONDS",
    "BURST_SECONDS",
    "CROWDED_AT_ONCE",
    "CROWDED_OF_KEY",
    "CROWDED_SECONDS",
    "FORGIVEN_AFTER",
    "FORGIVEN_WEIGHT",
    "FREE_PART",
    "HEAVIER",
    "LARGEST_PIECE",
    "LEAST_PART",
    "LEAST_PART_OF_STRANGERS",
    "LEAST_PIECE",
    "MAX_ALL_ASKED_BYTES",
    "MAX_ALL_FILTERS",
    "MAX_ALL_UNSENT_BYTES",
    "MAX_CLOSED_SHOWN",
    "MAX_SHARES",
    "MAX_SOURCES",
    "MAX_STRUCK",
    "NEWCOMERS_PART",
    "PIECE_SECONDS",
    "STRANGERS_PART",
    "STRIKE_SECONDS",
    "TALLY_SECONDS",
    "TOLD_OF_BRANCH",
    "TOLD_SINGLY",
    "USE_SECONDS",
    "WEIGHT_SECONDS",
    "WOKEN_AT_ONCE",
    "YIELD_FACTOR",
]

#: Keys of which is kept what they have used of this node (some 700 bytes each), so that who leaves
#: and comes again has no more for it. There are more than connections; beyond it those without a
#: connection are forgotten, the first ones of the branch that has most of them.
MAX_SHARES = 4_096

#: What all peers together hold in memory, shared out by branch (`rooms`): bytes of questions that
#: wait for an answer, bytes written to connections that are full, and filters that are kept
#: unpacked, 2 MB each. With values that wait for the disk (`[limits] queued_bytes`, most of which
#: is what a value costs there) this is what a flood of ten thousand keys can fill: a branch alone
#: half of it, and what a branch that comes then holds counts beside it.
MAX_ALL_ASKED_BYTES = 16_777_216
MAX_ALL_UNSENT_BYTES = 33_554_432
MAX_ALL_FILTERS = 16

#: Shares that may look again when memory is released: each takes what there is, and the others
#: have their turn at the next release, or when all are looked at.
WOKEN_AT_ONCE = 16

#: A key without a connection is forgotten once it owes nothing more: it has used nothing for so
#: many seconds, its budget is full again, and what it has used weighs so little (seconds). Coming
#: again brings it this weight at the most, a quarter of a percent of the time it was away; a key
#: may use FREE_PART of the time before it has to rest for others at all.
FORGIVEN_AFTER = 20.0
FORGIVEN_WEIGHT = 0.05

#: What a share has used counts less by and by, to a third in so many seconds: as what it uses now,
#: and as what makes it heavier than others. One that has used nothing for the shortest time makes
#: nobody wait.
USE_SECONDS = 3.0
WEIGHT_SECONDS = 60.0
ACTIVE_SECONDS = 1.0

#: What a key uses is set against the time since it began, so that others give way to it at once,
#: and against so many seconds at the least, so that one piece of work does not look like a flood.
BEGINNING_SECONDS = 0.25

#: How many times as much as another one a key has to have used to rest for it: those who ask alike
#: would else rest for each other, and leave the threads idle.
HEAVIER = 1.5

#: While others that have used less are at work, a key that uses more than FREE_PART of a thread's
#: time rests after each piece of work: YIELD_FACTOR times as much as they use is left free. It has
#: LEAST_PART all the same. Those who have proved no key share one part, and a newcomer waits with
#: all the others: it is larger, so that no crowd and no flood keeps newcomers out.
FREE_PART = 0.05
YIELD_FACTOR = 3.0
LEAST_PART = 0.05
LEAST_PART_OF_STRANGERS = 0.25

#: Connections that have proved nothing may be one in so many of all; beyond it the oldest of them
#: goes, and a stranger can open them faster than it is told to go.
STRANGERS_PART = 2

#: One in so many connections is never a member's, so that somebody new can always get in and prove
#: who it is.
NEWCOMERS_PART = 16

#: Events of one kind, of members, that are told one by one in a minute, and of those of one branch;
#: others are counted. Of strangers it is the first (`hyperbloom.connections.tally`).
TOLD_SINGLY = 10
TOLD_OF_BRANCH = 3

#: Connections closed by this node that are kept for `status`, newest first.
MAX_CLOSED_SHOWN = 20

#: Times that a key which has all the connections it may have takes a place of its own from one
#: network at once, and seconds for each further time; beyond it its Handshake is not verified.
#: A member whose connections died unseen needs a few; one that goes on would cost 3 ms each time.
CROWDED_AT_ONCE = 8
CROWDED_SECONDS = 5.0

#: How often a key may have done so of late, from all networks together, before it has one place at
#: a time from each of them.
CROWDED_OF_KEY = 16

#: Keys, each with where it came from, whose strikes are kept, and as many whose places are; beyond
#: it the oldest of the branch with the most of them are forgotten.
MAX_STRUCK = 10_000

#: What a violation of the protocol is charged as, to the key and each branch above it: some ten
#: times what its handshake has cost. Bans are of keys, and who makes a new one for each violation
#: would else strike as often as it likes.
STRIKE_SECONDS = 0.05

#: Seconds from the first event that is counted to the line of the log that tells of it, and
#: addresses told apart in that time; of more, the line says that there were more.
TALLY_SECONDS = 60.0
MAX_SOURCES = 1_000

#: Bytes that go out or come in at once where there is a rate: what it brings in so many seconds,
#: but at least about a packet, and at most what a transport reads at once.
PIECE_SECONDS = 0.05
LEAST_PIECE = 1_400
LARGEST_PIECE = 65_536

#: What a rate brings in so many seconds is saved up at most while nothing is moved: after a rest no
#: more than this, and a piece for each connection, goes at the speed of the line.
BURST_SECONDS = 0.1
