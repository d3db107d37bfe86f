"""What the topic tracker needs of the nodes that it finds peers for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from hyperbloom.addresses import Address
from hyperbloom.discovery.tracker.content import Neighbour

__all__ = ["Candidate", "Neighbourhood"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A node that somebody's record names: its id, and where it is said to be, best guess first.

    It is hearsay: only a handshake proves who answers at an address. There may be no address, as
    records of deployed peers have none.
    """

    node_id: bytes
    addresses: tuple[Address, ...] = ()


class Neighbourhood(Protocol):
    """The peers of one feed, as its tracker sees and joins them. No method may block or raise."""

    def neighbours(self) -> Sequence[Neighbour]:
        """The nodes that this one has a secure connection with."""
        ...

    def own_addresses(self) -> Sequence[Address]:
        """Where others can dial this node, best first; none if nobody can."""
        ...

    def recent_message_hashes(self) -> Sequence[bytes]:
        """SHA-512(value)[:32] of the last 5 values received from others."""
        ...

    def is_joined(self) -> bool:
        """Whether there is at least one neighbour."""
        ...

    def join(self, candidate: Candidate) -> None:
        """Begin to connect to a node; what comes of it shows in `neighbours`."""
        ...

    def subscribe(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` whenever `is_joined` has become another; returns what ends that."""
        ...
