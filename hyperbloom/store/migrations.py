"""The schema's version, and the steps from one to the next.

A store says in ``meta`` that it is one and which schema it has. A newer program takes an older
store over step by step, each step in one transaction together with the new version number: a crash
between two steps is taken up where it stopped. A store of a newer schema is refused, unread.
"""

from collections.abc import Callable, Sequence
from typing import Final

from hyperbloom.store.errors import SchemaMismatch, StoreCorrupt
from hyperbloom.store.lmdb.environment import Environment
from hyperbloom.store.lmdb.layout import META_FORMAT, META_SCHEMA, STORE_FORMAT, U32
from hyperbloom.store.lmdb.transaction import WriteTransaction, read, write
from hyperbloom.store.objects.table import count_disk
from hyperbloom.store.values.digest_migration import begin_sums

__all__ = [
    "MIGRATIONS",
    "OLDEST_READABLE",
    "Migration",
    "check_schema",
    "initialize",
    "migrate",
    "refuse_newer",
    "schema_version",
]

Migration = Callable[[WriteTransaction], None]
"""Changes what one version wrote into what the next one reads. All of it in one transaction."""


def _begin_object_pool(transaction: WriteTransaction) -> None:
    """1 → 2: the database `objects` has a layout (objects/records.py).

    It was there and empty. A program of schema 1 would take a store without its objects' rules.
    """


def _begin_forgetting(transaction: WriteTransaction) -> None:
    """2 → 3: the databases `denied` and `aside`, which are made empty when a store is opened.

    A program of schema 2 would let denied keys write and forgotten values return.
    """


def _begin_sums(transaction: WriteTransaction) -> None:
    """3 → 4: digests that cannot be forged (digests.py).

    Their sums are made later (digest_migration.py). A program of schema 3 would leave out of them
    what it adds.
    """
    begin_sums(transaction)


def _begin_sketches(transaction: WriteTransaction) -> None:
    """4 → 5: the database `sketches` (lmdb/kept_sketch.py), made empty when a store is opened.

    A node fills it in the background. A program of schema 4 would not take out of it what it
    removes.
    """


def _begin_pool_bounds(transaction: WriteTransaction) -> None:
    """5 → 6: what the objects of the pool take on disk, and whose part they are in.

    Those that are there are in nobody's part. A program of schema 5 would not read who brought an
    object, and count wrongly.
    """
    count_disk(transaction)


MIGRATIONS: Final[Sequence[Migration]] = (
    _begin_object_pool,
    _begin_forgetting,
    _begin_sums,
    _begin_sketches,
    _begin_pool_bounds,
)
"""The step from version n to n + 1 is the n-th (from 1); the newest version is one more than
these."""

OLDEST_READABLE: Final = 3
"""The oldest version that is read as it is, such as in a snapshot: only its digests differ."""


def initialize(environment: Environment, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Make a new, empty environment a store of the newest schema."""

    def first(transaction: WriteTransaction) -> None:
        transaction.put("meta", META_FORMAT, STORE_FORMAT)
        transaction.put("meta", META_SCHEMA, U32.pack(len(migrations) + 1))

    write(environment, first)


def schema_version(environment: Environment) -> int:
    """The store's version; raises StoreCorrupt if it does not say so."""
    with read(environment) as transaction:
        version = transaction.schema
    if not version:
        raise StoreCorrupt(
            f"the store {environment.path} does not say which schema it has; restore a snapshot"
        )
    return version


def check_schema(environment: Environment, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Raise SchemaMismatch unless the store can be read as it is, without a step."""
    refuse_newer(environment, migrations)
    found, newest = schema_version(environment), len(migrations) + 1
    if found < OLDEST_READABLE:
        raise SchemaMismatch(
            f"the store {environment.path} has schema {found} and this program reads {newest}; "
            "open it once with a node to bring it up to date"
        )


def refuse_newer(environment: Environment, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Raise SchemaMismatch for a store of a schema that this program does not know."""
    found, newest = schema_version(environment), len(migrations) + 1
    if found > newest:
        raise SchemaMismatch(
            f"the store {environment.path} has schema {found}, newer than the {newest} that this "
            "program knows; install the newer hyperbloom"
        )


def migrate(environment: Environment, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Bring the store to the newest schema; SchemaMismatch if it is newer than that."""
    refuse_newer(environment, migrations)
    for version in range(schema_version(environment), len(migrations) + 1):
        _step(environment, migrations[version - 1], version + 1)


def _step(environment: Environment, migration: Migration, version: int) -> None:
    def step(transaction: WriteTransaction) -> None:
        migration(transaction)
        transaction.put("meta", META_SCHEMA, U32.pack(version))

    write(environment, step)
