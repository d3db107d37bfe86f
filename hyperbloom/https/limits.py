"""What a server may take of the process that asks it; the caller sets bytes and seconds."""

from __future__ import annotations

from typing import Final

__all__ = ["CONNECT_SECONDS", "MAX_ADDRESSES", "MAX_REDIRECTS"]

MAX_REDIRECTS: Final = 5
"""Redirects of one request: lists that have moved need two or three, a circle has no end."""

MAX_ADDRESSES: Final = 8
"""Addresses of a name that are tried, in the order of the resolver; a DNS answer holds hundreds."""

CONNECT_SECONDS: Final = 15.0
"""Time for a connection to one address, so that a dead one leaves some for the next."""
