"""The extension `set-digest`: two peers compare how much they hold without listing it.

One asks with a DigestRequest that names the ranges it keeps; the other answers with a Digest: of
the ranges that both keep, how many values it holds and the digest of their set (digests.py), and
the same of what it holds or has forgotten. The asker compares with its own of the same ranges.
docs/extensions/set-digest.md has it byte by byte.

The ids mean something only to a node that announced the extension in its Handshake; every other
peer skips them, as it skips all ids it does not know. Nothing else of the protocol changes.

The form is fixed (no protobuf), and there is one encoding of each message: whatever differs from it
is refused. Integers are big endian.

    DigestRequest  4365   number u32, ranges
    Digest         4366   number u32, count u64, digest (32), settled count u64,
                          settled digest (32), ranges
    ranges                see fixed_form.py
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
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
    MAX_ASKED_RANGES,
    MAX_DIGEST_BOUND_BYTES,
)
from hyperbloom.wire.messages import Range

__all__ = ["SET_DIGEST", "Digest", "DigestRequest", "fits_set_digest"]

SET_DIGEST: Final = "set-digest-1"
"""What a Handshake announces: the extension, and which digest it compares (digests.py: 1)."""

_NUMBER: Final = struct.Struct(">I")
_HEAD: Final = struct.Struct(f">IQ{HASH_BYTES}sQ{HASH_BYTES}s")


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestRequest:
    """What do you hold of these ranges, as far as you keep them?

    `number` comes back in the answer. `ranges`: 1 to MAX_ASKED_RANGES, in byte order and apart.
    """

    message_id: ClassVar[int] = 4365

    number: int
    ranges: tuple[Range, ...]

    def __post_init__(self) -> None:
        check_u32(self.number, "DigestRequest.number")
        check(bool(self.ranges), "DigestRequest.ranges is not empty")
        check_ranges(self.ranges, MAX_ASKED_RANGES, "DigestRequest.ranges")

    def encode(self) -> bytes:
        """The body."""
        return _NUMBER.pack(self.number) + encode_ranges(self.ranges)

    @classmethod
    def decode(cls, body: bytes) -> DigestRequest:
        """Read a body; raises RemoteProtocolError for one that breaks a rule."""
        with BodyReader(body, "DigestRequest") as reader:
            (number,) = reader.unpack(_NUMBER)
            return cls(number=number, ranges=reader.ranges(MAX_ASKED_RANGES))


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """What the sender holds of the ranges that both keep, when it answered.

    `digest`: of the set of these values (digests.py), 32 bytes, zero for the empty set.
    `settled_count` and `settled_digest`: the same with those the sender has forgotten and wants no
    more. `ranges`: in byte order and apart; none where both keep nothing in common, or where the
    sender does not know its digests yet, and then there are no values.
    """

    message_id: ClassVar[int] = 4366

    number: int
    count: int
    digest: bytes
    settled_count: int
    settled_digest: bytes
    ranges: tuple[Range, ...]

    def __post_init__(self) -> None:
        check_u32(self.number, "Digest.number")
        check_set(self.count, self.digest, "Digest")
        check_set(self.settled_count, self.settled_digest, "Digest")
        check(self.settled_count >= self.count, "what is settled in Digest includes what is held")
        check(bool(self.ranges) or self.settled_count == 0, "without a range there are no values")
        check_ranges(self.ranges, MAX_ANSWERED_RANGES, "Digest.ranges")

    def encode(self) -> bytes:
        """The body."""
        settled = self.settled_count, self.settled_digest
        head = _HEAD.pack(self.number, self.count, self.digest, *settled)
        return head + encode_ranges(self.ranges)

    @classmethod
    def decode(cls, body: bytes) -> Digest:
        """Read a body; raises RemoteProtocolError for one that breaks a rule."""
        with BodyReader(body, "Digest") as reader:
            number, count, digest, settled_count, settled_digest = reader.unpack(_HEAD)
            return cls(
                number=number,
                count=count,
                digest=digest,
                settled_count=settled_count,
                settled_digest=settled_digest,
                ranges=reader.ranges(MAX_ANSWERED_RANGES),
            )


def fits_set_digest(ranges: Sequence[tuple[bytes, bytes | None]]) -> bool:
    """Whether these ranges (start, end) may be asked about; the others are synced as ever."""
    bounds = [bound for pair in ranges for bound in pair if bound is not None]
    return 0 < len(ranges) <= MAX_ASKED_RANGES and all(
        len(bound) <= MAX_DIGEST_BOUND_BYTES for bound in bounds
    )
