"""The process that writes a file: what it writes, what it compares, and what it leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from hyperbloom.outputs import limits, rendering
from hyperbloom.outputs.new_files import NotWritten, new_path
from hyperbloom.outputs.rendering import Answer, Request, next_serial, render
from hyperbloom.store import (
    AppendValues,
    ForgetValues,
    PutFeed,
    Store,
    StoreError,
    WriterInline,
)

FEED, ALLOW_FEED = b"f" * 32, b"a" * 32
NOW = 1_800_000_000.0


class Scene:
    """A store, a folder for the file, and what is asked for."""

    def __init__(self, folder: Path) -> None:
        self.store = Store.open(folder / "store", durable=False)
        self._writer = WriterInline(self.store)
        for key in (FEED, ALLOW_FEED):
            self.write(PutFeed(key, {}))
        self.path = folder / "out" / "hosts"
        self.path.parent.mkdir()
        self.request = Request(
            store=str(self.store.path),
            feed=FEED.hex(),
            start="",
            end=None,
            format="hosts",
            set_name="hyperbloom",
            allow=None,
            allow_feed=None,
            path=str(self.path),
            new=str(new_path(self.path, "0" * 16)),
            mode=0o640,
            parent=os.getppid(),
        )

    def write(self, operation: Any) -> None:
        outcomes: list[Any] = []
        self._writer.submit(operation, outcomes.append)
        assert not isinstance(outcomes[0], BaseException), outcomes

    def put(self, *values: bytes, feed: bytes = FEED) -> None:
        self.write(AppendValues(feed_key=feed, values=values, origin=b"o" * 32, received_at=1))

    def render(self, *, now: float = NOW, **changes: Any) -> Answer:
        """The answer; the new file takes its place."""
        answer = render(self.store, replace(self.request, **changes), now=now)
        assert answer.same is not Path(self.request.new).exists()
        if not answer.same:
            os.rename(self.request.new, self.path)
        return answer

    def problem(self, **changes: Any) -> str:
        """Why there is none, and nothing is left behind."""
        with pytest.raises((NotWritten, StoreError)) as raised:
            self.render(**changes)
        assert not Path(self.request.new).exists()
        return str(raised.value)

    def given(self, **changes: Any) -> bytes:
        """What a child of this process is asked."""
        return json.dumps(asdict(replace(self.request, parent=os.getpid(), **changes))).encode()

    def told_by_child(self, program: str = "", **changes: Any) -> dict[str, Any]:
        """The answer of a process, which is this module, or a program."""
        what = ["-c", program] if program else ["-m", rendering.__name__]
        done = subprocess.run(
            [sys.executable, "-P", *what], input=self.given(**changes), capture_output=True
        )
        assert (done.returncode, done.stderr) == (0, b"")
        found: dict[str, Any] = json.loads(done.stdout)
        return found


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.store.close()


def test_a_process_writes_and_answers(scene: Scene) -> None:
    scene.put(b"a.example", b"localhost")
    found = Answer(**scene.told_by_child())
    assert (found.same, found.entries, found.bytes) == (False, 1, 18)
    assert Path(scene.request.new).read_bytes() == b"0.0.0.0 a.example\n"
    assert scene.told_by_child(path="/nowhere/x")["problem"].startswith("the folder /nowhere")


def test_writes_the_values_and_says_what_it_left_out(scene: Scene) -> None:
    scene.put(b"b.example", b"a.example", b"192.0.2.1", b"localhost", b"no domain")
    answer = scene.render()
    assert scene.path.read_bytes() == b"0.0.0.0 a.example\n0.0.0.0 b.example\n"
    assert (answer.same, answer.entries, answer.bytes) == (False, 2, 36)
    assert answer.left_out == {"of another kind": 1, "reserved": 1, "of no known kind": 1}
    assert scene.path.stat().st_mode & 0o7777 == 0o640


def test_what_is_the_same_is_said_and_leaves_nothing(scene: Scene) -> None:
    scene.put(b"a.example")
    first = scene.render()
    second = scene.render()
    assert (second.same, second.digest) == (True, first.digest)
    assert os.listdir(scene.path.parent) == [scene.path.name]
    scene.put(b"b.example")
    assert scene.render().digest != first.digest
    scene.write(ForgetValues(FEED, [b"b.example"], at=1))
    assert scene.render().digest == first.digest


def test_a_file_of_the_same_length_may_be_another_one(scene: Scene) -> None:
    scene.put(b"a.example")
    scene.render()
    scene.path.write_bytes(b"0.0.0.0 b.example\n")
    assert not scene.render().same
    assert scene.path.read_bytes() == b"0.0.0.0 a.example\n"


def test_only_what_is_asked_for_comes_out(scene: Scene) -> None:
    scene.put(*(b"%c.example" % letter for letter in b"abcd"))
    answer = scene.render(format="lines", start=b"b".hex(), end=b"d".hex())
    assert scene.path.read_bytes() == b"b.example\nc.example\n"
    assert answer.entries == 2


def test_sets_have_the_name_that_is_asked_for(scene: Scene) -> None:
    scene.put(b"192.0.2.1")
    scene.render(format="nftables", set_name="ours")
    assert b"add element inet ours ipv4 {\n192.0.2.1\n}" in scene.path.read_bytes()


def test_many_slices_are_one_file(scene: Scene) -> None:
    values = [b"%06d.example.com" % number for number in range(2 * limits.SLICE_VALUES + 1)]
    scene.put(*values)
    answer = scene.render(format="lines")
    assert scene.path.read_bytes().splitlines() == values
    assert answer.entries == len(values)


def test_long_values_are_read_a_slice_of_bytes_at_a_time(scene: Scene) -> None:
    values = [b"%02d" % number + b"v" * (limits.SLICE_BYTES // 8) for number in range(20)]
    scene.put(*values)
    scene.render(format="lines")
    assert scene.path.read_bytes().splitlines() == values


# Zones


def zone_serial(scene: Scene) -> int:
    return int(scene.path.read_bytes().split()[6])


def test_the_serial_of_a_zone_is_no_difference(scene: Scene) -> None:
    scene.put(b"a.example")
    first = scene.render(format="rpz")
    assert zone_serial(scene) == int(NOW)
    second = scene.render(format="rpz", now=NOW + 100)
    assert (second.same, second.digest) == (True, first.digest)


def test_the_serial_of_a_zone_grows_where_the_clock_does_not(scene: Scene) -> None:
    for number, now in enumerate((NOW, NOW, NOW - 3_600, NOW + 5)):
        scene.put(b"a%d.example" % number)
        assert not scene.render(format="rpz", now=now).same
        assert zone_serial(scene) == int(NOW) + (5 if now > NOW else number)


@pytest.mark.parametrize(
    ("present", "now", "following"),
    [
        (None, 7, 7),
        (6, 7, 7),
        (7, 7, 8),
        (9, 7, 10),
        ((1 << 32) - 1, (1 << 32) - 1, 0),
        ((1 << 32) - 1, (1 << 32) + 5, 5),
        (1 << 31, 0, (1 << 31) + 1),
    ],
)
def test_serials_are_compared_as_in_rfc_1982(present: int | None, now: int, following: int) -> None:
    assert next_serial(present, now) == following


def test_a_list_that_looks_like_a_zone_has_no_serial(scene: Scene) -> None:
    scene.put(b"$TTL 300", b"@ SOA a b 1 2")
    scene.render(format="lines")
    scene.write(ForgetValues(FEED, [b"@ SOA a b 1 2"], at=1))
    scene.put(b"@ SOA a b 3 2")
    assert not scene.render(format="lines").same


# Allow lists


def test_what_an_allow_list_names_stays_out(scene: Scene, tmp_path: Path) -> None:
    scene.put(b"a.example", b"b.example", b"www.c.example")
    allow = tmp_path / "ours.txt"
    allow.write_bytes(b"# ours\nc.example\n")
    scene.put(b"a.example", feed=ALLOW_FEED)
    assert scene.render(allow=str(allow)).left_out == {"allowed": 1}
    assert scene.path.read_bytes() == b"0.0.0.0 a.example\n0.0.0.0 b.example\n"
    scene.render(allow_feed=ALLOW_FEED.hex())
    assert scene.path.read_bytes() == b"0.0.0.0 b.example\n0.0.0.0 www.c.example\n"


def test_without_its_allow_list_nothing_is_written(scene: Scene, tmp_path: Path) -> None:
    scene.put(b"a.example")
    assert "cannot be read (No such file" in scene.problem(allow=str(tmp_path / "none"))
    assert "cannot be read (Is a directory" in scene.problem(allow=str(tmp_path))


def test_a_feed_of_more_allowed_values_than_the_limit_is_refused(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendering, "MAX_ALLOWED", 3)
    scene.put(b"a.example", b"b.example", b"c.example", feed=ALLOW_FEED)
    assert scene.render(allow_feed=ALLOW_FEED.hex()).entries == 0
    scene.put(b"d.example", feed=ALLOW_FEED)
    assert "has more than 3 values" in scene.problem(allow_feed=ALLOW_FEED.hex())


# What can be wrong


def test_a_feed_that_is_not_here(scene: Scene) -> None:
    assert "holds no feed" in scene.problem(feed=b"x".hex() * 32)


def make_link(scene: Scene) -> None:
    scene.path.symlink_to(scene.path.parent / "other")


def make_folder(scene: Scene) -> None:
    scene.path.mkdir()


def make_pipe(scene: Scene) -> None:
    os.mkfifo(scene.path)


def remove_parent(scene: Scene) -> None:
    scene.path.parent.rmdir()


def make_parent_a_file(scene: Scene) -> None:
    scene.path.parent.rmdir()
    scene.path.parent.write_bytes(b"")


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (make_link, "hosts is a symbolic link, which a new file would replace; name the file"),
        (make_folder, "hosts is a folder; give another `path`, or remove it"),
        (make_pipe, "hosts is no plain file; give another `path`, or remove it"),
        (remove_parent, "out is not there; make it"),
        (make_parent_a_file, "out is no folder; correct `path`"),
    ],
)
def test_where_no_file_can_be_is_said(
    scene: Scene, spoil: Callable[[Scene], None], sentence: str
) -> None:
    scene.put(b"a.example")
    spoil(scene)
    assert sentence in scene.problem()


def test_a_full_disk_leaves_the_old_file(scene: Scene) -> None:
    # A limit on the length of files is what a process meets on a full disk.
    scene.put(b"a.example")
    scene.render()
    scene.put(*(b"%05d.example" % number for number in range(5_000)))
    program = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))\n"
        "from hyperbloom.outputs.rendering import main; main()"
    )
    assert "there is no room on the disk of" in scene.told_by_child(program)["problem"]
    assert scene.path.read_bytes() == b"0.0.0.0 a.example\n"
    assert os.listdir(scene.path.parent) == [scene.path.name]


def test_what_is_left_of_killed_runs_is_removed_and_nothing_else(scene: Scene) -> None:
    folder = scene.path.parent
    new_path(scene.path, "0123456789abcdef").write_bytes(b"half")
    kept = {".hosts.hyperbloom-notes", "hosts.old", ".hostsX.hyperbloom-0123456789abcdef"}
    for name in kept:
        (folder / name).write_bytes(b"")
    scene.render()
    assert set(os.listdir(folder)) == kept | {scene.path.name}


def test_who_owned_the_file_still_does(scene: Scene) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may give files away")
    scene.render()
    os.chown(scene.path, 12_345, 23_456)
    scene.put(b"a.example")
    scene.render(mode=0o600)
    found = scene.path.stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o7777) == (12_345, 23_456, 0o600)


def test_it_ends_when_nobody_waits_for_it_any_more(scene: Scene) -> None:
    scene.put(b"a.example")
    assert "has ended" in scene.problem(parent=os.getpid() + 1)


def test_one_that_is_told_to_end_leaves_nothing(scene: Scene) -> None:
    """It is caught while it reads an allow list that never comes."""
    allow = scene.path.parent / "allow"
    os.mkfifo(allow)
    left = new_path(scene.path, "0123456789abcdef")
    left.write_bytes(b"")
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", rendering.__name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    process.stdin.write(scene.given(allow=str(allow)))
    process.stdin.close()
    end = time.monotonic() + 120
    while left.exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 1
    assert os.listdir(scene.path.parent) == ["allow"]
    assert scene.store.drop_dead_readers() == 0


def test_no_word_of_a_value_is_in_what_it_says_of_a_fault(scene: Scene) -> None:
    scene.put(b"secret.example")
    program = (
        "from hyperbloom.outputs import rendering\n"
        "def broken(self, part): raise RuntimeError(part)\n"
        "rendering._Digest.add = broken\n"
        "rendering.main()"
    )
    problem = scene.told_by_child(program)["problem"]
    assert problem.startswith("RuntimeError in ")
    assert "secret" not in problem


def test_it_loads_nothing_of_the_network() -> None:
    program = (
        "import sys, hyperbloom.outputs.rendering\n"
        "print([name for name in ('twisted', 'click', 'cryptography') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, check=True)
    assert done.stdout == b"[]\n"
