"""What the operator calls keys, and which key is meant by a word: `hyperbloom.store.tables.names`.

A word is a whole key, a petname, or the first digits of a key that this node has seen. It is looked
up here and not by clients, so that it means the same to all of them, and nowhere else. Digits are
easily made to agree, and the sub-keys of a member are seen like any other: so `LEAST_DIGITS` is
more than somebody can make agree with a given key, and the beginning of two keys means neither.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from typing import cast

from hyperbloom.errors import ErrorKind, HyperbloomError
from hyperbloom.feed_words import LEAST_DIGITS, is_beginning
from hyperbloom.keys import PUBLIC_KEY_BYTES
from hyperbloom.replication.context import FeedContext
from hyperbloom.store.records import NameRecord
from hyperbloom.store.tables.names import NameKey, NameTaken, UnnameKey, check_petname, folded

__all__ = ["Petnames", "UnknownKey"]

#: Keys that an error names, of those that begin with what was given.
KEYS_NAMED = 5

_DIGITS = re.compile(r"[0-9A-Fa-f]+")


class UnknownKey(HyperbloomError):
    """No key of this node is meant by that word, or several are; the text says what to give."""

    kind = ErrorKind.UNKNOWN_PEER


class Petnames:
    """The names of keys on a node; at most `hyperbloom.store.limits.MAX_PETNAMES`.

    `connected`: the keys of the peers that are connected now.
    """

    def __init__(self, context: FeedContext, connected: Callable[[], Collection[bytes]]) -> None:
        self._context = context
        self._connected = connected
        self._names: dict[bytes, str] = {}
        self._keys: dict[str, bytes] = {}

    def load(self) -> None:
        """Take over what the store keeps."""
        for record in self._context.store.names():
            self._put(record.key, record.name)

    def _put(self, key: bytes, name: str) -> None:
        self._drop(key)
        self._names[key] = name
        self._keys[folded(name)] = key

    def _drop(self, key: bytes) -> None:
        was = self._names.pop(key, None)
        if was is not None:
            del self._keys[folded(was)]

    def get(self, key: bytes | None) -> str | None:
        """What a key is called, or None."""
        return None if key is None else self._names.get(key)

    def records(self) -> list[NameRecord]:
        """All of them, by key."""
        return self._context.store.names()

    def check_new(self, key: bytes, name: str) -> None:
        """Whether a key without a name, or with that one, can be called so.

        Raises `ValueError` for what is no name and where the key has another one, `NameTaken`.
        """
        check_petname(name)
        holder, own = self.named(name), self._names.get(key)
        if holder is not None and holder != key:
            raise NameTaken(f"{name} is what {holder.hex()} is called; choose another name")
        if own is not None and holder is None:
            raise ValueError(
                f"this key is called {own} already; leave the name out, or change it first "
                "(`peer name`)"
            )

    async def name(self, key: bytes, name: str) -> str | None:
        """Call a key so from now on; what it was called before.

        Raises `ValueError` for what is no name, `NameTaken`, `TooManyNames`, `StoreError`.
        """
        op = NameKey(key, name, int(self._context.now() * 1e6))
        was = cast("str | None", await self._context.written(op))
        self._put(key, op.name)
        return was

    async def unname(self, key: bytes) -> str | None:
        """Call a key by no name any more; what it was called. Raises `StoreError`."""
        was = cast("str | None", await self._context.written(UnnameKey(key)))
        self._drop(key)
        return was

    def named(self, word: str) -> bytes | None:
        """The key that is called so, or None."""
        return self._keys.get(folded(word))

    async def find(
        self, word: str, among: Collection[bytes] | None = None, *, those: str = ""
    ) -> bytes:
        """The key that is meant by a word: 64 digits, a petname, or the beginning of a key.

        A beginning is one of the keys `among` these, which an error calls `those`; else of those
        that this node has seen: in links, as a peer, on the deny list. Raises `UnknownKey`.
        """
        is_hex = _DIGITS.fullmatch(word) is not None
        if is_hex and len(word) == 2 * PUBLIC_KEY_BYTES:
            return bytes.fromhex(word)
        named = self.named(word)
        if named is not None:
            return named
        if not is_hex or not LEAST_DIGITS <= len(word) < 2 * PUBLIC_KEY_BYTES:
            raise UnknownKey(_not_known(word, is_hex=is_hex))
        found = sorted(await self._beginning(word) if among is None else _begun(word, among))
        if len(found) == 1:
            return found[0]
        if not found:
            of = "that this node has seen" if among is None else those
            raise UnknownKey(f"no key {of} begins with {word}; give all 64 digits of the key")
        raise UnknownKey(
            f"{len(found)} keys begin with {word}: {self._listed(found)}; give more digits"
        )

    async def _beginning(self, word: str) -> set[bytes]:
        context = self._context
        here = {context.identity.public_key, *self._connected()}
        kept = await context.own_work(lambda: context.store.keys_beginning(word.lower()))
        return _begun(word, here) | kept

    def _listed(self, keys: list[bytes]) -> str:
        shown = [
            key.hex() + (f" ({name})" if (name := self._names.get(key)) else "")
            for key in keys[:KEYS_NAMED]
        ]
        more = len(keys) - len(shown)
        return ", ".join(shown) + (f" and {more} more" if more else "")


def _begun(word: str, keys: Iterable[bytes]) -> set[bytes]:
    return {key for key in keys if is_beginning(word, key)}


def _not_known(word: str, *, is_hex: bool) -> str:
    if is_hex and len(word) < LEAST_DIGITS:
        return (
            f"{word} is too short for the beginning of a key, and no key is called so: give all "
            f"{2 * PUBLIC_KEY_BYTES} digits of the key, its first {LEAST_DIGITS} or more where "
            "this node has seen it, or its name; fewer are easily those of another key, too"
        )
    if is_hex:
        return f"{word} is no key: a key has {2 * PUBLIC_KEY_BYTES} hex digits"
    return (
        f"no key is called {word!r} on this node: give the key (64 hex digits), or name it first "
        "(`peer name KEY NAME`)"
    )
