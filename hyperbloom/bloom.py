"""Bloom filters over batches of values, with MurmurHash3 vectorised across values.

A Bloom filter stands for a set of values in a few bits each. A value sets ``n`` bits; a value one
of whose bits is clear is surely not in the set, a value all of whose bits are set very probably
is. Peers exchange filters to learn what the other lacks (docs/protocol.md#bloom-filter).

The bit of hash function ``i`` is ``murmur3_x86_32(value, seed_i) mod size`` with
``seed_i = (i * 0xfa68676f + seed) mod 2**32``; bit ``b`` lives in byte ``b >> 3`` under mask
``1 << (b & 7)``.

How it is made fast. Murmur3 reads a value as 32-bit blocks: each block is first mixed by itself
and then folded into the running hash, and only the hash depends on the seed. So a chunk of values
is laid out as a matrix of blocks and mixed once; then one ``(hash functions, values)`` array is
carried through the folding in place, a row of blocks at a time. Values are sorted by their number
of blocks, longest first, so those that still have a block left always form a prefix. The last one
to three bytes, padded with zeros, are mixed like any other block but only xored in; no bytes mix
to zero, which changes nothing. A row of blocks costs some microseconds however few values share
it, so where few do (small batches, a few long values in a batch of short ones), mmh3 hashes
those values alone: ``_count_alone`` weighs the two.

A filter keeps one byte per bit while it lives: setting and reading whole arrays of bits is then a
plain scatter or gather, several times faster than on packed bits. A filter that fits one frame
has at most 2.1 million bits, so that is 2.1 MB, and few filters live at a time. Temporaries are
bounded (some 7 MB at the worst) however large the batch; no single array call runs longer than
about a millisecond, so a filter may work in a thread beside a reactor. A filter itself is not
locked: one thread at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import mmh3
import numpy as np
from numpy.typing import NDArray

__all__ = ["MAX_HASH_FUNCTIONS", "BloomFilter", "capacity", "optimal_parameters"]

MAX_HASH_FUNCTIONS: Final = 256
"""Most hash functions a filter may have. Deployed peers use 30 (for 1e-9); time grows with the
number, which a peer chooses, so what no sensible filter needs is refused."""

_MAX_UINT32: Final = 0xFFFF_FFFF
_MAX_PADDING: Final = 3
"""Peers send whole 32-bit words, up to three bytes more than the bits need."""
_SEED_STEP: Final = 0xFA68_676F

_SORTED: Final = 16_384
"""Values sorted together: enough for chunks of nearly one length, few enough to sort quickly."""
_CHUNK: Final = 2_048
"""Values hashed together: the hashes and their copy, 0.25 MB each, stay in a core's cache."""
_ROWS: Final = 32
"""Hash functions run together."""
_FIRST_ROWS: Final = 4
"""Hash functions that decide on most values which are missing: a filter is at most half full."""
_LONGEST_BLOCKS: Final = 256
"""Values of more blocks are always hashed alone: it bounds a chunk's matrix to 2 MB."""

# Measured costs in nanoseconds; only their proportions matter.
_ROW_COST: Final = 6_000
_ROWS_BESIDE: Final = 8
"""What is done once a chunk (layout, finish, bits) costs like this many rows of blocks."""
_ALONE_COST: Final = 76
_ALONE_BLOCK_COST: Final = 0.85
"""What one hash of one value costs more alone than in an array: by the value, and by block."""

_C1, _C2 = np.uint32(0xCC9E_2D51), np.uint32(0x1B87_3593)
_FOLD_FACTOR, _FOLD_TERM = np.uint32(5), np.uint32(0xE654_6B64)
_FINAL_1, _FINAL_2 = np.uint32(0x85EB_CA6B), np.uint32(0xC2B2_AE35)
_13, _15, _16, _17, _19 = (np.uint32(shift) for shift in (13, 15, 16, 17, 19))

_Words = NDArray[np.uint32]
_Indexes = NDArray[np.intp]


def estimate_count(set_bits: int, size: int, n: int) -> float:
    """How many distinct values a filter of ``size`` bits and ``n`` hash functions probably holds.

    ``-size / n * ln(1 - set / size)`` (Swamidass and Baldi, 2007); infinite when every bit is set.
    """
    clear = size - set_bits
    return math.inf if clear <= 0 else size / n * math.log(size / clear)


class BloomFilter:
    """A Bloom filter of ``size`` bits with ``n`` hash functions, empty when made.

    ``seed`` (uint32) varies the hash functions: with a fresh one, other values collide.
    Raises ValueError for parameters outside 1..2**32-1 (``size``), 1..MAX_HASH_FUNCTIONS (``n``),
    0..2**32-1 (``seed``).
    """

    __slots__ = ("_bits", "_hashed", "_seeds", "_set", "n", "seed", "size")

    def __init__(self, size: int, n: int, seed: int) -> None:
        if not 1 <= size <= _MAX_UINT32:
            raise ValueError(f"a filter has 1 to {_MAX_UINT32} bits, not {size}")
        if not 1 <= n <= MAX_HASH_FUNCTIONS:
            raise ValueError(f"a filter has 1 to {MAX_HASH_FUNCTIONS} hash functions, not {n}")
        if not 0 <= seed <= _MAX_UINT32:
            raise ValueError(f"a filter's seed is an unsigned 32-bit number, not {seed}")
        self.size: Final = size
        self.n: Final = n
        self.seed: Final = seed
        self._seeds: Final = [(i * _SEED_STEP + seed) & _MAX_UINT32 for i in range(n)]
        self._hashed = 0
        # The same memory twice: single bits are faster in a bytearray, many in an array.
        self._set: Final = bytearray(size)
        self._bits: Final[NDArray[np.uint8]] = np.frombuffer(self._set, np.uint8)

    @classmethod
    def from_bytes(cls, data: bytes, *, size: int, n: int, seed: int) -> BloomFilter:
        """Read a filter as peers send it: its bytes, as many as the text allows, and padding.

        The text allows ``size // 8 + 1`` bytes, one more than is needed where 8 divides ``size``;
        peers pad to whole 32-bit words, up to 3 bytes more.

        Bits beyond ``size`` mean nothing and are dropped. Raises ValueError when the length does
        not fit ``size``, and as the constructor does.
        """
        needed = (size + 7) // 8
        most = size // 8 + 1 + _MAX_PADDING
        if not needed <= len(data) <= most:
            raise ValueError(
                f"a filter of {size} bits takes {needed} to {most} bytes, not {len(data)}"
            )
        made = cls(size, n, seed)
        packed = np.frombuffer(data, np.uint8, count=needed)
        made._bits[:] = np.unpackbits(packed, count=size, bitorder="little")
        return made

    def to_bytes(self) -> bytes:
        """The filter's bits, exactly ``ceil(size / 8)`` bytes; unused bits are zero."""
        return np.packbits(self._bits, bitorder="little").tobytes()

    @property
    def is_empty(self) -> bool:
        """Whether no bit is set."""
        return not self._bits.view(np.bool_).any()

    def add(self, values: Sequence[bytes]) -> None:
        """Put values of any lengths into the filter."""
        for chunk in _chunks(values, self.n):
            if isinstance(chunk, _MixedChunk):
                for rows in _groups(self.n, _ROWS):
                    self._bits[self._positions(chunk, rows).ravel()] = 1
            else:
                for index in chunk:
                    self._add_one(values[index])

    def missing(self, values: Sequence[bytes]) -> list[int]:
        """Ascending indexes of the values that are surely not in the filter."""
        if self.is_empty:
            return list(range(len(values)))
        absent: list[int] = []
        for chunk in _chunks(values, self.n):
            if isinstance(chunk, _MixedChunk):
                absent += self._missing_of_chunk(chunk)
            else:
                absent += [index for index in chunk if values[index] not in self]
                self._hashed += self.n * len(chunk)
        absent.sort()
        return absent

    def take_hashed(self) -> int:
        """How many hashes `missing` has computed since the last time this was asked."""
        hashed, self._hashed = self._hashed, 0
        return hashed

    def __contains__(self, value: object) -> bool:
        """Whether a value is probably in the filter; never false for one that was added."""
        if not isinstance(value, bytes):
            return False
        bits, size = self._set, self.size
        # Single calls, so that the first clear bit ends it.
        return all(bits[mmh3.hash(value, seed, False) % size] for seed in self._seeds)

    def _add_one(self, value: bytes) -> None:
        bits, size = self._set, self.size
        for seed in self._seeds:
            bits[mmh3.hash(value, seed, False) % size] = 1

    def _missing_of_chunk(self, chunk: _MixedChunk) -> list[int]:
        absent: list[int] = []
        for rows in _groups(self.n, _ROWS, _FIRST_ROWS):
            self._hashed += len(self._seeds[rows]) * len(chunk.blocks)
            found = self._bits.take(self._positions(chunk, rows)).all(axis=0)
            if found.all():
                continue
            absent += chunk.indexes[~found].tolist()
            survivors = np.flatnonzero(found)
            if not len(survivors):
                break
            chunk = chunk.take(survivors)
        return absent

    def _positions(self, chunk: _MixedChunk, rows: slice) -> _Words:
        """Bit positions of a chunk's values: shape (hash functions in ``rows``, values)."""
        hashes = chunk.hash(self._seeds[rows])
        # SIMD division by a constant; numpy's remainder takes ten times as long.
        size = np.uint32(self.size)
        quotients = hashes // size
        quotients *= size
        hashes -= quotients
        return hashes


@dataclass(frozen=True, slots=True)
class _MixedChunk:
    """Values laid out for hashing, most blocks first.

    ``indexes``: where each value stands in the caller's batch, shape (values,).
    ``blocks``: whole 4-byte blocks of each value, descending, shape (values,).
    ``words``: mixed blocks, shape (at least the most blocks, values).
    ``ends``: mixed last 1-3 bytes xor length, shape (values,).
    """

    indexes: _Indexes
    blocks: _Indexes
    words: _Words
    ends: _Words

    @classmethod
    def mix(cls, values: list[bytes], indexes: _Indexes, lengths: _Indexes) -> _MixedChunk:
        """Lay out ``values`` (sorted by blocks, descending) and mix every block once."""
        blocks = lengths >> 2
        # One column more than whole blocks: the tail, or zeros. Type S pads with zeros.
        padded = np.array(values, dtype=f"S{4 * (int(blocks[0]) + 1)}")
        words = np.array(padded.view("<u4").reshape(len(values), -1).T, np.uint32, order="C")
        words *= _C1
        high = words >> _17
        words <<= _15
        words |= high
        words *= _C2
        ends = words[blocks, np.arange(len(values))] ^ lengths.astype(np.uint32)
        return cls(indexes, blocks, words, ends)

    def take(self, places: _Indexes) -> _MixedChunk:
        """The values at some ascending places of this chunk."""
        blocks = self.blocks[places]
        words = self.words[: int(blocks[0])].take(places, axis=1)
        return _MixedChunk(self.indexes[places], blocks, words, self.ends[places])

    def hash(self, seeds: list[int]) -> _Words:
        """MurmurHash3 x86 32-bit of every value under every seed, shape (seeds, values)."""
        hashes = np.empty((len(seeds), len(self.blocks)), np.uint32)
        hashes[:] = np.array(seeds, np.uint32)[:, np.newaxis]
        scratch = np.empty_like(hashes)
        # Column j of the blocks belongs to the values that have more than j of them: a prefix.
        longest = int(self.blocks[0])
        owners = len(self.blocks) - np.cumsum(np.bincount(self.blocks, minlength=longest))
        for word, owning in zip(self.words, owners[:longest].tolist(), strict=False):
            part, spare = hashes[:, :owning], scratch[:, :owning]
            part ^= word[:owning]
            np.right_shift(part, _19, out=spare)
            part <<= _13
            part |= spare
            part *= _FOLD_FACTOR
            part += _FOLD_TERM
        hashes ^= self.ends
        for shift, factor in ((_16, _FINAL_1), (_13, _FINAL_2)):
            np.right_shift(hashes, shift, out=scratch)
            hashes ^= scratch
            hashes *= factor
        np.right_shift(hashes, _16, out=scratch)
        hashes ^= scratch
        return hashes


def _chunks(values: Sequence[bytes], n: int) -> Iterator[_MixedChunk | list[int]]:
    """Cut a batch into chunks for the arrays, and indexes of values better hashed one by one."""
    for start in range(0, len(values), _SORTED):
        part = values[start : start + _SORTED]
        lengths = np.fromiter(map(len, part), np.intp, len(part))
        order: _Indexes = np.argsort(-(lengths >> 2), kind="stable")
        alone = _count_alone(lengths[order] >> 2, n)
        if alone:
            yield (order[:alone] + start).tolist()
        for first in range(alone, len(part), _CHUNK):
            places = order[first : first + _CHUNK]
            chosen = [part[place] for place in places.tolist()]
            yield _MixedChunk.mix(chosen, places + start, lengths[places])


def _count_alone(blocks: _Indexes, n: int) -> int:
    """How many of the longest values to hash alone, given each value's blocks in falling order.

    The first ``t`` alone cost their own time and spare the arrays every row that only they have.
    """
    costs = np.zeros(len(blocks) + 1)
    np.cumsum(n * (_ALONE_COST + _ALONE_BLOCK_COST * blocks), out=costs[1:])
    costs[:-1] += _ROW_COST * (blocks + _ROWS_BESIDE)
    too_long = int(np.count_nonzero(blocks > _LONGEST_BLOCKS))
    return too_long + int(np.argmin(costs[too_long:]))


def _groups(n: int, most: int, first: int = 0) -> Iterator[slice]:
    """Cut ``n`` hash functions into runs: ``first`` of them if given, then ``most`` at a time."""
    if first:
        yield slice(0, min(first, n))
    for start in range(first, n, most):
        yield slice(start, min(start + most, n))


def optimal_parameters(count: int, false_positive: float) -> tuple[int, int]:
    """Bits and hash functions for ``count`` values at a rate of false positives, as badabloom.

    Never less than one of each. Raises ValueError for a negative count, or a rate that is not
    between 0 and 1.
    """
    if count < 0:
        raise ValueError(f"a count cannot be negative: {count}")
    hashes = _ideal_hashes(false_positive)
    size = math.ceil(count * hashes / math.log(2))
    return max(1, size), max(1, math.floor(hashes + 0.5))


def capacity(filter_bytes: int, false_positive: float) -> int:
    """How many values fit a filter of ``filter_bytes`` bytes at a rate of false positives.

    The largest count whose :func:`optimal_parameters` size needs no more bytes. Raises ValueError
    as that function does.
    """
    if filter_bytes < 0:
        raise ValueError(f"a filter's length cannot be negative: {filter_bytes}")
    bits = filter_bytes * 8
    if not bits:
        return 0
    count = math.floor(bits * math.log(2) / _ideal_hashes(false_positive)) + 1
    # Rounding may put the estimate one off either way; the sizes themselves decide.
    while optimal_parameters(count, false_positive)[0] > bits:
        count -= 1
    return count


def _ideal_hashes(false_positive: float) -> float:
    if not 0 < false_positive < 1:
        raise ValueError(f"a rate of false positives lies between 0 and 1: {false_positive}")
    return -math.log(false_positive) / math.log(2)
