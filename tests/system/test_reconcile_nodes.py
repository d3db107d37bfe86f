"""Two real nodes find by symbols what they differ by: by which way, and with how many bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from nodes import real_nodes, wait_until


@pytest.fixture
def nodes(tmp_path: Path):
    with real_nodes(tmp_path) as made:
        yield made


def numbered(name: bytes, count: int) -> list[bytes]:
    return [b"%s %06d" % (name, number) for number in range(count)]


def apart(nodes, shared: int, different: int, config: str = ""):
    """An owner and a member that share values, each with some of its own; both are stopped."""
    owner = nodes.make("owner", config=config).start()
    member = nodes.invited(owner, "member")
    values = numbered(b"shared", shared)
    for first in range(0, shared, 10_000):
        owner.put(*values[first : first + 10_000])
    member.wait_for_count(owner.key, shared)
    owner.stop()
    member.put(*numbered(b"member's", different), feed=owner.key)
    member.stop()
    owner.start()
    owner.put(*numbered(b"owner's", different))
    return owner, member


def equal(owner, member) -> bool:
    return owner.digest(owner.key) == member.digest(owner.key)


def test_a_hundred_each_among_twenty_thousand_cost_twelve_kilobytes(nodes):
    owner, member = apart(nodes, 20_000, 100)
    member.start()
    wait_until(lambda: equal(owner, member), 20, "both have the same")
    assert owner.count() == 20_200
    (peer,) = member.peers(owner.key)
    last = peer["last_round"]
    assert (last["way"], last["differences"]) == ("sketch", 200)
    assert peer["last_sync_sent"] is None
    values = sum(map(len, numbered(b"owner's", 100) + numbered(b"member's", 100)))
    assert peer["bytes_in"] + peer["bytes_out"] - values <= 12_288
    done = member.command("wait-synced", owner.key.hex(), "--feed", owner.key.hex())
    assert done.returncode == 0, done.stderr
    assert b"by digest: 20200 values" in done.stdout
    (there,) = owner.peers(owner.key)
    assert there["last_round"] is None, "one try was enough for both"


def test_with_it_off_on_one_side_filters_do_it(nodes):
    owner, member = apart(nodes, 3_000, 20, "[sync]\nreconcile = false\n")
    member.start()
    wait_until(lambda: equal(owner, member), 20, "both have the same")
    (peer,) = member.peers(owner.key)
    assert peer["last_round"]["way"] == "filters"
    assert not any("reconcile" in name for name in peer["extensions"])
