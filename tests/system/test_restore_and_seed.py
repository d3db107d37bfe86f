"""`restore` and `seed` on real nodes: a snapshot under load, a new member, refusals."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import pytest
from nodes import real_nodes, wait_until


@pytest.fixture
def nodes(tmp_path: Path):
    with real_nodes(tmp_path) as made:
        yield made


def test_a_node_goes_on_from_a_snapshot_taken_under_load(nodes, tmp_path):
    owner = nodes.make("owner").start()
    stop = threading.Event()

    def load():
        with owner.client() as client:
            for number in range(2_000):
                if stop.is_set():
                    return
                client.put([b"%05d %d" % (number, part) for part in range(50)])

    thread = threading.Thread(target=load)
    thread.start()
    try:
        owner.wait_for_count(owner.key, 500)
        with owner.client() as client:
            told = client.snapshot(tmp_path / "taken")
        (feed,) = told["feeds"]
        wait_until(lambda: owner.count() > feed["count"], 30, "the load goes on")
    finally:
        stop.set()
        thread.join()
    arguments = ("restore", str(tmp_path / "taken"), "--verify", "--replace")
    assert owner.command(*arguments).returncode == 7, "the node runs"
    owner.stop()
    refused = owner.command("restore", str(tmp_path / "taken"))
    assert refused.returncode == 1
    assert b"--replace" in refused.stderr
    done = owner.command(*arguments)
    assert done.returncode == 0, done.stderr
    owner.start()
    assert owner.digest(owner.key) == feed["digest"]
    assert owner.count() == feed["count"]


def test_a_new_member_is_seeded_and_syncs_the_rest(nodes, tmp_path):
    owner = nodes.make("owner").start()
    owner.put(*[b"value %06d" % number for number in range(5_000)])
    with owner.client() as client:
        client.snapshot(tmp_path / "taken")
    owner.put(b"came later")
    member = nodes.make("member")
    assert member.command("restore", str(tmp_path / "taken")).returncode == 1
    done = member.command("seed", str(tmp_path / "taken"), "--feed", owner.key.hex(), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["feeds"][0]["count"] == 5_000
    assert member.command("seed", str(tmp_path / "taken"), "--feed", "nobody").returncode == 8
    member.start()
    invitation = owner.command("invite", member.key.hex(), "--expires", "1d")
    member.command("join", invitation.stdout.decode().strip())
    waited = member.command("wait-synced", owner.address, "--feed", owner.key.hex())
    assert waited.returncode == 0, waited.stderr
    assert member.digest(owner.key) == owner.digest(owner.key)
    (peer,) = member.peers(owner.key)
    assert peer["values_in"] < 50, "only what came since was sent"
    with member.client() as client:
        assert client.ping()["identity"] == member.key.hex()


def test_as_seed_is_how_another_nodes_snapshot_is_taken_by_restore(nodes, tmp_path):
    owner = nodes.make("owner").start()
    owner.put(b"a")
    with owner.client() as client:
        client.snapshot(tmp_path / "taken")
    other = nodes.make("other")
    refused = other.command("restore", str(tmp_path / "taken"))
    assert refused.returncode == 1
    assert b"hyperbloom seed" in refused.stderr
    assert other.command("restore", str(tmp_path / "taken"), "--as-seed").returncode == 0
    other.start()
    assert other.values(owner.key) == [b"a"]
    elsewhere = tmp_path / "elsewhere"
    assert other.command("restore", str(tmp_path / "taken"), "--to", str(elsewhere)).returncode == 0
    listed = json.loads(other.command("snapshots", str(tmp_path), "--json").stdout)
    assert [one["path"] for one in listed["snapshots"]] == [str(tmp_path / "taken")]
    pruned = other.command("snapshots", str(tmp_path), "--prune", "1")
    assert (pruned.returncode, len(pruned.stdout.splitlines())) == (0, 1)
    shutil.copytree(elsewhere, tmp_path / "copied")
    assert (tmp_path / "copied" / "data.mdb").exists()
