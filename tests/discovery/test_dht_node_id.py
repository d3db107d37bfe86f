"""Ids that follow from addresses: the vectors of BEP-42, and what is exempt."""

from __future__ import annotations

import random

import pytest

from hyperbloom.addresses import Address, Scope, scope_of
from hyperbloom.discovery.dht.common.node_id import is_secure, make_node_id

VECTORS = [
    ("124.31.75.21", 1, "5fbfbf"),
    ("21.75.31.124", 86, "5a3ce9"),
    ("65.23.51.170", 22, "a5d432"),
    ("84.124.73.14", 65, "1b0321"),
    ("43.213.53.83", 90, "e56f6c"),
]


@pytest.mark.parametrize(("host", "chance", "prefix"), VECTORS)
def test_the_vectors(host: str, chance: int, prefix: str) -> None:
    head = bytes.fromhex(prefix)
    assert is_secure(head + bytes(16) + bytes([chance]), host)
    # The 21st bit counts, the 22nd does not.
    assert not is_secure(head[:2] + bytes([head[2] ^ 8]) + bytes(16) + bytes([chance]), host)
    assert is_secure(head[:2] + bytes([head[2] ^ 4]) + bytes(16) + bytes([chance]), host)
    made = make_node_id(host, lambda count: bytes(count - 1) + bytes([chance]))
    assert made.hex()[:5] == prefix[:5]
    assert made[2] & 0xF8 == head[2] & 0xF8
    assert made[-1] == chance


@pytest.mark.parametrize("host", ["124.31.75.21", "9.9.9.9", "2620:fe::fe", "2a00:1450::8"])
def test_ids_made_for_an_address_fit_it_and_no_other(host: str) -> None:
    chance = random.Random(1)
    for _ in range(50):
        made = make_node_id(host, chance.randbytes)
        assert is_secure(made, host)
        assert not is_secure(made, "8.8.8.8")
    assert len({make_node_id(host, chance.randbytes) for _ in range(50)}) == 50


@pytest.mark.parametrize("host", ["127.0.0.1", "10.1.2.3", "192.168.0.9", "169.254.1.1", "::1"])
def test_local_addresses_are_exempt(host: str) -> None:
    assert is_secure(bytes(20), host)
    assert not is_secure(b"\x55" * 20, host, exempt_local=False)


def test_scopes() -> None:
    assert scope_of("127.8.8.8") == scope_of("::1") == Scope.LOOPBACK
    assert scope_of("169.254.169.254") == scope_of("fe80::1") == Scope.LINK
    assert scope_of("172.16.0.1") == scope_of("100.64.0.1") == scope_of("fd00::1") == Scope.PRIVATE
    assert scope_of("8.8.8.8") == scope_of("2620:fe::fe") == Scope.GLOBAL
    for host in ("0.0.0.0", "224.0.0.1", "255.255.255.255", "ff02::1", "::", "example.org", ""):
        assert scope_of(host) is Scope.UNUSABLE
    within = ("::ffff:127.0.0.1", "2002:7f00:1::", "64:ff9b::a00:1", "2001:0:7f00:1::")
    for host in ("0.1.2.3", "240.0.0.1", *within):
        assert scope_of(host) is Scope.UNUSABLE


def may_name(teller: str, told: str) -> bool:
    return Address(teller, 6881).may_name(Address(told, 6881))


def test_nobody_further_out_names_what_is_further_in() -> None:
    assert may_name("8.8.8.8", "9.9.9.9")
    assert may_name("192.168.0.1", "9.9.9.9")
    assert may_name("127.0.0.1", "192.168.0.1")
    assert not may_name("8.8.8.8", "192.168.0.1")
    assert not may_name("8.8.8.8", "127.0.0.1")
    assert not may_name("192.168.0.1", "127.0.0.1")
    assert not may_name("192.168.0.1", "169.254.169.254")
    assert not may_name("127.0.0.1", "224.0.0.1")
