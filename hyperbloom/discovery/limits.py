"""What strangers on the same network can make grow; the DHT's and the records' limits are theirs.

See `hyperbloom.discovery.dht.limits` and `hyperbloom.discovery.tracker.limits`.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "LOWEST_FOUND_PORT",
    "LOW_FOUND_PORTS",
    "MAX_LAN_ADDRESSES",
    "MAX_LAN_ASKED",
    "MAX_LAN_SERVICES",
]

#: Services remembered that were heard of by multicast DNS; beyond it the oldest is forgotten, first
#: of feeds that are not served here.
MAX_LAN_SERVICES = 256

#: Services of which is being asked where they are, 3 seconds each at most; beyond it the one asked
#: for longest is given up. An honest one answers within some 0.2 s, so that somebody would have to
#: make up 600 a second to keep it from being heard.
MAX_LAN_ASKED = 128

#: Addresses taken of one of them.
MAX_LAN_ADDRESSES = 4

#: The lowest port that is dialled on a stranger's word. Those below belong to mail, logins and the
#: like, and a crowd of nodes must not be sent there.
LOWEST_FOUND_PORT: Final = 1_024

#: But these are, since firewalls let people out by them.
LOW_FOUND_PORTS: Final = frozenset({80, 443})
