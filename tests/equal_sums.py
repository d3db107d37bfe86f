"""Two sets of values whose keyed BLAKE2b-256 hashes have one sum modulo 2^256.

A real forgery of the digest that stores kept up to schema 3; tests/vectors/README.md tells how it
was made.
"""

from pathlib import Path

_FILE = Path(__file__).parent / "vectors" / "equal-sums.bin"
_BYTES = 3


def equal_sums() -> tuple[list[bytes], list[bytes]]:
    """Both sets: no value in common, as many in each, all of one length."""
    data = _FILE.read_bytes()
    numbers = [int.from_bytes(data[at : at + _BYTES], "big") for at in range(0, len(data), _BYTES)]
    values = [b"%03x-%06x.example" % pair for pair in enumerate(numbers)]
    half = len(values) // 2
    return values[:half], values[half:]
