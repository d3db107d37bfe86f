"""Each format as the tool that reads it takes it: 200,000 entries, and what others would break."""

from __future__ import annotations

import functools
import ipaddress
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile_values import HOSTILE, built
from output_tools import OutputTools, RefusedError

from hyperbloom.outputs import FORMATS
from hyperbloom.outputs.entries import LeftOut, entry_of

NAMES, ADDRESSES, ALL = (FORMATS[name].kinds for name in ("hosts", "cidr", "postfix"))

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789_-"


#: As many as a long list has; and fewer, for the runs of every day.
COUNTS = [20_000, pytest.param(200_000, marks=pytest.mark.soak)]


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
def many(kinds: frozenset[str], count: int) -> tuple[bytes, ...]:
    """Values of these kinds, `count` in all or some more; and hostile values."""
    found: list[str] = []
    if "domain" in kinds:
        found += names(count // len(kinds))
    if "mail" in kinds:
        found += (f"{name}@x.org" for name in names(count // len(kinds)))
    if "address" in kinds:
        found += addresses(count // (1 if "network" in kinds else len(kinds)))
    return tuple(sorted({*(text.encode() for text in found), *HOSTILE, *built(count // 10, 20)}))


def spelled(kinds: frozenset[str], count: int) -> set[str]:
    """What of these is in a file, each value taken by itself."""
    found = set()
    for value in many(kinds, count):
        try:
            kind, entry = entry_of(value)
        except LeftOut:
            continue
        if kind in kinds:
            found.add(entry.decode("ascii"))
    assert len(found) > 0.99 * count
    return found


@pytest.fixture
def written(in_format, tmp_path: Path):
    """A function that writes many values in a format, and gives the file's path."""

    def write(name: str, count: int, **options) -> Path:
        path = tmp_path / name
        path.write_bytes(in_format(name, many(FORMATS[name].kinds, count), **options)[0])
        return path

    return write


@pytest.mark.parametrize("count", COUNTS)
def test_the_c_library_reads_hosts(tools: OutputTools, written, count: int) -> None:
    tools.needs("--mount")
    assert set(tools.hosts(written("hosts", count))) == spelled(NAMES, count)


@pytest.mark.parametrize("count", COUNTS)
def test_dnsmasq_reads_its_file(tools: OutputTools, written, count: int) -> None:
    path = written("dnsmasq", count, allow=[b"www.example.com", b"com"])
    tools.dnsmasq(path)
    path.write_bytes(path.read_bytes() + b"local=/a\n")
    with pytest.raises(RefusedError):
        tools.dnsmasq(path)


@pytest.mark.parametrize("count", COUNTS)
def test_unbound_reads_its_file(tools: OutputTools, written, count: int) -> None:
    path = written("unbound", count, allow=[b"www.example.com", b"com.example"])
    tools.unbound(path)
    path.write_bytes(path.read_bytes() + b'local-zone: "a..b" always_nxdomain\n')
    with pytest.raises(RefusedError):
        tools.unbound(path)


@pytest.mark.parametrize("count", COUNTS)
def test_bind_reads_a_zone(tools: OutputTools, written, count: int) -> None:
    owners = tools.rpz(written("rpz", count, allow=[b"www.example.com"]))
    names = {name for name in spelled(NAMES, count) if len(name) <= 190}
    passed = {"www.example.com", "*.www.example.com"}
    assert {name for name, target in owners.items() if target == "rpz-passthru."} == passed
    assert set(owners) - passed == names | {f"*.{name}" for name in names}


@pytest.mark.parametrize("count", COUNTS)
def test_nft_reads_its_file(tools: OutputTools, written, count: int) -> None:
    tools.needs("--net")
    try:
        sets = tools.nftables(written("nftables", count))
    except RefusedError as reason:
        if os.geteuid() and "Message too long" in str(reason):
            pytest.skip(f"only root may send the kernel so much at once: {reason}")
        raise
    expected = [ipaddress.ip_network(text) for text in spelled(ADDRESSES, count)]
    for version in (4, 6):
        joined = ipaddress.collapse_addresses(one for one in expected if one.version == version)
        held = [part for element in sets[f"ipv{version}"] for part in ipaddress_ranges(element)]
        assert list(ipaddress.collapse_addresses(held)) == list(joined)


def ipaddress_ranges(element) -> list:
    """An element of a set, as nft prints it as JSON."""
    if isinstance(element, str):
        return [ipaddress.ip_network(element)]
    if "prefix" in element:
        return [ipaddress.ip_network("{addr}/{len}".format_map(element["prefix"]))]
    return list(ipaddress.summarize_address_range(*map(ipaddress.ip_address, element["range"])))


@pytest.mark.parametrize("count", COUNTS)
def test_ipset_reads_its_file(tools: OutputTools, written, count: int) -> None:
    tools.needs("--net", "ipset create a hash:net")
    sets = tools.ipset(written("ipset", count))
    assert set(sets) == {"hyperbloom4", "hyperbloom6"}
    assert sets["hyperbloom4"] | sets["hyperbloom6"] == spelled(ADDRESSES, count)
    assert not any(":" in entry for entry in sets["hyperbloom4"])


@pytest.mark.parametrize("count", COUNTS)
def test_postmap_reads_its_table(tools: OutputTools, written, count: int) -> None:
    rows = tools.postfix(written("postfix", count, allow=[b"www.example.com", b"1.2.3.4"]))
    expected = {key.lower() for key in spelled(ALL, count) if not key.startswith("#")} - {"1.2.3.4"}
    assert rows.pop("www.example.com") == "DUNNO"
    assert set(rows) == expected
    assert set(rows.values()) == {"REJECT"}
