"""What strangers on the same network can make grow; the DHT's and the records' limits are theirs.

See `hyperbloom.discovery.dht.limits` and `hyperbloom.discovery.tracker.limits`.
"""

from __future__ import annotations

__all__ = ["MAX_LAN_ADDRESSES", "MAX_LAN_SERVICES"]

#: Services remembered that were heard of by multicast DNS; beyond it the oldest is forgotten.
MAX_LAN_SERVICES = 256

#: Addresses taken of one of them.
MAX_LAN_ADDRESSES = 4
