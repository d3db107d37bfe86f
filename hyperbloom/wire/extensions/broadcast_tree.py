"""The extension `broadcast-tree`: a value goes along few links, its id along the others.

Nodes with several neighbours would get each value from all of them. So a node tells over most of
its links only the ids of what it holds, with ValuesTold, and who lacks one asks for it with
ValuesPull. The same message says whether values are to be sent at once from now on, or told: who
got a value twice has the second link tell, and who got none in time has the link that told it push.
docs/extensions/broadcast-tree.md has it byte by byte; the links are decided on by
replication/broadcast/broadcast_tree.py.

The ids mean something only to a node that announced the extension in its Handshake, as with
`set-digest` (set_digest.py).

    ValuesTold  4370   ids (16 bytes each), at least one
    ValuesPull  4371   link u8 (0 as before, 1 push, 2 tell), ids (16 bytes each)
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from itertools import islice
from operator import lt
from typing import ClassVar, Final

from hyperbloom.wire.errors import LocalProtocolError, RemoteProtocolError
from hyperbloom.wire.extensions.reconcile import ID_BYTES
from hyperbloom.wire.fixed_form import BodyReader, check
from hyperbloom.wire.limits import MAX_TOLD_IDS

__all__ = ["BROADCAST_TREE", "LinkKind", "ValuesPull", "ValuesTold"]

BROADCAST_TREE: Final = "broadcast-tree-1"
"""What a Handshake announces: the extension, and which ids it tells."""


class LinkKind(IntEnum):
    """What the receiver of a ValuesPull is to do with values that it stores from now on."""

    AS_BEFORE = 0
    PUSH = 1
    TELL = 2


def _check_ids(ids: bytes, what: str) -> None:
    check(len(ids) % ID_BYTES == 0, f"an id in {what} has {ID_BYTES} bytes")
    check(len(ids) <= MAX_TOLD_IDS * ID_BYTES, f"{what} has at most {MAX_TOLD_IDS} ids")
    one_by_one = [ids[at : at + ID_BYTES] for at in range(0, len(ids), ID_BYTES)]
    in_order = all(map(lt, one_by_one, islice(one_by_one, 1, None)))
    check(in_order, f"the ids of {what} are in order, each once")


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuesTold:
    """I hold the values of these ids, and send them to whoever asks.

    `ids`: 16 bytes each, one after the other, in byte order and each once; at least one.
    """

    message_id: ClassVar[int] = 4370

    ids: bytes

    def __post_init__(self) -> None:
        check(bool(self.ids), "ValuesTold.ids is not empty")
        _check_ids(self.ids, "ValuesTold")

    def encode(self) -> bytes:
        """The body."""
        return self.ids

    @classmethod
    def decode(cls, body: bytes) -> ValuesTold:
        """Read a body; raises RemoteProtocolError for one that breaks a rule."""
        try:
            return cls(ids=body)
        except LocalProtocolError as error:
            raise RemoteProtocolError(f"the peer breaks a rule: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuesPull:
    """Send me the values of these ids; `link` says what you send me unasked from now on.

    `ids`: as in ValuesTold; there may be none.
    """

    message_id: ClassVar[int] = 4371

    link: LinkKind
    ids: bytes

    def __post_init__(self) -> None:
        _check_ids(self.ids, "ValuesPull")

    def encode(self) -> bytes:
        """The body."""
        return bytes([self.link]) + self.ids

    @classmethod
    def decode(cls, body: bytes) -> ValuesPull:
        """Read a body; raises RemoteProtocolError for one that breaks a rule."""
        reader = BodyReader(body, "ValuesPull")
        (link,) = reader.take(1)
        if link not in tuple(LinkKind):
            raise RemoteProtocolError("the link of a ValuesPull is 0, 1 or 2")
        try:
            return cls(link=LinkKind(link), ids=reader.rest())
        except LocalProtocolError as error:
            raise RemoteProtocolError(f"the peer breaks a rule: {error}") from None
