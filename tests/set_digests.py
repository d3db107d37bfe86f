"""The digest of a set once more, from its description alone (docs/store.md): BLAKE3 in plain Python
and sums of whole numbers, with nothing of the product and no library. Slow; for a few values.
"""

from collections.abc import Iterable
from functools import lru_cache

_IV = (
    0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19,
)  # fmt: skip
_PERMUTATION = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
_QUARTERS = (
    (0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
    (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14),
)  # fmt: skip
_CHUNK_START, _CHUNK_END, _PARENT, _ROOT, _KEYED = 1, 2, 4, 8, 16
_BLOCK, _CHUNK, _MASK = 64, 1024, 0xFFFF_FFFF


def _turned(word: int, bits: int) -> int:
    return (word >> bits | word << (32 - bits)) & _MASK


def _words(data: bytes) -> list[int]:
    padded = data.ljust(_BLOCK, b"\0")
    return [int.from_bytes(padded[i : i + 4], "little") for i in range(0, len(padded), 4)]


def _compress(chaining, block: bytes, counter: int, flags: int, length: int) -> list[int]:
    """All 16 words; the first 8 are the next chaining value."""
    state = [*chaining, *_IV[:4], counter & _MASK, counter >> 32, length, flags]
    message = _words(block)
    for _ in range(7):
        for number, (a, b, c, d) in enumerate(_QUARTERS):
            for word, first, second in ((0, 16, 12), (1, 8, 7)):
                state[a] = (state[a] + state[b] + message[2 * number + word]) & _MASK
                state[d] = _turned(state[d] ^ state[a], first)
                state[c] = (state[c] + state[d]) & _MASK
                state[b] = _turned(state[b] ^ state[c], second)
        message = [message[at] for at in _PERMUTATION]
    low, high = state[:8], state[8:]
    return [x ^ y for x, y in zip(low, high, strict=True)] + [
        y ^ c for y, c in zip(high, chaining, strict=True)
    ]


def _node(key, data: bytes, first_chunk: int):
    """The last compression of a subtree, but for its flags at the root and its counter there."""
    if len(data) > _CHUNK:
        left = _CHUNK
        while left * 2 < len(data):
            left *= 2
        children = b""
        for part, at in ((data[:left], first_chunk), (data[left:], first_chunk + left // _CHUNK)):
            chaining, block, counter, flags, length = _node(key, part, at)
            words = _compress(chaining, block, counter, flags, length)[:8]
            children += b"".join(word.to_bytes(4, "little") for word in words)
        return key, children, 0, _PARENT | _KEYED, _BLOCK
    blocks = [data[i : i + _BLOCK] for i in range(0, len(data), _BLOCK)] or [b""]
    chaining, start = key, _CHUNK_START
    for block in blocks[:-1]:
        chaining = _compress(chaining, block, first_chunk, start | _KEYED, _BLOCK)[:8]
        start = 0
    return chaining, blocks[-1], first_chunk, start | _CHUNK_END | _KEYED, len(blocks[-1])


def keyed_blake3(key: bytes, data: bytes, length: int) -> bytes:
    """`length` bytes of the keyed hash of `data`; the key has 32 bytes."""
    chaining, block, _, flags, size = _node(_words(key)[:8], data, 0)
    output = b""
    while len(output) < length:
        words = _compress(chaining, block, len(output) // _BLOCK, flags | _ROOT, size)
        output += b"".join(word.to_bytes(4, "little") for word in words)
    return output[:length]


@lru_cache(maxsize=4_096)
def _element(value: bytes) -> int:
    """What one value adds to the sum: kept, for a test asks again after each step."""
    hashed = keyed_blake3(b"hyperbloom set digest 1: element", value, 512)
    return int.from_bytes(hashed, "little")


def digest_of(values: Iterable[bytes]) -> bytes:
    """The digest of the set of these values."""
    different = set(values)
    if not different:
        return bytes(32)
    total = sum(map(_element, different))
    state = len(different).to_bytes(8, "big") + (total % 2**4096).to_bytes(512, "little")
    return keyed_blake3(b"hyperbloom set digest 1: the set", state, 32)
