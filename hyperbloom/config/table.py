"""One table of a TOML file, read key by key, with what is wrong said in one sentence."""

from __future__ import annotations

import dataclasses
import difflib
import math
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from hyperbloom.credentials import CREDENTIAL_PREFIX, credential_path
from hyperbloom.errors import ErrorKind, HyperbloomError
from hyperbloom.units import parse_duration, parse_size

__all__ = ["ConfigError", "ConfigTable", "nearest", "one_of"]

T = TypeVar("T")

_KINDS: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text in quotes",
    list: "a list",
    dict: "a table",
}


class ConfigError(HyperbloomError):
    """The configuration cannot be used; the message is one sentence with file, key and remedy.

    table: the data of the table that the wrong `key` is in, None where it is of no key.
    """

    kind = ErrorKind.BAD_CONFIG

    def __init__(
        self, sentence: str, *, table: Mapping[str, Any] | None = None, key: str = ""
    ) -> None:
        super().__init__(sentence)
        self.table = table
        self.key = key


def _kind_of(value: object) -> str:
    return _KINDS.get(type(value), f"a {type(value).__name__}")


def nearest(name: str, known: Iterable[str]) -> str:
    """`did you mean X?` or the list of what is known, for the end of a sentence."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else f"known are {', '.join(names)}"


def one_of(known: Iterable[str], what: str) -> Callable[[str], str]:
    """A check that a text is one of those that are known; `what` names the kind of thing."""
    names = tuple(known)

    def check(found: str) -> str:
        if found not in names:
            raise ValueError(f"{found!r} is not a known {what}; {nearest(found, names)}")
        return found

    return check


class ConfigTable:
    """A table of a file: `title` is how a person finds it there, such as `[node]`.

    Every method raises `ConfigError`.
    """

    def __init__(self, file: str, title: str, data: Mapping[str, Any]) -> None:
        self.file = file
        self.title = title
        self._data = data

    def error(self, key: str, problem: str) -> ConfigError:
        """The error to raise for `key` of this table."""
        sentence = f"{self.file}: {self.title} {key}: {problem}"
        return ConfigError(sentence, table=self._data, key=key)

    def titled(self, title: str) -> ConfigTable:
        """The same table by another title."""
        return ConfigTable(self.file, title, self._data)

    def refuse_unknown(self, known: Iterable[str]) -> None:
        """Refuses the first key that is not in `known`, naming the nearest that is."""
        names = list(known)
        for key in self._data:
            if key not in names:
                raise self.error(key, f"there is no such key; {nearest(key, names)}")

    def __contains__(self, key: str) -> bool:
        return key in self._data

    def without(self, keys: Iterable[str]) -> ConfigTable:
        """The same table without some of its keys, which who calls has read."""
        left_out = set(keys)
        rest = {key: found for key, found in self._data.items() if key not in left_out}
        return ConfigTable(self.file, self.title, rest)

    def value(self, key: str, kind: type[T], default: T) -> T:
        """The value of `key`, which must be of `kind` exactly; an integer passes for a float."""
        if key not in self._data:
            return default
        found: Any = self._data[key]
        if kind is float and type(found) is int:
            found = float(found)
        if type(found) is not kind:
            raise self.error(key, f"must be {_KINDS[kind]}, not {_kind_of(found)}")
        return found

    def text(self, key: str, default: str, check: Callable[[str], object] | None = None) -> str:
        """A text; `check` may raise `ValueError` with what is wrong with it."""
        found = self.value(key, str, default)
        if check is not None and key in self._data:
            self.checked(key, found, check)
        return found

    def texts(
        self, key: str, default: tuple[str, ...], check: Callable[[str], object]
    ) -> tuple[str, ...]:
        """A list of texts, none of them twice, each of which passes `check`."""
        if key not in self._data:
            return default
        found = self.value(key, list, [])
        for item in found:
            if not isinstance(item, str):
                raise self.error(key, f"must be a list of texts in quotes, not {_kind_of(item)}")
            self.checked(key, item, check)
            if found.count(item) > 1:
                raise self.error(key, f"{item!r} is there twice; leave one out")
        return tuple(found)

    def bytes_of(self, key: str) -> bytes | None:
        """Bytes: under `key` as text (UTF-8), or under `key`_hex as hex digits; None: neither."""
        hex_key = f"{key}_hex"
        if key in self._data and hex_key in self._data:
            raise self.error(key, f"give {key} or {hex_key}, not both")
        if key in self._data:
            return self.value(key, str, "").encode()
        if hex_key in self._data:
            try:
                return bytes.fromhex(self.value(hex_key, str, ""))
            except ValueError:
                raise self.error(hex_key, "must be pairs of hex digits") from None
        return None

    def tables(self, key: str) -> list[ConfigTable]:
        """A list of tables, each titled by its place, counted from 1."""
        found = self.value(key, list, [])
        for item in found:
            if not isinstance(item, dict):
                raise self.error(key, f"must be a list of tables, not of {_kind_of(item)}")
        return [
            ConfigTable(self.file, f"{self.title} {key} {number}", item)
            for number, item in enumerate(found, 1)
        ]

    def checked(self, key: str, found: str, check: Callable[[str], T]) -> T:
        """What `check` makes of a text; its `ValueError` becomes a `ConfigError`."""
        try:
            return check(found)
        except ValueError as error:
            raise self.error(key, str(error)) from None

    def path(self, key: str, base: Path, default: str) -> Path:
        """A path, absolute; a relative one begins at `base`."""
        found = self.text(key, default)
        if not found or "\0" in found:
            raise self.error(key, "must be a path, not an empty text")
        try:
            return Path(os.path.abspath(base / Path(found).expanduser()))
        except (RuntimeError, OSError) as error:
            raise self.error(key, f"{found!r} is not a usable path ({error})") from None

    def secret_path(self, key: str, base: Path, default: str) -> Path:
        """Like `path`; `credential:NAME` stands for a credential of systemd."""
        found = self.text(key, default)
        if found.startswith(CREDENTIAL_PREFIX):
            return self.checked(key, found.removeprefix(CREDENTIAL_PREFIX), credential_path)
        return self.path(key, base, default)

    def seconds(self, key: str, default: float) -> float:
        """A number of seconds, or a duration such as `"30s"`."""
        if isinstance(self._data.get(key), str):
            return self.checked(key, self._data[key], parse_duration)
        return self.value(key, float, default)

    def rate(self, key: str, default: float, least: float) -> float:
        """Bytes a second, as a number or as a size such as `"500 KiB"`: 0, or `least` or more."""
        if isinstance(self._data.get(key), str):
            found = self.checked(key, self._data[key], parse_size)
        else:
            found = self.value(key, float, default)
        if 0 < self.bounded(key, found, 0) < least:
            raise self.error(key, f"must be 0 or at least {least:g}, not {found:g}")
        return found

    def bounded(
        self, key: str, number: T, least: float | None = None, most: float | None = None
    ) -> T:
        """The number itself if it is finite and within the bounds (inclusive)."""
        size: Any = number
        if not math.isfinite(size):
            raise self.error(key, "must be a finite number")
        if least is not None and size < least:
            raise self.error(key, f"must be at least {least:g}, not {size:g}")
        if most is not None and size > most:
            raise self.error(key, f"must be at most {most:g}, not {size:g}")
        return number

    def dataclass(
        self, cls: type[T], defaults: T | None = None, *, read: Mapping[str, Any] | None = None
    ) -> T:
        """An instance of a dataclass whose field names are the keys, see `fields`."""
        return cls(**self.fields(cls, defaults, read=read))

    def fields(
        self, cls: type[T], defaults: T | None = None, *, read: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The fields of a dataclass of numbers, flags, texts and choices, by name.

        What is left out is as in `defaults`, else as the class has it. A field's metadata may hold
        `min` and `max` (without `min` a number is not negative) and `unit`; where the unit is
        `seconds`, or the name ends in it, a duration may be given too; where it is
        `bytes a second`, a size may be, and it is 0 or at least `least`. A choice is a `Literal`,
        and its metadata may say under `kind` what is chosen. `read` holds the fields of other
        types, read by who calls.
        """
        fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(cls)  # type: ignore[arg-type]
        hints = get_type_hints(cls)
        self.refuse_unknown(field.name for field in fields)
        found = dict(read or {})
        for field in fields:
            if field.name not in found:
                default = getattr(defaults, field.name, field.default)
                found[field.name] = self._field(field, hints[field.name], default)
        return found

    def _field(self, field: dataclasses.Field[Any], kind: type, default: Any) -> Any:
        key = field.name
        if get_origin(kind) is Literal:
            choices = one_of(get_args(kind), field.metadata.get("kind", "choice"))
            return self.text(key, default, choices)
        if kind not in (int, float):
            return self.value(key, kind, default)
        if field.metadata.get("unit") == "bytes a second":
            return self.rate(key, default, field.metadata["least"])
        timed = field.metadata.get("unit") == "seconds" or key.endswith("_seconds")
        number: Any = (
            self.seconds(key, default)
            if kind is float and timed
            else self.value(key, kind, default)
        )
        return self.bounded(key, number, field.metadata.get("min", 0), field.metadata.get("max"))
