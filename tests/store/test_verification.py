"""Every kind of damage, planted one at a time, is named; an undamaged store has no problems."""

import threading
import time

import pytest
from sound_store import FEED, ORIGIN, OTHER, STEM, VALUES, fill

from hyperbloom.store import AppendValues, ForgetValues, StoreCorrupt
from hyperbloom.store.backup.verify import verify_path
from hyperbloom.store.lmdb.layout import META_NEXT_FEED, U32, U64, FeedState
from hyperbloom.store.lmdb.transaction import write
from hyperbloom.store.values.ordered_index import PART_BYTES

ROOT, BUCKET = U64.pack(0), U64.pack(1)
HEAD = U64.pack(7) + ORIGIN


@pytest.fixture
def sound(store, run):
    """A store with something of everything, without a fault."""
    fill(run)
    return store


def prefix(transaction) -> bytes:
    return transaction.feed(FEED).prefix


def long_key(transaction, head: bytes, part: bytes) -> bytes:
    return prefix(transaction) + head + part + b"\x00"


def set_state(**fields):
    def change(transaction):
        for name, value in fields.items():
            setattr(transaction.feed(FEED), name, value)

    return change


def lose_log_record(transaction):
    transaction.delete("log", prefix(transaction) + U64.pack(1))


def lose_index_entry(transaction):
    transaction.delete("index", prefix(transaction) + ROOT + b"a")


def lose_long_entry(transaction):
    transaction.delete("index", long_key(transaction, ROOT, b"l" * PART_BYTES))


def lose_bucket_entry(transaction):
    transaction.delete("index", long_key(transaction, ROOT, STEM))


def lose_value_in_bucket(transaction):
    transaction.delete("index", prefix(transaction) + BUCKET + b"1")


def number_wrongly(transaction):
    transaction.put("index", prefix(transaction) + ROOT + b"a", U64.pack(2))


def add_index_entry(transaction):
    transaction.put("index", prefix(transaction) + ROOT + b"z", U64.pack(99))


def add_second_entry_for_a_record(transaction):
    transaction.put("index", prefix(transaction) + ROOT + b"z", U64.pack(1))


def add_log_record(transaction):
    transaction.put("log", prefix(transaction) + U64.pack(50), HEAD + b"zzz")


def change_log_record(transaction):
    transaction.put("log", prefix(transaction) + U64.pack(1), HEAD + b"A")


def cut_log_record(transaction):
    transaction.put("log", prefix(transaction) + U64.pack(1), b"short")


def cut_index_entry(transaction):
    transaction.put("index", prefix(transaction) + ROOT + b"a", b"1")


def enter_a_bucket_twice(transaction):
    key = long_key(transaction, ROOT, b"t" * PART_BYTES)
    transaction.put("index", key, b"\x01" + BUCKET)


def enter_an_empty_bucket(transaction):
    key = long_key(transaction, ROOT, b"t" * PART_BYTES)
    transaction.put("index", key, b"\x01" + U64.pack(40))


def swap_values_in_a_bucket(transaction):
    for tail, seq in ((b"1", 4), (b"2", 3)):
        transaction.put("index", prefix(transaction) + BUCKET + tail, U64.pack(seq))


def lead_a_leaf_elsewhere(transaction):
    key = long_key(transaction, ROOT, b"l" * PART_BYTES)
    transaction.put("index", key, b"\x00" + U64.pack(1))


def lead_a_leaf_in_a_bucket_elsewhere(transaction):
    key = long_key(transaction, BUCKET, b"t" * PART_BYTES)
    transaction.put("index", key, b"\x00" + U64.pack(3))


def lead_a_leaf_nowhere(transaction):
    key = long_key(transaction, ROOT, b"l" * PART_BYTES)
    transaction.put("index", key, b"\x00" + U64.pack(77))


def leave_strays(transaction):
    transaction.put("log", U32.pack(500) + U64.pack(1), HEAD + b"stray")


def give_an_id_twice(transaction):
    transaction.feed(OTHER).feed_id = transaction.feed(FEED).feed_id


def spoil_feed_record(transaction):
    transaction.put("feeds", b"h" * 32, b"short")


def spoil_settings(transaction):
    transaction.feed(FEED).settings = b"no JSON"


def go_back_with_ids(transaction):
    transaction.put("meta", META_NEXT_FEED, U32.pack(1))


def misplace_link(transaction):
    ((key, data),) = transaction.scan("links", prefix(transaction))
    transaction.put("links", key, data + b"!")


def cut_link(transaction):
    ((key, _),) = transaction.scan("links", prefix(transaction))
    transaction.put("links", key, b"short")


def lose_link(transaction):
    ((key, _),) = transaction.scan("links", prefix(transaction))
    transaction.delete("links", key)


def misplace_refused(transaction):
    ((key, data),) = transaction.scan("refused", prefix(transaction))
    transaction.put("refused", key, data[:-1] + b"!")


def cut_refused(transaction):
    ((key, _),) = transaction.scan("refused", prefix(transaction))
    transaction.put("refused", key, b"short")


def lose_refused(transaction):
    ((key, _),) = transaction.scan("refused", prefix(transaction))
    transaction.delete("refused", key)


def spoil_peer(transaction):
    transaction.put("peers", FEED + b"127.0.0.1:1", b"no JSON")


DAMAGES = [
    (lose_log_record, "leads to log record 1, which is missing"),
    (lose_log_record, "count is kept as 7 and comes to 6"),
    (lose_index_entry, "log record 1 is missing in the index"),
    (lose_index_entry, "the log has 7 values and the index 6"),
    (lose_long_entry, "log record 7 is missing in the index"),
    (lose_bucket_entry, "bucket 1 has values and no entry leads to it"),
    (lose_value_in_bucket, "log record 3 is missing in the index"),
    (number_wrongly, "log record 1 is in the index under the number 2"),
    (number_wrongly, "leads to log record 2 for a value that is not in it"),
    (add_index_entry, "leads to log record 99, which is missing"),
    (add_second_entry_for_a_record, "leads to log record 1 for a value that is not in it"),
    (add_log_record, "log record 50 is missing in the index"),
    (add_log_record, "the log goes on to 50, beyond the top number 7"),
    (change_log_record, "log record 1 is missing in the index"),
    (change_log_record, "its digest is kept"),
    (cut_log_record, "the log record at 000000010000000000000001 is malformed"),
    (cut_index_entry, "the index entry at 00000001000000000000000061 is malformed"),
    (enter_a_bucket_twice, "bucket 1 is entered from 2 places"),
    (enter_an_empty_bucket, "bucket 40 is empty"),
    (swap_values_in_a_bucket, "log record 3 is in the index under the number 4"),
    (swap_values_in_a_bucket, "leads to log record 3 for a value that is not in it"),
    (lead_a_leaf_elsewhere, "leads to log record 1 for a value that is not in it"),
    (lead_a_leaf_in_a_bucket_elsewhere, "leads to log record 3 for a value that is not in it"),
    (lead_a_leaf_nowhere, "the way to log record 7 is broken"),
    (leave_strays, "log: records of feed id 500, which no feed has"),
    (give_an_id_twice, "another feed has its id 1"),
    (spoil_feed_record, f"feed {(b'h' * 32).hex()}: its record cannot be read"),
    (spoil_settings, "its record cannot be read"),
    (go_back_with_ids, "the next feed id 1 is one that a feed has already"),
    (set_state(count=8), "its count is kept as 8 and comes to 7"),
    (set_state(size=1), "its number of bytes is kept as 1"),
    (set_state(digest=b"\1" * 32), "its digest is kept as 0101"),
    (set_state(top_seq=3), "the log goes on to 7, beyond the top number 3"),
    (set_state(next_bucket=1), "the next bucket 1 is one that exists already"),
    (set_state(links=5), "its number of links is kept as 5 and comes to 1"),
    (set_state(link_expiry=100.0), "expires before the earliest known expiry"),
    (set_state(refused=0), "its number of refused values is kept as 0 and comes to 1"),
    (set_state(refused_bytes=0), "its size of refused values is kept as 0"),
    (misplace_link, "is not the one that belongs there"),
    (cut_link, "the link at"),
    (lose_link, "its number of links is kept as 1 and comes to 0"),
    (misplace_refused, "is not the one that belongs there"),
    (cut_refused, "the refused value at"),
    (lose_refused, "its number of refused values is kept as 1 and comes to 0"),
    (spoil_peer, "peers: the record"),
]


def test_a_sound_store_has_no_problems(sound):
    seen = []
    report = sound.verify(seen.append)
    assert (report.ok, report.problems, report.values) == (True, [], len(VALUES) + 3)


@pytest.mark.parametrize(
    ("damage", "sentence"), DAMAGES, ids=lambda value: getattr(value, "__name__", None)
)
def test_a_damage_is_named(sound, damage, sentence):
    write(sound.environment, damage)
    report = sound.verify()
    assert not report.ok
    assert any(sentence in problem for problem in report.problems), report.problems


def test_nothing_is_written_over_records_beyond_the_top_number(sound, run):
    write(sound.environment, set_state(top_seq=3))
    with pytest.raises(StoreCorrupt):
        run(AppendValues(FEED, [b"new"], ORIGIN, 1))
    assert [
        record.value for record in sound.log_slice(FEED, 0, limit=9, max_bytes=9_999).records
    ] == VALUES
    assert sound.has(FEED, [b"new"]) == [False]


def test_a_bucket_goes_with_its_last_value_though_damage_took_another(sound, run):
    run(ForgetValues(FEED, [value for value in VALUES if value.startswith(STEM * 3)]))
    write(sound.environment, lose_value_in_bucket)
    assert run(ForgetValues(FEED, [STEM + b"2"])).count == 1
    assert not any("bucket" in problem for problem in sound.verify().problems)


def test_a_damaged_folder_is_verified_without_a_node(sound, tmp_path):
    sound.snapshot(tmp_path / "copy")
    assert verify_path(tmp_path / "copy").ok
    write(sound.environment, lose_index_entry)
    sound.snapshot(tmp_path / "damaged")
    report = verify_path(tmp_path / "damaged")
    assert not report.ok
    assert report.values == len(VALUES) + 3


def test_problems_without_end_are_counted(store, run):
    run(AppendValues(FEED, [b"%d" % n for n in range(1_500)], ORIGIN, 1))

    def lose_all(transaction):
        transaction.delete_prefix("index", prefix(transaction), 10_000)

    write(store.environment, lose_all)
    problems = store.verify().problems
    assert len(problems) == 1_001
    assert problems[-1] == "and 501 problems more"


def test_progress_is_told(store, run):
    run(AppendValues(FEED, [b"%d" % n for n in range(25_000)], ORIGIN, 1))
    seen = []
    store.verify(lambda done, total: seen.append((done, total)))
    assert seen == [(10_000, 25_000), (20_000, 25_000)]


def test_others_read_while_a_write_waits_for_the_end_of_a_verification(store, run):
    run(AppendValues(FEED, [b"%d" % n for n in range(10_000)], ORIGIN, 1))
    read = threading.Event()
    waiting = threading.Thread(target=store.environment.grow)

    def look(*_):
        waiting.start()
        time.sleep(0.05)  # in which the writer comes to wait for the map
        threading.Thread(target=lambda: (store.feed(FEED), read.set())).start()
        assert read.wait(10), "a reader waits for the verification, too"

    assert store.verify(look).ok
    waiting.join(60)
    assert read.is_set()


def test_a_feed_state_survives_its_record():
    state = FeedState(
        feed_id=1,
        settings=b"{}",
        count=2,
        size=3,
        top_seq=4,
        next_bucket=5,
        links=6,
        link_expiry=7.5,
        refused=8,
        refused_bytes=9,
        digest=b"\xff" * 32,
    )
    assert FeedState.unpack(state.pack()) == state
