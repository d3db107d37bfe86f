"""A store as an earlier version of the program left it: with schema 3, before sums were kept."""

from pathlib import Path

from hyperbloom.keys import keyed_hash
from hyperbloom.store import Store
from hyperbloom.store.lmdb.layout import LOG_HEAD_BYTES, META_SCHEMA, META_SUM, U32, FeedState
from hyperbloom.store.lmdb.transaction import WriteTransaction, write

SCHEMA_3 = 3


def digest_of_schema_3(values) -> bytes:
    """The sum of the values' keyed hashes modulo 2^256."""
    total = sum(int.from_bytes(keyed_hash(value), "big") for value in values)
    return (total % 2**256).to_bytes(32, "big")


def _take_back(transaction: WriteTransaction) -> None:
    for key, _ in list(transaction.scan("meta", META_SUM)):
        transaction.delete("meta", key)
    for database in ("feeds", "aside"):
        for key, data in list(transaction.scan(database, b"")):
            state = FeedState.unpack(data)
            records = transaction.scan("log", state.prefix)
            state.digest = digest_of_schema_3(record[LOG_HEAD_BYTES:] for _, record in records)
            transaction.put(database, key, state.pack())
    transaction.put("meta", META_SCHEMA, U32.pack(SCHEMA_3))


def make_older(store: Store) -> None:
    """Give an open store, which is then to be closed, the digests and the number of schema 3."""
    write(store.environment, _take_back)


def make_folder_older(path: Path) -> None:
    """The same to a store that nobody has open."""
    store = Store.open(path, durable=False, create=False)
    make_older(store)
    store.close()
