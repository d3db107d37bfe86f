"""The choice of parents, latencies, the passphrase file, the settings."""

from __future__ import annotations

import itertools
import os

import pytest

from hyperbloom.objects.peers.parent_selection import Latency, ParentSelection
from hyperbloom.objects.settings import ObjectsSettings, is_loopback
from hyperbloom.passphrase import MAX_PASSPHRASE_BYTES, PassphraseError, load_passphrase


def choice(*addresses, wanted=2):
    return ParentSelection(
        addresses, wanted=wanted, probe_seconds=100.0, retry_first=1.0, retry_longest=60.0
    )


def test_as_many_parents_as_wanted_are_dialled_at_once():
    one = choice("a", "b", "c")
    assert list(one.dial(now=0)) == ["a", "b"]
    assert list(one.dial(now=1)) == []
    one.opened("a")
    one.ended("b", now=2, steady=False)
    assert list(one.dial(now=2)) == ["c"]


def test_an_address_that_fails_is_backed_off_from_more_each_time():
    one = choice("a", wanted=1)
    now, waits = 0.0, []
    for _ in range(12):
        begun = now
        while not one.dial(now=now):
            now += 0.1
        waits.append(now - begun)
        one.ended("a", now=now, steady=False)
    assert waits[0] == 0
    assert 0.9 < waits[1] < 1.2
    assert all(later > earlier - 0.2 for earlier, later in itertools.pairwise(waits))
    assert waits[-1] == pytest.approx(60.0, abs=0.3)
    while not one.dial(now=now):
        now += 0.1
    one.opened("a")
    one.ended("a", now=now, steady=True)
    assert not one.dial(now=now + 0.9)
    assert one.dial(now=now + 1.0)


def test_now_and_then_another_one_is_tried_and_the_faster_stays():
    one = choice("a", "b", "c")
    for address in one.dial(now=0):
        one.opened(address)
    assert not one.dial(now=99)
    assert list(one.dial(now=100)) == ["c"]
    one.opened("c")
    assert one.leave() is None, "nothing is left before all have been measured"
    for address, latency in (("a", 0.010), ("b", 0.100), ("c", 0.050)):
        one.measured(address, latency)
    assert one.leave() == "b"
    one.ended("b", now=110, steady=False)
    assert one.leave() is None
    assert not one.dial(now=150)
    assert list(one.dial(now=200)) == ["b"]
    one.opened("b")
    one.measured("b", 0.049)
    assert one.leave() == "b", "a little faster is not worth the change"
    one.ended("b", now=201, steady=False)
    assert list(one.dial(now=300)) == ["b"]


def test_while_one_is_tried_no_other_is():
    one = choice("a", "b", "c", "d")
    for address in one.dial(now=0):
        one.opened(address)
    assert list(one.dial(now=100)) == ["c"]
    assert not one.dial(now=200)
    one.opened("c")
    assert not one.dial(now=300)
    for address in ("a", "b", "c"):
        one.measured(address, 0.0)
    assert one.leave() == "c", "none of them is slower"
    one.ended("c", now=300, steady=True)
    assert not one.dial(now=399)
    assert list(one.dial(now=400)) == ["d"]


def test_of_those_that_may_be_dialled_the_untried_come_first_and_then_the_fastest():
    one = choice("slow", "fast", "untried", wanted=3)
    assert list(one.dial(now=0)) == ["slow", "fast", "untried"]
    for address, latency in (("slow", 0.100), ("fast", 0.020)):
        one.opened(address)
        one.measured(address, latency)
        one.ended(address, now=1, steady=True)
    assert list(one.dial(now=10)) == ["fast", "slow"]

    one = choice("slow", "fast", "untried", wanted=2)
    assert list(one.dial(now=0)) == ["slow", "fast"]
    for address, latency in (("slow", 0.100), ("fast", 0.020)):
        one.opened(address)
        one.measured(address, latency)
        one.ended(address, now=1, steady=True)
    assert list(one.dial(now=10)) == ["untried", "fast"]


def test_a_faster_one_has_to_be_faster_by_a_part_and_by_some_milliseconds():
    for older, newer, left in (
        (0.100, 0.080, "a"),
        (0.100, 0.081, "b"),
        (0.010, 0.008, "a"),
        (0.005, 0.0031, "b"),
        (0.050, 0.060, "b"),
    ):
        one = choice("a", "b", wanted=1)
        assert list(one.dial(now=0)) == ["a"]
        one.opened("a")
        assert not one.dial(now=99)
        assert list(one.dial(now=100)) == ["b"]
        one.opened("b")
        one.measured("a", older)
        assert one.leave() is None
        one.measured("b", newer)
        assert one.leave() == left, (older, newer)


def test_a_latency_counts_once_it_was_measured_a_few_times():
    latency = Latency()
    for round_trip in (0.2, 0.2):
        latency.measured(round_trip)
        assert latency.seconds is None
    assert latency.latest == pytest.approx(0.1)
    latency.measured(0.2)
    assert latency.seconds == pytest.approx(0.1)
    latency.measured(1.0)
    assert latency.seconds == pytest.approx(0.15)
    latency.measured(-1.0)
    assert latency.seconds == pytest.approx(0.13125)


def secret(tmp_path, data=b"a secret\n", mode=0o600):
    path = tmp_path / "passphrase"
    path.write_bytes(data)
    path.chmod(mode)
    return path


def test_a_passphrase_is_one_line(tmp_path):
    assert load_passphrase(secret(tmp_path)) == "a secret"
    assert load_passphrase(secret(tmp_path, "é".encode())) == "é"
    assert load_passphrase(secret(tmp_path, b"x\r\n", 0o400)) == "x"
    longest = b"x" * MAX_PASSPHRASE_BYTES
    assert load_passphrase(secret(tmp_path, longest + b"\n")) == longest.decode()


@pytest.mark.parametrize(
    ("data", "mode", "said"),
    [
        (b"x", 0o640, "chmod 600"),
        (b"x", 0o604, "chmod 600"),
        (b"", 0o600, "one line"),
        (b"\n", 0o600, "one line"),
        (b"a\nb\n", 0o600, "one line"),
        (b"x" * (MAX_PASSPHRASE_BYTES + 1), 0o600, "one line"),
        (b"\xff", 0o600, "UTF-8"),
    ],
)
def test_a_passphrase_file_that_cannot_be_used_says_why(tmp_path, data, mode, said):
    with pytest.raises(PassphraseError, match=said):
        load_passphrase(secret(tmp_path, data, mode))


def test_a_passphrase_is_not_read_from_what_is_no_file(tmp_path):
    with pytest.raises(PassphraseError, match="its path in the configuration"):
        load_passphrase(tmp_path / "missing")
    os.mkfifo(tmp_path / "fifo", 0o600)
    for path in (tmp_path, tmp_path / "fifo"):
        with pytest.raises(PassphraseError, match="regular"):
            load_passphrase(path)


@pytest.mark.parametrize(
    ("endpoint", "alone"),
    [
        ("tcp:6000:interface=127.0.0.1", True),
        ("tcp:6000:interface=\\:\\:1", True),
        ("tcp:6000:interface=localhost", True),
        ("tcp:6000", False),
        ("tcp:6000:interface=0.0.0.0", False),
        ("tcp:6000:interface=192.0.2.1", False),
    ],
)
def test_which_listeners_are_for_this_machine_alone(endpoint, alone):
    assert is_loopback(endpoint) == alone


def test_settings_refuse_what_cannot_be():
    with pytest.raises(ValueError, match="hash_rule"):
        ObjectsSettings(hash_rule="x")
    with pytest.raises(ValueError, match=r"."):
        ObjectsSettings(peers=("nowhere",))
