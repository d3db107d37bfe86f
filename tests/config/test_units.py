"""Durations, moments, sizes and addresses as people write and read them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperbloom.addresses import Address, check_listen
from hyperbloom.units import (
    format_duration,
    format_moment,
    format_size,
    parse_duration,
    parse_expiry,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30d", 2_592_000),
        ("12h", 43_200),
        ("45m", 2_700),
        ("90s", 90),
        ("1w", 604_800),
        ("1d12h", 129_600),
        ("0.5s", 0.5),
        (" 2H ", 7_200),
    ],
)
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "30", "d", "30 d", "-1d", "1y", "1d 2h", "0s", "1e3s", "١s", "101w" * 60, "infs"]
)
def test_what_is_no_duration(text):
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


def test_expiries():
    assert parse_expiry("1h", now=1_000.0) == 4_600.0
    assert parse_expiry("2001-09-09T01:46:41Z", now=1e9) == 1e9 + 1
    assert parse_expiry("2001-09-09T03:46:41+02:00", now=1e9) == 1e9 + 1
    assert parse_expiry("2001-09-10", now=1e9) == 1_000_080_000.0
    assert parse_expiry("never", now=1e9) == math.inf
    with pytest.raises(ValueError, match="in the past"):
        parse_expiry("2001-09-09", now=1e9)
    for text in ("", "tomorrow", "30", "2001-13-01"):
        with pytest.raises(ValueError, match="neither a duration"):
            parse_expiry(text, now=0.0)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.9, "0s"),
        (-5, "0s"),
        (59, "59s"),
        (60, "1m"),
        (3_661, "1h 1m"),
        (86_400, "1d"),
        (86_405, "1d"),
        (2_592_000 - 1, "30d"),
        (2_592_000 - 2, "30d"),
        (2_592_000 - 1_801, "29d 23h"),
        (3_599, "59m 59s"),
        (86_370, "1d"),
        (86_369, "23h 59m"),
        (84_600, "23h 30m"),
        (3_700, "1h 2m"),
        (10 * 86_400 + 20 * 3_600, "10d 20h"),
        (99 * 86_400 + 20 * 3_600, "99d 20h"),
        (25_515 * 86_400 + 22 * 3_600, "25516d"),
    ],
)
def test_durations_for_people(seconds, text):
    assert format_duration(seconds) == text


def test_moments_for_people():
    assert format_moment(1e9) == "2001-09-09 01:46 UTC"
    assert format_moment(math.inf) == "never"
    assert format_moment(1e18) == "never"
    assert format_moment(-math.inf) == "always past"


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (150 * 1024, "150 KiB"),
     (5 * 2**40, "5.0 TiB"), (3 * 2**30 + 2**29, "3.5 GiB")],
)  # fmt: skip
def test_sizes_for_people(size, text):
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("example.org:4365", "example.org", 4365),
        ("localhost:1", "localhost", 1),
        ("192.0.2.1:65535", "192.0.2.1", 65535),
        ("[2001:db8::1]:80", "2001:db8::1", 80),
        ("node_1.internal.:80", "node_1.internal.", 80),
    ],
)
def test_addresses(text, host, port):
    assert Address.parse(text) == (host, port)
    assert str(Address(host, port)) == text


@given(st.text(max_size=30))
def test_any_text_is_an_address_or_refused_with_a_sentence(text):
    try:
        host, port = Address.parse(text)
    except ValueError:
        return
    assert host.isprintable()
    assert 0 < port <= 65_535
    assert str(Address(host, port)).rpartition(":")[0] == text.rpartition(":")[0]


@given(st.text(alphabet="tcp6:=\\interfacbklog0123456789.", max_size=40))
def test_any_text_is_an_endpoint_or_refused(text):
    try:
        assert check_listen(text) == text
    except ValueError:
        return
    assert text.startswith(("tcp:", "tcp6:"))


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1 B", 1), ("500 KiB", 512_000), ("500 kb", 500_000), ("2MB", 2_000_000),
        (" 1.5 MiB ", 1_572_864), ("1 GB", 10**9), ("1 GiB", 2**30),
    ],
)  # fmt: skip
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "5", "KiB", "5 TB", "-1 MB", "1e3 KB", "5  KB", "5 KB/s", "\u0665 KB"]
)
def test_what_is_no_size(text):
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)
