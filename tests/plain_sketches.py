"""Sketches once more, from their description alone (docs/extensions/reconcile.md): plain Python,
one id after the other, with nothing of the product and no library. Slow; for a few ids.
"""

import math
from collections.abc import Iterable, Iterator

_WORD, _LONG = 2**32, 2**64
_FACTOR, _STEP = 0xDA942042E4DD58B5, 0x9E3779B97F4A7C15


def halves(data: bytes) -> tuple[int, int]:
    return int.from_bytes(data[:8], "little"), int.from_bytes(data[8:], "little")


def walk(identity: bytes) -> Iterator[int]:
    """The indexes of the symbols an id takes part in."""
    x, b = halves(identity)
    index = 0
    for _ in range(128):
        yield index
        x = (x * _FACTOR + b) % _LONG
        p = (2**52 - x // 2**12) / 2**52
        index = math.floor((index + 1.5) / math.sqrt(p) - 0.5)


def mix(x: int) -> int:
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % _LONG
    x = (x ^ x >> 27) * 0x94D049BB133111EB % _LONG
    return x ^ x >> 31


def check(identity: bytes, key: bytes) -> int:
    (a, b), (k, m) = halves(identity), halves(key)
    return mix(mix((a + k) % _LONG) ^ (b + m) % _LONG)


def words(identity: bytes, key: bytes) -> list[int]:
    """What an id adds to its symbols: words of the id and its check, and one."""
    data = identity + check(identity, key).to_bytes(8, "little")
    return [int.from_bytes(data[at : at + 4], "little") for at in range(0, 24, 4)] + [1]


def sketch(identities: Iterable[bytes], key: bytes, count: int, first: int = 0) -> list[list[int]]:
    """Symbols first … first + count of a set, each with its seven words."""
    symbols = [[0] * 7 for _ in range(count)]
    for identity in identities:
        added = words(identity, key)
        for index in walk(identity):
            if index >= first + count:
                break
            if index >= first:
                row = symbols[index - first]
                row[:] = [(old + new) % _WORD for old, new in zip(row, added, strict=True)]
    return symbols


def packed(symbols: list[list[int]], first: int, count: int) -> bytes:
    data = b"".join(word.to_bytes(4, "little") for row in symbols for word in row[:6])
    for index, row in enumerate(symbols, first):
        distance = (row[6] - 2 * count // (index + 2)) % _WORD
        if distance >= _WORD // 2:
            distance -= _WORD
        zigzag = 2 * distance if distance >= 0 else -2 * distance - 1
        while zigzag >= 0x80:
            data += bytes([zigzag & 0x7F | 0x80])
            zigzag >>= 7
        data += bytes([zigzag])
    return data


def salted(identity: bytes, salt: bytes) -> bytes:
    (a, b), keys = halves(identity), halves(salt)
    for number in range(4):
        a, b = b, a ^ mix((b + keys[number % 2] + number * _STEP) % _LONG)
    return a.to_bytes(8, "little") + b.to_bytes(8, "little")


def peeled(symbols: list[list[int]], key: bytes) -> dict[bytes, int] | None:
    """The ids of a difference and in which set each is (1, −1); None where it does not decode."""
    left, found = [row[:] for row in symbols], {}
    while True:
        for row in left:
            sign = {1: 1, _WORD - 1: -1}.get(row[6])
            if sign:
                data = b"".join((sign * word % _WORD).to_bytes(4, "little") for word in row[:6])
                if check(data[:16], key) == int.from_bytes(data[16:], "little"):
                    break
        else:
            return None if any(map(any, left)) else found
        found[data[:16]] = sign
        for index in walk(data[:16]):
            if index >= len(left):
                break
            for place, word in enumerate(words(data[:16], key)):
                left[index][place] = (left[index][place] - sign * word) % _WORD
