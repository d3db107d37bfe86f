"""The ten payloads of PPPP 2, as frozen types and as maps.

A payload is a map with the keys `v`, `t`, `op`, `d`, `h` and `oh`; one that has no value is absent,
and the order is free. Times (`t`) are milliseconds since 1970, hashes signed 64-bit integers.

Strict in what is sent: exactly the keys that the text gives to an op. Generous in what is taken:
keys that an op does not use are passed over, REJECTION needs no time. INITIALIZE may carry, beside
`p` and `r`, what nodes of this kind tell each other about the objects (`Version`): lists `h`, `t`
and `a` of the same length as `p`. The JVM cannot read 64-bit integers inside `d`, so they are for
peers that announced themselves (session.py). The JVM passes an INITIALIZE of another peer on with
an empty map for each object; they are counted and passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import Any, ClassVar, Final, TypeAlias

from hyperbloom.objects.wire.errors import LocalProtocolError, RemoteProtocolError
from hyperbloom.objects.wire.messagepack import pack, packed_items, unpack_value, unpacked_list

__all__ = [
    "MAX_ANCESTORS",
    "PAYLOADS",
    "Change",
    "Creation",
    "Fields",
    "Identify",
    "Initialize",
    "Kick",
    "Ok",
    "PackedInitialize",
    "Payload",
    "Ping",
    "Pong",
    "Rejection",
    "Removal",
    "Version",
    "from_map",
    "to_map",
]

Fields: TypeAlias = Mapping[str, Any]
"""An object, or a part of one: names of fields and their values."""

MAX_ANCESTORS: Final = 16
"""Earlier hashes of one object that INITIALIZE tells."""

_MAX_TIME: Final = (1 << 63) - 1
_LEAST_LONG, _MOST_LONG = -(1 << 63), (1 << 63) - 1


def _check_time(t: object) -> None:
    if type(t) is not int or not 0 <= t <= _MAX_TIME:
        raise LocalProtocolError("t is a time in milliseconds since 1970")


def _check_hash(name: str, number: object) -> None:
    if type(number) is not int or not _LEAST_LONG <= number <= _MOST_LONG:
        raise LocalProtocolError(f"{name} is a signed 64-bit integer")


def _check_version(v: object) -> None:
    if v is not None and (type(v) is not int or not -(1 << 31) <= v < 1 << 31):
        raise LocalProtocolError("v is a 32-bit integer")


def _check_object(d: object) -> None:
    if not isinstance(d, Mapping) or not d or not all(type(name) is str for name in d):
        raise LocalProtocolError("an object is a map of one field or more, whose names are texts")


def _check_metadata(d: object) -> None:
    if d is not None and (not isinstance(d, Mapping) or not all(type(key) is str for key in d)):
        raise LocalProtocolError("metadata is a map whose keys are texts")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Introduction:
    t: int
    v: int | None = None
    d: Fields | None = None

    def __post_init__(self) -> None:
        _check_time(self.t)
        _check_version(self.v)
        _check_metadata(self.d)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identify(_Introduction):
    """A client asks to be let in. `v` is its version, `d` metadata for the server's decision."""

    op: ClassVar[int] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ok(_Introduction):
    """The server lets the client in."""

    op: ClassVar[int] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """The server does not let the client in. Only `op` matters; the JVM sends a time."""

    op: ClassVar[int] = 2
    t: int = 0

    def __post_init__(self) -> None:
        _check_time(self.t)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Signal:
    t: int

    def __post_init__(self) -> None:
        _check_time(self.t)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ping(_Signal):
    """Asks for a PONG."""

    op: ClassVar[int] = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Pong(_Signal):
    """Answers a PING."""

    op: ClassVar[int] = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Kick(_Signal):
    """The sender disconnects; the receiver is to try another node."""

    op: ClassVar[int] = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """What nodes of this kind tell about an object of INITIALIZE.

    `hash` is its own, `stamp` the time (ms) of its last change, `ancestors` are hashes it had
    before, newest first.
    """

    hash: int
    stamp: int
    ancestors: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        _check_hash("hash", self.hash)
        _check_time(self.stamp)
        if len(self.ancestors) > MAX_ANCESTORS:
            raise LocalProtocolError(f"an object tells of at most {MAX_ANCESTORS} earlier hashes")
        for ancestor in self.ancestors:
            _check_hash("an earlier hash", ancestor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Initialize:
    """Objects of the sender's pool; with `respond` the receiver answers with its own.

    `unnamed` is how many objects the sender had whose fields it did not say.
    """

    op: ClassVar[int] = 6
    t: int
    objects: tuple[Fields, ...]
    respond: bool
    versions: tuple[Version, ...] | None = None
    unnamed: int = 0

    def pairs(self) -> Iterator[tuple[Fields, Version | None]]:
        """The objects, each with its version; those that have no fields at the end."""
        versions = self.versions or (None,) * len(self.objects)
        yield from zip(self.objects, versions, strict=True)
        yield from repeat(({}, None), self.unnamed)

    def __post_init__(self) -> None:
        _check_time(self.t)
        if type(self.respond) is not bool:
            raise LocalProtocolError("r is true or false")
        for fields in self.objects:
            _check_object(fields)
        if self.versions is not None and len(self.versions) != len(self.objects):
            raise LocalProtocolError("there is a version for each object, or none for any")


@dataclass(frozen=True, slots=True, kw_only=True)
class Creation:
    """A new object `d` with the hash `h`."""

    op: ClassVar[int] = 7
    t: int
    d: Fields
    h: int

    def __post_init__(self) -> None:
        _check_time(self.t)
        _check_object(self.d)
        _check_hash("h", self.h)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The object `oh` gets the fields `d`, and is `h` from then on."""

    op: ClassVar[int] = 8
    t: int
    d: Fields
    h: int
    oh: int

    def __post_init__(self) -> None:
        _check_time(self.t)
        _check_object(self.d)
        _check_hash("h", self.h)
        _check_hash("oh", self.oh)


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """The object `h` is removed."""

    op: ClassVar[int] = 9
    t: int
    h: int

    def __post_init__(self) -> None:
        _check_time(self.t)
        _check_hash("h", self.h)


Payload: TypeAlias = (
    Identify | Ok | Rejection | Ping | Pong | Kick | Initialize | Creation | Change | Removal
)

PAYLOADS: Final[tuple[type[Payload], ...]] = (
    Identify, Ok, Rejection, Ping, Pong, Kick, Initialize, Creation, Change, Removal,
)  # fmt: skip
"""The types by their op."""


class PackedInitialize:
    """An INITIALIZE that came, whose objects are read when they are taken.

    `size` is what it has in bytes. RemoteProtocolError for what is no INITIALIZE; what is wrong
    with an object shows when it is taken.
    """

    __slots__ = ("_count", "_packed", "respond", "size", "t")

    def __init__(self, t: int, packed: bytes) -> None:
        _check_time(t)
        items = packed_items(packed)
        self.t = t
        self._packed = {key: items[key] for key in ("p", "h", "t", "a") if key in items}
        if "p" not in items or "r" not in items:
            raise LocalProtocolError("d holds p, a list of objects, and r")
        self.respond = unpack_value(items["r"])
        if type(self.respond) is not bool:
            raise LocalProtocolError("r is true or false")
        self._count = unpacked_list(items["p"])[0]
        if "h" in items and {self._length(key) for key in ("h", "t", "a")} != {self._count}:
            raise LocalProtocolError("h, t and a are lists as long as p")
        self.size = sum(map(len, self._packed.values()))

    def _length(self, key: str) -> int:
        return unpacked_list(self._packed[key])[0] if key in self._packed else -1

    def pairs(self) -> Iterator[tuple[Fields, Version | None]]:
        """The objects, each with its version, if the sender told it.

        Where it tells none, an object without fields is one that it did not say.
        """
        objects = unpacked_list(self._packed["p"])[1]
        for fields, version in zip(objects, self._versions(), strict=False):
            try:
                if version is not None or fields != {}:
                    _check_object(fields)
            except LocalProtocolError as error:
                raise RemoteProtocolError(f"INITIALIZE: {error}") from None
            yield fields, version

    def _versions(self) -> Iterator[Version | None]:
        if "h" not in self._packed:
            yield from repeat(None, self._count)
            return
        told = [unpacked_list(self._packed[key])[1] for key in ("h", "t", "a")]
        for number, stamp, earlier in zip(*told, strict=False):
            if type(earlier) is not list:
                raise RemoteProtocolError("a holds a list for each object")
            try:
                yield Version(hash=number, stamp=stamp, ancestors=tuple(earlier))
            except LocalProtocolError as error:
                raise RemoteProtocolError(f"INITIALIZE: {error}") from None

    def whole(self) -> Initialize:
        """The same with all of its objects."""
        found = [(fields, version) for fields, version in self.pairs() if fields]
        versions = tuple(version for _, version in found if version is not None)
        return Initialize(
            t=self.t,
            objects=tuple(fields for fields, _ in found),
            respond=self.respond,
            versions=versions if "h" in self._packed else None,
            unnamed=self._count - len(found),
        )


_Reader: TypeAlias = Callable[[Mapping[Any, Any]], Payload]


def to_map(payload: Payload) -> dict[str, Any]:
    """The map that a payload is sent as."""
    found: dict[str, Any] = {"t": payload.t, "op": payload.op}
    match payload:
        case Identify() | Ok():
            if payload.v is not None:
                found["v"] = payload.v
            if payload.d is not None:
                found["d"] = dict(payload.d)
        case Initialize():
            found["d"] = _wrapper(payload)
        case Creation():
            found |= {"d": dict(payload.d), "h": payload.h}
        case Change():
            found |= {"d": dict(payload.d), "h": payload.h, "oh": payload.oh}
        case Removal():
            found["h"] = payload.h
    return found


def _wrapper(payload: Initialize) -> dict[str, Any]:
    wrapper: dict[str, Any] = {"p": [dict(o) for o in payload.objects], "r": payload.respond}
    if payload.versions is not None:
        wrapper["h"] = [version.hash for version in payload.versions]
        wrapper["t"] = [version.stamp for version in payload.versions]
        wrapper["a"] = [list(version.ancestors) for version in payload.versions]
    return wrapper


def from_map(found: Mapping[Any, Any]) -> Payload:
    """The payload that a map is; RemoteProtocolError says what is wrong with it."""
    op = found.get("op")
    if type(op) is not int or not 0 <= op < len(_READERS):
        raise RemoteProtocolError("op is none of 0 to 9")
    try:
        return _READERS[op](found)
    except LocalProtocolError as error:
        raise RemoteProtocolError(f"{PAYLOADS[op].__name__}: {error}") from None


def _read_initialize(found: Mapping[Any, Any]) -> Initialize:
    wrapper = found.get("d")
    if not isinstance(wrapper, dict):
        raise LocalProtocolError("d holds p, a list of objects, and r")
    return PackedInitialize(_of(found, "t"), pack(wrapper)).whole()


def _of(found: Mapping[Any, Any], key: str) -> Any:
    if key not in found:
        raise LocalProtocolError(f"{key} is missing")
    return found[key]


def _introduction(kind: type[Identify | Ok]) -> _Reader:
    return lambda m: kind(t=_of(m, "t"), v=m.get("v"), d=m.get("d"))


def _signal(kind: type[Ping | Pong | Kick]) -> _Reader:
    return lambda m: kind(t=_of(m, "t"))


_READERS: Final[tuple[_Reader, ...]] = (
    _introduction(Identify),
    _introduction(Ok),
    lambda m: Rejection(t=m.get("t", 0)),
    _signal(Ping),
    _signal(Pong),
    _signal(Kick),
    _read_initialize,
    lambda m: Creation(t=_of(m, "t"), d=_of(m, "d"), h=_of(m, "h")),
    lambda m: Change(t=_of(m, "t"), d=_of(m, "d"), h=_of(m, "h"), oh=_of(m, "oh")),
    lambda m: Removal(t=_of(m, "t"), h=_of(m, "h")),
)
