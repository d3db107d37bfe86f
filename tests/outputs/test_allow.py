"""What is allowed never comes out, nor what covers it."""

from __future__ import annotations

import ipaddress
import json

import pytest
from hostile_values import values
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperbloom.outputs import FORMATS, Allowed


@pytest.mark.parametrize(
    ("line", "value", "is_out"),
    [
        ("example.com", "example.com", False),
        ("example.com", "WWW.Example.com.", False),
        ("example.com", "a@www.example.com", False),
        ("example.com", "notexample.com", True),
        ("example.com", "com.example", True),
        ("www.example.com", "example.com", True),
        ("*.example.com", "a.example.com", False),
        (".Example.com", "a.example.com", False),
        ("com", "a.example.com", False),
        ("bücher.example", "xn--bcher-kva.example", False),
        ("a@example.com", "a@example.com", False),
        ("a@example.com", "b@example.com", True),
        ("192.0.2.7", "192.0.2.7", False),
        ("192.0.2.7", "192.0.2.8", True),
        ("192.0.2.7/24", "192.0.2.9", False),
        ("192.0.0.0/16", "192.0.2.0/24", False),
        ("2001:db8::/32", "2001:db8::1", False),
        ("2001:db8::/32", "2001:db9::1", True),
        ("# 192.0.2.7", "192.0.2.7", True),
        ("", "192.0.2.7", True),
    ],
)
def test_what_an_entry_covers(in_format, line: str, value: str, is_out: bool) -> None:
    lines, left_out = in_format("lines", [value.encode()], allow=[line.encode()])
    assert (bool(lines), left_out["allowed"]) == (is_out, not is_out)
    # And where values become entries.
    taken = 0
    for name in ("hosts", "cidr", "ipset", "nftables", "postfix"):
        if in_format(name, [value.encode()])[1]:
            continue  # it takes no such value
        file, left_out = in_format(name, [value.encode()], allow=[line.encode()])
        exceptions, _ = in_format(name, [], allow=[line.encode()])
        assert ((file != exceptions), left_out["allowed"]) == (is_out, not is_out)
        taken += 1
    assert taken


def test_a_network_is_carved(in_format) -> None:
    file, left_out = in_format("cidr", [b"192.0.2.0/29", b"192.0.2.3"], allow=[b"192.0.2.3"])
    assert file == b"192.0.2.0/31\n192.0.2.2\n192.0.2.4/30\n"
    assert left_out == {"allowed": 1}


@settings(derandomize=True, max_examples=100)
@given(
    blocked=st.lists(st.tuples(st.integers(0, 255), st.integers(0, 8)), max_size=12),
    allowed=st.lists(st.tuples(st.integers(0, 255), st.integers(0, 8)), max_size=6),
)
def test_what_is_left_is_what_is_not_allowed(in_format, blocked, allowed) -> None:
    def networks(parts):
        return [
            ipaddress.ip_network((0xC6336400 + (at >> free << free), 32 - free))
            for at, free in parts
        ]

    def addresses(some):
        return {address for one in some for address in one}

    here, there = networks(blocked), networks(allowed)
    texts = [[str(one).encode() for one in some] for some in (here, there)]
    for name, pattern in (("cidr", b""), ("ipset", b"add hyperbloom4-new ")):
        file, _ = in_format(name, texts[0], allow=texts[1], step=3)
        lines = [line for line in file.splitlines() if line.startswith(pattern)]
        lines = [line for line in lines if b"hyperbloom" not in line or line.startswith(b"add ")]
        found = [
            ipaddress.ip_network(line.removeprefix(pattern).removesuffix(b" -exist").decode())
            for line in lines
        ]
        assert addresses(found) == addresses(here) - addresses(there)


def test_what_is_allowed_below_a_blocked_name_is_an_exception(in_format) -> None:
    allow = [b"www.example.com", b"a@example.com", b"#b@example.com", b"x.rpz-ip"]
    lines = {
        name: in_format(name, [b"example.com"], allow=allow)[0].decode().splitlines()
        for name in FORMATS
    }
    assert lines["dnsmasq"] == [
        "server=/www.example.com/#",
        "server=/x.rpz-ip/#",
        "local=/example.com/",
    ]
    assert lines["unbound"][1] == 'local-zone: "www.example.com." always_transparent'
    assert lines["rpz"][3:] == [
        "www.example.com CNAME rpz-passthru.",
        "*.www.example.com CNAME rpz-passthru.",
        "example.com CNAME .",
        "*.example.com CNAME .",
    ]
    assert lines["postfix"] == [
        "a@example.com DUNNO",
        "www.example.com DUNNO",
        "x.rpz-ip DUNNO",
        "example.com REJECT",
    ]
    assert lines["hosts"] == ["0.0.0.0 example.com"]


def test_a_line_of_no_kind_holds_back_the_same_bytes_and_is_counted(in_format) -> None:
    allowed = Allowed([b"exmaple,com", b"example.com", b"# a remark", b" "])
    assert allowed.of_no_kind == 1
    assert in_format("lines", [b"exmaple,com"], allow=[b"exmaple,com"])[1] == {"allowed": 1}


@settings(derandomize=True, max_examples=100)
@given(some=st.lists(values, max_size=12), lines=st.lists(values, max_size=6))
def test_no_allowed_value_comes_out_whatever_it_is(in_format, some, lines) -> None:
    lines = [line for line in lines if line.strip() == line and not line.startswith(b"#")]
    file, _ = in_format("json", [*some, *lines], allow=lines)
    texts = json.loads(file)
    assert not any(Allowed(lines).covers(text.encode()) for text in texts)
    assert not {text.encode() for text in texts} & set(filter(None, lines))
