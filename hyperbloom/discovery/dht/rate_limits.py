"""How much goes on with one address: what it may send, what it is sent, and how often.

The sender of a datagram can be forged. So what one address is sent in answers has its own bound,
whatever comes in under its name: an attacker who forges a victim's address has at most
`reply_bytes_per_second` and one `reply_burst` sent to it. At loopback every port counts for itself:
who forges there is on this machine already, and several nodes of one machine share no allowance.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from hyperbloom.addresses import Address, Scope
from hyperbloom.discovery.dht.limits import MAX_ADDRESSES_WATCHED, PACKETS_PER_SECOND_OUT

__all__ = ["Allowance", "Cooldown", "Pace", "counted_as"]

_WINDOW_SECONDS: Final = 1.0


def counted_as(address: Address) -> str | Address:
    """What an address is counted as: its host, and at loopback the port too."""
    return address if address.scope is Scope.LOOPBACK else address.host


class Allowance:
    """A token bucket for each address: `burst` at once, then `rate` a second.

    A bucket that is full again is as good as none, and forgotten.
    """

    def __init__(self, *, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        self._full_seconds = burst / rate
        self._buckets: OrderedDict[str | Address, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, address: Address, amount: float, *, now: float) -> bool:
        """Take `amount` of what the address has left; False, and nothing taken, if it is less."""
        key, buckets = counted_as(address), self._buckets
        left, since = buckets.pop(key, (self._burst, now))
        left = min(self._burst, left + max(now - since, 0.0) * self._rate)
        granted = amount <= left
        buckets[key] = (left - amount if granted else left, now)
        while True:
            oldest = next(iter(buckets))
            is_full = buckets[oldest][1] + self._full_seconds <= now
            if not is_full and len(buckets) <= MAX_ADDRESSES_WATCHED:
                return granted
            del buckets[oldest]


class Pace:
    """When the next query to an address may go out: `PACKETS_PER_SECOND_OUT` in any second.

    Answers that we send count too, since the other side counts them, but do not wait.
    """

    def __init__(self) -> None:
        self._sent: OrderedDict[str | Address, tuple[float, ...]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sent)

    def next_time(self, address: Address, *, now: float) -> float:
        """`now`, or the moment from which a query to this address may be sent."""
        sent = self._sent.get(counted_as(address), ())
        if len(sent) < PACKETS_PER_SECOND_OUT:
            return now
        return max(now, sent[0] + _WINDOW_SECONDS)

    def note(self, address: Address, *, at: float, now: float) -> None:
        """A packet goes there at this moment, which may lie ahead of `now`."""
        key, sent = counted_as(address), self._sent
        sent[key] = (*sent.pop(key, ()), at)[-PACKETS_PER_SECOND_OUT:]
        while True:
            oldest = next(iter(sent))
            is_past = sent[oldest][-1] + _WINDOW_SECONDS <= now
            if not is_past and len(sent) <= MAX_ADDRESSES_WATCHED:
                return
            del sent[oldest]


class Cooldown:
    """Lets each address, of host and port, have something once in `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._taken: OrderedDict[Address, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._taken)

    def take(self, address: Address, *, now: float) -> bool:
        """Whether the address had none within `seconds`; then it has one now."""
        taken = self._taken
        while taken and next(iter(taken.values())) <= now - self._seconds:
            taken.popitem(last=False)
        if address in taken:
            return False
        taken[address] = now
        if len(taken) > MAX_ADDRESSES_WATCHED:
            taken.popitem(last=False)
        return True
