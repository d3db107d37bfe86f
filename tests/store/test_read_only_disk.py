"""A disk that turns read-only, as ext4 does at an error: callers and the log are told, reads go on.

The disk is a real file system in a file, which is told to have met an error.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from twisted.logger import capturedLogs, formatEvent

from hyperbloom.process.store_log import AGAIN_SECONDS, StoreLog
from hyperbloom.store import (
    AppendValues,
    PutFeed,
    Store,
    StoreError,
    WriterInline,
)
from hyperbloom.store.records import Appended

FEED, ORIGIN = b"f" * 32, b"o" * 32
DISK_BYTES = 16 << 20


class Disk:
    """A small ext4 without a journal; the folder is where it is mounted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "disk"
        self.folder.mkdir()
        self._image = folder / "image"
        with open(self._image, "wb") as image:
            image.truncate(DISK_BYTES)
        self._run("mkfs.ext4", "-q", "-O", "^has_journal", self._image)

    def mount(self) -> None:
        """Skips where this user or this kernel may not."""
        self._run("mount", "-o", "loop,errors=remount-ro", self._image, self.folder)

    def unmount(self) -> None:
        """Whether it is mounted or not."""
        if self.folder.is_mount():
            subprocess.run(["umount", str(self.folder)], check=True)

    def meet_an_error(self) -> None:
        """What a broken sector does: it turns read-only under those who write."""
        device = os.stat(self.folder).st_dev
        block = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve().name
        trigger = Path(f"/sys/fs/ext4/{block}/trigger_fs_error")
        try:
            trigger.write_text("1")
        except OSError as error:
            pytest.skip(f"ext4 cannot be told of an error here: {error}")

    @staticmethod
    def _run(*command: str | Path) -> None:
        try:
            done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
        except FileNotFoundError as error:
            pytest.skip(f"no file system can be made here: {error}")
        if done.returncode:
            pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")


@pytest.fixture
def disk(tmp_path):
    one = Disk(tmp_path)
    try:
        one.mount()
        yield one
    finally:
        one.unmount()


def answer_of(store: Store, operation: object) -> object:
    answers: list[object] = []
    # It begins with a transaction that has nothing to write, which succeeds on any disk.
    WriterInline(store).submit(operation, answers.append)
    (answer,) = answers
    return answer


def put(store: Store, value: bytes) -> object:
    return answer_of(store, AppendValues(FEED, [value], ORIGIN, 1))


def test_a_disk_that_turns_read_only_is_told_of_and_loses_nothing(disk):
    path, now = disk.folder / "store", [0.0]
    sentence = (
        f"the disk of {path} is read-only, nothing was written; see the system's log for why, and "
        "mount it for writing"
    )
    with closing(Store.open(path)) as store, capturedLogs() as said:
        told = StoreLog(store.condition, seconds=lambda: now[0])
        store.condition.listener = told.look
        answer_of(store, PutFeed(FEED, {}))
        assert isinstance(put(store, b"before"), Appended)
        assert (said, store.condition.problem) == ([], None)

        disk.meet_an_error()
        for refused in range(1, 4):
            answer = put(store, b"after")
            assert type(answer) is StoreError
            assert str(answer) == str(store.condition.problem) == sentence
            assert store.condition.failures == refused
            assert store.range_slice(FEED, limit=10, max_bytes=1_000).values == [b"before"]
        now[0] = AGAIN_SECONDS
        put(store, b"after")
        assert [formatEvent(event) for event in said] == [
            f"The store takes no writes: {sentence}",
            f"The store still takes no writes, 4 were refused in 60 s: {sentence}",
        ]
        assert store.verify().ok

    disk.unmount()
    disk.mount()
    with closing(Store.open(path)) as store:
        assert store.feed(FEED).count == 1
        assert isinstance(put(store, b"after"), Appended)
        assert store.verify().ok
