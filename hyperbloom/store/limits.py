"""Everything about the store that a peer or an operator can make grow, and where it ends."""

__all__ = [
    "DEFAULT_MAP_BYTES",
    "DELETE_STEP",
    "FEW_SYMBOLS",
    "FORGET_PAST_STEP",
    "FORGET_STEP",
    "GATHER_PART",
    "GROUP_BYTES",
    "GROUP_OPERATIONS",
    "GROUP_SECONDS",
    "MAX_ADDRESS_BYTES",
    "MAX_AHEAD_MS",
    "MAX_DENIED_KEYS",
    "MAX_FORGOTTEN_BYTES",
    "MAX_FORGOTTEN_HASHES",
    "MAX_FORGOTTEN_VALUES",
    "MAX_GONE_NOTES",
    "MAX_LINKS_PER_FEED",
    "MAX_LINKS_PER_ISSUER",
    "MAX_LINK_BYTES",
    "MAX_MAP_STEP_BYTES",
    "MAX_NOISE_KEYS",
    "MAX_PEERS_PER_FEED",
    "MAX_PROBLEMS",
    "MAX_READERS",
    "MAX_REASON_BYTES",
    "MAX_RECENT_IDS",
    "MAX_REFUSED_BYTES",
    "MAX_REFUSED_VALUES",
    "MAX_SKETCH_BYTES",
    "MAX_SNAPSHOT_INFO_BYTES",
    "MAX_VALUE_BYTES",
    "MIN_HEADROOM_BYTES",
    "OBJECT_COST_BYTES",
    "OBJECT_DISK_BYTES",
    "OBJECT_PEER_DISK_BYTES",
    "OBJECT_STEP_BYTES",
    "OWN_GROUP_BYTES",
    "OWN_GROUP_SECONDS",
    "OWN_LATELY_SECONDS",
    "OWN_PART",
    "OWN_WAITS_SECONDS",
    "PAST_PART",
    "PIECE_BYTES",
    "QUANTUM_BYTES",
    "ROOM_BYTES",
    "ROOM_SHARE",
    "RUN_VALUES",
    "SKETCH_STEP",
    "SKETCH_STEP_BYTES",
    "SKETCH_SYMBOLS",
    "SKETCH_TRIES",
    "SUM_STEP",
    "SUM_STEP_BYTES",
    "VALUE_COST_BYTES",
    "WRITE_SECONDS_A_BYTE",
]

MAX_VALUE_BYTES = 262_144
"""A value must travel in one message, and no message is longer than this."""

MAX_LINKS_PER_FEED = 10_000
"""Every chain seen is stored. 10,000 links of about 250 bytes are 2.5 MB (1.4 MB in memory), and
the graph search over them takes some 10 ms; a feed with more members needs another protocol. Where
it is full, the branch with most links gives way."""

MAX_LINKS_PER_ISSUER = 1_000
"""One member may issue links at no cost, so one alone must not be able to fill the feed's share."""

MAX_LINK_BYTES = 1_024
"""A link is 137 bytes (129 in the draft); the rest is room for another format."""

MAX_ADDRESS_BYTES = 300
"""A host name of at most 253 characters, brackets, a colon and a port."""

MAX_PEERS_PER_FEED = 1_000
"""Addresses come from strangers (DHT, other peers). Those seen longest ago give way."""

MAX_REFUSED_VALUES = 10_000
"""Values that local policy refuses are kept so that our Bloom filters can hold them. They are kept
whole: a filter is made of the value's own hashes, which its stored hash cannot give."""

MAX_REFUSED_BYTES = 4 * 1024 * 1024
"""The same cap in bytes (values and their reasons), for long values."""

MAX_REASON_BYTES = 256
"""The reason beside a refused value is one short sentence."""

MAX_FORGOTTEN_VALUES = 1_000_000
"""Forgotten values kept whole in one feed, so that our Bloom filters can hold them. Each costs a
filter what a value of the feed does, 29 bits at one in a million, in every Sync with every peer.
Beyond it those forgotten longest ago are kept as hashes."""

MAX_FORGOTTEN_BYTES = 128 * 1024 * 1024
"""The same cap in bytes of the values."""

MAX_FORGOTTEN_HASHES = 4_000_000
"""Hashes of forgotten values in one feed, some 200 bytes each on disk. They keep a value out, but
peers go on sending it. Beyond it those of longest ago are let go, and their values may return."""

MAX_GONE_NOTES = 1_000_000
"""Notes of one feed of which arrival numbers it has forgotten, and when, some 40 bytes each on
disk: as many as values kept whole. Beyond it the oldest go. An export that was last run before
them finds out by comparing, which costs it a look at every row's number."""

FORGET_STEP = 2_048
"""Values forgotten, or brought back, in one transaction: 50 to 100 ms, so that others write
in between. A caller cuts its work into such steps."""

MAX_DENIED_KEYS = 10_000
"""Denied keys of a node, all of them in memory. Only its operator adds to them."""

MAX_NOISE_KEYS = 10_000
"""Peer keys remembered as speaking `noise`, all of them in memory, some 250 bytes each on disk. Any
member can make keys without end, so beyond it a key of the branch with most of them goes: one not
met for half a year, else the one met first most lately. Owners' keys, those with a name and those
at configured addresses stay."""

MAX_PETNAMES = 10_000
"""Keys that have names, all of them in memory. Only the node's operator gives names."""

MAX_PETNAME_CHARACTERS = 64
"""A name stands in tables beside a key's digits, in a path of the API, and is typed."""

GROUP_OPERATIONS = 1_024
"""Operations in one transaction: enough that the disk's sync is shared, few enough that the first
caller does not wait long for the last."""

VALUE_COST_BYTES = 350
"""What a value weighs beside its own bytes: its places in the log and in the order. Measured: some
7 ns of writing a byte, with this, for values of 4 to 256 bytes."""

GROUP_BYTES = 4 * 1024 * 1024
"""What may be written in one transaction, with what each value costs, for the same reason: some 30
ms on an idle machine."""

WRITE_SECONDS_A_BYTE = 8e-9
"""Processor time that writing a byte is taken to cost before it has been measured."""

GROUP_SECONDS = 0.03
"""After so long no further operation of a group is begun; the others go into the next transaction.
On a machine with much else to do this ends a group, not its bytes."""

OWN_GROUP_BYTES = 32 * 1024 * 1024
"""As GROUP_BYTES, where nothing of a peer's waits: fewer syncs, for many who insert at once."""

OWN_GROUP_SECONDS = 0.2
"""As GROUP_SECONDS, for a group of this node's own operations, once something waits behind it."""

GATHER_PART = 0.05
"""For this part of the time that the last group took, and for OWN_WAITS_SECONDS at most, the next
one waits for the callers whom the last one answered: most of them insert again at once."""

OWN_WAITS_SECONDS = 0.01
"""As GROUP_SECONDS, for what peers have sent while this node's own operations are in the group or
wait: whoever inserts waits for little more of it than for the disk."""

OWN_LATELY_SECONDS = 1.0
"""For so long after values were inserted here, GROUP_SECONDS and OWN_WAITS_SECONDS count all
that a group of others' takes until it is on disk, and not its writing alone: where values lie far
apart the disk takes twice as long as that."""

QUANTUM_BYTES = 524_288
"""How much of one origin's is written before it is the next one's turn."""

PIECE_BYTES = 262_144
"""A peer's values are written in pieces of no more: a frame of 40,000 tiny values would else take a
tenth of a second by itself, on an idle machine."""

DELETE_STEP = 10_000
"""Records removed in one transaction when a feed is dropped, so that others write in between."""

SUM_STEP = 4_096
"""Values of an older store that are added up in one transaction: some 10 ms, for which others who
write wait."""

SUM_STEP_BYTES = 1024 * 1024
"""The same cap in bytes of the values; one value may go beyond it."""

SKETCH_SYMBOLS = 32_768
"""Symbols in a kept sketch: 0.9 MB, and enough to find some 24,000 values by which two sets differ.
Where more differ, Bloom filters weigh little more."""

FEW_SYMBOLS = 4_096
"""Symbols in the sketch of a small set, which is added up when somebody asks: half as many as it
has values, as a power of two, and at least so many. Bloom filters weigh less than more would."""

RUN_VALUES = 65_536
"""Values by which a kept sketch goes on, with one run for their ids: 1.7 MB in one transaction. So
many, and no more, are added up after a start: a tenth of a second."""

SKETCH_STEP = 8_192
"""Values that are added to a sketch in one step, some 20 ms in a thread."""

SKETCH_STEP_BYTES = 2 * 1024 * 1024
"""The same cap in bytes of the values; one value may go beyond it."""

MAX_SKETCH_BYTES = 64 * 1024 * 1024
"""Sketches in memory, of all feeds, with the ids behind what is kept. Those asked for longest ago
give way; whoever asks for one of them waits for at most RUN_VALUES values of it."""

MAX_RECENT_IDS = 1_048_576
"""Ids in memory of one set's values that no run holds yet, 16 bytes each: as many as came before a
run was written for them. Values behind them are looked for in the log, RUN_VALUES of them."""

SKETCH_TRIES = 3
"""How often a sketch is begun anew because values were removed meanwhile, or its record is wrong.
Then who asked is told so."""

DEFAULT_MAP_BYTES = 1024 * 1024 * 1024
"""The map at first. It is address space and not disk; it grows by itself."""

MAX_MAP_STEP_BYTES = 16 * 1024 * 1024 * 1024
"""A full map doubles, but never by more than this."""

ROOM_BYTES = 16 * 1024 * 1024
"""A disk that was full is called full until so much of it is free, room for many writes; a smaller
write may find a free page in the file all the while. On a small disk it is a ROOM_SHARE of it."""
ROOM_SHARE = 20

MIN_HEADROOM_BYTES = 256 * 1024 * 1024
"""Free map asked for before a long read, during which the map cannot grow."""

MAX_READERS = 1_024
"""Read transactions at one time, of the node and of tools; a slot is 64 bytes."""

MAX_PROBLEMS = 1_000
"""Problems that a verification names before it only counts on."""

MAX_SNAPSHOT_INFO_BYTES = 16_777_216
"""snapshot.json, which somebody else may have made: some 350 bytes a feed, so 45,000 feeds."""

MAX_OBJECT_BYTES = 65_536
"""One object's fields as MessagePack; a change writes all of them."""

MAX_OBJECT_FIELDS = 255
"""Fields of one object: its hash has one byte for their number."""

MAX_FIELD_NAME_BYTES = 255
"""A field's name, and a type's, in UTF-8."""

MAX_PAST_OBJECTS = 100_000
"""Versions of objects that were changed or removed. They tell a late message about them from news,
and settle which of two changes holds; those that ended longest ago go first."""

MAX_PAST_BYTES = 67_108_864
"""The same cap in bytes of their fields."""

OBJECT_DISK_BYTES = 1_073_741_824
"""What the pool takes on disk, where `[objects] disk_bytes` says nothing else. Counted is the most
that a version may take, up to four times its bytes: a million objects of 100 bytes are 0.5 GB."""

OBJECT_PEER_DISK_BYTES = 402_653_184
"""What of it one network of those who dial this node brings: half of what objects have, so that
two peers fill it, and not one."""

PAST_PART = 4
"""Past versions have this part of what the pool takes on disk."""

OWN_PART = 8
"""This part of what objects take is for this node's own: whoever else fills the pool, its programs
can still add to it."""

OBJECT_STEP_BYTES = 524_288
"""What objects of one peer make one transaction read and write, with OBJECT_COST_BYTES for each
record: some 15 ms. What an offer comes to is not known before it is looked at: it may change an
object of 64 KiB, or ask after a version that 100,000 others followed. The rest goes into later
transactions, with others' writes between."""

OBJECT_COST_BYTES = 100
"""What reading or writing a record of an object weighs beside its bytes: 4 µs with them."""

FORGET_PAST_STEP = 1_048_576
"""The same for past versions that are forgotten at the end of it: more than it has made of them."""

MAX_AHEAD_MS = 300_000
"""A stamp further ahead of this node's clock is no time: a clock that nobody set is off by minutes.
What it says holds as if it was said now."""
