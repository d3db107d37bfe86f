"""Everything a peer can make a session hold or do, with its bound and the reason for it.

They follow from the protocol and from what deployed peers accept, so none is for setting. Numbers
are bytes unless their names say otherwise.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "LEAST_SKETCH_SYMBOLS",
    "MAX_ANSWERED_RANGES",
    "MAX_ASKED_RANGES",
    "MAX_ASKED_SYMBOLS",
    "MAX_BUFFERED_BYTES",
    "MAX_DIGEST_BOUND_BYTES",
    "MAX_EARLY_BYTES",
    "MAX_EARLY_FRAME_BYTES",
    "MAX_EXTENSIONS",
    "MAX_EXTENSION_BYTES",
    "MAX_FRAME_BYTES",
    "MAX_LENGTH_BYTES",
    "MAX_MESSAGE_ID_BYTES",
    "MAX_OPEN_BYTES",
    "MAX_SHARED_EXTENSIONS",
    "MAX_SKETCH_BYTES",
    "MAX_SKETCH_SYMBOLS",
    "MAX_TOLD_IDS",
    "MAX_WANTED_IDS",
    "SEND_FRAME_BYTES",
]

MAX_FRAME_BYTES: Final = 262_144
"""Message id and body of a received frame. Deployed peers refuse a longer one, so none is sent to
us; the length is refused when it is read, before anything of the body is kept."""

SEND_FRAME_BYTES: Final = MAX_FRAME_BYTES - 1_024
"""Message id and body of a frame we send. Deployed peers also count unparsed bytes against the
same bound, so what is sent stays a little below it."""

MAX_LENGTH_BYTES: Final = 3
"""Bytes of a frame's length (a varint). Deployed peers refuse a fourth, and three reach 2 MiB."""

MAX_MESSAGE_ID_BYTES: Final = 10
"""Bytes of a message id (a varint): as many as any 64-bit varint takes. Unknown ids are skipped,
so that a later protocol may use large ones."""

MAX_OPEN_BYTES: Final = 128
"""Body of Open. Ours is 60; anybody may send one, before any proof of trust."""

MAX_EARLY_FRAME_BYTES: Final = 20_480
"""Message id and body of a received frame while the peer has proved nothing: anybody can make this
node hold so much. The longest Handshake that is taken has 17,313 (64 extensions of 255 bytes, five
links); those of deployed peers have at most 801."""

MAX_EARLY_BYTES: Final = MAX_EARLY_FRAME_BYTES
"""Bytes kept behind a peer's Open before ours is sent. Without our nonce a peer can send no
Handshake, so nothing useful is among them."""

MAX_BUFFERED_BYTES: Final = 8_388_608
"""Bytes received and not yet pulled as events: 32 of the longest frames. Whoever feeds a session
stops reading from the peer while events wait, so only a fault of ours gets here."""

MAX_EXTENSIONS: Final = 64
"""Extensions of a Handshake; each is kept as long as the connection lives. Deployed peers announce
none."""

MAX_EXTENSION_BYTES: Final = 255
"""One extension's name in UTF-8, for the same reason."""

MAX_SHARED_EXTENSIONS: Final = 32
"""Announcements that are kept once for all peers that make the same one; of more, the one that was
made longest ago is kept by its peers alone. Few differ: every version of a program makes one."""

MAX_ASKED_RANGES: Final = 64
"""Ranges of a DigestRequest, as many as a feed's settings may name. A node with more of them does
not announce the extension."""

MAX_ANSWERED_RANGES: Final = 2 * MAX_ASKED_RANGES - 1
"""Ranges of a Digest: what two such lists can have in common."""

MAX_DIGEST_BOUND_BYTES: Final = 512
"""One bound of such a range; with it the longest Digest is half of a frame. A node whose ranges
have longer bounds does not announce the extension."""

MAX_SKETCH_SYMBOLS: Final = 8_192
"""Symbols of a Sketch. One has 24 bytes of sums and its number, in at most 7 bytes for any set that
a store can hold; so many fit a frame."""

LEAST_SKETCH_SYMBOLS: Final = 256
"""Symbols of a Sketch, unless it is the last of an answer, or of its sequence. Our nodes send
MAX_SKETCH_SYMBOLS at a time; an answer in smaller pieces would cost more to take than to send."""

MAX_SKETCH_BYTES: Final = SEND_FRAME_BYTES - 64
"""Packed symbols of a Sketch: what its other fields and the message id leave of a frame."""

MAX_ASKED_SYMBOLS: Final = 65_536
"""Symbols of a SketchRequest, twice as many as the longest sequence of a node of ours has. They
come in several Sketches; whoever is asked answers one question at a time."""

MAX_WANTED_IDS: Final = 16_000
"""Ids of a ValuesWanted, 16 bytes each: what fits a frame. Who wants more asks again."""

MAX_TOLD_IDS: Final = 4_096
"""Ids of a ValuesTold or a ValuesPull, 16 bytes each: a quarter of a frame, so that what is asked
for at once stays small. Who has more sends several."""
