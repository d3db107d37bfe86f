"""Everything a peer can make grow, with its bound and the reason for the bound.

`Limits` are what an operator may set under `[limits]`; the constants below it follow from the
protocol or from the house's rules and are not for setting. The frame and filter sizes that the
protocol fixes live in `hyperbloom.wire.limits`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "ANSWERING_SECONDS",
    "ANSWERS_PER_TURN",
    "AUTOMATIC_LINKS",
    "AUTOMATIC_SHARE",
    "AWAITED_SECONDS",
    "BROADCASTS_PER_TURN",
    "BROADCAST_SECONDS",
    "CATCH_UP_FIRST",
    "CATCH_UP_LONGEST",
    "CATCH_UP_SECONDS",
    "DIGEST_SECONDS",
    "DOUBT_FACTOR",
    "DOUBT_SECONDS",
    "EARLY_READ_BYTES",
    "FOUND_ATTEMPTS",
    "FOUND_FAILURES",
    "FOUND_REST_FIRST",
    "FOUND_REST_LONGEST",
    "FRAMES_PER_TURN",
    "FULL_PLAN_SECONDS",
    "GRAFT_SECONDS",
    "GROUPS_AHEAD",
    "IDS_A_STEP",
    "ID_VALUES",
    "LEAST_RATE",
    "LEAST_REPLY_SCALE",
    "LEAST_SLICE_BYTES",
    "LINKS_FREED",
    "LONGEST_PULL_SECONDS",
    "LONGEST_VALUE_BYTES",
    "LOOKS_FOR_ROOM_SECONDS",
    "MAX_ASKED_BYTES",
    "MAX_FETCHES",
    "MAX_FOUND",
    "MAX_HELD_SKETCHES",
    "MAX_JOIN_SECONDS",
    "MAX_KEPT_SUMS",
    "MAX_KNOWN_IDS",
    "MAX_LEFT_BRANCHES",
    "MAX_RENEWERS",
    "MAX_REPLY_SCALES",
    "MAX_SALTED_KEYS",
    "MAX_SHARED_BYTES",
    "MAX_STREAM_BYTES",
    "MAX_TELLERS",
    "MAX_TOLD",
    "MAX_TRIES",
    "MAX_TRY_SYMBOLS",
    "MAX_UNPACKED_FILTERS",
    "MAX_UNSENT_BYTES",
    "MAX_WAITS",
    "MESSAGE_BURST",
    "MESSAGE_PART",
    "MOST_QUESTIONS",
    "NOISE_MET_SECONDS",
    "NOISE_STALE_SECONDS",
    "OUTSTANDING_SYNCS",
    "OWED_BYTES",
    "OWED_SECONDS",
    "PEER_KNOWN_VALUES",
    "PULL_SECONDS",
    "RANGE_SYMBOLS",
    "RENEWAL_SECONDS",
    "REPLY_BYTES",
    "RETENTION_PAUSE",
    "RETENTION_SECONDS",
    "ROUND_BYTES",
    "SALTED_PART",
    "SALTED_SECONDS",
    "SALTED_VALUE_SECONDS",
    "SHARED_SLICE_BYTES",
    "SKETCH_FAR_BEHIND",
    "SKETCH_PAUSE",
    "SKETCH_QUIET_SECONDS",
    "SKETCH_QUIET_VALUES",
    "SKETCH_ROUNDS",
    "SKETCH_SECONDS",
    "SLICE_BYTES",
    "SLICE_VALUES",
    "SLOW_TRY_SECONDS",
    "STREAM_SECONDS",
    "SYNC_SHARE",
    "TELL_SECONDS",
    "TOMBSTONE_SLICE",
    "TURN_SECONDS",
    "WAKINGS_PER_TURN",
    "WAKING_SECONDS",
    "WOKEN_IDS",
    "Limits",
]

#: Seconds between two looks at what is to be forgotten by retention, and between its steps, so that
#: a large backlog leaves most of the writer's time to others.
RETENTION_SECONDS = 60.0
RETENTION_PAUSE = 0.25

#: A feed's sketch is brought up to date on disk once no more than so many values have come for so
#: many seconds: it would take the processor from their writing, and a first replication is over
#: sooner without. With so many values behind it does not wait: to add them up takes whoever asks
#: for the sketch some ten seconds, half of SKETCH_SECONDS. Between steps of some 10 ms it pauses.
SKETCH_QUIET_SECONDS = 3.0
SKETCH_QUIET_VALUES = 3_000
SKETCH_FAR_BEHIND = 8_388_608
SKETCH_PAUSE = 0.02

#: Values of the log looked through for tombstones at once: were each one, they would keep a thread
#: busy for a tenth of a second.
TOMBSTONE_SLICE = 1_024

#: Frames of all connections handled in one turn of the reactor, and the seconds after which no
#: other is begun: an Ed25519 check costs about 0.1 ms, a frame full of tiny values 15 ms, so that
#: a turn stays far below the 50 ms of the house's rule.
FRAMES_PER_TURN = 128
TURN_SECONDS = 0.01

#: Peers that are told of new values in one turn of the reactor, and the seconds of it after which
#: no other is: telling one takes some 0.02 ms, and as long again to hand it to the system.
BROADCASTS_PER_TURN = 256
BROADCAST_SECONDS = 0.001

#: Seconds that values wait at the most to go out together, where many peers are being told.
MAX_JOIN_SECONDS = 0.1

#: What a feed keeps of its stream for all its peers: values that were just stored, and slices that
#: were told, for some seconds, for peers that were busy meanwhile. Their frames take as much again.
#: Who is further behind reads the log.
MAX_STREAM_BYTES = 4_194_304
STREAM_SECONDS = 5.0

#: A slice for many peers is smaller, so that all of them together have no more in their buffers
#: than so much; but this much it has.
ROUND_BYTES = 67_108_864
LEAST_SLICE_BYTES = 65_536

#: Values of one key that the writer has at a time, over all its connections, in transactions as
#: large as they are now: while one is written, the next one waits. The others wait before it, where
#: a key that rests holds nobody up.
GROUPS_AHEAD = 2

#: Questions of one key that wait, over all its connections, in bytes of their filters; beyond it
#: each connection may have one, while its branch has room (`hyperbloom.connections.rooms`).
MAX_ASKED_BYTES = 4_194_304

#: Filters of one key that are kept unpacked between the slices of an answer, 2 MB each at the most;
#: those of its other connections are unpacked anew for each slice, which costs it 2 ms.
MAX_UNPACKED_FILTERS = 4

#: What was written to the connections of one key that are full; beyond it no more answers are made
#: for it until it reads. A connection alone has about a slice.
MAX_UNSENT_BYTES = 8_388_608

#: One slice of a scan, read in one short read transaction: about 5 ms of work.
SLICE_VALUES = 8_192
SLICE_BYTES = 1_048_576

#: Frames of answers, of all connections, sent in one turn of the reactor, and the seconds of it
#: after which no other is: to encrypt one takes up to 0.2 ms, and as long again to hand it to the
#: system. However many are being answered, newcomers and new values have most of a turn.
ANSWERS_PER_TURN = 128
ANSWERING_SECONDS = 0.003

#: Values of one frame of an answer that many may be sent alike. So much lies encrypted in the
#: transport of each of them, and a thousand may ask at once; a transport is full with as much.
SHARED_SLICE_BYTES = 65_536

#: Slices of such answers of one feed that are kept while others ask for the same: some 120 of them,
#: so that peers that read at different speeds find them still here. The one that was not asked for
#: longest goes; who needs it has it read again.
MAX_SHARED_BYTES = 8_388_608

#: What one reply of a peer that cannot split its replies may weigh: such a peer's connection dies
#: above 262,144 bytes a frame, so half of it leaves room for values longer than the mean.
REPLY_BYTES = 131_072

#: Ranges asked of a peer that cannot split its replies before its answers are awaited; each keeps
#: its filter (up to 256 KiB) so that the rest can be asked for where a reply is full.
OUTSTANDING_SYNCS = 4

#: Seconds a peer that announced `set-digest` has to answer; then it is asked by Sync. Adding up
#: the values of a range costs it about 2 s a million.
DIGEST_SECONDS = 20.0

#: A plan's answers are followed by a comparison, so many seconds after the last value of them, for
#: a value that a false positive hid would else wait for the interval. Sets that stay different
#: (one side refuses what the other has) are compared that much later each time, up to the interval.
DOUBT_SECONDS = 1.0
DOUBT_FACTOR = 4.0

#: A peer whose answer still comes when the interval is over is not asked again, so that what is
#: under way is not sent twice: as long as values come that were lacking when it was asked, and so
#: many seconds at the longest. A peer that draws its answer out delays what it is asked itself.
AWAITED_SECONDS = 3_600.0

#: Equal digests spare a plan, but after so many seconds one is sent all the same. Nobody can make
#: different sets of equal digests; but a digest is kept and not made anew, so a disk or a program
#: that goes wrong could leave a right digest over wrong values, and nothing else would show it.
FULL_PLAN_SECONDS = 3_600.0

#: Sums of ranges that a feed remembers until its values change: of so many different lists.
MAX_KEPT_SUMS = 8

#: Symbols that a try by `reconcile` takes in all, and those of a sequence with a salt: as many as
#: the longest sequence of a set has, and enough for some 24,000 differences. Of a set of up to
#: 32,768 values there are fewer. 835 KB, which wait as they came until they are decoded.
MAX_TRY_SYMBOLS = 32_768

#: Questions of one try. Honest values need five at the most (measured for 2 to 20,000 differences),
#: and one for the length of a sequence; each costs decoding, and the time of its answer.
MOST_QUESTIONS = 16

#: Symbols made on the spot of ranges: their cost grows with their number, and filters of a part of
#: a feed are small.
RANGE_SYMBOLS = 8_192

#: Seconds that a peer has to answer a question for symbols, and as many more as these take at
#: LEAST_RATE; then it is asked by Sync. Bringing a kept sketch up to date costs it about 1 s a
#: million values.
SKETCH_SECONDS = 20.0

#: Rounds by symbols, one after the other, after which digests that were never equal meanwhile are
#: met with a plan. On a feed that never rests they may never be; and a member can write values
#: whose symbols peel to something false.
SKETCH_ROUNDS = 4

#: A try with a salt costs both sides a pass over all values, some 3 s a million: there is one with
#: a key about a feed in so many seconds, whichever side asks. Those with all keys of a branch take
#: no more than this part of the time. Who comes more often is refused, and goes on by a plan.
SALTED_SECONDS = 3_600.0
SALTED_VALUE_SECONDS = 3e-6
SALTED_PART = 0.05

#: Keys and branches remembered a feed that had a try with a salt; of more the oldest is forgotten.
MAX_SALTED_KEYS = 1_024

#: Tries of this node that are under way at one time, over all feeds and peers, with up to 2 MB each
#: of symbols; the others wait.
MAX_TRIES = 8

#: A try that has waited for an answer for so many seconds gives way to one of another branch that
#: has fewer of them; an answer of honest peers takes less than one, but on a slow link. It is met
#: with a plan.
SLOW_TRY_SECONDS = 3.0

#: Sequences of symbols that peers are answered from, in all; a connection has one at a time. Each
#: is up to 917 KB, where values came or went between them; of more one of the branch with the most
#: of them is dropped, the one that was asked for longest ago, and its peer goes on by Sync.
MAX_HELD_SKETCHES = 32

#: Ids whose values are read at once: long values of so many weigh 33 MB.
IDS_A_STEP = 128

#: Finding a value by its id costs as much as reading so many.
ID_VALUES = 8

#: Calls that wait at one time until peers are in sync; each looks at its peers ten times a second.
MAX_WAITS = 32

#: Part of the time that a node's own plans for one feed may take, over all of its peers.
SYNC_SHARE = 0.05

#: Values remembered a peer as already there (8 bytes each), so that a value is not echoed.
PEER_KNOWN_VALUES = 4_096

#: Ids of values that a feed remembers as having come lately, with who holds them and where they are
#: in the log: some 400 bytes each. Of more the oldest is forgotten, and may be asked for again.
MAX_KNOWN_IDS = 16_384

#: Tellings of ids whose values have not come, over all peers of a feed: some 600 bytes each. A path
#: may have as many as are left beside all others, and each key of it as many as are left of that:
#: a branch alone has half of them, with however many keys, and others always have room. What was
#: told beyond it is found by comparing.
MAX_TOLD = 32_768

#: Tellers remembered of one id, of as many branches as there are: the ids of nothing that a member
#: tells with thousands of keys are asked for so many times.
MAX_TELLERS = 8

#: Paths without a connection of which is kept that they did not send what they had told, or what
#: their messages have cost: who leaves and comes again is no newcomer.
MAX_LEFT_BRANCHES = 1_024

#: Told ids that are looked at in one piece, which takes about a millisecond, pieces done in a turn
#: of the reactor, over all feeds, and the seconds of it after which no other is begun.
WOKEN_IDS = 256
WAKINGS_PER_TURN = 16
WAKING_SECONDS = 0.003

#: Part of a thread's time that the small messages of one branch may take in the long run (ids that
#: are told, ids that are asked for, questions for digests), and the seconds that are saved up. Each
#: key below has half of what the key above has. Beyond it the branch's connections are read on from
#: as the time comes back, whether others are there or not: to tell ids of nothing costs nothing.
MESSAGE_PART = 0.15
MESSAGE_BURST = 0.1

#: Seconds for which ids are gathered before they are told; what a peer tells meanwhile is left out.
TELL_SECONDS = 0.2

#: Seconds for which a value that was told may still come along another link. Longer than it takes
#: along the longest way through the tree, or values come twice.
GRAFT_SECONDS = 0.5

#: Seconds in which something has to come of a peer that was asked for what it told, and seconds in
#: which the value itself has to; then the next one is asked.
PULL_SECONDS = 2.0
LONGEST_PULL_SECONDS = 10.0

#: A node that lacks something asks one peer at a time for it. The next one has its turn when so
#: many seconds have passed without a value of it, five at first; and after a minute in any case,
#: for a member could go on sending little by little.
CATCH_UP_SECONDS = 1.0
CATCH_UP_FIRST = 5.0
CATCH_UP_LONGEST = 60.0

#: Fetches (a light node's requests) under way at once a feed.
MAX_FETCHES = 256

#: Bytes read at once from a peer that has proved nothing: what was read may wait for its turn, and
#: all strangers together may fill a turn.
EARLY_READ_BYTES = 4_096

#: The least part of an estimated reply that is still asked for: surely one value at a time.
LEAST_REPLY_SCALE = 1e-6

#: Peers remembered a feed as having died on a long reply; of more the branch with the most of them
#: gives its oldest.
MAX_REPLY_SCALES = 1_024

#: Links a branch that this node has issued by itself because they shorten chains. A member without
#: one writes by the longer chain all the same.
AUTOMATIC_LINKS = 32

#: Part of the room for links of one issuer that such links fill; the rest is for renewals.
AUTOMATIC_SHARE = 0.5

#: Links that the branch with most of them gives at a time where a new chain finds no room, and
#: seconds for which a branch that found none is not looked at again: a look takes some 15 ms.
LINKS_FREED = 64
LOOKS_FOR_ROOM_SECONDS = 1.0

#: Seconds in which one renewed chain of a key is looked at, over all its connections: to verify one
#: costs up to five signatures, and an honest peer sends one in weeks. Others are dropped.
RENEWAL_SECONDS = 5.0

#: Keys remembered a feed that sent a renewed chain; of more the branch with the most of them gives
#: its oldest.
MAX_RENEWERS = 1_024

#: Addresses remembered a feed at which peers were found; anyone may announce one, so beyond it the
#: one that was heard of longest ago and does not lead to a peer is forgotten, and where all do, one
#: of the branch with the most.
MAX_FOUND = 256

#: Failures in a row after which a found address makes room for another one.
FOUND_ATTEMPTS = 3

#: Seconds for which it then rests, though it be found again; doubled each time up to the longest.
FOUND_REST_FIRST = 60.0
FOUND_REST_LONGEST = 3_600.0

#: Rests after which an address that once led to a peer is kept in the store no longer.
FOUND_FAILURES = 8

#: What a peer that has said its end is still sent of the answers that it is owed: bytes, and
#: seconds from its end on. Beyond either the connection is cut without an end of ours, so that the
#: peer knows that there was more; who wants more of it stays until it has come.
OWED_BYTES = 67_108_864
OWED_SECONDS = 30.0

#: When a key that speaks `noise` was met last is written down once in so many seconds: a peer that
#: connects again and again costs no more writes than one that stays.
NOISE_MET_SECONDS = 86_400.0

#: Where there is no room for more keys that speak `noise`, one that was not met for so many seconds
#: gives way before those that were.
NOISE_STALE_SECONDS = 15_552_000.0

#: `hyperbloom.wire.packing.MAX_VALUE_BYTES`, repeated so that reading a configuration does not load
#: the wire; a test compares the two.
LONGEST_VALUE_BYTES = 261_049


#: The least rate that may be set, in bytes a second: a slice of a peer without a rate, a megabyte,
#: has to go through it, beside those of some others, before `stall_seconds` of that peer are over.
#: Slices of a node under a rate have at least as much.
LEAST_RATE = 16_384


def _limit(default: float, least: float, text: str, most: float | None = None) -> Any:
    bounds = {"min": least} if most is None else {"min": least, "max": most}
    return field(default=default, metadata={"help": text, **bounds})


def _rate(text: str) -> Any:
    metadata = {"help": f"{text}; 0: any", "unit": "bytes a second", "least": LEAST_RATE}
    return field(default=0.0, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The `[limits]` table: bounds on what peers may use of this node."""

    connections: int = _limit(2_000, 1, "connections in all; each costs a file descriptor")
    connections_per_address: int = _limit(
        32,
        1,
        "connections from one address (of IPv6: one /64) that have proved nothing yet; of more the "
        "oldest goes",
    )
    connections_per_key: int = _limit(
        4, 1, "connections of one member about one feed; of more the oldest goes"
    )
    handshake_seconds: float = _limit(
        10.0, 0.1, "a connection that is not secure after this long is closed"
    )
    close_seconds: float = _limit(
        5.0, 0.1, "how long a closing connection may take to flush before it is cut"
    )
    found_peers: int = _limit(
        8, 0, "addresses dialled at a time, a feed, at which peers were found by discovery", 128
    )
    stall_seconds: float = _limit(
        300.0, 1, "a peer that reads nothing of what waits for it for this long is closed"
    )
    unwritten_bytes: int = _limit(
        8_388_608,
        262_144,
        "values of one peer, over all its connections, that wait for the disk before reading is "
        "paused; each counts 350 bytes more than it has",
    )
    queued_bytes: int = _limit(
        67_108_864,
        1_048_576,
        "values of all peers that wait for the disk, with what each costs there; beyond half of it "
        "a branch, a member with all whom it has let in, is read on while it holds less than its "
        "part",
    )
    pending_requests: int = _limit(
        8, 1, "Sync and Request messages of one connection that wait before reading is paused"
    )
    hash_functions: int = _limit(64, 40, "hash functions of a peer's filter; each costs time", 256)
    sync_rate: int = _limit(
        500_000,
        1_000,
        "values a second tested against one peer's filters in the long run, over all of its "
        "connections",
    )
    sync_burst: int = _limit(
        20_000_000, 10_000, "values tested for one peer before sync_rate slows it down"
    )
    value_bytes: int = _limit(
        LONGEST_VALUE_BYTES, 1, "longest value taken from a peer; longer ones are refused for good"
    )
    feed_values: int = _limit(
        0, 0, "values of a feed after which peers' values are refused; 0: any"
    )
    feed_bytes: int = _limit(0, 0, "bytes of a feed after which peers' values are refused; 0: any")
    send_rate: float = _rate(
        "what all peers together are sent, about all feeds: bytes a second, or a text such as "
        '`"500 KiB"`'
    )
    receive_rate: float = _rate("what is taken from all peers together, about all feeds")
    peer_send_rate: float = _rate("what one peer is sent, over all of its connections")
    peer_receive_rate: float = _rate("what is taken from one peer, over all of its connections")
    strikes: int = _limit(
        10, 1, "protocol violations after which a member is not let in for a while"
    )
    ban_seconds: float = _limit(600.0, 1, "how long a ban lasts, and how long strikes are kept")
