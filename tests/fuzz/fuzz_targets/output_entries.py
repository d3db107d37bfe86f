"""Values of members that become entries of other tools' files, and lines of allow lists."""

from __future__ import annotations

import json

from choices import Choices, piece

from hyperbloom.outputs import FORMATS, Allowed, Counts, Rendering
from hyperbloom.outputs.entries import MAX_NAME, LeftOut, entry_of, kind_of

MAX_BYTES = 2_100
RUNS = 20

_NAME = b"b\xc3\xbccher.Example."
_SEEDS = {
    "name": b"Bad.example.com.",
    "letters": _NAME,
    "wide": "Ｗｗｗ。ＥＸＡＭＰＬＥ．ｃｏｍ".encode(),
    "right-to-left": "ايران.example".encode(),
    "joiner": "ශ්\u200dරී.example".encode(),
    "mail": b"some.one+tag@" + _NAME,
    "address": b"192.0.2.7",
    "address6": b"2001:DB8:0::7",
    "mapped": b"64:ff9b::192.0.2.33",
    "network": b"192.0.2.0/24",
    "network6": b"2001:db8::/32",
}


def fuzz(data: bytes) -> bool:
    """A value by itself, in every format's file, or beside an allow list of some lines."""
    choices = Choices(data)
    read = choices.one_of((_entry, _files, _allowed))
    return read(choices)


def _entry(choices: Choices) -> bool:
    try:
        kind, entry = entry_of(choices.rest())
    except LeftOut:
        return False
    assert entry_of(entry) == (kind, entry), entry
    assert kind_of(entry) == kind, entry
    assert entry.isascii(), entry
    assert entry.decode().isprintable(), entry
    assert b" " not in entry, entry
    assert 0 < len(entry) <= MAX_NAME
    return True


def _files(choices: Choices) -> bool:
    value = choices.rest()
    rendering, found = Rendering(allowed=Allowed(), serial=1), set()
    for name, form in FORMATS.items():
        empty = b"".join(form.file([], rendering, Counts()))
        left_out = Counts()
        file = b"".join(form.file([[value]], rendering, left_out))
        assert left_out.total() == (file == empty), (name, file)
        if file != empty:
            found.add(name)
        if name in ("hosts", "dnsmasq", "unbound", "cidr", "ipset", "postfix", "lines"):
            assert file.count(b"\n") == empty.count(b"\n") + (file != empty), (name, file)
        if name == "json" and file != empty:
            assert json.loads(file) == [value.decode()]
    return bool(found - {"json", "csv", "lines"})


def _allowed(choices: Choices) -> bool:
    lines = list(choices.pieces(8))
    allowed = Allowed(lines)
    for line in lines:
        try:
            _, entry = entry_of(line)
        except LeftOut:
            continue
        if line.strip() == line and not line.startswith(b"#"):
            assert allowed.covers(line), line
            assert allowed.without(entry) == [], entry
    return allowed.of_no_kind < len(lines)


def seeds() -> dict[str, bytes]:
    """Each kind by itself and in files, and all as an allow list."""
    found = {f"entry-{name}": b"\x00" + value for name, value in _SEEDS.items()}
    found |= {f"files-{name}": b"\x01" + _SEEDS[name] for name in ("letters", "mail", "network")}
    found["allowed"] = b"\x02" + b"".join(map(piece, [*_SEEDS.values(), b"*.example.org"][-8:]))
    return found
