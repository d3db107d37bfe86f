"""A network of UDP in memory: a fake clock, latency, loss, nodes that die. All from one seed.

`SimNetwork.reactor(host)` is what a `DhtNode` (or any other Twisted code with datagrams) takes for
its reactor at that host: time, timers and `listenUDP`. `SimNetwork.machines` makes many bare
machines at once, joined to each other; they cost less. Both kinds meet on the same network.

    network = SimNetwork(seed=1)
    network.machines(1_000)
    node = DhtNode(network.reactor("9.0.0.1"), DhtSettings(), random_bytes=network.random_bytes)
    node.listen(6881)
    network.wait(node.bootstrap([network.addresses[0]]))
"""

from __future__ import annotations

import heapq
import ipaddress
import random
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import CannotListenError

from hyperbloom.addresses import Address
from hyperbloom.discovery.dht.common.contact import Contact
from hyperbloom.discovery.dht.common.node_id import make_node_id
from hyperbloom.discovery.dht.machine import Dht
from hyperbloom.discovery.dht.settings import DhtSettings

#: Far from zero, so that a clock used in place of another is noticed.
EPOCH = 1_900_000_000.0


class SimTimer:
    """An `IDelayedCall`."""

    def __init__(self, clock: SimClock, at: float, call: Callable[[], object]) -> None:
        self._clock, self._at, self._call = clock, at, call
        self._is_active = True

    def active(self) -> bool:
        return self._is_active

    def getTime(self) -> float:
        return self._at

    def cancel(self) -> None:
        self._is_active = False

    def reset(self, seconds: float) -> None:
        self._at = self._clock.seconds() + seconds
        self._clock.at(self._at, self._run)

    def delay(self, seconds: float) -> None:
        self.reset(self._at - self._clock.seconds() + seconds)

    def _run(self) -> None:
        if self._is_active and self._clock.seconds() >= self._at:
            self._is_active = False
            self._call()


class SimClock:
    """Time that stands still until it is told to pass. An `IReactorTime` on a heap."""

    def __init__(self) -> None:
        self._now = EPOCH
        self._order = count()
        self._due: list[tuple[float, int, Callable[[], object]]] = []

    def seconds(self) -> float:
        return self._now

    def at(self, moment: float, call: Callable[[], object]) -> None:
        """Call this at that moment. Cannot be undone, and costs least."""
        heapq.heappush(self._due, (max(moment, self._now), next(self._order), call))

    def callLater(self, delay: float, call: Callable[..., object], *a: Any, **k: Any) -> SimTimer:
        timer = SimTimer(self, self._now + delay, lambda: call(*a, **k))
        self.at(self._now + delay, timer._run)
        return timer

    def step(self, until: float) -> bool:
        """Do the next thing that is due by then; False if there is none."""
        if not self._due or self._due[0][0] > until:
            return False
        self._now, _, call = heapq.heappop(self._due)
        call()
        return True

    def advance(self, seconds: float) -> None:
        """Let time pass, and what is due in it happen in its order."""
        until = self._now + seconds
        while self.step(until):
            pass
        self._now = until


class SimNetwork:
    """Datagrams between addresses; see the module's text.

    latency: seconds one takes, least and most. loss: the part that is lost. `cut` is a function of
    sender and receiver that tells whether the way between them is cut.
    """

    def __init__(
        self, seed: int = 0, *, latency: tuple[float, float] = (0.01, 0.1), loss: float = 0.0
    ) -> None:
        self.clock = SimClock()
        self.chance = random.Random(seed)
        self.random_bytes = self.chance.randbytes
        self.latency, self.loss = latency, loss
        self.cut: Callable[[Address, Address], bool] = lambda sender, receiver: False
        self.addresses: list[Address] = []
        self.carried: Counter[str] = Counter()
        self._receivers: dict[Address, Callable[[bytes, Address], None]] = {}
        self._hosts = (ipaddress.ip_address("20.0.0.1") + step * 257 for step in count())

    # -- the wire

    def attach(self, address: Address, receive: Callable[[bytes, Address], None]) -> None:
        """Datagrams to this address go there; raises `CannotListenError` if it is taken."""
        if address in self._receivers:
            raise CannotListenError(address.host, address.port, "taken")
        self._receivers[address] = receive

    def detach(self, address: Address) -> None:
        """Nobody is at this address any more."""
        self._receivers.pop(address, None)

    def send(self, data: bytes, sender: Address, receiver: Address) -> None:
        """A datagram on its way."""
        self.carried["packets"] += 1
        self.carried["bytes"] += len(data)
        if self.cut(sender, receiver) or self.chance.random() < self.loss:
            return
        at = self.clock.seconds() + self.chance.uniform(*self.latency)
        self.clock.at(at, lambda: self._arrive(data, sender, receiver))

    def _arrive(self, data: bytes, sender: Address, receiver: Address) -> None:
        receive = self._receivers.get(receiver)
        if receive is not None:
            receive(data, sender)

    # -- who is there

    def reactor(self, host: str) -> SimReactor:
        """What stands for the reactor of a program at this host."""
        return SimReactor(self, host)

    def free_host(self) -> str:
        """The next host of the internet that nobody has yet."""
        return str(next(self._hosts))

    def machine(
        self,
        address: Address | None = None,
        *,
        settings: DhtSettings | None = None,
        node_id: bytes | None = None,
        known: tuple[Contact, ...] = (),
    ) -> SimMachine:
        """A bare machine, by default at a host of its own with an id that fits it."""
        return SimMachine(
            self, address or Address(self.free_host(), 6881), settings, node_id, known
        )

    def machines(self, number: int, *, settings: DhtSettings | None = None) -> list[SimMachine]:
        """As many machines, each joined through one of those before it."""
        made: list[SimMachine] = []
        for _ in range(number):
            machine = self.machine(settings=settings)
            if made:
                machine.bootstrap([self.chance.choice(made).address])
                self.run(0.05)
            made.append(machine)
        self.addresses += [machine.address for machine in made]
        self.run(12.0)
        return made

    # -- time

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.advance(seconds)

    def wait(self, deferred: Deferred[Any], seconds: float = 120.0) -> Any:
        """Let time pass until it fires; its result. Raises what it failed with."""
        results: list[Any] = []
        failures: list[Any] = []
        deferred.addCallbacks(results.append, failures.append)
        until = self.clock.seconds() + seconds
        while not (results or failures) and self.clock.step(until):
            pass
        if failures:
            failures[0].raiseException()
        if not results:
            raise TimeoutError(f"nothing in {seconds} simulated seconds")
        return results[0]


class SimMachine:
    """A machine on the network without a reactor; `dht` is the machine itself."""

    def __init__(
        self,
        network: SimNetwork,
        address: Address,
        settings: DhtSettings | None,
        node_id: bytes | None,
        known: tuple[Contact, ...],
    ) -> None:
        self.network, self.address = network, address
        self.outcomes: dict[int, Any] = {}
        self.dht = Dht(
            settings or DhtSettings(),
            random_bytes=network.random_bytes,
            now=network.clock.seconds(),
            node_id=node_id or make_node_id(address.host, network.random_bytes),
            known=known,
        )
        self._timer_at = float("inf")
        self._is_up = True
        network.attach(address, self._receive)
        self.flush()

    @property
    def contact(self) -> Contact:
        return Contact(self.dht.node_id, self.address)

    def stop(self) -> None:
        """Gone, without a word."""
        self._is_up = False
        self.network.detach(self.address)

    def bootstrap(self, addresses: list[Address]) -> int:
        number = self.dht.bootstrap(addresses, now=self.network.clock.seconds())
        self.flush()
        return number

    def find(self, collector: Any, seconds: float = 60.0) -> Any:
        """Look up and wait for the outcome."""
        return self._wait(self.dht.find(collector, now=self.network.clock.seconds()), seconds)

    def put(self, collector: Any, query_with: Any, read_back: Any = None) -> Any:
        """Put and wait for the outcome."""
        now = self.network.clock.seconds()
        return self._wait(self.dht.put(collector, query_with, now=now, read_back=read_back), 60.0)

    def flush(self) -> None:
        """What a protocol does after each call of the machine."""
        for data, receiver in self.dht.take_datagrams():
            self.network.send(data, self.address, receiver)
        for event in self.dht.take_events():
            if hasattr(event, "outcome"):
                self.outcomes[event.number] = event.outcome
        deadline = self.dht.deadline
        if deadline < self._timer_at:
            self._timer_at = deadline
            self.network.clock.at(deadline, self._tick)

    def _receive(self, data: bytes, sender: Address) -> None:
        self.dht.receive(data, sender, now=self.network.clock.seconds())
        self.flush()

    def _tick(self) -> None:
        now = self.network.clock.seconds()
        if not self._is_up or now < self._timer_at:
            return
        self._timer_at = float("inf")
        self.dht.tick(now=now)
        self.flush()

    def _wait(self, number: int, seconds: float) -> Any:
        self.flush()
        clock = self.network.clock
        until = clock.seconds() + seconds
        while number not in self.outcomes and clock.step(until):
            pass
        return self.outcomes.pop(number)


class SimReactor:
    """Time and UDP for the programs of one host."""

    def __init__(self, network: SimNetwork, host: str) -> None:
        self.network, self.host = network, host
        self.seconds = network.clock.seconds
        self.callLater = network.clock.callLater

    def listenUDP(
        self, port: int, protocol: Any, interface: str = "", maxPacketSize: int = 8192
    ) -> SimPort:
        opened = SimPort(self.network, Address(self.host, port or self._free_port()), protocol)
        self.network.attach(opened.address, opened.receive)
        protocol.makeConnection(opened)
        return opened

    def _free_port(self) -> int:
        port = 49_152
        while Address(self.host, port) in self.network._receivers:
            port += 1
        return port


class SimPort:
    """An open socket: `IListeningPort` and the transport of its protocol."""

    def __init__(self, network: SimNetwork, address: Address, protocol: Any) -> None:
        self._network, self.address, self._protocol = network, address, protocol

    def getHost(self) -> IPv4Address | IPv6Address:
        kind = IPv6Address if ":" in self.address.host else IPv4Address
        return kind("UDP", *self.address)

    def receive(self, data: bytes, sender: Address) -> None:
        self._protocol.datagramReceived(data, tuple(sender))

    def write(self, data: bytes, receiver: tuple[str, int]) -> None:
        self._network.send(data, self.address, Address(*receiver))

    def stopListening(self) -> Deferred[None]:
        self._network.detach(self.address)
        self._protocol.doStop()
        return succeed(None)
