"""The `[[outputs]]`, `[[inputs]]` and `[[hooks]]` of the configuration."""

from __future__ import annotations

import dataclasses
import ipaddress
import urllib.parse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from hyperbloom.config.table import ConfigTable, one_of
from hyperbloom.feed_words import check_alias, check_feed_name
from hyperbloom.integrations.limits import MAX_INTEGRATIONS
from hyperbloom.integrations.settings import (
    FORMAT_NAMES,
    SET_FORMATS,
    HookSettings,
    InputSettings,
    IntegrationsSettings,
    OutputSettings,
)

__all__ = ["read_integrations"]

T = TypeVar("T", OutputSettings, InputSettings, HookSettings)

_HEX_KEYS = ("start_hex", "end_hex", "prefix_hex")

#: Permissions of a file: its owner's at least, and nothing that runs it or takes its owner's place.
_MODES = range(0o400, 0o1000)


def read_integrations(
    root: ConfigTable, base: Path, *, kept: Iterable[Path] = ()
) -> IntegrationsSettings:
    """What the file says of them; relative paths begin at `base`. Raises `ConfigError`.

    ``kept``: the node's own files and folders, which no output may replace.
    """
    found = IntegrationsSettings(
        outputs=_read(root, "outputs", base, _output),
        inputs=_read(root, "inputs", base, _input),
        hooks=_read(root, "hooks", base, _hook),
    )
    if sum(1 for _ in found) > MAX_INTEGRATIONS:
        raise root.error(
            "[[outputs]], [[inputs]] and [[hooks]]",
            f"a node has at most {MAX_INTEGRATIONS} of them together; leave some out",
        )
    _check_places(root, found, kept)
    return found


def _check_places(root: ConfigTable, found: IntegrationsSettings, kept: Iterable[Path]) -> None:
    """No output is written over another one, nor over what the node keeps or reads."""
    read = (*(one.allow for one in found.outputs), *(one.path for one in found.inputs))
    own = [_real(path) for path in (*kept, *read) if path is not None]
    seen: dict[Path, str] = {}
    for number, output in enumerate(found.outputs):
        table = root.tables("outputs")[number].titled(f"[[outputs]] {number + 1}")
        place = _real(output.path)
        for path in own:
            if place.is_relative_to(path) or path.is_relative_to(place):
                raise table.error("path", f"{place} would replace {path}, which the node uses")
        if place in seen:
            raise table.error("path", f"is that of {seen[place]!r}, too; give each its own file")
        seen[place] = output.name


def _real(path: Path) -> Path:
    """Where a file is, by whatever links its folder is named; its own name may be that of one."""
    return path.parent.resolve() / path.name


def _read(
    root: ConfigTable, key: str, base: Path, read: Callable[[ConfigTable, Path], T]
) -> tuple[T, ...]:
    found: list[T] = []
    for number, item in enumerate(root.tables(key), 1):
        table = item.titled(f"[[{key}]] {number}")
        one = read(table, base)
        if any(one.name == other.name for other in found):
            raise table.error("name", f"{one.name!r} names two of them; choose another")
        found.append(one)
    return tuple(found)


def _common(table: ConfigTable) -> dict[str, Any]:
    return {
        "name": _needed(table, "name", "it is what commands and the status page call it", _name),
        "feed": table.text("feed", "", check_feed_name) or None,
    }


def _name(text: str) -> str:
    try:
        return check_alias(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is no name: it has 1 to 63 letters, digits, '.', '_' or '-', and begins "
            "with a letter or digit"
        ) from None


def _needed(
    table: ConfigTable, key: str, what: str, check: Callable[[str], object] | None = None
) -> str:
    if key not in table:
        raise table.error(key, f"is missing; {what}")
    return table.text(key, "", check)


def _output(table: ConfigTable, base: Path) -> OutputSettings:
    fields = [field.name for field in dataclasses.fields(OutputSettings)]
    table.refuse_unknown((*fields, *_HEX_KEYS))
    form = _needed(table, "format", "see docs/outputs.md", one_of(FORMAT_NAMES, "format"))
    _needed(table, "path", "it is the file to keep")
    start, end, prefix = (table.bytes_of(key) for key in ("start", "end", "prefix"))
    if end is not None and end <= (start or b""):
        raise table.error("end", "must be greater than the start, in the order of bytes")
    if "set_name" in table and form not in SET_FORMATS:
        formats = " or ".join(f'"{one}"' for one in SET_FORMATS)
        raise table.error("set_name", f"goes with format = {formats} alone")
    if "allow" in table and "allow_feed" in table:
        raise table.error("allow", "give allow or allow_feed, not both")
    return table.without(_HEX_KEYS).dataclass(
        OutputSettings,
        read=_common(table)
        | {
            "path": table.path("path", base, ""),
            "format": form,
            "start": start or b"",
            "end": end,
            "prefix": prefix or b"",
            "mode": _mode(table),
            "set_name": table.text("set_name", "hyperbloom", _set_name),
            "allow": table.path("allow", base, "") if "allow" in table else None,
            "allow_feed": table.text("allow_feed", "", check_feed_name) or None,
            "command": _command(table),
        },
    )


def _mode(table: ConfigTable) -> int:
    text = table.text("mode", "0644")
    try:
        mode = int(text, 8)
    except ValueError:
        mode = -1
    if mode not in _MODES or mode & 0o111:
        raise table.error("mode", f'{text!r} is no mode of a file such as "0644" or "0600"')
    return mode


def _set_name(text: str) -> str:
    # Loaded for who names a set alone: what a value is takes libraries.
    from hyperbloom.outputs.set_names import check_set_name

    return check_set_name(text)


def _command(table: ConfigTable) -> tuple[str, ...]:
    found = table.value("command", list, []) if "command" in table else []
    if "command" in table and not found:
        raise table.error("command", 'must name a program, as in ["/usr/bin/env", "true"]')
    for word in found:
        if not isinstance(word, str) or "\0" in word:
            raise table.error("command", "must be a list of texts in quotes, one per argument")
    if found and not found[0]:
        raise table.error("command", "the first text is the program, and is empty")
    return tuple(found)


def _input(table: ConfigTable, base: Path) -> InputSettings:
    if ("path" in table) == ("url" in table):
        raise table.error("path", "give either path or url: where the entries are")
    found = table.dataclass(
        InputSettings,
        read=_common(table)
        | {
            "path": table.path("path", base, "") if "path" in table else None,
            "url": _url(table, loopback=False),
            "column": table.text("column", "") or None,
            "pointer": table.text("pointer", "", _pointer) if "pointer" in table else None,
        },
    )
    for key, form in (("column", "csv"), ("pointer", "json")):
        if key in table and found.format != form:
            raise table.error(key, f'goes with format = "{form}" alone')
    if found.format == "csv" and found.column is None:
        raise table.error("column", "is missing; a csv has several, name one or give its number")
    return found


def _pointer(text: str) -> str:
    if text and not text.startswith("/"):
        raise ValueError(
            f"{text!r} is no JSON pointer: it begins with /, or is empty for the whole"
        )
    return text


def _hook(table: ConfigTable, base: Path) -> HookSettings:
    if ("command" in table) == ("url" in table):
        raise table.error("command", "give either command or url: who is told")
    if "secret" in table and "url" not in table:
        raise table.error("secret", "goes with url alone")
    return table.dataclass(
        HookSettings,
        read=_common(table)
        | {
            "command": _command(table),
            "url": _url(table, loopback=True),
            "secret": table.secret_path("secret", base, "") if "secret" in table else None,
        },
    )


def _url(table: ConfigTable, *, loopback: bool) -> str | None:
    if "url" not in table:
        return None

    def check(text: str) -> None:
        try:
            parts = urllib.parse.urlsplit(text)
            port, host = parts.port, parts.hostname or ""
        except ValueError as error:
            raise ValueError(f"this is no URL ({error})") from None
        if not text.isascii() or not text.isprintable() or " " in text or not host or port == 0:
            raise ValueError("this is no URL; write https://HOST/PATH in ASCII")
        if parts.username is not None:
            raise ValueError("a URL holds no user name and no password here; leave them out")
        if parts.scheme == "https" or (loopback and parts.scheme == "http" and _is_loopback(host)):
            return
        also = ", or http:// for an address of this machine" if loopback else ""
        raise ValueError(f"must begin with https://{also}")

    return table.text("url", "", check)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
