"""Each format as the tool that reads it takes it: 200,000 entries, and what would break a file."""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import os
import random
import socket
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from hostile_values import HOSTILE, built, is_text, values
from hypothesis import given, settings
from hypothesis import strategies as st
from output_tools import OutputTools, RefusedError

from hyperbloom.outputs import FORMATS
from hyperbloom.outputs.entries import LeftOut, entry_of

NAMES, ADDRESSES, ALL = (FORMATS[name].kinds for name in ("hosts", "cidr", "postfix"))

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789_-"


#: As many as a long list has.
COUNT = 200_000


def names(count: int) -> Iterator[str]:
    chosen = random.Random(19)
    for at in range(count):
        yield "".join(chosen.choices(LETTERS, k=8)).strip("-") + f".x{at}.example.com"
    yield ".".join(["a" * 63, "b" * 63, "c" * 63, "d" * 57, "com"])
    yield from ("bücher.example", "EXAMPLE.net.", "a.xn--p1ai", "xn--a.example", "_._.com")


def addresses(count: int) -> Iterator[str]:
    chosen = random.Random(20)
    for at in range(count // 2):
        four = ipaddress.IPv4Address(chosen.randrange(1 << 24, 127 << 24))
        six = ipaddress.IPv6Address((0x2001 << 112) | chosen.getrandbits(112))
        yield from (str(four), str(six))
        if at % 10 == 0:
            yield str(ipaddress.ip_network((int(four) >> 8 << 8, 24)))
            yield str(ipaddress.ip_network((int(six) >> 64 << 64, 64)))
    yield "2001:db8:1::"


@functools.cache
def many(kinds: frozenset[str]) -> tuple[bytes, ...]:
    """Values of these kinds, `COUNT` in all or some more; and hostile values."""
    found: list[str] = []
    if "domain" in kinds:
        found += names(COUNT // len(kinds))
    if "mail" in kinds:
        found += (f"{name}@x.org" for name in names(COUNT // len(kinds)))
    if "address" in kinds:
        found += addresses(COUNT // (1 if "network" in kinds else len(kinds)))
    return tuple(sorted({*(text.encode() for text in found), *HOSTILE, *built(COUNT // 10, 20)}))


def spelled(kinds: frozenset[str], values: Iterable[bytes]) -> set[str]:
    """What of these is in a file, each value taken by itself."""
    found = set()
    for value in values:
        try:
            kind, entry = entry_of(value)
        except LeftOut:
            continue
        if kind in kinds:
            found.add(entry.decode("ascii"))
    return found


@functools.cache
def many_spelled(kinds: frozenset[str]) -> frozenset[str]:
    """What of many values is in a file."""
    found = spelled(kinds, many(kinds))
    assert len(found) > 0.99 * COUNT
    return frozenset(found)


#: What is allowed in each format that writes exceptions; no value is any of it.
ALLOW = {
    "dnsmasq": [b"www.example.com", b"com"],
    "unbound": [b"www.example.com", b"com.example"],
    "rpz": [b"www.example.com"],
    "postfix": [b"www.example.com"],
}

#: The entries of some kinds that a file should have.
Entries = Callable[[frozenset[str]], "frozenset[str] | set[str]"]


def the_c_library(tools: OutputTools, path: Path, entries: Entries) -> None:
    assert set(tools.hosts(path)) == entries(NAMES)


def takes_but(read: Callable[[Path], object], path: Path, wrong: bytes) -> None:
    """The file is taken, and with a wrong line at its end it is refused."""
    read(path)
    with path.open("ab") as file:
        file.write(wrong)
    with pytest.raises(RefusedError):
        read(path)


def dnsmasq(tools: OutputTools, path: Path, entries: Entries) -> None:
    takes_but(tools.dnsmasq, path, b"local=/a\n")


def unbound(tools: OutputTools, path: Path, entries: Entries) -> None:
    takes_but(tools.unbound, path, b'local-zone: "a..b" always_nxdomain\n')


def bind(tools: OutputTools, path: Path, entries: Entries) -> None:
    owners = tools.rpz(path)
    names = {name for name in entries(NAMES) if len(name) <= 190}
    passed = {"www.example.com", "*.www.example.com"}
    assert {name for name, target in owners.items() if target == "rpz-passthru."} == passed
    assert set(owners) - passed == names | {f"*.{name}" for name in names}


def nft(tools: OutputTools, path: Path, entries: Entries) -> None:
    try:
        sets = tools.nftables(path)
    except RefusedError as reason:
        if os.geteuid() and "Message too long" in str(reason):
            pytest.skip(f"only root may send the kernel so much at once: {reason}")
        raise
    for version, sign in ((4, "."), (6, ":")):
        expected = [text.partition("/") for text in entries(ADDRESSES) if sign in text]
        networks = (block(address, length) for address, _, length in expected)
        assert joined(map(held, sets[f"ipv{version}"])) == joined(networks)


def ipset(tools: OutputTools, path: Path, entries: Entries) -> None:
    sets = tools.ipset(path)
    assert set(sets) == {"hyperbloom4", "hyperbloom6"}
    assert sets["hyperbloom4"] | sets["hyperbloom6"] == entries(ADDRESSES)
    assert not any(":" in entry for entry in sets["hyperbloom4"])


def postmap(tools: OutputTools, path: Path, entries: Entries) -> None:
    rows = tools.postfix(path)
    assert rows.pop("www.example.com") == "DUNNO"
    assert set(rows) == {key.lower() for key in entries(ALL) if not key.startswith("#")}
    assert set(rows.values()) <= {"REJECT"}


def number(address: str) -> int:
    """An address as a number; `ipaddress` takes ten times as long."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return int.from_bytes(socket.inet_pton(family, address))


def block(address: str, length: str | int) -> tuple[int, int]:
    """First and last address of a network, or of an address, which has no length."""
    bits = 128 if ":" in address else 32
    first = number(address)
    return first, first + (1 << (bits - int(length or bits))) - 1


def held(element) -> tuple[int, int]:
    """First and last address of an element of a set, as nft prints it as JSON."""
    if isinstance(element, str):
        return block(element, "")
    if "prefix" in element:
        return block(element["prefix"]["addr"], element["prefix"]["len"])
    first, last = element["range"]
    return number(first), number(last)


def joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The fewest ranges with the same addresses."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found


#: The reader of each format, and the namespace and the script without which it cannot read.
READERS = {
    "hosts": (the_c_library, ("--mount",)),
    "dnsmasq": (dnsmasq, ()),
    "unbound": (unbound, ()),
    "rpz": (bind, ()),
    "nftables": (nft, ("--net",)),
    "ipset": (ipset, ("--net", "ipset create a hash:net")),
    "postfix": (postmap, ()),
}


@pytest.mark.parametrize("name", READERS)
def test_its_tool_reads_a_long_file(tools: OutputTools, in_format, name: str) -> None:
    read, needed = READERS[name]
    if needed:
        tools.needs(*needed)
    path = tools.folder / f"many.{name}"
    path.write_bytes(in_format(name, many(FORMATS[name].kinds), allow=ALLOW.get(name, ()))[0])
    read(tools, path, many_spelled)


@pytest.mark.parametrize("name", READERS)
def test_its_tool_reads_what_would_break_a_file(tools: OutputTools, in_format, name: str) -> None:
    read, needed = READERS[name]
    if needed:
        tools.needs(*needed)
    path = tools.folder / f"hostile.{name}"

    @settings(derandomize=True, max_examples=30)
    @given(some=st.lists(values, max_size=100))
    def broken_by(some: list[bytes]) -> None:
        path.write_bytes(in_format(name, some, allow=ALLOW.get(name, ()))[0])
        read(tools, path, functools.partial(spelled, values=some))

    broken_by()


def test_json_reads_a_long_array(in_format) -> None:
    file, _ = in_format("json", many(ALL))
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        rows = database.execute("SELECT value FROM json_each(?)", [file.decode()])
        # SQLite's texts end at a NUL.
        expected = [value.decode().partition("\0")[0] for value in many(ALL) if is_text(value)]
        assert [text for (text,) in rows] == expected


def test_csv_reads_a_long_column(in_format) -> None:
    pyarrow, pyarrow_csv = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.csv")
    file, left_out = in_format("csv", many(ALL))
    table = pyarrow_csv.read_csv(
        pyarrow.BufferReader(file),
        parse_options=pyarrow_csv.ParseOptions(newlines_in_values=True),
        convert_options=pyarrow_csv.ConvertOptions(column_types={"value": pyarrow.binary()}),
    )
    (column,) = table.columns
    assert len(column) == len(many(ALL)) - sum(left_out.values())
    assert len(column) > 0.9 * len(many(ALL))
    assert set(column.to_pylist()) <= set(many(ALL))


def test_lines_are_lines_to_every_reader(in_format) -> None:
    file, left_out = in_format("lines", many(ALL))
    lines = file.splitlines()
    assert len(lines) == len(many(ALL)) - sum(left_out.values())
    assert len(lines) > 0.9 * len(many(ALL))
    assert set(lines) <= set(many(ALL))
    # Python's own knows more ends of a line than any other reader.
    assert [line.encode() for line in file.decode().splitlines()] == lines


def test_cidr_has_every_address_and_no_other(in_format) -> None:
    lines = in_format("cidr", many(ADDRESSES))[0].decode().splitlines()
    expected = [text.partition("/") for text in many_spelled(ADDRESSES)]
    for sign in (".", ":"):
        found = [block(*line.partition("/")[::2]) for line in lines if sign in line]
        assert found == sorted(found)
        assert joined(found) == joined(block(a, length) for a, _, length in expected if sign in a)
