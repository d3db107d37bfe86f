"""Everything a peer of the pool can make grow, with its bound and the reason for the bound.

What an operator may want otherwise is a setting (`[objects]`, settings.py); these follow from the
protocol, or from the house's rule that no turn of the reactor takes 50 ms.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "BUFFERED_BYTES_IN_ALL",
    "FOREIGN_PACKET_BYTES",
    "FOREIGN_WINDOW_BYTES",
    "FOREIGN_WINDOW_WRITES",
    "LONG_MESSAGES",
    "MAX_DEPTH",
    "MAX_EARLY_BYTES",
    "MAX_EARLY_FRAME_BYTES",
    "MAX_EARLY_MESSAGES",
    "MAX_EARLY_UNENCRYPTED",
    "MAX_ENTRIES",
    "MAX_FITS",
    "MAX_FRAME_BYTES",
    "MAX_MIXED_MESSAGES",
    "MAX_PAYLOAD_BYTES",
    "MAX_PLAIN_KEYS",
    "MAX_TYPES",
    "OBJECTS_PER_PART",
    "OFFERS_PER_STEP",
    "PART_BYTES",
    "PIECES_PER_TURN",
    "RESPOND_SECONDS",
    "SHORT_MESSAGE_BYTES",
    "TURN_SECONDS",
    "WAITING_BYTES_IN_ALL",
    "WAITING_FLOOR_BYTES",
    "WHOLE_BYTES",
]

MAX_FRAME_BYTES: Final = 1_048_576
"""Processed bytes of one message. A length is refused before it is buffered, and this is what one
connection can make us hold."""

MAX_EARLY_FRAME_BYTES: Final = 65_536
"""The same before both sides have shaken hands: IDENTIFY and its answers carry a little metadata,
and whoever sends them is a stranger. Holds before and after decompression."""

MAX_MIXED_MESSAGES: Final = 16
"""Messages that a peer of another kind has begun and not ended: the JVM writes flag, length and
bytes of a message in three parts, and several messages at once, each from a thread of its own. Each
length that is announced may be tried once on the bytes that come."""

MAX_EARLY_MESSAGES: Final = 64
"""Messages about objects before both sides have shaken hands, which the JVM sends: so many are kept
until they have, for a stranger may send them, too. What comes beyond is passed over, and found in
the peer's INITIALIZE."""

MAX_EARLY_BYTES: Final = 65_536
"""The same in bytes, as they are when they are decompressed. Beyond it all are passed over."""

MAX_EARLY_UNENCRYPTED: Final = 1_024
"""The same where they come unencrypted in spite of the AES flag, and are never taken. One costs
8 µs, and all may come in one turn of the reactor."""

MAX_PAYLOAD_BYTES: Final = 4_194_304
"""A message after decompression. LZ4 makes up to 255 bytes of one, so this and not the frame's
length bounds the memory; decompression stops one byte beyond it."""

MAX_DEPTH: Final = 16
"""Arrays and maps within each other: the payload, `d`, the list of objects and an object are four,
which leaves twelve to the values of a field."""

MAX_ENTRIES: Final = 100_000
"""Array items, map keys and map values of one message: a list of 56 bytes comes from one byte, so
they are counted before anything is built. Takes some 20 ms to read, within a turn."""

WHOLE_BYTES: Final = 512
"""An INITIALIZE that is longer is read object by object, as they are taken: so no more of what came
is kept as Python keeps it, 60 bytes for one, than this and one object."""

SHORT_MESSAGE_BYTES: Final = 98_304
"""A message of no more bytes, decompressed, is taken at once: the parts of a pool that we send have
PART_BYTES and some 21 KB of versions. 64 connections hold 6 MB of such."""

LONG_MESSAGES: Final = 2
"""Longer ones, of up to MAX_PAYLOAD_BYTES, that are being taken at one time, of all connections
together: 8 MB. The others wait as they came, and networks take turns."""

BUFFERED_BYTES_IN_ALL: Final = 6_291_456
"""What has come of all connections and was not taken yet: messages that are not whole, and such as
wait. Beyond it the largest of the network that has most of it goes. One frame of 1 MiB is let in,
and a pool of JVM objects has 10 KB for each thousand of them."""

WAITING_BYTES_IN_ALL: Final = 4_194_304
"""What was taken, of all connections, and waits for the disk. Beyond it only those are read whose
network has WAITING_FLOOR_BYTES or less of it."""

WAITING_FLOOR_BYTES: Final = 16_384
"""So nobody waits for the disk behind what others sent; of 64 networks 1 MB, and an object each."""

OFFERS_PER_STEP: Final = 512
"""Changes of one connection that are at the writer at one time, of which it does as many as one of
its steps has room for (OBJECT_STEP_BYTES of the store). What they come to is kept until it is
told."""

MAX_PLAIN_KEYS: Final = 255
"""Keys of one map that are neither texts nor byte strings: whoever sends numbers chooses their
hashes, and those that collide cost the square of their number."""

OBJECTS_PER_PART: Final = 128
"""Objects in one INITIALIZE that we send: read, packed and sent in 3 ms, and taken in as long."""

PART_BYTES: Final = 65_536
"""What one INITIALIZE that we send has in bytes of its objects' fields: as much as one object may
have. A byte is an entry at most, so a part is always below MAX_ENTRIES."""

FOREIGN_PACKET_BYTES: Final = 1_220
"""What one write to a peer of another kind has in bytes where the connection does not tell how much
a packet takes (that of the least IPv6 link): the JVM takes one read of its socket for a whole
message. A message that no packet takes is not sent to it."""

FOREIGN_WINDOW_BYTES: Final = 16_384
"""Bytes on their way to a peer of another kind before it has answered a PING: what waits in the
system's buffers would be sent in packets that begin and end within messages."""

FOREIGN_WINDOW_WRITES: Final = 8
"""Writes of the same: a connection that was idle sends ten packets at once (RFC 6928)."""

MAX_TYPES: Final = 256
"""Types that a node knows by declarations: fields that come for the first time are compared with
each, 1 µs a type."""

MAX_FITS: Final = 1_024
"""Sets of names of fields whose type is remembered, for peers choose the names; beyond it all are
forgotten and compared anew."""

PIECES_PER_TURN: Final = 256
"""Messages, and objects of INITIALIZE, that are taken in one turn of the reactor, of all
connections together; and as many outcomes are told. A small message takes 0.05 ms; one that is not
ours may hold 33,000 objects, which would fill 0.7 s."""

TURN_SECONDS: Final = 0.005
"""Seconds after which a turn does no further piece: a part of INITIALIZE takes some 3 ms, and the
disk answers for thousands of changes at once."""

RESPOND_SECONDS: Final = 60.0
"""INITIALIZE with `r` true has the whole pool sent. Within this time of the last sending, it is
taken as answered, so that one small message cannot be made a gigabyte again and again."""
