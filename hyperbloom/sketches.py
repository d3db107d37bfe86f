"""Sketches of sets: finding what two sets differ by costs what differs, not what is shared.

A sketch is a rateless invertible Bloom lookup table (Yang, Gilad, Alizadeh, "Practical Rateless Set
Reconciliation", SIGCOMM 2024). A set becomes an endless sequence of *coded symbols*, of which a
prefix is kept. A value takes part in symbol 0, and in symbol i with a probability of 2 / (i + 2):
in which ones, its *walk* says, which is made from the value's id alone. A symbol holds three sums
over the values that take part in it: of their ids, of their checks, and their number.

The symbols of one set minus those of another are the symbols of what the sets differ by, and they
*peel*: a symbol with one value left in it (its number is 1 or −1, and the check is that of the id)
gives this value, which is taken out of all its symbols, which leaves one value in others. About
1.35 symbols a differing value are enough where many differ, and 1.7 where ten do.

How a value's id is made is the caller's choice; here it is 16 bytes that look like chance, four
words (u32, little endian). A check is two words, the number one. All sums are by word and modulo
2^32, so sums of two sets that share no value add up, and values can be taken out again.

**The walk** of an id, whose halves are a and b (u64, little endian), begins with x = a at index 0
and goes on from index i by

    x = (x · WALK_FACTOR + b) mod 2^64
    p = (2^52 − floor(x / 2^12)) / 2^52
    i = floor((i + 1.5) / sqrt(p) − 0.5)

The first two lines are exact. In the third, sum, root, quotient and difference are IEEE 754
binary64 operations, each rounded to nearest, ties to even. A walk that is at i meets no symbol up
to j with a probability of about (i + 1.5)² / (j + 1.5)²; the third line solves this for j, with p
spread evenly over (0, 1]. All 128 bits of the id move the walk: ids that share one half still have
different walks. A walk ends after WALK_STEPS indexes. Of an id that looks like chance, some 44 ± 7
are below 2^32; an id chosen so that its walk is slow costs no more than WALK_STEPS.

**The check** of an id is keyed (see `checks`), so that what peels in one feed does not in another.

A member can choose values whose symbols do not peel, or peel to ids of no value; a peer can send
any symbols. What comes out of a `Decoder` is therefore what to ask for and what to offer, never a
proof that two sets are equal.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hyperbloom.errors import HyperbloomError

__all__ = [
    "ID_BYTES",
    "KEY_BYTES",
    "MOST_SYMBOLS",
    "MOST_WAVES",
    "WALK_FACTOR",
    "WALK_STEPS",
    "WORDS",
    "Decoder",
    "Ids",
    "Symbols",
    "Undecodable",
    "add",
    "checks",
    "first_wanted",
    "ids_from",
    "ids_to_bytes",
    "joined",
    "no_symbols",
    "pack",
    "salted",
    "sketch_key",
    "symbols_for",
    "unpack",
    "unsalted",
]

ID_BYTES: Final = 16
KEY_BYTES: Final = 16
WALK_FACTOR: Final = 0xDA94_2042_E4DD_58B5
"""A multiplier of 64 bits that does well in the spectral test (Steele, Vigna, "Computationally
easy, spectrally good multipliers for congruential pseudorandom number generators", 2021)."""
MOST_SYMBOLS: Final = 1 << 32
"""Symbols of a sequence: up to there, a walk's arithmetic is exact where it says so."""
WALK_STEPS: Final = 128
"""Symbols that an id takes part in at most."""

_ID_WORDS: Final = ID_BYTES // 4
_SUM_WORDS: Final = 6
WORDS: Final = 7
"""Words of a symbol: four of ids, two of checks, one for the number."""

MOST_WAVES: Final = 1_024
"""Waves after which a `Decoder` gives up. Each takes out whatever stands alone, and symbols of
chance need few of them; symbols made on purpose could need one for each id."""

Symbols = NDArray[np.uint32]
"""Symbols that follow each other in a sequence, shape (WORDS, symbols)."""
Ids = NDArray[np.uint32]
"""Ids, shape (ids, 4)."""

_Words = NDArray[np.uint32]
_Longs = NDArray[np.uint64]
_Indexes = NDArray[np.int64]

_WORD: Final = np.dtype("<u4")
_LONG: Final = np.dtype("<u8")
_BATCH: Final = 1 << 15
"""Ids that walk together: a core's cache holds what they need."""
_THINNED: Final = 0.75
"""Part of the ids still walking below which the others are no longer dragged along."""

_FACTOR: Final = np.uint64(WALK_FACTOR)
_12: Final = np.uint64(12)
_ONE: Final = np.uint64(0x3FF0_0000_0000_0000)
"""The bits of the binary64 number 1, with 52 zeros where the fraction goes."""
_FIRST: Final = 128
"""Symbols to begin with at least: with fewer, `Decoder.wanted` knows too little."""
_FEWEST: Final = 16
"""Symbols that `Decoder.wanted` asks for at least: fewer are not worth a round trip."""
_MANY: Final = 4_000
"""Symbols that are worth a round trip: of more, the first estimate is not asked for in full."""
_FIRST_PART: Final = 0.8
"""The part of it that is. The first 128 symbols tell how many differ to an eighth."""
_STEPS: Final = (1 / 5, 1 / 32, 1 / 32, 1 / 5)
"""The least that the second, third … block adds to what came."""
_SALT_STEP: Final = 0x9E37_79B9_7F4A_7C15
_SALT_ROUNDS: Final = 4
_VARINT_BYTES: Final = 5
_SHIFTS: Final = np.arange(0, 7 * _VARINT_BYTES, 7, dtype=np.uint32)


class Undecodable(HyperbloomError):
    """These symbols are of no difference that may be looked for: ask in another way."""


def sketch_key(feed_key: bytes) -> bytes:
    """The key of a feed's checks, KEY_BYTES long, from the feed's public key.

    BLAKE2b (RFC 7693) with 16 bytes of output and the personalisation "reconcile-1 keys".
    """
    return hashlib.blake2b(feed_key, digest_size=KEY_BYTES, person=b"reconcile-1 keys").digest()


def ids_from(data: bytes) -> Ids:
    """Ids from ID_BYTES bytes each. Raises ValueError for a part of one."""
    return np.frombuffer(data, _WORD).reshape(-1, _ID_WORDS)


def ids_to_bytes(ids: Ids) -> bytes:
    """The ids one behind the other, ID_BYTES each."""
    return ids.astype(_WORD, copy=False).tobytes()


def no_symbols(count: int) -> Symbols:
    """The first ``count`` symbols of the empty set, or any others: they are all zero."""
    return np.zeros((WORDS, count), np.uint32)


def joined(parts: Sequence[Symbols]) -> Symbols:
    """Parts of a sequence that follow each other, at least one, as one."""
    return np.concatenate(parts, axis=1)


def checks(ids: Ids, key: bytes) -> _Words:
    """The checks of ids, shape (ids, 2): mix(mix(a + k) ^ (b + l)) mod 2^64, low word first.

    a and b are the halves of the id, k and l those of the key, KEY_BYTES long (all u64, little
    endian). Raises ValueError for a key of another length.
    """
    a, b = _halves(ids)
    k, m = _key_halves(key)
    return _mix(_mix(a + k) ^ (b + m)).astype(_LONG, copy=False).view(_WORD).reshape(-1, 2)


def add(symbols: Symbols, ids: Ids, key: bytes, *, sign: int = 1, first: int = 0) -> None:
    """Add ids to the symbols in place, or take them out (``sign`` −1).

    ``first``: where in the sequence these symbols begin. ``key``: of `sketch_key`. In batches of
    65,536 some 0.4 µs an id for 4,096 symbols and 0.5 for 32,768. Raises ValueError for symbols
    beyond number 2^32 and for a key of another length.
    """
    if not 0 <= first <= MOST_SYMBOLS - symbols.shape[1]:
        raise ValueError(f"a sequence has symbols 0 to {MOST_SYMBOLS - 1}, not from {first} on")
    sums = no_symbols(symbols.shape[1] + 1)
    for start in range(0, len(ids), _BATCH):
        batch = ids[start : start + _BATCH]
        for _ in _spread(sums, batch, _records(batch, key), first):
            pass
    if sign > 0:
        symbols += sums[:, :-1]
    else:
        symbols -= sums[:, :-1]


def salted(ids: Ids, salt: bytes) -> Ids:
    """Other ids instead of these, one to one: values that hindered each other no longer do.

    ``salt``: KEY_BYTES long, its halves k[0] and k[1]. In four rounds r = 0 … 3 the halves of the
    id become a, b = b, a ^ mix(b + k[r mod 2] + r · 0x9E3779B97F4A7C15), modulo 2^64.
    """
    a, b = _halves(ids)
    for key in _round_keys(salt):
        a, b = b, a ^ _mix(b + key)
    return _joined(a, b)


def unsalted(ids: Ids, salt: bytes) -> Ids:
    """The ids of which `salted` made these."""
    a, b = _halves(ids)
    for key in reversed(_round_keys(salt)):
        a, b = b ^ _mix(a + key), a
    return _joined(a, b)


def _round_keys(salt: bytes) -> list[np.uint64]:
    halves = [int(half) for half in _key_halves(salt)]
    return [
        np.uint64((halves[number % 2] + number * _SALT_STEP) % 2**64)
        for number in range(_SALT_ROUNDS)
    ]


def _halves(ids: Ids) -> tuple[_Longs, _Longs]:
    halves = np.ascontiguousarray(ids, _WORD).view(_LONG)
    return halves[:, 0], halves[:, 1]


def _joined(a: _Longs, b: _Longs) -> Ids:
    return np.stack([a, b], axis=1).astype(_LONG, copy=False).view(_WORD)


def _key_halves(key: bytes) -> tuple[np.uint64, np.uint64]:
    if len(key) != KEY_BYTES:
        raise ValueError(f"a key or salt has {KEY_BYTES} bytes, not {len(key)}")
    low, high = np.frombuffer(key, _LONG)
    return low, high


def _mix(x: _Longs) -> _Longs:
    """The finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014), which is one to one."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58_476D_1CE4_E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D0_49BB_1331_11EB)
    return x ^ (x >> np.uint64(31))


def _records(ids: Ids, key: bytes) -> _Words:
    """What each id adds to its symbols, shape (WORDS, ids)."""
    records = np.empty((WORDS, len(ids)), np.uint32)
    records[:_ID_WORDS] = ids.T
    records[_ID_WORDS:_SUM_WORDS] = checks(ids, key).T
    records[_SUM_WORDS] = 1
    return records


def _spread(sums: Symbols, ids: Ids, records: _Words, first: int) -> Iterator[_Indexes]:
    """Add each id's record to all its symbols, step by step of the walks.

    ``sums`` are the symbols from ``first`` on and one more, which takes what is outside of them.
    Yields where each step added to. Ids that have left the symbols go on walking until enough of
    them have, for it costs more to sort them out.
    """
    x, b = (half.copy() for half in _halves(ids))
    outside = sums.shape[1] - 1
    end = first + outside
    index = np.zeros(len(ids), np.int64)
    for _ in range(WALK_STEPS):
        where = np.minimum((index - first).view(np.uint64), np.uint64(outside)).view(np.int64)
        for row, record in zip(sums, records, strict=True):
            np.add.at(row, where, record)
        yield where
        index = _next(x, b, index, end)
        on = index < end
        walking = np.count_nonzero(on)
        if not walking:
            return
        if walking < _THINNED * len(index):
            x, b, index, records = x[on], b[on], index[on], records[:, on]


def _next(x: _Longs, b: _Longs, index: _Indexes, end: int) -> _Indexes:
    """The walks' next indexes, ``end`` for all that are greater; ``x`` goes on in place."""
    x *= _FACTOR
    x += b
    bits = x >> _12
    bits |= _ONE
    p = bits.view(np.float64)
    np.subtract(2.0, p, out=p)
    np.sqrt(p, out=p)
    np.divide(index + 1.5, p, out=p)
    p -= 0.5
    np.minimum(p, end, out=p)
    return p.astype(np.int64)


def symbols_for(differing: int) -> int:
    """How many symbols decode a difference of so many values, in the mean (measured)."""
    return math.ceil(1.36 * differing + 0.9 * math.sqrt(differing))


def first_wanted(surplus: int) -> int:
    """How many symbols to ask for first, where one set has so many values more than the other.

    They do for nearly all differences of this least size, and for 60 where the counts are equal.
    From there `Decoder.wanted` knows more.
    """
    return max(_FIRST, symbols_for(surplus) + math.isqrt(4 * surplus))


class Decoder:
    """Finds what two sets differ by, from their symbols' differences, block by block.

    It ends, whatever symbols come: it takes out at most ``most_ids`` ids in all, and each `feed`
    has at most MOST_WAVES waves. A feed takes some 0.5 µs for each id found before it, and 2 µs for
    each that it finds; the worst symbols known, 30,000 ids that hide each other in a chain, 0.3 s.
    """

    def __init__(self, key: bytes, *, most_ids: int) -> None:
        """key: of `sketch_key`. most_ids: how many ids may differ, in both sets together."""
        self._key = key
        self._most_ids = most_ids
        self._left = no_symbols(1)
        """The symbols without what was found, and one more, as `_spread` wants them."""
        self._numbers = np.zeros(0, np.int64)
        self._ids: Ids = np.zeros((0, _ID_WORDS), _WORD)
        self._signs: _Words = np.zeros(0, np.uint32)
        self._done = False
        self._blocks = 0

    @property
    def done(self) -> bool:
        """Whether the ids found account for all of the symbols that came, and some came."""
        return self._done

    @property
    def mine(self) -> Ids:
        """The ids found so far that only the first set has (the one not subtracted)."""
        mine: Ids = self._ids[self._signs == 1]
        return mine

    @property
    def theirs(self) -> Ids:
        """The ids found so far that only the second set has, which was subtracted."""
        theirs: Ids = self._ids[self._signs != 1]
        return theirs

    def feed(self, block: Symbols) -> bool:
        """Take the next symbols, my set's minus theirs, shape (WORDS, n); return `done`.

        Raises Undecodable if there are too many ids, or the symbols contradict themselves: they
        are to be fed no more then.
        """
        first, count = len(self._numbers), block.shape[1]
        self._blocks += 1
        self._numbers = np.append(self._numbers, block[-1].view(np.int32))
        more = np.append(block, no_symbols(1), axis=1)
        for _ in _spread(more, self._ids, self._taken_out(self._ids, self._signs), first):
            pass
        self._left = np.append(self._left[:, :-1], more, axis=1)
        changed: _Indexes = np.arange(first, first + count)
        for _ in range(MOST_WAVES):
            changed = self._wave(changed)
            if not len(changed):
                break
        else:
            raise Undecodable("these symbols peel too slowly: use another way")
        self._refuse_found_twice()
        self._done = bool(first + count) and not self._left[:, :-1].any()
        return self._done

    def needed(self) -> int:
        """How many symbols are probably needed in all; 0 before there is an estimate.

        Of d values that differ, n more in one set than in the other, symbol i has a number with a
        mean of n·p and a variance of d·p·(1 − p), where p = 2 / (i + 2). Symbol 0 tells n, and all
        others d.
        """
        count = len(self._numbers)
        if count < 2:
            return 0
        p = 2 / np.arange(3, count + 2)
        surplus = int(self._numbers[0])
        variances = np.square(self._numbers[1:] - surplus * p) / (p * (1 - p))
        return symbols_for(max(abs(surplus), round(float(variances.mean()))))

    def wanted(self) -> int:
        """How many more symbols to ask for now, at least 16.

        Where so many as were needed should have done, it is a part of what came: a fifth, and less
        where thousands of symbols are needed. Of so many the first estimate is not asked for in
        full, for it is rough. Before there is one it is as many as came.

        Where the first block has 128 symbols, 1.1 times as many as are needed are asked for in the
        mean, in 2.5 blocks, for 130 to 2,900 values (measured; 8 % take a fourth block); from there
        to 20,000 values 1.02 times as many, in 3.3 blocks, and never more than five.
        """
        count, needed = len(self._numbers), self.needed()
        if count < 2:
            return max(count, _FEWEST)
        if needed <= _MANY:
            return max(needed - count, count // 5, _FEWEST)
        if self._blocks == 1:
            needed = round(_FIRST_PART * needed)
        step = _STEPS[min(self._blocks, len(_STEPS)) - 1]
        return max(needed - count, round(step * count), _FEWEST)

    def _wave(self, changed: _Indexes) -> _Indexes:
        """Take out what stands alone in one of these symbols; return what symbols changed now."""
        alone = changed[np.abs(self._left[-1, changed].view(np.int32)) == 1]
        signs = self._left[-1, alone]
        words = (self._left[:_SUM_WORDS, alone] * signs).T
        right = (checks(words[:, :_ID_WORDS], self._key) == words[:, _ID_WORDS:]).all(axis=1)
        if not right.any():
            return changed[:0]
        alone, signs = alone[right], signs[right]
        ids, kept = _without_doubles(words[right, :_ID_WORDS])
        signs = signs[kept]
        if len(self._ids) + len(ids) > self._most_ids:
            raise Undecodable("the sets differ by more ids than are allowed: use another way")
        self._ids = np.append(self._ids, ids, axis=0)
        self._signs = np.append(self._signs, signs)
        touched = np.zeros(self._left.shape[1], np.bool_)
        for where in _spread(self._left, ids, self._taken_out(ids, signs), 0):
            touched[where] = True
        if self._left[:, alone].any():
            raise Undecodable("an id is not where its walk goes: use another way")
        return np.flatnonzero(touched[:-1])

    def _taken_out(self, ids: Ids, signs: _Words) -> _Words:
        return _records(ids, self._key) * np.negative(signs)

    def _refuse_found_twice(self) -> None:
        if len(_without_doubles(self._ids)[0]) < len(self._ids):
            raise Undecodable("an id was found twice: use another way")


def _without_doubles(ids: Ids) -> tuple[Ids, _Indexes]:
    """Each different id once, in order, and where it stands among ``ids``."""
    a, b = _halves(ids)
    order = np.lexsort((b, a))
    a, b = a[order], b[order]
    new = np.ones(len(ids), np.bool_)
    new[1:] = (a[1:] != a[:-1]) | (b[1:] != b[:-1])
    kept = order[new]
    return ids[kept], kept


def pack(symbols: Symbols, *, first: int, count: int) -> bytes:
    """Symbols as bytes: the sums of each, 24 bytes, and behind them all, the numbers.

    A number is told as its distance from `_expected`, as a zigzag varint of at most 5 bytes (as in
    Protocol Buffers: sint32). ``first``: where in the sequence the symbols begin. ``count``: how
    many values the set has (0 to 2^62).
    """
    sums = symbols[:_SUM_WORDS].T.astype(_WORD)
    distances = (symbols[-1] - _expected(first, symbols.shape[1], count)).view(np.int32)
    zigzag = ((distances << 1) ^ (distances >> 31)).view(np.uint32)
    rest = zigzag[:, None] >> _SHIFTS
    used = (rest > 0) | (_SHIFTS == 0)
    groups = (rest & 0x7F).astype(np.uint8)
    groups[:, :-1] |= used[:, 1:].astype(np.uint8) << 7
    return b"".join((sums.tobytes(), groups[used].tobytes()))


def unpack(data: bytes, *, first: int, symbols: int, count: int) -> Symbols:
    """The symbols that `pack` made ``data`` of; ``symbols`` says how many.

    Raises ValueError for all bytes that `pack` does not make of so many symbols.
    """
    cut = 4 * _SUM_WORDS * symbols
    groups = np.frombuffer(data, np.uint8, offset=min(cut, len(data)))
    ends = np.flatnonzero(groups < 0x80)
    if len(data) < cut or len(ends) != symbols or len(groups) != (ends[-1] + 1 if symbols else 0):
        raise ValueError(f"these are not the bytes of {symbols} symbols")
    starts = np.append(0, ends + 1)[:-1]
    lengths, last = ends + 1 - starts, groups[ends]
    if ((lengths > 1) & (last == 0)).any():
        raise ValueError("a symbol's number is longer than it needs to be")
    if (lengths > _VARINT_BYTES).any() or last[lengths == _VARINT_BYTES].max(initial=0) > 0x0F:
        raise ValueError("a symbol's number has more than 32 bits")
    place = np.arange(_VARINT_BYTES)
    here = np.append(groups, np.zeros(_VARINT_BYTES, np.uint8))[starts[:, None] + place]
    here[place >= lengths[:, None]] = 0
    zigzag = ((here & 0x7F).astype(np.uint32) << _SHIFTS).sum(axis=1, dtype=np.uint32)
    unpacked = no_symbols(symbols)
    unpacked[:_SUM_WORDS] = np.frombuffer(data, _WORD, cut // 4).reshape(symbols, _SUM_WORDS).T
    unpacked[-1] = (zigzag >> 1) ^ np.negative(zigzag & 1)
    unpacked[-1] += _expected(first, symbols, count)
    return unpacked


def _expected(first: int, symbols: int, count: int) -> _Words:
    """The numbers that a set of ``count`` values has about: floor(2 · count / (i + 2)) mod 2^32."""
    if not 0 <= count <= 2**62:
        raise ValueError(f"a set has 0 to 2^62 values, not {count}")
    index = np.arange(first, first + symbols, dtype=np.uint64)
    return (np.uint64(2 * count) // (index + np.uint64(2))).astype(np.uint32)
