"""A node that keeps a file is killed again and again: the file is whole, its command is told."""

from __future__ import annotations

import hashlib
import json
import random
import sys
import time
from pathlib import Path

import pytest
from nodes import Nodes, RealNode, wait_until

from hyperbloom.store import AppendValues, Store, WriterInline

#: Values that were there before: to write them takes some tenths of a second, in which kills fall.
BEFORE = 60_000
#: The last one in the order of the file: a file without it is not whole.
LAST = b"zzzz.example"
#: A put, the writing, the renaming and the command are over within about that time.
LONGEST_LIFE = 0.8

TELL = """
import hashlib, os, sys, time
time.sleep(0.1)
content = open(os.environ["HYPERBLOOM_PATH"], "rb").read()
with open(sys.argv[1], "a") as log:
    log.write(hashlib.sha256(content).hexdigest() + "\\n")
"""


class Kept:
    """A node, the file that it keeps, and what its command wrote down."""

    def __init__(self, nodes: Nodes, folder: Path) -> None:
        self.path = folder / "out" / "hosts"
        self.path.parent.mkdir()
        self._told = folder / "told"
        command = [sys.executable, "-S", "-c", TELL, str(self._told)]
        self.node: RealNode = nodes.make(
            "node",
            feed="names",
            config=f'[[outputs]]\nname = "hosts"\nformat = "hosts"\npath = "{self.path}"\n'
            f"command = {json.dumps(command)}\ndelay = 0\n",
        )
        self.names = {b"%06d.example" % number for number in range(BEFORE)} | {LAST}

    def fill(self) -> None:
        """Have the values of before in the store, while no node runs."""
        store = Store.open(self.node.folder / "store", durable=False)
        outcomes: list[object] = []
        op = AppendValues(
            feed_key=self.node.feed_key,
            values=sorted(self.names),
            origin=self.node.key,
            received_at=1,
        )
        WriterInline(store).submit(op, outcomes.append)
        store.close()
        assert not isinstance(outcomes[0], BaseException), outcomes

    def put(self, *names: bytes) -> None:
        self.node.put(*names)
        self.names |= set(names)

    @property
    def lines(self) -> list[bytes]:
        return self.path.read_bytes().splitlines(keepends=True)

    def is_settled(self) -> bool:
        """Whether the file is as the feed is, and the command was run for it."""
        content = self.path.read_bytes() if self.path.exists() else b""
        if content != b"".join(b"0.0.0.0 %s\n" % name for name in sorted(self.names)):
            return False
        told = self._told.read_text().split() if self._told.exists() else []
        return told[-1:] == [hashlib.sha256(content).hexdigest()]

    def settle(self) -> None:
        wait_until(self.is_settled, 30.0, "the file is as the feed is, and its command was run")

    def require_whole(self, least: set[bytes]) -> None:
        """A file of some state between that of `least` and now, to its last line."""
        lines = self.lines
        assert all(line.startswith(b"0.0.0.0 ") and line.endswith(b"\n") for line in lines)
        names = [line.split()[1] for line in lines]
        assert names == sorted(names)
        assert names[-1] == LAST
        assert least <= set(names) <= self.names


def kill_again_and_again(nodes: Nodes, folder: Path, *, kills: int, seed: int) -> None:
    chosen = random.Random(seed)
    kept = Kept(nodes, folder)
    kept.node.start()
    kept.node.stop()
    kept.fill()
    kept.node.start()
    kept.settle()
    for number in range(kills):
        least = set(kept.names)
        end = time.monotonic() + chosen.uniform(0.0, LONGEST_LIFE)
        kept.put(*(b"k%d-%d.example" % (number, i) for i in range(3)))
        time.sleep(max(0.0, end - time.monotonic()))
        kept.node.kill()
        kept.require_whole(least)
        kept.node.start()
        kept.settle()
        assert [path.name for path in kept.path.parent.iterdir()] == ["hosts"]


def test_a_killed_node_leaves_a_whole_file_and_tells_its_command(
    nodes: Nodes, tmp_path: Path
) -> None:
    kill_again_and_again(nodes, tmp_path, kills=3, seed=3)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 2])
def test_after_25_kills_all_is_as_it_should_be(nodes: Nodes, tmp_path: Path, seed: int) -> None:
    kill_again_and_again(nodes, tmp_path, kills=25, seed=seed)
