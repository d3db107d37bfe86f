"""Bencode (BEP-3) as packets may hold it: the one place that knows the library.

`bencode2` reads strictly: no leading zeros, keys sorted and none twice, nothing behind the end. So
what was read and is written again gives the same bytes, which signatures over `v` rest on. Added
here are the bounds of the DHT: integers of 64 bits with sign, and `MAX_DEPTH`.
"""

from __future__ import annotations

from typing import TypeAlias

import bencode2

from hyperbloom.discovery.dht.common.errors import LocalProtocolError, RemoteProtocolError
from hyperbloom.discovery.dht.limits import MAX_DEPTH

__all__ = ["Bencoded", "decode", "encode"]

Bencoded: TypeAlias = int | bytes | list["Bencoded"] | dict[bytes, "Bencoded"]
"""What packets hold. Texts are bytes, and so are keys."""

_LEAST, _MOST = -(2**63), 2**63 - 1


def decode(data: bytes) -> Bencoded:
    """The one value in `data`; raises RemoteProtocolError for anything else.

    Cost is in proportion to the length, which the caller has bounded.
    """
    try:
        value: Bencoded = bencode2.bdecode(data)
    except ValueError as error:
        raise RemoteProtocolError("not bencoded") from error
    _check(value, MAX_DEPTH)
    return value


def encode(value: Bencoded) -> bytes:
    """The canonical bytes of a value; raises LocalProtocolError for what has none."""
    try:
        return bencode2.bencode(value)
    except (TypeError, ValueError) as error:
        raise LocalProtocolError(f"a {type(value).__name__} that cannot be bencoded") from error


def _check(value: Bencoded, depth: int) -> None:
    """Refuses what lies deeper than `depth`, and integers beyond 64 bits."""
    if isinstance(value, int):
        if not _LEAST <= value <= _MOST:
            raise RemoteProtocolError("an integer of more than 64 bits")
    elif not isinstance(value, bytes):
        if not depth:
            raise RemoteProtocolError(f"more than {MAX_DEPTH} levels")
        for inner in value.values() if isinstance(value, dict) else value:
            if not isinstance(inner, bytes):
                _check(inner, depth - 1)
