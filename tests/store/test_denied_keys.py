"""The deny list as the store keeps it."""

import pytest

from hyperbloom.store import Store, WriterInline
from hyperbloom.store.tables import denied
from hyperbloom.store.tables.denied import AllowKey, DenyKey, TooManyDenied

KEY = b"k" * 32


def test_a_key_is_denied_until_it_is_allowed(store, run):
    assert run(DenyKey(KEY, 5, "spam")) is True
    (record,) = store.denied()
    assert (record.key, record.denied_at, record.reason) == (KEY, 5, "spam")
    assert run(DenyKey(KEY, 9, "much spam")) is False
    (record,) = store.denied()
    assert (record.denied_at, record.reason) == (5, "much spam")
    assert store.verify().problems == []
    assert run(AllowKey(KEY)) is True
    assert run(AllowKey(KEY)) is False
    assert store.denied() == []


def test_the_list_has_an_end(run, monkeypatch):
    monkeypatch.setattr(denied, "MAX_DENIED_KEYS", 2)
    run(DenyKey(b"1" * 32, 0))
    run(DenyKey(b"2" * 32, 0))
    with pytest.raises(TooManyDenied):
        run(DenyKey(b"3" * 32, 0))
    run(DenyKey(b"2" * 32, 0, "another reason"))


@pytest.mark.parametrize("key", [b"", b"k" * 31, b"k" * 33])
def test_a_key_has_32_bytes(key):
    with pytest.raises(ValueError, match="32 bytes"):
        DenyKey(key, 0)


def test_a_reason_is_bounded():
    DenyKey(KEY, 0, "x" * 256)
    with pytest.raises(ValueError, match="256"):
        DenyKey(KEY, 0, "x" * 257)


def test_verify_names_a_record_that_cannot_be_read(store, run):
    run(DenyKey(KEY, 5, "spam"))
    with store.environment.write() as txn:
        txn.put(KEY, b"short", db=store.environment.databases["denied"])
    assert store.verify().problems == [f"denied: the record {KEY.hex()} cannot be read"]


def test_it_is_there_after_opening_again(tmp_path):
    store = Store.open(tmp_path / "again")
    WriterInline(store).submit(DenyKey(KEY, 5), lambda _: None)
    store.close()
    store = Store.open(tmp_path / "again")
    assert [record.key for record in store.denied()] == [KEY]
    store.close()
