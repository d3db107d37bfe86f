"""Room for connections: who gets in when there are as many as there may be.

A connection that comes in is a stranger's until its Handshake is verified. Strangers are many and
cost nothing, so they are bounded by where they come from (an IPv4 address, or a /64 of IPv6), and
when there is no room the oldest stranger goes, of the network that has most of them: whoever wants
to keep somebody out has to come from more networks than everybody else together, and faster than
a handshake takes. Who has opened a feed that is here goes after those who have said nothing of the
kind. Strangers take no more than a part of all connections.

Who has proved a key is bounded by that key and not by an address, for behind one address (NAT, a
proxy, a VPN) there may be everybody. A key that has too many connections loses the oldest, of the
network that has most of them, so that somebody else with its proof cannot keep the key's holder
out. A member makes further keys as it likes by links of its own. So when the proved have filled
their part, a connection is taken from the branch (all whose paths begin alike) with the most of
them, within it from the one below it with the most, and so on down to a key. A few connections are
always left to newcomers.

A connection that this node dialled always has room and is never taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Generic, Protocol, TypeVar

from hyperbloom.connections.branches import Path
from hyperbloom.connections.limits import NEWCOMERS_PART, STRANGERS_PART

__all__ = ["Proof", "SlotLimits", "Slots"]

T = TypeVar("T")


class SlotLimits(Protocol):
    """The settings that bound connections."""

    @property
    def connections(self) -> int:
        """In all."""
        ...

    @property
    def connections_per_address(self) -> int:
        """From one network, of those that have proved nothing."""
        ...

    @property
    def connections_per_key(self) -> int:
        """Of one key about one feed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What a connection has proved: the feed, and the path down to its key."""

    feed: bytes
    path: Path

    @property
    def key(self) -> bytes:
        """The key that it has."""
        return self.path[-1]


class _Neighbours(Generic[T]):
    """Strangers of one network, the oldest first: those who opened a feed, and the others."""

    __slots__ = ("opened", "silent")

    def __init__(self) -> None:
        self.opened: dict[T, None] = {}
        self.silent: dict[T, None] = {}

    def __len__(self) -> int:
        return len(self.opened) + len(self.silent)

    def surplus(self, newcomer: T | None = None) -> T:
        """Who goes first; the newcomer only where it is alone."""
        for one in (*islice(self.silent, 2), *islice(self.opened, 1)):
            if one is not newcomer:
                return one
        return next(iter(self.silent))


@dataclass(slots=True, kw_only=True)
class _Slot:
    network: str
    dialled: bool
    proof: Proof | None = None


class Slots(Generic[T]):
    """The connections of a node, the oldest first; `limits` gives the bounds of the moment."""

    def __init__(self, limits: Callable[[], SlotLimits]) -> None:
        self._limits = limits
        self._all: dict[T, _Slot] = {}
        #: Those that came in, the oldest first: strangers by network, the others by feed and key.
        self._strangers: dict[str, _Neighbours[T]] = {}
        self._proved: dict[tuple[bytes, bytes], tuple[T, ...]] = {}
        self._stranger_count = self._proved_count = 0

    def __len__(self) -> int:
        return len(self._all)

    @property
    def strangers(self) -> int:
        """Connections that came in and have proved nothing yet."""
        return self._stranger_count

    def enter(self, one: T, *, network: str, dialled: bool) -> T | None:
        """Take a connection in; who has to go for it (maybe itself), or None."""
        self._all[one] = _Slot(network=network, dialled=dialled)
        limits = self._limits()
        if not dialled:
            neighbours = self._strangers.setdefault(network, _Neighbours())
            neighbours.silent[one] = None
            self._stranger_count += 1
            if len(neighbours) > limits.connections_per_address:
                return neighbours.surplus(one)
        most = -(-limits.connections // STRANGERS_PART)
        if self._stranger_count > most or len(self._all) > limits.connections:
            return self._surplus_stranger(one)
        return None

    def open(self, one: T) -> None:
        """A stranger has opened a feed that is here; dialled ones are not asked about."""
        slot = self._all.get(one)
        neighbours = None if slot is None else self._strangers.get(slot.network)
        if neighbours is not None and one in neighbours.silent:
            del neighbours.silent[one]
            neighbours.opened[one] = None

    def prove(self, one: T, proof: Proof) -> T | None:
        """A connection has proved a key; who has to go for it (maybe itself), or None."""
        slot = self._all[one]
        self._leave_strangers(one, slot)
        slot.proof = proof
        if slot.dialled:
            return None
        key = (proof.feed, proof.key)
        same = self._proved[key] = (*self._proved.get(key, ()), one)
        self._proved_count += 1
        limits = self._limits()
        if len(same) > limits.connections_per_key:
            return self._oldest_of(same)
        if self._proved_count > max(1, limits.connections - limits.connections // NEWCOMERS_PART):
            return self._newest_of_heaviest(one)
        return None

    def leave(self, one: T) -> None:
        """The connection is gone."""
        slot = self._all.pop(one, None)
        if slot is None:
            return
        self._leave_strangers(one, slot)
        proof = slot.proof
        if proof is None or slot.dialled:
            return
        key = (proof.feed, proof.key)
        same = tuple(other for other in self._proved.pop(key) if other is not one)
        self._proved_count -= 1
        if same:
            self._proved[key] = same

    def _leave_strangers(self, one: T, slot: _Slot) -> None:
        neighbours = self._strangers.get(slot.network)
        if neighbours is None:
            return
        for some in (neighbours.silent, neighbours.opened):
            if one in some:
                del some[one]
                self._stranger_count -= 1
        if not len(neighbours):
            del self._strangers[slot.network]

    def _surplus_stranger(self, newcomer: T) -> T | None:
        if not self._strangers:
            return None
        most = max(map(len, self._strangers.values()))
        fullest = next(some for some in self._strangers.values() if len(some) == most)
        return fullest.surplus(newcomer)

    def _oldest_of(self, some: Iterable[T]) -> T:
        """The oldest of those in the network that has most of them."""
        weights = Counter(self._all[one].network for one in some)
        return next(one for one in some if weights[self._all[one].network] == max(weights.values()))

    def _newest_of_heaviest(self, newcomer: T) -> T:
        """The newest below whoever has the most on each level of the paths.

        The newcomer, where what it is below has as many.
        """
        some = {
            one: (proof.feed + proof.path[0], *proof.path[1:])
            for one, slot in self._all.items()
            if (proof := slot.proof) is not None and not slot.dialled
        }
        depth = 0
        while len(some) > 1:
            groups: dict[tuple[bytes, ...], dict[T, tuple[bytes, ...]]] = {}
            for one, path in some.items():
                groups.setdefault(path[depth : depth + 1], {})[one] = path
            if len(groups) == 1 and () in groups:
                break
            # Of those that have as many the newcomer's, or the one that was last to get another.
            newest = {part: number for number, part in enumerate(_parts_at(some.values(), depth))}
            most = max(
                groups,
                key=lambda part: (len(groups[part]), newcomer in groups[part], newest[part]),
            )
            some, depth = groups[most], depth + 1
        return newcomer if newcomer in some else next(reversed(some))


def _parts_at(paths: Iterable[Path], depth: int) -> Iterator[Path]:
    return (path[depth : depth + 1] for path in paths)
