"""Reading the small tables: feeds, links, addresses, keys, their names, and entries of meta."""

from collections.abc import Iterator

from hyperbloom.store.lmdb.layout import KEY_BYTES, U32, FeedState
from hyperbloom.store.lmdb.transaction import Reader, ReadTransaction, read
from hyperbloom.store.records import (
    DeniedRecord,
    FeedRecord,
    LinkRecord,
    NameRecord,
    NoiseRecord,
    PeerRecord,
    PendingRecord,
)
from hyperbloom.store.tables.denied import parse_denied_record
from hyperbloom.store.tables.feeds import feed_record
from hyperbloom.store.tables.links import parse_link_record
from hyperbloom.store.tables.meta import meta_key
from hyperbloom.store.tables.names import name_records
from hyperbloom.store.tables.noise import noise_records
from hyperbloom.store.tables.peers import parse_peer_record
from hyperbloom.store.tables.pending import parse_pending_record

__all__ = ["TableReader"]


def _keys_in(transaction: ReadTransaction) -> Iterator[bytes]:
    """Every public key that the small tables hold, some of them often."""
    for database in ("feeds", "denied"):
        for key, _ in transaction.scan(database):
            yield key
    for database in ("noise", "names"):
        for key, _ in transaction.scan(database, b"k"):
            yield key[1:]
    for key, data in transaction.scan("links"):
        yield key[U32.size : U32.size + KEY_BYTES]
        yield data[:KEY_BYTES]


class TableReader(Reader):
    """Reads the small tables."""

    def feeds(self) -> list[FeedRecord]:
        """All feeds, in the order of their keys."""
        with read(self.environment) as transaction:
            states = [(key, FeedState.unpack(data)) for key, data in transaction.scan("feeds")]
            return [feed_record(key, state, transaction.unsummed(state)) for key, state in states]

    def feed(self, feed_key: bytes) -> FeedRecord | None:
        """One feed, or None."""
        with read(self.environment) as transaction:
            state = transaction.find_feed(feed_key)
            if state is None:
                return None
            return feed_record(feed_key, state, transaction.unsummed(state))

    def links(self, feed_key: bytes) -> list[LinkRecord]:
        """The feed's trust links, those of one issuer together."""
        with read(self.environment) as transaction:
            prefix = transaction.feed(feed_key).prefix
            return [parse_link_record(*item) for item in transaction.scan("links", prefix)]

    def peers(self) -> list[PeerRecord]:
        """All known addresses, by feed and address."""
        with read(self.environment) as transaction:
            records = list(transaction.scan("peers"))
        return [parse_peer_record(key, data) for key, data in records]

    def denied(self) -> list[DeniedRecord]:
        """The keys that the operator denies, in their order."""
        with read(self.environment) as transaction:
            records = list(transaction.scan("denied"))
        return [parse_denied_record(key, data) for key, data in records]

    def noise_keys(self) -> list[NoiseRecord]:
        """The keys that have completed protected streams, those met longest ago first."""
        with read(self.environment) as transaction:
            return noise_records(transaction)

    def names(self) -> list[NameRecord]:
        """What the operator calls keys, by key."""
        with read(self.environment) as transaction:
            return name_records(transaction)

    def pending(self, feed_key: bytes) -> list[PendingRecord]:
        """The keys that were invited to a feed and have not come yet."""
        with read(self.environment) as transaction:
            found = list(transaction.scan("pending", feed_key))
        return [parse_pending_record(key, data) for key, data in found]

    def keys_beginning(self, digits: str) -> set[bytes]:
        """The public keys in the small tables whose hex form begins so (lower case).

        Feeds, issuers and trustees of links, keys that are denied, named, or speak Noise. A feed
        with MAX_LINKS_PER_FEED links takes some milliseconds, so not in the event loop's thread.
        """
        head = bytes.fromhex(digits[: len(digits) & ~1])
        with read(self.environment) as transaction:
            near = {key for key in _keys_in(transaction) if key.startswith(head)}
        return {key for key in near if key.hex().startswith(digits)}

    def get_meta(self, name: str) -> bytes | None:
        """What PutMeta keeps under this name."""
        with read(self.environment) as transaction:
            return transaction.get("meta", meta_key(name))
