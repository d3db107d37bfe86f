"""What a value is, and in which spelling it comes out."""

from __future__ import annotations

import ipaddress

import pytest
from hostile_values import values
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hyperbloom.outputs.entries import LeftOut, entry_of, kind_of
from hyperbloom.outputs.joined import joined
from hyperbloom.outputs.networks import networks_of


@pytest.mark.parametrize(
    ("value", "entry"),
    [
        ("example.com", ("domain", "example.com")),
        ("EXAMPLE.com.", ("domain", "example.com")),
        ("bücher.example", ("domain", "xn--bcher-kva.example")),
        ("Bücher。example", ("domain", "xn--bcher-kva.example")),
        ("_dmarc.a_b.example", ("domain", "_dmarc.a_b.example")),
        ("1.example", ("domain", "1.example")),
        ("a.xn--p1ai", ("domain", "a.xn--p1ai")),
        ("192.0.2.7", ("address", "192.0.2.7")),
        ("2001:DB8:0::7", ("address", "2001:db8::7")),
        ("64:ff9b::192.0.2.7", ("address", "64:ff9b::c000:207")),
        ("192.0.2.0/24", ("network", "192.0.2.0/24")),
        ("2001:DB8::/32", ("network", "2001:db8::/32")),
        ("10.0.0.0/8", ("network", "10.0.0.0/8")),
        ("A.b+c@Example.COM", ("mail", "A.b+c@example.com")),
    ],
)
def test_one_spelling(value: str, entry: tuple[str, str]) -> None:
    kind, spelled = entry_of(value.encode())
    assert (kind, spelled.decode()) == entry
    assert kind_of(spelled) == kind


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("localhost", "reserved"),
        ("a.Localhost.", "reserved"),
        ("printer.local", "reserved"),
        ("1.in-addr.arpa", "reserved"),
        ("127.0.0.1", "reserved"),
        ("0.0.0.0", "reserved"),
        ("169.254.169.254", "reserved"),
        ("224.0.0.1", "reserved"),
        ("255.255.255.255", "reserved"),
        ("::1", "reserved"),
        ("::ffff:192.0.2.7", "reserved"),
        ("fe80::1", "reserved"),
        ("127.0.0.0/8", "reserved"),
        ("169.0.0.0/8", "reserved"),
        ("ff00::/16", "reserved"),
        ("root@localhost", "reserved"),
        ("0.0.0.0/0", "a network that covers too much"),
        ("128.0.0.0/7", "a network that covers too much"),
        ("2000::/15", "a network that covers too much"),
        ("192.0.2.1/24", "a network with bits beyond its prefix"),
        ("2001:db8::1/64", "a network with bits beyond its prefix"),
        ("192.0.2.0/255.255.255.0", "of no known kind"),
        ("2001:db8::1%eth0", "of no known kind"),
        ("010.0.0.1", "of no known kind"),
        ("1.2.3.4.", "of no known kind"),
        ("com", "of no known kind"),
        ("*.example.com", "of no known kind"),
        ("a..example.com", "of no known kind"),
        (" example.com", "of no known kind"),
        ("-a.example.com", "of no known kind"),
        ("a" * 64 + ".com", "of no known kind"),
        ("a" * 65 + "@example.com", "of no known kind"),
        ("a.b." + "c." * 130 + "com", "too long"),
        ("ä" * 600, "too long"),
    ],
)
def test_what_is_left_out(value: str, reason: str) -> None:
    with pytest.raises(LeftOut) as left_out:
        entry_of(value.encode())
    assert str(left_out.value) == reason


@settings(derandomize=True, max_examples=500)
@given(value=values)
def test_an_entry_is_its_own_spelling(value: bytes) -> None:
    try:
        kind, entry = entry_of(value)
    except LeftOut:
        return
    assert entry_of(entry) == (kind, entry)
    assert kind_of(entry) == kind


addresses = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6))


@settings(derandomize=True, max_examples=250)
@given(address=addresses)
def test_addresses_are_those_of_the_standard_library(address) -> None:
    own = ["0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3"]
    own += ["::/16", "fe80::/10", "ff00::/8"]
    if any(address in ipaddress.ip_network(one) for one in own):
        with pytest.raises(LeftOut, match="reserved"):
            entry_of(address.exploded.encode())
    else:
        assert entry_of(address.exploded.encode()) == ("address", str(address).encode())


def network(address: int, free: int, version: int):
    kind, bits = {4: (ipaddress.IPv4Network, 32), 6: (ipaddress.IPv6Network, 128)}[version]
    return kind((address >> free << free, bits - free))


@settings(derandomize=True, max_examples=150)
@given(
    version=st.sampled_from([4, 6]),
    parts=st.lists(st.tuples(st.integers(0, 300), st.integers(0, 9)), max_size=40),
    base=st.sampled_from([0, 0x0100_0000, 0x7FFF_FF00, 0xFFFF_FE00]),
)
def test_networks_are_joined_as_by_the_standard_library(version, parts, base) -> None:
    bits = {4: 32, 6: 128}[version]
    found = [network(base + address, free, version) for address, free in parts]
    texts = [str(one).removesuffix(f"/{bits}").encode() for one in found]
    part = joined([texts[:7], texts[7:]])[version == 6]
    again = [
        ipaddress.ip_network(text)
        for first, last in part.ranges()
        for text in networks_of(version, first, last)
    ]
    assert again == list(ipaddress.collapse_addresses(found))


@settings(derandomize=True, max_examples=150)
@given(one=addresses, other=addresses)
def test_a_range_becomes_the_fewest_networks(one, other) -> None:
    assume(one.version == other.version and one <= other)
    expected = list(ipaddress.summarize_address_range(one, other))
    found = networks_of(one.version, int(one), int(other))
    assert [ipaddress.ip_network(text) for text in found] == expected
