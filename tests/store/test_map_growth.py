"""The map grows by itself, while others read and write, and no write is lost."""

import threading

import pytest

from hyperbloom.store import AppendValues, PutFeed, Store, Writer
from hyperbloom.store.lmdb.map_lock import MapLock

FEED = b"f" * 32
ORIGIN = b"o" * 32
TINY = 64 * 1024


def test_a_tiny_map_grows_under_readers_and_writers(tmp_path):
    store = Store.open(tmp_path / "store", map_bytes=TINY, durable=False)
    writer = Writer(store, deliver=lambda answer: answer())
    made = threading.Event()
    writer.submit(PutFeed(FEED, {}), lambda result: made.set())
    assert made.wait(240)
    first_map = store.size().map_bytes
    failures: list[object] = []
    stop = threading.Event()

    def write(name):
        for number in range(30):
            values = [b"%d %d %d" % (name, number, n) + b"x" * 400 for n in range(100)]
            stored = threading.Event()

            def done(result, stored=stored):
                if isinstance(result, BaseException):
                    failures.append(result)
                stored.set()

            writer.submit(AppendValues(FEED, values, ORIGIN, 1), done)
            assert stored.wait(240)
            if store.has(FEED, values) != [True] * len(values):
                failures.append((name, number))

    def read():
        try:
            while not stop.is_set():
                values = store.range_slice(FEED, limit=200, max_bytes=1 << 20).values
                if values != sorted(values):
                    failures.append("order")
        except Exception as error:
            failures.append(error)

    writers = [threading.Thread(target=write, args=(name,)) for name in range(4)]
    readers = [threading.Thread(target=read) for _ in range(3)]
    for thread in writers + readers:
        thread.start()
    for thread in writers:
        thread.join(100)
    stop.set()
    for thread in readers:
        thread.join(240)
    writer.close()
    assert failures == []
    assert store.feed(FEED).count == 4 * 30 * 100
    assert store.size().map_bytes > 16 * first_map
    assert store.verify().ok
    store.close()


def test_one_operation_larger_than_twice_the_map(tmp_path):
    store = Store.open(tmp_path / "store", map_bytes=TINY, durable=False)
    answers = []
    writer = Writer(store, deliver=lambda answer: answer())
    writer.submit(PutFeed(FEED, {}), answers.append)
    values = [b"%06d" % n + b"x" * 4_000 for n in range(1_000)]
    writer.submit(AppendValues(FEED, values, ORIGIN, 1), answers.append)
    writer.close()
    assert answers[1].values == values
    store.close()


def test_a_store_opens_with_a_map_smaller_than_its_data(tmp_path):
    path = tmp_path / "store"
    for start in (0, 1_000):
        store = Store.open(path, map_bytes=TINY, durable=False)
        writer = Writer(store, deliver=lambda answer: answer())
        answers = []
        writer.submit(PutFeed(FEED, {}), answers.append)
        values = [b"%06d" % n + b"x" * 900 for n in range(start, start + 1_000)]
        writer.submit(AppendValues(FEED, values, ORIGIN, 1), answers.append)
        writer.close()
        assert answers[1].values == values
        store.close()


def test_room_is_made_beforehand(store):
    size = store.size()
    store.environment.reserve(size.map_bytes * 3)
    larger = store.size()
    assert larger.map_bytes - larger.used_bytes >= size.map_bytes * 3
    store.environment.reserve(1)
    assert store.size().map_bytes == larger.map_bytes


class Exchange:
    """A thread that is alone with the map until it is told to leave."""

    def __init__(self, map_lock: MapLock) -> None:
        self.map_lock = map_lock
        self.alone = threading.Event()
        self.leave = threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        with self.map_lock.exclusive():
            self.alone.set()
            self.leave.wait(240)

    def finish(self) -> None:
        self.leave.set()
        self.thread.join(240)


def entered(map_lock: MapLock, **kind: bool) -> threading.Event:
    """Enter and leave in another thread; the event is set when that is done."""
    done = threading.Event()
    threading.Thread(
        target=lambda: (
            map_lock.acquire_shared(**kind),
            map_lock.release_shared(**kind),
            done.set(),
        )
    ).start()
    return done


def test_readers_wait_while_one_holds_the_map_alone():
    map_lock = MapLock()
    map_lock.acquire_shared()
    exchange = Exchange(map_lock)
    assert not exchange.alone.wait(0.02)
    map_lock.release_shared()
    assert exchange.alone.wait(240)
    short, long = entered(map_lock), entered(map_lock, long=True)
    assert not short.wait(0.02)
    assert not long.wait(0.02)
    exchange.finish()
    assert short.wait(240)
    assert long.wait(240)


def test_short_readers_do_not_wait_for_a_long_one():
    map_lock = MapLock()
    map_lock.acquire_shared(long=True)
    exchange = Exchange(map_lock)
    for _ in range(5):
        assert entered(map_lock).wait(240)
    assert not exchange.alone.is_set()
    # No further long reader goes in, or the exchange would never come to its turn.
    second = entered(map_lock, long=True)
    assert not second.wait(0.02)
    map_lock.release_shared(long=True)
    assert exchange.alone.wait(240)
    exchange.finish()
    assert second.wait(240)


def test_the_map_is_free_again_after_a_failure():
    map_lock = MapLock()
    with pytest.raises(ZeroDivisionError), map_lock.exclusive():
        raise ZeroDivisionError
    map_lock.acquire_shared()
    map_lock.release_shared()
