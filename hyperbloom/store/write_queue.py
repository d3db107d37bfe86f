"""What waits to be written, and in which order it is: a row for each origin, and rows take turns.

A group is one transaction, so whoever waits, waits for the whole of it. It takes this node's own
operations first, as far as half of what fits; then the rows of the others take turns, each with
QUANTUM_BYTES a time; what is left is for its own again. Behind a group that had others' in it,
own operations have one of their own. So nobody waits behind what another has
queued, however much that is, and one that is alone has all of it. Within a row the order stays.

This is deficit round robin (Shreedhar and Varghese, "Efficient fair queuing using deficit round
robin", 1996), by what an operation weighs. An origin is a path, and turns go by its levels
(`hyperbloom.turns`): a peer has no more for the keys that it makes below its own.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from hyperbloom.store.limits import GROUP_BYTES, GROUP_OPERATIONS, OWN_GROUP_BYTES, QUANTUM_BYTES
from hyperbloom.store.operations import LARGEST_PIECE_BYTES, Operation
from hyperbloom.turns import Turns

__all__ = ["OWN", "Done", "Origin", "Queued", "WriteQueue"]

Done = Callable[[Any], None]
"""Called with the operation's result, or with the exception (an instance) that it failed with."""

Origin = tuple[bytes, ...]
"""Whom an operation is from: the keys from the branch's own down to the peer's."""

OWN: Origin = ()
"""The origin of what this node writes of itself."""


class Queued(NamedTuple):
    """An operation, what it weighs in bytes, whom it is from, and who waits for it."""

    operation: Operation
    size: int
    origin: Origin
    done: Done


class WriteQueue:
    """Operations in rows; `bytes` is what all of them weigh. Not locked: the writer does that."""

    def __init__(self) -> None:
        self.bytes = 0
        self._own: deque[Queued] = deque()
        self._rows: Turns[Queued] = Turns()

    def __bool__(self) -> bool:
        return bool(self._own or self._rows)

    @property
    def has_own(self) -> bool:
        """Whether something of this node's own waits."""
        return bool(self._own)

    @property
    def only_own(self) -> int:
        """How many operations wait, if all are this node's own; 0 if one of a peer's waits."""
        return 0 if self._rows else len(self._own)

    def add(self, queued: Queued) -> None:
        """Put an operation at the end of its row."""
        self.bytes += queued.size
        if queued.origin == OWN:
            self._own.append(queued)
        else:
            self._rows.add(queued.origin, queued)

    def put_back(self, group: Iterable[Queued]) -> None:
        """Put the end of a group, which was not written, back to the front of its rows."""
        for queued in reversed(list(group)):
            self.bytes += queued.size
            if queued.origin == OWN:
                self._own.appendleft(queued)
            else:
                row = self._rows.put_back(queued.origin, queued)
                row.credit = min(row.credit + queued.size, QUANTUM_BYTES)

    def take(self, most_of_others: int = GROUP_BYTES, *, own_alone: bool = False) -> list[Queued]:
        """The next group, within its limits; at least one operation, if there is any.

        Others have `most_of_others` bytes of it, or one operation; with `own_alone` nothing, if
        something of this node's own waits.
        """
        group: list[Queued] = []
        others = bool(self._rows)
        room = GROUP_BYTES if others else OWN_GROUP_BYTES
        room = self._take_own(group, room, GROUP_OPERATIONS, halved=others)
        if own_alone and group:
            return self._taken(group)
        theirs = min(room, max(most_of_others, LARGEST_PIECE_BYTES))
        room -= theirs - self._take_turns(group, theirs)
        self._take_own(group, room, GROUP_OPERATIONS, halved=False)
        return self._taken(group)

    def _taken(self, group: list[Queued]) -> list[Queued]:
        self.bytes -= sum(queued.size for queued in group)
        return group

    def _take_own(self, group: list[Queued], room: int, most: int, *, halved: bool) -> int:
        left = room // 2 if halved else room
        most = most // 2 if halved else most
        while self._own and len(group) < most:
            size = self._own[0].size
            if group and size > left:
                break
            group.append(self._own.popleft())
            left, room = left - size, room - size
        return room

    def _take_turns(self, group: list[Queued], room: int) -> int:
        while self._rows and len(group) < GROUP_OPERATIONS:
            row = self._rows.first()
            row.credit += QUANTUM_BYTES
            while row.waiting and row.waiting[0].size <= row.credit:
                size = row.waiting[0].size
                if group and (size > room or len(group) >= GROUP_OPERATIONS):
                    # Full in the midst of its turn: the next group begins with the rest of it.
                    row.credit -= QUANTUM_BYTES
                    return 0
                group.append(row.waiting.popleft())
                row.credit, room = row.credit - size, room - size
            self._rows.pass_on()
        return room
