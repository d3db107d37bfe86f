"""Write tokens (BEP-5): who shows one has received a packet at the address it sends from.

A token is a keyed hash of the address, so that none is kept. The key is renewed every
`ROTATION_SECONDS`, and tokens of the key before still count: one is good for 5 to 10 minutes.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from hashlib import blake2b
from typing import Final

from hyperbloom.addresses import Address

__all__ = ["ROTATION_SECONDS", "TOKEN_BYTES", "Tokens"]

ROTATION_SECONDS: Final = 300.0
TOKEN_BYTES: Final = 8
_KEY_BYTES: Final = 32


class Tokens:
    """Gives tokens and knows them again. `now` is in seconds of any clock that does not go back."""

    def __init__(self, random_bytes: Callable[[int], bytes], *, now: float) -> None:
        self._random_bytes = random_bytes
        self._key = random_bytes(_KEY_BYTES)
        self._key_before = random_bytes(_KEY_BYTES)
        self._rotated_at = now

    def token_for(self, address: Address, *, now: float) -> bytes:
        """The token of an address, `TOKEN_BYTES` long."""
        self._rotate(now)
        return _token(self._key, address)

    def is_good(self, token: bytes, address: Address, *, now: float) -> bool:
        """Whether it was given to this very address, at most two rotations ago."""
        self._rotate(now)
        return any(
            hmac.compare_digest(token, _token(key, address))
            for key in (self._key, self._key_before)
        )

    def _rotate(self, now: float) -> None:
        periods = int((now - self._rotated_at) // ROTATION_SECONDS)
        for _ in range(min(periods, 2)):
            self._key_before, self._key = self._key, self._random_bytes(_KEY_BYTES)
        self._rotated_at += periods * ROTATION_SECONDS


def _token(key: bytes, address: Address) -> bytes:
    named = f"{address.host}|{address.port}".encode("ascii", "replace")
    return blake2b(named, key=key, digest_size=TOKEN_BYTES).digest()
