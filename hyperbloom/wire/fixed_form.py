"""What the messages of this project's own extensions are made of: a fixed form, no protobuf.

Integers are big endian. There is one encoding of each message: whatever differs from it is refused.

    ranges        how many u8, then each: start, 0 and end, or start and 1 (open above)
    start, end    length u16, bytes

What a message may say is checked where it is made, here and of a peer alike: `check` blames us, and
inside of `with BodyReader(...)` it is the peer that is to blame.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self

from hyperbloom.keys import HASH_BYTES
from hyperbloom.wire.errors import LocalProtocolError, RemoteProtocolError
from hyperbloom.wire.limits import MAX_DIGEST_BOUND_BYTES
from hyperbloom.wire.messages import Range

__all__ = ["BodyReader", "check", "check_ranges", "check_set", "check_u32", "encode_ranges"]

_MAX_U32: Final = 0xFFFF_FFFF
_MAX_U64: Final = 0xFFFF_FFFF_FFFF_FFFF

_LENGTH: Final = struct.Struct(">H")
_ENDS: Final = b"\x00"
_OPEN: Final = b"\x01"


def check(holds: bool, rule: str) -> None:
    """Raises LocalProtocolError, which names the rule, where it does not hold."""
    if not holds:
        raise LocalProtocolError(rule)


def check_u32(number: int, what: str) -> None:
    """Raises LocalProtocolError for what does not fit four bytes."""
    check(0 <= number <= _MAX_U32, f"{what} is an unsigned 32-bit number")


def check_set(count: int, digest: bytes, what: str) -> None:
    """What is told of a set: its count, and its digest; raises LocalProtocolError."""
    check(0 <= count <= _MAX_U64, f"a count in {what} is an unsigned 64-bit number")
    check(len(digest) == HASH_BYTES, f"a digest in {what} has {HASH_BYTES} bytes")
    check(count > 0 or not any(digest), "the digest of no values is zero")


def check_ranges(ranges: Sequence[Range], most: int, what: str) -> None:
    """At most so many ranges, in byte order and apart; raises LocalProtocolError."""
    check(len(ranges) <= most, f"{what} has at most {most} of them")
    behind: bytes | None = None
    for index, one in enumerate(ranges):
        bounds = [one.start] if one.end is None else [one.start, one.end]
        check(
            all(len(bound) <= MAX_DIGEST_BOUND_BYTES for bound in bounds),
            f"a bound in {what} has at most {MAX_DIGEST_BOUND_BYTES} bytes",
        )
        check(one.end is None or one.end > one.start, f"a range in {what} is not empty")
        apart = index == 0 or (behind is not None and one.start > behind)
        check(apart, f"{what} are in order and apart")
        behind = one.end


def encode_ranges(ranges: Sequence[Range]) -> bytes:
    """Their bytes; they were checked."""
    parts = [bytes([len(ranges)])]
    for one in ranges:
        parts += [_LENGTH.pack(len(one.start)), one.start]
        if one.end is None:
            parts.append(_OPEN)
        else:
            parts += [_ENDS, _LENGTH.pack(len(one.end)), one.end]
    return b"".join(parts)


class BodyReader:
    """Takes a body apart from its front; what is missing is the peer's fault.

    In a `with` statement, so is a rule that the message breaks: what raises LocalProtocolError
    there raises RemoteProtocolError.
    """

    def __init__(self, body: bytes, what: str) -> None:
        self._body = body
        self._at = 0
        self._what = what

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        if isinstance(error, LocalProtocolError):
            raise RemoteProtocolError(f"the peer breaks a rule: {error}") from None

    def take(self, size: int) -> bytes:
        """The next bytes; raises RemoteProtocolError if there are fewer."""
        part = self._body[self._at : self._at + size]
        if len(part) < size:
            raise RemoteProtocolError(f"{self._what} ends inside a field")
        self._at += size
        return part

    def unpack(self, form: struct.Struct) -> tuple[Any, ...]:
        """The next fields; raises RemoteProtocolError if there are fewer bytes."""
        return form.unpack(self.take(form.size))

    def rest(self) -> bytes:
        """All that is left."""
        part = self._body[self._at :]
        self._at = len(self._body)
        return part

    def ranges(self, most: int) -> tuple[Range, ...]:
        """The ranges, which are the rest of the body; raises RemoteProtocolError."""
        count = self.take(1)[0]
        if count > most:
            raise RemoteProtocolError(f"{self._what} has more than {most} ranges")
        ranges = tuple(self._range() for _ in range(count))
        if self._at != len(self._body):
            raise RemoteProtocolError(f"{self._what} has bytes behind its end")
        return ranges

    def _range(self) -> Range:
        start = self._bound()
        kind = self.take(1)
        if kind not in (_ENDS, _OPEN):
            raise RemoteProtocolError(f"a range in {self._what} neither ends nor is open")
        return Range(start=start, end=self._bound() if kind == _ENDS else None)

    def _bound(self) -> bytes:
        (length,) = self.unpack(_LENGTH)
        if length > MAX_DIGEST_BOUND_BYTES:
            raise RemoteProtocolError(f"a bound in {self._what} is too long")
        return self.take(length)
