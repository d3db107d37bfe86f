"""Frames of a peer that writes several messages at once, each in three parts: flag, length, bytes.

The JVM does so, from any of its threads and without a lock: parts of one message come between those
of others, each part whole and those of one message in their order. A flag counts messages whose
length is to come, a length those whose bytes are to come. Which part comes next shows in its first
bytes: the processed bytes of a message begin in a known way, and a length is small. Where several
lengths are announced, the bytes are those with which one message is whole.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from hyperbloom.objects.limits import MAX_MIXED_MESSAGES
from hyperbloom.objects.wire.errors import FrameTooLong, RemoteProtocolError, WrongFlag
from hyperbloom.objects.wire.framing import FrameReader

__all__ = ["MixedFrameReader"]

_LENGTH: Final = struct.Struct(">I")
#: The shortest LZ4 frame: its header and the mark of its end.
_SHORTEST: Final = 11


class MixedFrameReader(FrameReader):
    """Goes on where `before` stands, between two messages.

    `begins` is what the processed bytes of a message may begin with, `is_whole` tells whether such
    bytes are exactly one message.
    """

    def __init__(
        self,
        before: FrameReader,
        *,
        flag: int,
        begins: tuple[bytes, ...],
        is_whole: Callable[[bytes], bool],
    ) -> None:
        super().__init__(flag)
        self.limit = before.limit
        self.feed(before.peek(len(before)))
        self._begins = begins
        self._is_whole = is_whole
        #: Messages of which only the flag came, and lengths whose bytes are to come.
        self._flags = 0
        self._lengths: list[int] = []
        #: Lengths with which the bytes that come next are no message.
        self._refused: set[int] = set()

    def __len__(self) -> int:
        return super().__len__() + self._flags + (1 + _LENGTH.size) * len(self._lengths)

    def clear(self) -> None:
        """Drop what is buffered."""
        super().clear()
        self._flags = 0
        self._lengths.clear()

    def next_frame(self) -> bytes | None:
        """The processed bytes of the message that is whole next, or None until one is.

        WrongFlag and FrameTooLong when a header says so, RemoteProtocolError for bytes that are no
        part of a message, and for more messages at once than MAX_MIXED_MESSAGES.
        """
        while True:
            if self._lengths:
                begun = self._has_begun()
                if begun or begun is None:
                    return self._message() if begun else None
            if not self._took_header_part():
                return None

    def _has_begun(self) -> bool | None:
        """Whether the bytes of a message come next; None when too few are there to tell."""
        ahead = self.peek(max(map(len, self._begins)))
        if ahead.startswith(self._begins):
            return True
        if any(one.startswith(ahead) for one in self._begins):
            return None
        # Bytes that are no part of a message are the broken ones of the only message there is, as
        # with another passphrase; who reads them says what is wrong.
        is_alone = not self._flags and len(self._lengths) == 1
        return is_alone and not (ahead[0] == self.flag and ahead[1:2] in self._after_a_flag())

    def _message(self) -> bytes | None:
        found = sorted(set(self._lengths))
        for length in found:
            if length in self._refused:
                continue
            if super().__len__() < length:
                return None
            if len(found) == 1 or self._is_whole(self.peek(length)):
                self._lengths.remove(length)
                self._refused.clear()
                return self.take(length)
            self._refused.add(length)
        raise RemoteProtocolError("a message has none of the lengths that were announced")

    def _took_header_part(self) -> bool:
        """Take a flag or a length; False when too few bytes are there."""
        ahead = self.peek(_LENGTH.size + 1)
        if not ahead or (self._flags and len(ahead) < _LENGTH.size):
            return False
        is_flag = ahead[0] == self.flag
        if self._flags:
            (length,) = _LENGTH.unpack_from(ahead)
            if _SHORTEST <= length <= self.limit:
                # Without AES a length may look like a flag: what follows it tells.
                if is_flag and len(ahead) == _LENGTH.size:
                    return False
                if not is_flag or ahead[_LENGTH.size] in self._after_a_length():
                    self.take(_LENGTH.size)
                    self._flags -= 1
                    self._lengths.append(length)
                    return True
            elif not is_flag:
                raise FrameTooLong(f"a message of {length} bytes; {self.limit} are taken")
        elif not is_flag:
            raise WrongFlag(f"the peer's flag is {ahead[0]}, and {self.flag} is set here")
        if self._flags + len(self._lengths) == MAX_MIXED_MESSAGES:
            raise RemoteProtocolError(f"more than {MAX_MIXED_MESSAGES} messages at once")
        self.take(1)
        self._flags += 1
        return True

    def _after_a_flag(self) -> set[bytes]:
        return {b"", b"\0", *(bytes([first]) for first in self._after_a_length())}

    def _after_a_length(self) -> set[int]:
        lengths = {0} if self._flags > 1 else set()
        return {self.flag, *lengths, *(one[0] for one in self._begins)}
