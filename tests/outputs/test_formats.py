"""Each format's file, read by a small parser of its syntax: no value leaves its place in it."""

from __future__ import annotations

import csv
import io
import ipaddress
import json
import re

import pytest
from hostile_values import HOSTILE, is_text, values
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperbloom.keys import Identity
from hyperbloom.outputs import FORMATS
from hyperbloom.replication.feed.tombstones import make_tombstone

NAME = r"[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})+"
#: A line of each format that is about an entry, and the lines around them.
LINES = {
    "hosts": (rf"0\.0\.0\.0 ({NAME})", []),
    "dnsmasq": (rf"local=/({NAME})/", []),
    "unbound": (rf'local-zone: "({NAME})\." always_nxdomain', ["server:"]),
    "rpz": (
        rf"({NAME}) CNAME \.",
        ["$TTL 300", "@ SOA localhost. nobody.localhost. 7 3600 600 86400 300", "@ NS localhost."],
    ),
    "cidr": (r"([0-9a-f.:]+(?:/\d+)?)", []),
    "ipset": (
        r"add hyperbloom[46]-new ([0-9a-f.:]+(?:/\d+)?) -exist",
        [
            "create hyperbloom4 hash:net family inet maxelem 16777216 -exist",
            "create hyperbloom4-new hash:net family inet maxelem 16777216 -exist",
            "flush hyperbloom4-new",
            "create hyperbloom6 hash:net family inet6 maxelem 16777216 -exist",
            "create hyperbloom6-new hash:net family inet6 maxelem 16777216 -exist",
            "flush hyperbloom6-new",
            "swap hyperbloom4-new hyperbloom4",
            "destroy hyperbloom4-new",
            "swap hyperbloom6-new hyperbloom6",
            "destroy hyperbloom6-new",
        ],
    ),
    "postfix": (r"([^#\s\"\\][^\s\"\\]*) REJECT", []),
}
NFT_ADD = re.compile(r"add element inet hyperbloom ipv[46] \{\n([0-9a-f.:, \n-]+)\n\}\n")


def entries_in(name: str, text: str) -> list[str]:
    """The entries of a file, which has the lines around them and no other."""
    pattern, around = LINES[name]
    lines = text.split("\n")
    assert lines.pop() == ""
    found = [(line, re.fullmatch(pattern, line)) for line in lines]
    others = [line for line, match in found if not match]
    if name == "rpz":
        others = [line for line in others if not re.fullmatch(rf"\*\.{NAME} CNAME \.", line)]
    assert others == around
    return [match[1] for _, match in found if match]


def nft_elements(text: str) -> list[str]:
    """The elements of a file of commands for nft."""
    assert NFT_ADD.sub("", text) == "".join(
        f"add table inet hyperbloom\n"
        f"add set inet hyperbloom ipv{version} {{ type ipv{version}_addr; flags interval; }}\n"
        f"flush set inet hyperbloom ipv{version}\n"
        for version in "46"
    )
    return [one for found in NFT_ADD.findall(text) for one in re.split(r", |,\n", found)]


@pytest.mark.parametrize("name", LINES)
@settings(derandomize=True, max_examples=60)
@given(some=st.lists(values, max_size=30))
def test_no_value_leaves_its_line(in_format, name, some) -> None:
    file, left_out = in_format(name, some, step=7)
    entries = entries_in(name, file.decode("ascii"))
    if name != "cidr":  # which joins
        assert len(entries) + sum(left_out.values()) == len(some)
    for entry in entries:
        assert len(entry) <= 253
        assert not re.search(r"(^|\.)(localhost|local|localdomain|arpa)$", entry)
        if name in ("cidr", "ipset"):
            network = ipaddress.ip_network(entry)
            assert not network.is_loopback
            assert not network.overlaps(ipaddress.ip_network(["::1", "127.0.0.0/8"]["." in entry]))


@settings(derandomize=True, max_examples=60)
@given(some=st.lists(values, max_size=30))
def test_no_value_leaves_its_element(in_format, some) -> None:
    file, _ = in_format("nftables", some, step=7)
    for element in nft_elements(file.decode("ascii")):
        first, _, last = element.partition("-")
        begin, end = ipaddress.ip_address(first), ipaddress.ip_address(last or first)
        assert begin <= end  # type: ignore[operator]
        assert not begin.is_loopback


@settings(derandomize=True, max_examples=100)
@given(some=st.lists(values, max_size=30))
def test_no_text_leaves_its_place(in_format, some) -> None:
    file, left_out = in_format("json", some, step=7)
    texts = json.loads(file)
    assert [text.encode() for text in texts] == [v for v in some if is_text(v)]
    assert left_out["no UTF-8"] == len(some) - len(texts)
    assert file.isascii()

    file, left_out = in_format("lines", some, step=7)
    lines = file.decode().splitlines()
    assert len(lines) + sum(left_out.values()) == len(some)
    assert all(line.strip() == line and not line.startswith("#") for line in lines)
    assert set(lines) <= set(texts)

    file, left_out = in_format("csv", some, step=7)
    head, *rows = csv.reader(io.StringIO(file.decode(), newline=""), strict=True)
    assert head == ["value"]
    assert len(rows) + sum(left_out.values()) == len(some)
    assert all(len(row) == 1 and row[0].lstrip()[:1] not in list("=+-@") for row in rows)
    assert {row[0] for row in rows} <= set(texts)


@pytest.mark.parametrize("name", FORMATS)
def test_slices_make_no_difference(in_format, name) -> None:
    some = [
        *HOSTILE,
        b"a.example.com",
        b"B.example.com.",
        b"192.0.2.0/24",
        b"192.0.2.7",
        b"x@y.org",
    ]
    whole = in_format(name, some)
    assert in_format(name, some, step=1) == whole
    assert in_format(name, some, step=3) == whole
    assert whole[0]


@pytest.mark.parametrize("name", FORMATS)
def test_an_empty_feed_is_a_file_too(in_format, name) -> None:
    file, left_out = in_format(name, [])
    assert not left_out
    if name in LINES:
        assert entries_in(name, file.decode()) == []


ORDINARY = [
    b"192.0.2.128/25",
    b"192.0.2.0/25",
    b"192.0.2.7",
    b"2001:DB8::0:1",
    b"198.51.100.7",
    b"Bad.Example.com.",
    b"b\xc3\xbccher.example",
    b"mail@Example.org",
    b"under_score.example.net",
]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("hosts", ["bad.example.com", "xn--bcher-kva.example", "under_score.example.net"]),
        ("unbound", ["bad.example.com", "xn--bcher-kva.example", "under_score.example.net"]),
        ("cidr", ["192.0.2.0/24", "198.51.100.7", "2001:db8::1"]),
        (
            "ipset",
            ["192.0.2.128/25", "192.0.2.0/25", "192.0.2.7", "198.51.100.7", "2001:db8::1"],
        ),
        (
            "postfix",
            [
                "192.0.2.7",
                "2001:db8::1",
                "198.51.100.7",
                "bad.example.com",
                "xn--bcher-kva.example",
                "mail@example.org",
                "under_score.example.net",
            ],
        ),
    ],
)
def test_what_a_format_takes(in_format, name, expected) -> None:
    file, left_out = in_format(name, ORDINARY)
    found = entries_in(name, file.decode())
    assert (sorted if name == "ipset" else list)(found) == (
        sorted(expected) if name == "ipset" else expected
    )
    if name != "cidr":
        assert left_out == {"of another kind": len(ORDINARY) - len(expected)}


@pytest.mark.parametrize("name", FORMATS)
def test_a_tombstone_is_for_nodes_alone(in_format, name) -> None:
    identity = Identity(b"i" * 32)
    some = [make_tombstone(identity, b"f" * 32, value) for value in (b"a.example.com", b"1.2.3.4")]
    assert in_format(name, some) == (in_format(name, [])[0], {"tombstone": 2})
    assert in_format(name, [*ORDINARY, *some])[0] == in_format(name, ORDINARY)[0]


def test_nft_gets_ranges(in_format) -> None:
    file, _ = in_format("nftables", ORDINARY)
    assert nft_elements(file.decode()) == ["192.0.2.0-192.0.2.255", "198.51.100.7", "2001:db8::1"]


def test_a_name_that_no_zone_can_hold_is_left_out(in_format) -> None:
    longest = b".".join([b"a" * 63, b"b" * 63, b"c" * 58, b"com"])
    assert len(longest) == 190
    file, left_out = in_format("rpz", [longest, b"d." + longest])
    assert entries_in("rpz", file.decode()) == [longest.decode()]
    assert left_out == {"too long": 1}
    assert entries_in("hosts", in_format("hosts", [b"d." + longest])[0].decode())


def test_a_name_and_one_character_more(in_format) -> None:
    longest = b".".join([b"a" * 63, b"b" * 63, b"c" * 63, b"d" * 57, b"com"])
    assert len(longest) == 253
    file, left_out = in_format(
        "hosts", [longest, longest.replace(b"d", b"dd", 1), longest.upper() + b"."]
    )
    assert entries_in("hosts", file.decode()) == [longest.decode()] * 2
    assert left_out == {"too long": 1}
