"""Real nodes with inputs: peers follow what a list gains and loses, and a kill loses nothing."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from contextlib import suppress

import pytest
from nodes import wait_until

from hyperbloom.api.problems import Problem
from hyperbloom.client.client import NodeUnreachable
from hyperbloom.replication.feed.tombstones import TOMBSTONE
from hyperbloom.store import Store

QUICK = "[sync]\ninterval = 0.2\njitter = 0\nretry_first = 0.1\n"


def said(done):
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done.stdout.decode()


def write_list(path, values):
    """Replace the source, as who publishes a list does."""
    aside = path.with_suffix(".aside")
    aside.write_bytes(b"# a list\n" + b"".join(value + b"\n" for value in values))
    aside.rename(path)


def names(*numbers):
    return [b"host-%05d.example" % number for number in numbers]


def one_input(name, path, more=""):
    return f'[[inputs]]\nname = "{name}"\npath = "{path}"\n{more}\n'


def status(node, name):
    with node.client() as client:
        return client.integration("input", name)


def values(node, feed):
    return [value for value in node.values(feed) if not value.startswith(TOMBSTONE)]


def lists(node, feed, expected):
    return lambda: values(node, feed) == sorted(expected)


def test_peers_follow_what_lists_gain_and_lose(nodes, tmp_path):
    first, second = tmp_path / "first.txt", tmp_path / "second.txt"
    write_list(first, names(*range(2_000)))
    write_list(second, names(1_999, 5_000))
    config = QUICK + one_input("first", first) + one_input("second", second)
    owner = nodes.make("owner", config=config, feed="names").start()
    feed = owner.feed_key
    said(owner.command("feed", "join", feed.hex(), "--tombstones", "owner"))
    member = nodes.invited(owner, "member", config=QUICK)
    said(member.command("feed", "join", feed.hex(), "--tombstones", "owner"))
    everything = names(*range(2_000), 5_000)
    wait_until(lists(member, feed, everything), 20, "the member has both lists")

    # Some go and some come; one that goes is on the other list.
    write_list(first, names(*range(100, 1_999), 3_000))
    expected = names(*range(100, 2_000), 3_000, 5_000)
    wait_until(lists(owner, feed, expected), 20, "the file was read by itself")
    wait_until(lists(member, feed, expected), 20, "the member follows")
    figures = status(owner, "first")["figures"]
    assert (figures["taken_back"], figures["kept_in_other_inputs"]) == (100, 1)

    # The list is cut short, as by a download that broke off.
    write_list(first, names(*range(100, 200)))
    held = owner.command("input", "run", "first")
    assert held.returncode == 1
    assert b"nothing is taken back" in held.stderr
    assert status(owner, "first")["state"] == "held"
    assert values(owner, feed) == expected
    said(owner.command("input", "run", "first", "--force"))
    expected = names(*range(100, 200), 1_999, 5_000)
    assert values(owner, feed) == expected
    wait_until(lambda: status(owner, "first")["state"] == "idle", 20, "it is held no more")
    wait_until(lists(member, feed, expected), 20, "the member follows, too")

    # What comes back is a value here; who followed its tombstone keeps it out until told.
    write_list(first, names(*range(90, 200)))
    said(owner.command("input", "run", "first"))
    assert values(owner, feed) == names(*range(90, 200), 1_999, 5_000)
    said(member.command("forget", "--undo", "--start", ""))
    wait_until(lambda: set(names(*range(90, 100))) <= set(values(member, feed)), 20, "told")


class Killing:
    """A node whose list changes, and that is killed while it follows."""

    def __init__(self, nodes, tmp_path, chance):
        self.chance = chance
        self.path = tmp_path / "list.txt"
        self.there = set(range(6_000))
        write_list(self.path, names(*self.there))
        config = one_input("list", self.path, "every = 3600\nmax_shrink = 0.9\n")
        self.node = nodes.make("owner", config=config, feed="names")
        self.killed_at = Counter()

    def begin(self):
        self.node.start()
        feed = self.node.feed_key.hex()
        said(self.node.command("feed", "join", feed, "--tombstones", "owner"))
        self.follows()

    def change(self):
        """Some 1,500 go, and about as many come: new ones, and some that were there before."""
        gone = set(self.chance.sample(sorted(self.there), 1_500))
        self.there = (self.there - gone) | set(self.chance.sample(range(20_000), 1_500))
        write_list(self.path, names(*sorted(self.there)))

    def kill_amid_a_run(self, seconds):
        def ask():
            with suppress(NodeUnreachable, Problem, OSError), self.node.client() as client:
                client.run_integration("input", "list")

        asking = threading.Thread(target=ask)
        asking.start()
        time.sleep(seconds)
        self.killed_at[status(self.node, "list")["state"]] += 1
        self.node.kill()
        asking.join()

    def follows(self):
        """Until the feed is as the list is."""

        def reached():
            one = status(self.node, "list")
            return one["state"] == "idle" and one["figures"]["values"] == len(self.there)

        wait_until(reached, 30, "the list was read")
        assert values(self.node, self.node.feed_key) == names(*sorted(self.there))

    def check_store(self):
        """Each value came once, and nothing is wrong; the node is stopped for it."""
        assert self.node.stop()
        store = Store.open_readonly(self.node.folder / "store")
        seen, seq, feed = Counter(), 0, self.node.feed_key
        while records := store.log_slice(feed, seq, limit=10_000, max_bytes=1 << 24).records:
            seen.update(record.value for record in records)
            seq = records[-1].seq
        assert max(seen.values()) == 1
        assert store.verify().problems == []
        store.close()
        folder = self.node.folder / "inputs" / "list"
        assert sorted(os.listdir(folder)) == ["known", "state.json"]


def kill(nodes, tmp_path, *, seed, kills):
    killing = Killing(nodes, tmp_path, random.Random(seed))
    killing.begin()
    begun = time.monotonic()
    killing.change()
    with killing.node.client() as client:
        client.run_integration("input", "list")
    took = time.monotonic() - begun
    for _ in range(kills):
        killing.change()
        killing.kill_amid_a_run(killing.chance.uniform(0.0, 1.2 * took))
        if killing.chance.random() < 0.5:
            # The list goes on changing meanwhile.
            killing.change()
        killing.node.start()
        killing.follows()
    print(f"a run took {took:.2f} s; killed while {dict(killing.killed_at)}")
    killing.check_store()


def test_killed_amid_runs(nodes, tmp_path):
    kill(nodes, tmp_path, seed=1, kills=3)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
def test_killed_amid_runs_50_times(nodes, tmp_path, seed):
    kill(nodes, tmp_path, seed=100 + seed, kills=10)
