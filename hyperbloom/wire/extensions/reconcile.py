"""The extension `reconcile`: two peers find out by which values their sets differ.

A set is an endless sequence of coded symbols (docs/extensions/reconcile.md), and the first few of
them tell two sets' difference, whatever they share. One asks with a SketchRequest for a part of the
other's sequence, answered by Sketches; it then sends as Data what the other lacks, and asks with
ValuesWanted, by their ids, for the values that it lacks itself.

The ids mean something only to a node that announced the extension in its Handshake, as with
`set-digest` (set_digest.py), which has to be announced as well. How symbols are packed is for
sketches.py to know.

    SketchRequest  4367   number u32, salt's length u8 (0 or 16), salt, first u32, count u32, ranges
    Sketch         4368   number u32, first u32, symbols u32, values u64, settled digest (32),
                          packed symbols
    ValuesWanted   4369   number u32, ids (16 bytes each)
    ranges                see fixed_form.py
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Final

from hyperbloom.keys import HASH_BYTES
from hyperbloom.wire.fixed_form import (
    BodyReader,
    check,
    check_ranges,
    check_set,
    check_u32,
    encode_ranges,
)
from hyperbloom.wire.limits import (
    MAX_ANSWERED_RANGES,
    MAX_ASKED_SYMBOLS,
    MAX_SKETCH_BYTES,
    MAX_SKETCH_SYMBOLS,
    MAX_WANTED_IDS,
)
from hyperbloom.wire.messages import Range

__all__ = ["ID_BYTES", "RECONCILE", "SALT_BYTES", "Sketch", "SketchRequest", "ValuesWanted"]

RECONCILE: Final = "reconcile-1"
"""What a Handshake announces: the extension, and which symbols it sends."""

ID_BYTES: Final = 16
SALT_BYTES: Final = 16

_NUMBER: Final = struct.Struct(">I")
_PART: Final = struct.Struct(">II")
_HEAD: Final = struct.Struct(f">IIIQ{HASH_BYTES}s")


@dataclass(frozen=True, slots=True, kw_only=True)
class SketchRequest:
    """Send me `count` symbols, from `first` on, of the sequence of what is settled with you.

    `number` names the try: the questions of one try are answered from one sequence. `salt`: none,
    or 16 bytes that the values' ids are mixed with. `ranges`: what both keep, in byte order and
    apart, at least one.
    """

    message_id: ClassVar[int] = 4367

    number: int
    salt: bytes
    first: int
    count: int
    ranges: tuple[Range, ...]

    def __post_init__(self) -> None:
        check_u32(self.number, "SketchRequest.number")
        check(len(self.salt) in (0, SALT_BYTES), f"a salt has {SALT_BYTES} bytes, or none")
        check_u32(self.first, "SketchRequest.first")
        check(
            1 <= self.count <= MAX_ASKED_SYMBOLS,
            f"a SketchRequest asks for 1 to {MAX_ASKED_SYMBOLS} symbols",
        )
        check(bool(self.ranges), "SketchRequest.ranges is not empty")
        check_ranges(self.ranges, MAX_ANSWERED_RANGES, "SketchRequest.ranges")

    def encode(self) -> bytes:
        """The body."""
        salt = bytes([len(self.salt)]) + self.salt
        part = _PART.pack(self.first, self.count)
        return _NUMBER.pack(self.number) + salt + part + encode_ranges(self.ranges)

    @classmethod
    def decode(cls, body: bytes) -> SketchRequest:
        """Read a body; raises RemoteProtocolError for one that breaks a rule."""
        with BodyReader(body, "SketchRequest") as reader:
            (number,) = reader.unpack(_NUMBER)
            salt = reader.take(reader.take(1)[0])
            first, count = reader.unpack(_PART)
            ranges = reader.ranges(MAX_ANSWERED_RANGES)
            return cls(number=number, salt=salt, first=first, count=count, ranges=ranges)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sketch:
    """Symbols `first` to `first + symbols` of the sequence that the try of this number is about.

    `values` and `digest`: how many values the sequence is of, and the digest of their set (zero for
    none). `packed`: the symbols. Without symbols there are no more of this sequence, or the sender
    does not hold it, and nothing else is told: `values` is 0, and `digest` zero.
    """

    message_id: ClassVar[int] = 4368

    number: int
    first: int
    symbols: int
    values: int
    digest: bytes
    packed: bytes

    def __post_init__(self) -> None:
        check_u32(self.number, "Sketch.number")
        check_u32(self.first, "Sketch.first")
        check(
            0 <= self.symbols <= MAX_SKETCH_SYMBOLS,
            f"a Sketch has at most {MAX_SKETCH_SYMBOLS} symbols",
        )
        check_set(self.values, self.digest, "Sketch")
        check(len(self.packed) <= MAX_SKETCH_BYTES, "the symbols of a Sketch fit a frame")
        if not self.symbols:
            check(not self.packed and not self.values, "a Sketch without symbols has nothing else")

    @classmethod
    def nothing(cls, number: int, first: int) -> Sketch:
        """There are no symbols from here on."""
        digest = bytes(HASH_BYTES)
        return cls(number=number, first=first, symbols=0, values=0, digest=digest, packed=b"")

    def encode(self) -> bytes:
        """The body."""
        head = _HEAD.pack(self.number, self.first, self.symbols, self.values, self.digest)
        return head + self.packed

    @classmethod
    def decode(cls, body: bytes) -> Sketch:
        """Read a body; raises RemoteProtocolError for one that breaks a rule."""
        with BodyReader(body, "Sketch") as reader:
            number, first, symbols, values, digest = reader.unpack(_HEAD)
            return cls(
                number=number,
                first=first,
                symbols=symbols,
                values=values,
                digest=digest,
                packed=reader.rest(),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuesWanted:
    """Send me the values of these ids; the try of this number needs no more symbols.

    `ids`: 16 bytes each, one after the other, in byte order and each once; there may be none.
    """

    message_id: ClassVar[int] = 4369

    number: int
    ids: bytes

    def __post_init__(self) -> None:
        check_u32(self.number, "ValuesWanted.number")
        check(len(self.ids) % ID_BYTES == 0, f"an id in ValuesWanted has {ID_BYTES} bytes")
        check(
            len(self.ids) <= MAX_WANTED_IDS * ID_BYTES,
            f"a ValuesWanted has at most {MAX_WANTED_IDS} ids",
        )
        one_by_one = (self.ids[at : at + ID_BYTES] for at in range(0, len(self.ids), ID_BYTES))
        check(
            all(one < other for one, other in pairwise(one_by_one)),
            "the ids of a ValuesWanted are in order, each once",
        )

    def encode(self) -> bytes:
        """The body."""
        return _NUMBER.pack(self.number) + self.ids

    @classmethod
    def decode(cls, body: bytes) -> ValuesWanted:
        """Read a body; raises RemoteProtocolError for one that breaks a rule."""
        with BodyReader(body, "ValuesWanted") as reader:
            (number,) = reader.unpack(_NUMBER)
            return cls(number=number, ids=reader.rest())
