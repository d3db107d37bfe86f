"""A process reads what a running node writes: nothing is locked, and nothing it reads is reused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hyperbloom.store import AppendValues, PutFeed, Store, StoreError, WriterInline

#: Reads a slice for each line it is told, and says how many values it has; `hold` ends in a read.
READER = """
import sys
from pathlib import Path
from hyperbloom.store import Store

store = Store.open_beside(Path(sys.argv[1]))
for line in sys.stdin:
    if line == "hold\\n":
        with store.environment.read() as transaction:
            print("held", flush=True)
            sys.stdin.readline()
    values, start = 0, b""
    while start is not None:
        piece = store.range_slice(b"f" * 32, start, limit=1_000, max_bytes=1 << 20)
        values, start = values + len(piece.values), piece.next_start
    print(values, flush=True)
store.close()
"""


class Reader:
    """A process that reads beside this one."""

    def __init__(self, path: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", READER, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, what: str = "count") -> str:
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def end(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)
        self.process.communicate()


@pytest.fixture
def reader(store: Store):
    made = Reader(store.path)
    yield made
    made.end()


def append(run, first: int, count: int, size: int = 100) -> None:
    values = [b"%0*d" % (size, number) for number in range(first, first + count)]
    run(AppendValues(feed_key=b"f" * 32, values=values, origin=b"o" * 32, received_at=1))


def test_sees_what_was_committed_before_each_read(run, reader: Reader) -> None:
    assert reader.ask() == "0"
    append(run, 0, 10)
    assert reader.ask() == "10"
    append(run, 10, 3_000)
    assert reader.ask() == "3010"


def test_follows_a_map_that_has_grown(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "grows", map_bytes=1 << 20, durable=False)
    writer, outcomes = WriterInline(store), []

    def run(operation) -> None:
        writer.submit(operation, outcomes.append)
        assert not isinstance(outcomes[-1], BaseException)

    run(PutFeed(b"f" * 32, {}))
    reader = Reader(store.path)
    try:
        assert reader.ask() == "0"
        before = store.size().map_bytes
        append(run, 0, 20_000)
        assert store.size().map_bytes > 4 * before
        assert reader.ask() == "20000"
    finally:
        reader.end()
        store.close()


def test_a_reader_that_died_keeps_nothing_once_it_is_dropped(store: Store, run) -> None:
    reader = Reader(store.path)
    assert reader.ask("hold") == "held"
    assert store.drop_dead_readers() == 0, "it is not dead"
    reader.end()
    assert store.drop_dead_readers() == 1
    assert store.drop_dead_readers() == 0


def test_the_writer_does_not_wait_for_a_reader(store: Store, run) -> None:
    reader = Reader(store.path)
    try:
        assert reader.ask("hold") == "held"
        append(run, 0, 5_000)
        assert store.feed(b"f" * 32).count == 5_000
    finally:
        reader.end()
    store.drop_dead_readers()


def test_nothing_can_be_written(store: Store, run) -> None:
    # In a process of its own: a second handle in this one would drop the first one's locks.
    program = (
        "import sys; from pathlib import Path\n"
        "from hyperbloom.store import PutMeta, Store, StoreError, WriterInline\n"
        "store, outcomes = Store.open_beside(Path(sys.argv[1])), []\n"
        "WriterInline(store).submit(PutMeta('a', b'b'), outcomes.append)\n"
        "assert isinstance(outcomes[0], StoreError), outcomes\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, str(store.path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert store.get_meta("a") is None


def test_without_a_node_s_store_there_is_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store of a node"):
        Store.open_beside(tmp_path)
    assert os.listdir(tmp_path) == []
