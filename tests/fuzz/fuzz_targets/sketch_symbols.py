"""Symbols of sketches as a peer sends them: their bytes, and differences that are made to peel."""

from __future__ import annotations

import numpy as np
from choices import Choices, piece

from hyperbloom.sketches import (
    ID_BYTES,
    Decoder,
    Symbols,
    Undecodable,
    add,
    ids_from,
    no_symbols,
    pack,
    unpack,
)

MAX_BYTES = 2_048
RUNS = 5

KEY = bytes(range(16))
_MOST_IDS = 40
_BLOCKS = 6
_MOST_SYMBOLS = 33


def fuzz(data: bytes) -> bool:
    """Blocks of a difference, each as packed bytes or made of ids here; the checks are right."""
    choices = Choices(data)
    count = choices.number() << choices.number() % 33
    decoder = Decoder(KEY, most_ids=_MOST_IDS)
    first = 0
    for part in choices.pieces(_BLOCKS):
        inner = Choices(part)
        symbols = inner.number() % _MOST_SYMBOLS
        try:
            if inner.one_of((False, True)):
                block = _block(inner, first, symbols)
            else:
                packed = inner.rest()
                block = unpack(packed, first=first, symbols=symbols, count=count)
                assert pack(block, first=first, count=count) == packed
            decoder.feed(block)
        except (ValueError, Undecodable):
            return False
        finally:
            assert len(decoder.mine) + len(decoder.theirs) <= _MOST_IDS
        first += symbols
        assert decoder.wanted() > 0
    return True


def _block(inner: Choices, first: int, symbols: int) -> Symbols:
    """Each id on all of its walk, or in one symbol of the block alone."""
    block = no_symbols(symbols)
    while identity := inner.take(ID_BYTES):
        ids = ids_from(identity.ljust(ID_BYTES, b"\0"))
        sign = inner.one_of((1, -1))
        place = inner.number()
        if place < symbols:
            alone = no_symbols(1)
            add(alone, ids, KEY, sign=sign)
            block[:, place] += alone[:, 0]
        else:
            add(block, ids, KEY, sign=sign, first=first)
    return block


def seeds() -> dict[str, bytes]:
    """Differences that decode, at once and in blocks, as bytes and made of ids."""
    ids = np.arange(40, dtype=np.uint32).reshape(-1, 4) * np.uint32(0x9E37_79B9)
    symbols = no_symbols(32)
    add(symbols, ids[:6], KEY)
    add(symbols, ids[6:], KEY, sign=-1)
    packed = pack(symbols, first=0, count=0)
    halves = [pack(symbols[:, at : at + 16], first=at, count=0) for at in (0, 16)]
    walks = b"".join(row.tobytes() + bytes([number % 2, 255]) for number, row in enumerate(ids))
    both = ids[:1].tobytes() + bytes([0, 1]) + ids[:1].tobytes() + bytes([1, 2])
    return {
        "packed": bytes(2) + piece(b"\x20\x00" + packed),
        "blocks": bytes(2) + b"".join(piece(b"\x10\x00" + half) for half in halves),
        "walks": bytes(2) + piece(b"\x20\x01" + walks) + piece(b"\x10\x01" + walks),
        "refused-both-signs": bytes(2) + piece(b"\x08\x01" + both),
        "refused-cut": bytes(2) + piece(b"\x20\x00" + packed[:-1]),
    }
