"""Trackers in a world in memory: storing nodes of a DHT, neighbours, a fake clock, a seed.

A storing node holds one item a target and has a policy for a second one of equal seq, as found in
the wild: it overwrites, keeps what it has and still says OK, or refuses.
Queries take time and get lost; a lost one costs its timeout. Storing nodes and trackers have a
side, and while the DHT is split only those of one side reach each other.
"""

from __future__ import annotations

import hashlib
import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from hyperbloom.addresses import Address
from hyperbloom.discovery.dht.common.items import MutableItem
from hyperbloom.discovery.dht.reports import MutableLookup, PutReport
from hyperbloom.discovery.tracker.content import Neighbour
from hyperbloom.discovery.tracker.neighbourhood import Candidate
from hyperbloom.discovery.tracker.settings import TrackerSettings
from hyperbloom.discovery.tracker.topic import Topic
from hyperbloom.discovery.tracker.tracker import Tracker
from hyperbloom.keys import Identity

POLICIES = ("overwrite", "keep", "reject")
EPOCH = 1_900_000_020.0
"""The start of a minute."""
QUERY_TIMEOUT = 2.0
LATENCY = (0.02, 0.3)
HANDSHAKE = (0.1, 0.6)
FEED_KEY = Identity(b"f" * 32).public_key


class TurnClock(Clock):
    """Counts how often something was put off to the next turn of the reactor."""

    def __init__(self) -> None:
        super().__init__()
        self.put_off = 0

    def callLater(self, delay: float, call: Callable, *args, **kw):
        self.put_off += delay == 0
        return super().callLater(delay, call, *args, **kw)


@dataclass
class Storer:
    """A DHT node that stores items."""

    policy: str
    side: int = 0
    items: dict[bytes, MutableItem] = field(default_factory=dict)

    def put(self, item: MutableItem, cas: int | None) -> bool:
        """Whether the put is acknowledged."""
        assert item.is_authentic()
        assert len(item.value) <= 1_000
        held = self.items.get(item.target)
        if held is not None and (item.seq < held.seq or cas not in (None, held.seq)):
            return False
        if held is not None and held.seq == item.seq and held.value != item.value:
            if self.policy == "overwrite":
                self.items[item.target] = item
            return self.policy != "reject"
        self.items[item.target] = item
        return True


class SimStore:
    """The ItemStore of one tracker."""

    def __init__(self, world: World, side: int) -> None:
        self.world = world
        self.side = side
        self.failing: str | None = None
        self.puts: list[float] = []
        self.lookups = 0
        self.seen: dict[bytes, int] = {}
        self.seen_before_puts: list[int] = []

    def _reached(self) -> list[tuple[Storer, float]]:
        """The storing nodes that answer and how long they take; all others cost the timeout."""
        world = self.world
        return [
            (storer, world.random.uniform(*LATENCY))
            for storer in world.storers
            if (storer.side == self.side or not world.is_split)
            and world.random.random() >= world.loss
        ]

    def _answer(self, make: Callable[[list[Storer]], object], rounds: int) -> Deferred:
        if self.failing == "raise":
            raise OSError("no socket")
        answer: Deferred = Deferred(lambda _: None)
        if self.failing == "silent":
            return answer
        reached = self._reached()
        complete = len(reached) == len(self.world.storers)
        seconds = rounds * (max(s for _, s in reached) if complete else QUERY_TIMEOUT)

        def fire() -> None:
            if not answer.called:
                if self.failing == "errback":
                    answer.errback(RuntimeError("refused"))
                else:
                    answer.callback(make([storer for storer, _ in reached]))

        self.world.clock.callLater(seconds, fire)
        return answer

    def get_mutable(self, public_key: bytes, salt: bytes) -> Deferred[MutableLookup]:
        self.lookups += 1
        target = hashlib.sha1(public_key + salt).digest()

        def found(storers: list[Storer]) -> MutableLookup:
            items = {s.items[target].value: s.items[target] for s in storers if target in s.items}
            authors = {self.world.authors.get(value) for value in items} - {self}
            self.seen[target] = len(authors)
            return MutableLookup(
                items=tuple(items.values()),
                asked=len(self.world.storers),
                answered=len(storers),
                holding=sum(target in storer.items for storer in storers),
            )

        return self._answer(found, 2)

    def put_mutable(self, item: MutableItem, *, cas: int | None) -> Deferred[PutReport]:
        self.puts.append(self.world.clock.seconds())
        self.world.authors[item.value] = self
        self.seen_before_puts.append(self.seen.get(item.target, 0))

        def put(storers: list[Storer]) -> PutReport:
            stored = sum(storer.put(item, cas) for storer in storers)
            held = {
                s.items[item.target].value: s.items[item.target]
                for s in storers
                if item.target in s.items
            }
            asked = len(self.world.storers)
            return PutReport(
                asked=asked,
                stored=stored,
                refused=len(storers) - stored,
                silent=asked - len(storers),
                found=item.value in held,
                others=tuple(other for value, other in held.items() if value != item.value),
                refusals={},
                holding=sum(item.target in storer.items for storer in storers),
                looked_asked=asked,
                looked_answered=len(storers),
            )

        return self._answer(put, 4)


class SimNeighbourhood:
    """The neighbours as one node sees it, and the node's values."""

    def __init__(self, world: World, identity: Identity, address: Address) -> None:
        self.world = world
        self.identity = identity
        self.address = address
        self.links: dict[bytes, SimNeighbourhood] = {}
        self.values: set[bytes] = set()
        self.received: deque[bytes] = deque(maxlen=5)
        self.joins: list[Candidate] = []
        self._subscribers: list[Callable[[], None]] = []

    def neighbours(self) -> list[Neighbour]:
        return [
            Neighbour(node_id=node_id, addresses=(other.address,))
            for node_id, other in self.links.items()
        ]

    def own_addresses(self) -> list[Address]:
        return [self.address]

    def recent_message_hashes(self) -> list[bytes]:
        return [hashlib.sha512(value).digest()[:32] for value in self.received]

    def is_joined(self) -> bool:
        return bool(self.links)

    def join(self, candidate: Candidate) -> None:
        self.joins.append(candidate)
        world = self.world
        delay = world.random.uniform(*HANDSHAKE)
        for address in candidate.addresses:
            other = world.by_address.get(address)
            if other is not None and other is not self:
                # Who answers proves its id, which must be the one that was named.
                if other.identity.public_key == candidate.node_id:
                    world.clock.callLater(delay, world.connect, self, other)
                return

    def subscribe(self, changed: Callable[[], None]) -> Callable[[], None]:
        self._subscribers.append(changed)
        return lambda: self._subscribers.remove(changed)

    def add(self, other: SimNeighbourhood) -> None:
        was_joined = self.is_joined()
        self.links[other.identity.public_key] = other
        self._tell(was_joined)

    def remove(self, other: SimNeighbourhood) -> None:
        was_joined = self.is_joined()
        del self.links[other.identity.public_key]
        self._tell(was_joined)

    def _tell(self, was_joined: bool) -> None:
        if was_joined != self.is_joined():
            for changed in list(self._subscribers):
                changed()

    def receive(self, values: Iterable[bytes]) -> None:
        fresh = [value for value in values if value not in self.values]
        if fresh:
            self.values.update(fresh)
            self.received.extend(fresh)
            self.broadcast(fresh)

    def insert(self, value: bytes) -> None:
        self.values.add(value)
        self.broadcast([value])

    def broadcast(self, values: list[bytes]) -> None:
        for other in list(self.links.values()):
            self.world.clock.callLater(0.05, other.receive, list(values))


@dataclass
class Node:
    identity: Identity
    around: SimNeighbourhood
    store: SimStore
    tracker: Tracker


class World:
    """Everything, made of one seed."""

    def __init__(
        self,
        seed: int,
        *,
        policies: tuple[str, ...] = POLICIES,
        storers: int = 20,
        loss: float = 0.05,
        settings: TrackerSettings | None = None,
    ) -> None:
        self.random = random.Random(seed)
        self.clock = TurnClock()
        self.settings = settings or TrackerSettings()
        self.storers = [Storer(policies[n % len(policies)], side=n % 2) for n in range(storers)]
        self.loss = loss
        self.is_split = False
        self.is_cut = False
        self.nodes: list[Node] = []
        self.by_address: dict[Address, SimNeighbourhood] = {}
        self.authors: dict[bytes, SimStore] = {}

    def now(self) -> float:
        return EPOCH + self.clock.seconds()

    def node(self, *, feed_key: bytes = FEED_KEY, side: int = 0, after: float = 0.0) -> Node:
        """A node that knows the feed's key only, and starts after so many seconds."""
        number = len(self.nodes)
        identity = Identity(self.random.randbytes(32))
        address = Address(f"10.0.{number // 250}.{number % 250 + 1}", 4365)
        around = SimNeighbourhood(self, identity, address)
        store = SimStore(self, side)
        tracker = Tracker(
            Topic.of_feed(feed_key),
            identity=identity,
            items=store,
            neighbourhood=around,
            settings=self.settings,
            clock=self.clock,
            now=self.now,
            random=random.Random(self.random.randbytes(8)),
        )
        node = Node(identity, around, store, tracker)
        self.nodes.append(node)
        self.by_address[address] = around
        self.clock.callLater(after, tracker.start)
        return node

    def connect(self, one: SimNeighbourhood, other: SimNeighbourhood) -> None:
        if other.identity.public_key in one.links or (self.is_cut and self.apart(one, other)):
            return
        one.add(other)
        other.add(one)
        for here, there in ((one, other), (other, one)):
            self.clock.callLater(0.05, there.receive, sorted(here.values))

    def apart(self, one: SimNeighbourhood, other: SimNeighbourhood) -> bool:
        sides = {id(node.around): node.store.side for node in self.nodes}
        return sides[id(one)] != sides[id(other)]

    def cut(self) -> None:
        """Break all connections between the sides, and let none be made."""
        self.is_cut = True
        for node in self.nodes:
            for other in list(node.around.links.values()):
                if self.apart(node.around, other):
                    node.around.remove(other)
                    other.remove(node.around)

    def components(self) -> list[int]:
        """Sizes of the connected parts, largest first."""
        left = {id(node.around): node.around for node in self.nodes}
        sizes = []
        while left:
            _, start = left.popitem()
            reached, frontier = 1, [start]
            while frontier:
                for other in frontier.pop().links.values():
                    if left.pop(id(other), None) is not None:
                        reached += 1
                        frontier.append(other)
            sizes.append(reached)
        return sorted(sizes, reverse=True)

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        """Let time pass, from event to event; True as soon as `until` holds."""
        end = self.clock.seconds() + seconds
        while True:
            if until is not None and until():
                return True
            calls = self.clock.getDelayedCalls()
            following = min((call.getTime() for call in calls), default=None)
            if following is None or following > end:
                self.clock.advance(end - self.clock.seconds())
                return until is not None and until()
            # Exactly there: by adding a difference a clock may stop just short of the call.
            self.clock.rightNow = max(following, self.clock.rightNow)
            self.clock.advance(0)

    def stop(self) -> None:
        for node in self.nodes:
            done: list[object] = []
            node.tracker.stop().addBoth(done.append)
            assert done == [None]
