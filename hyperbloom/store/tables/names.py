"""What the operator calls the keys of others: petnames, which hold on this node alone.

Two records a key: ``k`` and the key lead to since when it is called so, and the name; ``n`` and the
folded name lead to the key, so that no two keys have one name. Names belong to the node and not to
a feed. None looks like a key or the beginning of one, an address or an option, so that one word on
a command line means one thing.
"""

import re
import struct
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hyperbloom.errors import ErrorKind, HyperbloomError
from hyperbloom.store.limits import MAX_PETNAME_CHARACTERS, MAX_PETNAMES
from hyperbloom.store.lmdb.layout import KEY_BYTES, U64
from hyperbloom.store.lmdb.transaction import ReadTransaction, WriteTransaction
from hyperbloom.store.operations import OVERHEAD_BYTES, check_key, check_time
from hyperbloom.store.records import NameRecord

__all__ = [
    "NameKey",
    "NameTaken",
    "TooManyNames",
    "UnnameKey",
    "check_petname",
    "folded",
    "name_records",
    "verify_names",
]

_KEY: Final = b"k"
_NAME: Final = b"n"

#: So many digits are taken for the beginning of a key, be it long enough to stand for it or not.
_LIKE_A_KEY: Final = re.compile(r"[0-9A-Fa-f]{8,}")


def folded(name: str) -> str:
    """The form in which two names are compared: "Alice" and "alice" are one."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def check_petname(name: str) -> str:
    """The name as it is kept (NFC); raises ValueError with what is wrong with it."""
    name = unicodedata.normalize("NFC", name)
    if not 1 <= len(name) <= MAX_PETNAME_CHARACTERS:
        raise ValueError(f"a name has 1 to {MAX_PETNAME_CHARACTERS} characters, not {len(name)}")
    if not name.isprintable():
        raise ValueError(
            f"{name!r} is no name: it holds characters that cannot be seen, or that change the "
            "direction of writing; leave them out"
        )
    if not name[0].isalnum() or name.endswith(" ") or ":" in name:
        raise ValueError(
            f"{name!r} is no name: it begins with a letter or digit, does not end with a space, "
            "and holds no colon"
        )
    if _LIKE_A_KEY.fullmatch(name):
        raise ValueError(f"{name!r} is no name: it looks like the beginning of a key")
    return name


class NameTaken(HyperbloomError):
    """Another key is called so; the text says which."""

    kind = ErrorKind.CONFLICT


class TooManyNames(HyperbloomError):
    """As many keys have names as may; the text says what to do."""

    kind = ErrorKind.TOO_MANY


def _by_name(name: str) -> bytes:
    return _NAME + folded(name).encode()


def _parse(key: bytes, data: bytes) -> NameRecord:
    (named_at,) = U64.unpack_from(data)
    check_key("key", key)
    return NameRecord(key=key, name=data[U64.size :].decode(), named_at=named_at)


def name_records(transaction: ReadTransaction) -> list[NameRecord]:
    """All of them, by key; struct.error or ValueError for a record that is none."""
    return [_parse(key[1:], data) for key, data in transaction.scan("names", _KEY)]


@dataclass(frozen=True, slots=True)
class NameKey:
    """Call a key so, since ``at`` (µs). Result: what it was called before, or None.

    ``name`` is kept in NFC; ValueError for what is none. Fails with NameTaken where another key has
    it (``takes``: that key has no name then), and with TooManyNames beyond MAX_PETNAMES.
    """

    key: bytes
    name: str
    at: int
    takes: bool = False

    def __post_init__(self) -> None:
        check_key("key", self.key)
        check_time("at", self.at)
        object.__setattr__(self, "name", check_petname(self.name))

    @property
    def size(self) -> int:
        return OVERHEAD_BYTES

    def apply(self, transaction: WriteTransaction) -> str | None:
        holder = transaction.get("names", _by_name(self.name))
        if holder is not None and holder != self.key:
            if self.takes:
                transaction.delete("names", _KEY + holder)
                transaction.delete("names", _by_name(self.name))
                return self.apply(transaction)
            raise NameTaken(
                f"{self.name} is what {holder.hex()} is called; choose another name, or remove "
                f"that one first (`peer unname {self.name}`)"
            )
        before = transaction.get("names", _KEY + self.key)
        if before is None:
            records = transaction.txn.stat(transaction.databases["names"])["entries"]
            if records >= 2 * MAX_PETNAMES:
                raise TooManyNames(
                    f"{MAX_PETNAMES:,} keys have names, as many as may; remove some first "
                    "(`peer unname`)"
                )
        was = None if before is None else _parse(self.key, before).name
        if was is not None:
            transaction.delete("names", _by_name(was))
        transaction.put("names", _KEY + self.key, U64.pack(self.at) + self.name.encode())
        transaction.put("names", _by_name(self.name), self.key)
        return was


@dataclass(frozen=True, slots=True)
class UnnameKey:
    """Call a key by no name any more. Result: what it was called, or None."""

    key: bytes

    def __post_init__(self) -> None:
        check_key("key", self.key)

    @property
    def size(self) -> int:
        return OVERHEAD_BYTES

    def apply(self, transaction: WriteTransaction) -> str | None:
        known = transaction.get("names", _KEY + self.key)
        if known is None:
            return None
        was = _parse(self.key, known).name
        transaction.delete("names", _by_name(was))
        transaction.delete("names", _KEY + self.key)
        return was


def verify_names(transaction: ReadTransaction, problem: Callable[[str], None]) -> None:
    """Each key that has a name has its two records, and there is no other."""
    expected = {}
    found = {}
    for key, data in transaction.scan("names"):
        if key.startswith(_NAME) and len(data) == KEY_BYTES:
            found[key] = data
            continue
        try:
            expected[_by_name(_parse(key[1:], data).name)] = key[1:]
        except (ValueError, struct.error):
            problem(f"names: the record {key.hex()} cannot be read")
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            whose = expected.get(name) or found[name]
            problem(f"names: the two records of {whose.hex()} do not fit together")
