"""A target with a fault on purpose, behind several checks and with no seed that leads there.

It shows that the driver finds a fault, and too much memory and time. It is loaded by its path and
is no target of the suite.
"""

from __future__ import annotations

import os
import time

from hyperbloom.wire.errors import RemoteProtocolError
from hyperbloom.wire.messages import FilterOptions

MAX_BYTES = 64
RUNS = 0

FAULT = os.environ.get("HYPERBLOOM_PLANTED_FAULT", "error")
_held: list[bytes] = []


def fuzz(data: bytes) -> bool:
    """Reads FilterOptions; one that has its second number under tag 2 meets the fault."""
    try:
        options = FilterOptions.decode(data)
    except RemoteProtocolError:
        return False
    if options.encode() == data:
        return True
    if FAULT == "memory":
        # What an allocation by a length that was not looked at does.
        _held.append(b"\x01" * (200 << 20))
    elif FAULT == "time":
        until = time.process_time() + 6
        while time.process_time() < until:
            sum(range(1_000_000))
    elif FAULT == "error":
        raise IndexError("the planted fault")
    return True
