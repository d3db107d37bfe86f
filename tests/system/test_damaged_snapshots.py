"""Snapshots that somebody damaged or made up: one sentence and an exit code, whatever they hold.

Some hundred mutants of a real snapshot, of 1 to 3 bytes each, are read by every reader in children
of this process, which may die of them. Those that were deadly, and some of the others, then go
through the real commands.
"""

from __future__ import annotations

import collections
import contextlib
import faulthandler
import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from nodes import HYPERBLOOM

from hyperbloom.export.errors import SnapshotUnusable
from hyperbloom.export.snapshots import anchor_at, open_snapshot
from hyperbloom.replication.settings import FeedSettings
from hyperbloom.store import (
    AppendValues,
    PutFeed,
    PutMeta,
    Store,
    StoreCorrupt,
    StoreError,
    StoreFull,
    WriterInline,
)
from hyperbloom.store.backup.snapshot import load_snapshot_info
from hyperbloom.store.backup.verify import verify_path
from hyperbloom.store.limits import MAX_SNAPSHOT_INFO_BYTES
from hyperbloom.store.restoring.restore import restore_store
from hyperbloom.store.restoring.seed import seed_store

MUTANTS = int(os.environ.get("HYPERBLOOM_MUTANTS", "250"))
PAGE = 4096
FEED = b"f" * 32
REFUSED, UNFORESEEN = 1, 3
DEADLY = {-signal.SIGABRT, -signal.SIGBUS, -signal.SIGSEGV, -signal.SIGFPE}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A snapshot with long and short values, two feeds, some pages of each kind."""
    folder = tmp_path_factory.mktemp("source")
    numbers = random.Random(1)
    with closing(Store.open(folder / "store", durable=False)) as store:
        writer = WriterInline(store)
        writer.submit(PutMeta("node_id", b"n" * 32), id)
        for feed in (FEED, b"g" * 32):
            writer.submit(PutFeed(feed, FeedSettings(key=feed).to_json()), id)
            values = [numbers.randbytes(numbers.choice((8, 60, 300))) for _ in range(300)]
            values += [b"p" * 600 + numbers.randbytes(5_000) for _ in range(8)]
            writer.submit(AppendValues(feed, values, b"o" * 32, 1_700_000_000_000_000), id)
        store.snapshot(folder / "snapshot")
    return folder / "snapshot"


@pytest.fixture
def snapshot(whole, tmp_path):
    """A copy to spoil."""
    shutil.copytree(whole, tmp_path / "snapshot")
    return tmp_path / "snapshot"


def mutate(content: bytes, numbers: random.Random) -> bytes:
    """1 to 3 bytes in a row changed; half of the time near the head of a page."""
    changed = bytearray(content)
    at = numbers.randrange(len(content) - 3)
    if numbers.random() < 0.5:
        at = at // PAGE * PAGE + numbers.randrange(64)
    for offset in range(numbers.randint(1, 3)):
        changed[at + offset] = numbers.randrange(256)
    return bytes(changed)


def verify(snapshot: Path, target: Path) -> bool:
    return verify_path(snapshot).ok


def restore(snapshot: Path, target: Path) -> bool:
    try:
        restore_store(snapshot, target / "restored", node_key=None)
    except StoreError:
        return False
    return verify_path(target / "restored").ok


def seed_and_export(snapshot: Path, target: Path) -> bool:
    with contextlib.suppress(StoreError):
        seed_store(snapshot, target / "seeded", feeds=None, now=1.8e9, verify=True)
    try:
        found = open_snapshot(snapshot)
        for feed in found.feeds:
            anchor_at(snapshot, feed.key, feed.top_seq)
    except SnapshotUnusable:
        return False
    return True


def outcome(snapshot: Path, target: Path, read: Callable[[Path, Path], bool] = verify) -> int:
    """The exit code of a child that reads it (0: it is sound), or minus the signal that ended it.

    UNFORESEEN if it raises what no reader should.
    """
    child = os.fork()
    if not child:
        code = UNFORESEEN
        try:
            faulthandler.disable()
            signal.alarm(60)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            code = 0 if read(snapshot, target) else REFUSED
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def command(*arguments: object) -> subprocess.CompletedProcess:
    return subprocess.run(
        [HYPERBLOOM, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def check_commands(snapshot: Path, folder: Path) -> None:
    """The real commands on a damaged snapshot: exit codes as documented, and one sentence."""
    shutil.rmtree(folder, ignore_errors=True)
    verified = command("verify", snapshot)
    assert verified.returncode in (0, 1), verified
    assert verified.stderr == ""
    if verified.returncode:
        assert verified.stdout.strip()
    restored = command("restore", snapshot, "--to", folder / "restored")
    assert restored.returncode == (7 if verified.returncode else 0), restored
    if restored.returncode:
        assert restored.stderr.startswith("hyperbloom: ")
        assert restored.stderr.count("\n") == 1, restored.stderr
        assert not (folder / "restored" / "data.mdb").exists()


@pytest.mark.timeout(600)
def test_no_mutant_of_a_snapshot_does_more_than_end_a_child(whole, snapshot, tmp_path):
    numbers = random.Random(20)
    content = (whole / "data.mdb").read_bytes()
    found: dict[int, list[bytes]] = collections.defaultdict(list)
    restored: list[bytes] = []
    for _ in range(MUTANTS):
        mutant = mutate(content, numbers)
        (snapshot / "data.mdb").write_bytes(mutant)
        target = tmp_path / "targets"
        codes = [outcome(snapshot, target, read) for read in (verify, restore, seed_and_export)]
        assert set(codes) <= {0, REFUSED, *DEADLY}, codes
        found[codes[0]].append(mutant)
        if codes[0] and not codes[1]:
            restored.append(mutant)
        shutil.rmtree(target, ignore_errors=True)
    assert restored == [], "what `verify` refuses, `restore` does"
    refused = MUTANTS - len(found[0])
    print(f"{refused} of {MUTANTS} mutants refused by both")
    assert refused > MUTANTS // 20
    deadly = [mutant for code in DEADLY for mutant in found[code]]
    for mutant in deadly[:5] + found[REFUSED][:3] + found[0][:3]:
        (snapshot / "data.mdb").write_bytes(mutant)
        check_commands(snapshot, tmp_path / "made")


@pytest.fixture
def deadly(tmp_path):
    """A small snapshot whose values' nodes lie 28 KiB further on, behind the file's end."""
    with closing(Store.open(tmp_path / "store", durable=False)) as store:
        writer = WriterInline(store)
        writer.submit(PutMeta("node_id", b"n" * 32), id)
        writer.submit(PutFeed(FEED, FeedSettings(key=FEED).to_json()), id)
        values = [b"value %d" % number for number in range(20)]
        writer.submit(AppendValues(FEED, values, b"o" * 32, 1_700_000_000_000_000), id)
        store.snapshot(tmp_path / "deadly")
    path = tmp_path / "deadly" / "data.mdb"
    content = bytearray(path.read_bytes())
    for page in range(2, len(content) // PAGE):
        _, _, flags, lower, _ = struct.unpack_from("=QHHHH", content, page * PAGE)
        if flags == 2 and b"value 7" in content[page * PAGE : (page + 1) * PAGE]:
            count = (lower - 16) // 2
            content[page * PAGE + 16 : page * PAGE + lower] = b"\x00\x70" * count
    path.write_bytes(content)
    return path.parent


def test_a_deadly_snapshot_is_one_sentence(deadly, tmp_path):
    assert outcome(deadly, tmp_path / "targets") in DEADLY
    verified = command("verify", deadly, "--json")
    assert (verified.returncode, verified.stderr) == (1, "")
    report = json.loads(verified.stdout)
    assert not report["ok"]
    assert "LMDB ended the process" in report["problems"][0]
    check_commands(deadly, tmp_path / "made")


@pytest.mark.timeout(600)
def test_a_deadly_snapshot_is_one_sentence_to_an_export(deadly, tmp_path):
    done = command("export", deadly, "--to", tmp_path / "tables", "--master", "local[1]")
    assert done.returncode in (1, 7), done
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("hyperbloom: ")
    assert "damaged" in done.stderr
    assert not list((tmp_path / "tables").rglob("*.parquet"))


def test_the_child_ends_with_its_parent(tmp_path):
    """A command that is killed leaves nobody behind who goes on with its work."""
    fifo = tmp_path / "snapshots"
    with closing(Store.open(tmp_path / "store", durable=False)) as store:
        store.snapshot(fifo)
    script = (
        "import os, sys, time\n"
        "from hyperbloom.store.backup import verify\n"
        "def slow(*a, **k): print(os.getpid(), flush=True); time.sleep(300)\n"
        "verify.verify_path = slow\n"
        "sys.argv = ['hyperbloom', 'verify', sys.argv[1]]\n"
        "from hyperbloom.cli import main, guard\n"
        "guard._COMMAND = [sys.executable, '-P', __file__]\n"
        "main()\n"
    )
    (tmp_path / "slow.py").write_text(script)
    with subprocess.Popen(
        [sys.executable, str(tmp_path / "slow.py"), str(fifo)], stdout=subprocess.PIPE, text=True
    ) as parent:
        child = int(parent.stdout.readline())
        assert child != parent.pid
        parent.kill()
        parent.wait()
        # Its end of the pipe closes when it has ended.
        assert parent.stdout.read() == ""


def as_link(path: Path) -> None:
    target = path.parent.parent / "elsewhere"
    path.rename(target)
    path.symlink_to(target)


def as_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def as_socket(path: Path) -> None:
    path.unlink()
    there = os.getcwd()
    os.chdir(path.parent)
    try:
        socket.socket(socket.AF_UNIX).bind(path.name)
    finally:
        os.chdir(there)


def as_device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("spoil", [as_link, as_fifo, as_folder, as_socket, as_device])
@pytest.mark.parametrize("name", ["data.mdb", "snapshot.json"])
def test_what_is_no_plain_file_is_not_opened(snapshot, tmp_path, spoil, name):
    spoil(snapshot / name)
    readers = [
        lambda: restore_store(snapshot, tmp_path / "restored", node_key=None),
        lambda: seed_store(snapshot, tmp_path / "seeded", feeds=None, now=1.8e9),
        lambda: open_snapshot(snapshot),
    ]
    for read in readers:
        with pytest.raises((StoreCorrupt, SnapshotUnusable), match="no plain file"):
            read()
    if name == "data.mdb":
        assert "no plain file" in verify_path(snapshot).problems[0]
        done = command("verify", snapshot)
        assert (done.returncode, done.stderr) == (1, "")
    assert not list(tmp_path.glob("*/data.mdb.*"))


def test_a_lock_that_leads_elsewhere_is_not_written_to(snapshot, tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("dear to somebody")
    (snapshot / "node.lock").symlink_to(precious)
    for arguments in (["verify", snapshot], ["restore", snapshot, "--to", tmp_path / "made"]):
        done = command(*arguments)
        assert "Traceback" not in done.stderr
    assert precious.read_text() == "dear to somebody"


def test_what_lies_behind_the_pages_is_not_copied(snapshot, tmp_path):
    length = (snapshot / "data.mdb").stat().st_size
    with (snapshot / "data.mdb").open("r+b") as file:
        file.truncate(length + (64 << 20))
    restore_store(snapshot, tmp_path / "restored", node_key=None)
    assert (tmp_path / "restored" / "data.mdb").stat().st_size < 2 * length
    with (snapshot / "data.mdb").open("r+b") as file:
        file.truncate(1 << 41)
    with pytest.raises(StoreFull, match="make room"):
        restore_store(snapshot, tmp_path / "other", node_key=None)
    done = command("verify", snapshot)
    assert done.returncode in (0, 1)
    assert done.stderr == ""


def test_a_file_that_has_no_room_is_not_copied(snapshot, tmp_path):
    """As many pages as it says, all of them a hole."""
    content = bytearray((snapshot / "data.mdb").read_bytes()[: 2 * PAGE])
    last_page = (1 << 42) // PAGE - 1
    for page in range(2):
        struct.pack_into("=Q", content, page * PAGE + 16 + 24 + 96, last_page)
    with (snapshot / "data.mdb").open("r+b") as file:
        file.write(content)
        file.truncate((last_page + 1) * PAGE)
    with pytest.raises(StoreFull, match="make room"):
        restore_store(snapshot, tmp_path / "restored", node_key=None)


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("taken_at", 10**400),
        ("taken_at", -5),
        ("taken_at", 1e300),
        ("taken_at", True),
        ("node_key", "ab"),
        ("node_key", 7),
    ],
)
def test_a_description_of_nonsense_is_no_snapshot(snapshot, key, told):
    """`snapshots` divides by it, compares it and shows it."""
    path = snapshot / "snapshot.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: told}))
    with pytest.raises(StoreCorrupt, match="no whole snapshot"):
        load_snapshot_info(snapshot)
    listed = command("snapshots", snapshot.parent)
    assert (listed.returncode, listed.stderr) == (0, "")


@pytest.mark.parametrize(
    "change", [{"key": "ab"}, {"digest": "ab"}, {"count": -1}, {"bytes": 0.5}, {"top_seq": 1 << 64}]
)
def test_figures_of_nonsense_are_no_snapshot(snapshot, change):
    path = snapshot / "snapshot.json"
    told = json.loads(path.read_text())
    told["feeds"][0].update(change)
    path.write_text(json.dumps(told))
    with pytest.raises(StoreCorrupt, match="no whole snapshot"):
        load_snapshot_info(snapshot)


@pytest.mark.parametrize("settings", [{"alias": 5}, {}, {"key": "ab"}, {"key": "67" * 32}])
def test_settings_with_which_no_node_starts_are_not_restored(tmp_path, settings):
    with closing(Store.open(tmp_path / "store", durable=False)) as store:
        WriterInline(store).submit(PutFeed(FEED, settings), id)
        store.snapshot(tmp_path / "snapshot")
    done = command("restore", tmp_path / "snapshot", "--to", tmp_path / "made")
    assert done.returncode == 7
    assert done.stderr.startswith("hyperbloom: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert "is damaged" in done.stderr
    assert not (tmp_path / "made" / "data.mdb").exists()


def test_a_description_has_a_length(snapshot):
    path = snapshot / "snapshot.json"
    content = path.read_bytes()
    path.write_bytes(content + b" " * (MAX_SNAPSHOT_INFO_BYTES - len(content)))
    load_snapshot_info(snapshot)
    with path.open("ab") as file:
        file.write(b" ")
    with pytest.raises(StoreCorrupt, match="longer than"):
        load_snapshot_info(snapshot)
