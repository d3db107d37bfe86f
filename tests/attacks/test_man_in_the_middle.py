"""A man in the middle of two real nodes, who knows the feed's key: man_in_the_middle.py.

Whatever he does, he reads no value, nothing altered is stored, and what he has touched is closed
and told. The same man between the same nodes without `noise` reads all.
"""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from nodes import RealNode, free_port, real_nodes, wait_until
from told import closings

MAN = Path(__file__).with_name("man_in_the_middle.py")
WORD = b"secret"
NAMES = ("dialler", "target")


@dataclass
class Way:
    """Two nodes that reach each other through one port, at which the man may stand."""

    nodes: dict[str, RealNode]
    feed: bytes
    port: int
    written: dict[str, set[bytes]] = field(default_factory=lambda: {name: set() for name in NAMES})
    _numbers: itertools.count = field(default_factory=itertools.count)

    def write(self) -> None:
        """A new value at each node."""
        for name, node in self.nodes.items():
            value = WORD + b" of %s %06d" % (name.encode(), next(self._numbers))
            node.put(value, feed=self.feed)
            self.written[name].add(value)

    @property
    def all_written(self) -> set[bytes]:
        return set().union(*self.written.values())

    def values(self) -> dict[str, set[bytes]]:
        return {name: set(node.values(self.feed)) for name, node in self.nodes.items()}


def make_path(nodes, *, node: str = "") -> Way:
    port = free_port()
    target = nodes.make("target", feed="letters", node=node).start()
    config = f'[[feeds]]\nkey = "{target.feed_key.hex()}"\npeers = ["127.0.0.1:{port}"]\n'
    config += "[sync]\nretry_first = 0.05\nretry_longest = 0.05\n"
    dialler = nodes.make("dialler", config=config, node=node).start()
    feed = target.feed_key
    with target.client() as client:
        link = client.issue_link(dialler.key, expires=time.time() + 86_400, feed=feed.hex())
    with dialler.client() as client:
        client.add_links([bytes.fromhex(link["link"])], feed=feed.hex())
    return Way({"dialler": dialler, "target": target}, feed, port)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Two nodes that speak noise."""
    with real_nodes(tmp_path_factory.mktemp("path")) as nodes:
        yield make_path(nodes)


@dataclass
class Man:
    """The running man; what he has done and read."""

    process: subprocess.Popen
    folder: Path

    def lines(self) -> list[str]:
        return (self.folder / "man.log").read_text().splitlines()

    @property
    def done(self) -> int:
        assert self.process.poll() is None, self.lines()
        return len([line for line in self.lines() if line.startswith("done")])

    def read(self) -> bytes:
        """All that came by, as the feed's key opens it."""
        return b"".join(path.read_bytes() for path in sorted(self.folder.glob("read-*.bin")))


@contextlib.contextmanager
def man_between(path: Way, folder: Path, do: str):
    """The man stands between the nodes until the block ends."""
    command = [sys.executable, str(MAN), "--feed", path.feed.hex(), "--port", str(path.port)]
    command += ["--target", str(path.nodes["target"].port), "--folder", str(folder), "--do", do]
    with (folder / "man.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    man = Man(process, folder)
    try:
        wait_until(lambda: "ready" in man.lines(), 10, "the man is ready")
        yield man
        assert "Traceback" not in "\n".join(man.lines()), man.lines()
    finally:
        process.kill()
        process.wait()


def watched(path: Way) -> dict[str, object]:
    return {name: closings(node) for name, node in path.nodes.items()}


def told_since(path: Way, before) -> dict[str, set[str]]:
    """The kinds of closings that each node has counted."""
    return {name: set(closings(node) - before[name]) for name, node in path.nodes.items()}


def test_without_noise_the_man_reads_all(nodes, tmp_path):
    """The control: what he can do is what the others show that he cannot."""
    path = make_path(nodes, node='noise = "off"')
    path.write()
    with man_between(path, tmp_path, "pass") as man:
        for node in path.nodes.values():
            node.wait_for_count(path.feed, 2)
        assert all(value in man.read() for value in path.all_written)


def test_a_man_who_passes_all_on_reads_nothing(path, tmp_path):
    before = watched(path)
    with man_between(path, tmp_path, "pass") as man:
        path.write()
        wait_until(lambda: set(path.all_written) <= path.values()["dialler"], 20, "synced")
        wait_until(lambda: set(path.all_written) <= path.values()["target"], 20, "synced")
        heard = man.read()
        assert len(heard) > 1_000
        assert WORD not in heard
        assert told_since(path, before) == {"dialler": set(), "target": set()}


#: What he does, how often, and how the nodes close: the kinds that the dialler and the target may
#: name, of which one at least is named in all. What is sound until then may be exchanged.
UNSOUND = {"altered", "protocol"}
CUT = {"cut"}
ATTACKS = [
    ("strip", 2, {"stripped"}, {"stripped"}),
    ("strip-one", 2, {"stripped"}, set()),
    (
        "flip-handshake",
        16,
        {"stripped", "untrusted", *UNSOUND},
        {"stripped", "untrusted", *UNSOUND},
    ),
    ("flip-noise", 8, {"altered"}, {"altered", *CUT}),
    ("replay-noise", 1, CUT, {"altered", *CUT}),
    ("reflect-noise", 2, {"altered"}, set()),
    ("own-handshake", 2, {"altered"}, {"altered"}),
    ("own-ephemeral", 4, {"altered"}, {"altered", *CUT}),
    ("carry-proof", 2, {"protocol"}, {"protocol"}),
    ("flip-record", 16, {*UNSOUND, *CUT}, {*UNSOUND, *CUT}),
    ("replay", 4, {"altered", *CUT}, {"altered", *CUT}),
    ("replay-across", 2, {"altered", *CUT}, {"altered", *CUT}),
    ("reflect", 2, {"altered", *CUT}, {"altered", *CUT}),
    ("reorder", 4, {"altered", *CUT}, {"altered", *CUT}),
    ("drop", 4, {"altered", *CUT}, {"altered", *CUT}),
    ("cut-at-border", 4, CUT, CUT),
    ("cut-inside", 4, CUT, CUT),
]

#: He touches the handshake, so that no connection becomes secure for both. The target, which reads
#: its message first, may have answered by then; nobody reads what it says.
NEVER_SECURE = {
    "strip",
    "strip-one",
    "flip-handshake",
    "flip-noise",
    "reflect-noise",
    "own-handshake",
    "own-ephemeral",
    "carry-proof",
}


@pytest.mark.parametrize(
    ("do", "times", "dialler", "target"), ATTACKS, ids=[attack[0] for attack in ATTACKS]
)
def test_what_he_touches_is_closed_and_told(path, tmp_path, do, times, dialler, target):
    wait_until(lambda: not any(node.peers() for node in path.nodes.values()), 20, "all ended")
    before, values = watched(path), path.values()
    with man_between(path, tmp_path, do) as man:

        def carried_out() -> bool:
            path.write()
            if do in NEVER_SECURE:
                assert not path.nodes["dialler"].peers()
            return man.done >= times

        wait_until(carried_out, 30, f"{do}, {times} times")
        told: dict[str, set[str]] = {}

        def is_told() -> bool:
            told.update(told_since(path, before))
            return bool(told["dialler"] or not dialler) and bool(told["target"] or not target)

        wait_until(is_told, 20, f"the nodes have told of {do}")
        heard = man.read()
    assert told["dialler"] <= dialler, told
    assert told["target"] <= target, told
    assert WORD not in heard
    for name, stored in path.values().items():
        assert stored <= path.all_written, "something that nobody has written is stored"
        if do in NEVER_SECURE:
            assert stored - values[name] <= path.written[name], "something has gone over"


def test_once_he_is_gone_the_nodes_are_one(path, tmp_path):
    with man_between(path, tmp_path, "pass"):
        path.write()
        wait_until(lambda: len(set(map(frozenset, path.values().values()))) == 1, 30, "the same")
        assert path.values()["target"] == path.all_written


@pytest.mark.parametrize(("do", "kind"), [("pass", "lost"), ("drop-end", "cut")])
def test_an_end_that_is_kept_back_is_none(nodes, tmp_path, do, kind):
    """A node that stops says its end. Without it the other takes the connection for cut."""
    path = make_path(nodes)
    path.write()
    with man_between(path, tmp_path, do) as man:
        wait_until(lambda: path.values()["dialler"] == path.all_written, 20, "synced")
        before = closings(path.nodes["dialler"])
        assert path.nodes["target"].stop()
        wait_until(lambda: closings(path.nodes["dialler"]) - before, 20, "an end")
        assert set(closings(path.nodes["dialler"]) - before) == {kind}
        assert man.done == (do == "drop-end")
