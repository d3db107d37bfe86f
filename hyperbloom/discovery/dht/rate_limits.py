"""How much goes on with one address: what it may send, what it is sent, and how often.

Who an address counts as is in `common.groups`. Everything remembered here is bounded, and what was
not heard of for longest is forgotten first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from hyperbloom.addresses import Address
from hyperbloom.discovery.dht.common.groups import Group, internet_network, network_key
from hyperbloom.discovery.dht.limits import MAX_ADDRESSES_WATCHED, PACKETS_PER_SECOND_OUT

__all__ = ["Allowance", "Cooldown", "Pace"]

_WINDOW_SECONDS: Final = 1.0


class Allowance:
    """A token bucket for each group of addresses: `burst` at once, then `rate` a second.

    `by` tells the group of an address. A bucket that is full again is as good as none, and
    forgotten.
    """

    def __init__(
        self, *, rate: float, burst: float, by: Callable[[Address], Group] = network_key
    ) -> None:
        self._rate, self._burst, self._by = rate, burst, by
        self._full_seconds = burst / rate
        self._buckets: OrderedDict[Group, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def has(self, address: Address, amount: float, *, now: float) -> bool:
        """Whether `take` would grant this."""
        left, since = self._buckets.get(self._by(address), (self._burst, now))
        return amount <= self._left(left, since, now)

    def take(self, address: Address, amount: float, *, now: float) -> bool:
        """Take `amount` of what the group has left; False, and nothing taken, if it is less."""
        key, buckets = self._by(address), self._buckets
        left, since = buckets.pop(key, (self._burst, now))
        left = self._left(left, since, now)
        granted = amount <= left
        buckets[key] = (left - amount if granted else left, now)
        while True:
            oldest = next(iter(buckets))
            is_full = buckets[oldest][1] + self._full_seconds <= now
            if not is_full and len(buckets) <= MAX_ADDRESSES_WATCHED:
                return granted
            del buckets[oldest]

    def _left(self, left: float, since: float, now: float) -> float:
        return min(self._burst, left + max(now - since, 0.0) * self._rate)


class Pace:
    """When the next query to an address may go out: `PACKETS_PER_SECOND_OUT` in any second.

    Answers that we send count too, since the other side counts them, but do not wait.
    """

    def __init__(self) -> None:
        self._sent: OrderedDict[Group, tuple[float, ...]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sent)

    def next_time(self, address: Address, *, now: float) -> float:
        """`now`, or the moment from which a query to this address may be sent."""
        sent = self._sent.get(network_key(address), ())
        if len(sent) < PACKETS_PER_SECOND_OUT:
            return now
        return max(now, sent[0] + _WINDOW_SECONDS)

    def note(self, address: Address, *, at: float, now: float) -> None:
        """A packet goes there at this moment, which may lie ahead of `now`."""
        key, sent = network_key(address), self._sent
        sent[key] = (*sent.pop(key, ()), at)[-PACKETS_PER_SECOND_OUT:]
        while True:
            oldest = next(iter(sent))
            is_past = sent[oldest][-1] + _WINDOW_SECONDS <= now
            if not is_past and len(sent) <= MAX_ADDRESSES_WATCHED:
                return
            del sent[oldest]


class Cooldown:
    """Lets each network of the internet, and each address nearer by, have something once in
    `seconds`.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._taken: OrderedDict[Group, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._taken)

    def take(self, address: Address, *, now: float) -> bool:
        """Whether it had none within `seconds`; then it has one now."""
        taken, key = self._taken, internet_network(address) or address
        while taken and next(iter(taken.values())) <= now - self._seconds:
            taken.popitem(last=False)
        if key in taken:
            return False
        taken[key] = now
        if len(taken) > MAX_ADDRESSES_WATCHED:
            taken.popitem(last=False)
        return True
