"""Reading the small tables: feeds, links, addresses, keys of two kinds, and what has a name."""

from hyperbloom.store.lmdb.layout import FeedState
from hyperbloom.store.lmdb.transaction import Reader, read
from hyperbloom.store.records import (
    DeniedRecord,
    FeedRecord,
    LinkRecord,
    NoiseRecord,
    PeerRecord,
)
from hyperbloom.store.tables.denied import parse_denied_record
from hyperbloom.store.tables.feeds import feed_record
from hyperbloom.store.tables.links import parse_link_record
from hyperbloom.store.tables.meta import meta_key
from hyperbloom.store.tables.noise import noise_records
from hyperbloom.store.tables.peers import parse_peer_record

__all__ = ["TableReader"]


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

    def get_meta(self, name: str) -> bytes | None:
        """What PutMeta keeps under this name."""
        with read(self.environment) as transaction:
            return transaction.get("meta", meta_key(name))
