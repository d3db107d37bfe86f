"""What the machine tells its caller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from hyperbloom.addresses import Address
from hyperbloom.discovery.dht.operations import Found, Stored

__all__ = ["AddressSettled", "Event", "OperationEnded"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationEnded:
    """The operation with this number has come to its end."""

    number: int
    outcome: Found | Stored


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressSettled:
    """Most nodes see this one at `address`; its id is now `node_id`, which fits it (BEP-42)."""

    address: Address
    node_id: bytes


Event: TypeAlias = OperationEnded | AddressSettled
