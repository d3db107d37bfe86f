"""`wait-synced` and what `peers` says, among real nodes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from nodes import real_nodes


@pytest.fixture
def nodes(tmp_path: Path):
    with real_nodes(tmp_path) as made:
        yield made


def test_two_nodes_are_waited_for_by_key_prefix_and_address(nodes):
    owner = nodes.make("owner").start()
    owner.put(*[b"value %d" % number for number in range(2_000)])
    member = nodes.invited(owner, "member")
    for name in (owner.key.hex(), owner.key.hex()[:16], owner.address):
        done = member.command("wait-synced", name, "--feed", owner.key.hex(), "--timeout", "30")
        assert done.returncode == 0, done.stderr
        assert b"by digest: 2000 values" in done.stdout
    done = owner.command("wait-synced", member.key.hex(), "--timeout", "30", "--json")
    form = json.loads(done.stdout)
    assert form["digest"] == member.digest(owner.key) == owner.digest(owner.key)
    assert form["peers"][0]["source"] == "digest"
    (peer,) = member.peers(owner.key)
    assert (peer["in_sync"], peer["in_sync_by"]) == (True, "digest")
    assert b"ago, digest" in member.command("peers").stdout


def test_exit_codes_of_time_that_is_up_and_of_nobody(nodes):
    owner = nodes.make("owner").start()
    member = nodes.invited(owner, "member", config="[limits]\nvalue_bytes = 4\n")
    owner.put(b"too long for the member")
    done = owner.command("wait-synced", member.key.hex(), "--timeout", "3")
    assert done.returncode == 6
    assert b"differs (it had 0 values, this node 1 value)" in done.stderr
    done = owner.command("wait-synced", "0123456789abcdef", "--timeout", "3")
    assert done.returncode == 8
    assert b"members begins with 0123456789abcdef" in done.stderr
    member.kill()
    owner.wait_for_peers(owner.key, 0)
    done = owner.command("wait-synced", member.key.hex(), "--timeout", "1")
    assert done.returncode == 6
    assert b"is not connected" in done.stderr
