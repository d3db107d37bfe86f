"""What a new node takes of a feed in another node's snapshot, beside the values.

A restored node takes all, but no settings with which it would not start.

A snapshot is its node's word. Of the settings only what the values are is taken: alias, dialect,
mode and ranges. Whom to dial, what to forget and whose tombstones to follow is for this node's
operator to say. Of the links those are taken that are signed as they should be; the others would
make strangers members, or have this node prove itself with a chain that nobody takes.
"""

from __future__ import annotations

from collections.abc import Sequence

from hyperbloom.replication.settings import FeedSettings
from hyperbloom.store.records import FeedRecord, LinkRecord
from hyperbloom.store.restoring.seed import SeededFeed
from hyperbloom.trust import LinkFormat, parse_link
from hyperbloom.wire import DIALECTS

__all__ = ["settings_of", "taken_of"]


def settings_of(record: FeedRecord) -> FeedSettings:
    """A feed's settings; raises `ValueError`, `TypeError` or `KeyError` for what is none."""
    found = FeedSettings.from_json(record.settings)
    if found.key != record.key:
        raise ValueError("a feed's settings are those of another feed")
    return found


def taken_of(record: FeedRecord, links: Sequence[LinkRecord]) -> SeededFeed:
    """Raises `ValueError`, `TypeError` or `KeyError` for settings that are none."""
    theirs = settings_of(record)
    ours = FeedSettings(
        key=theirs.key,
        alias=theirs.alias,
        mode=theirs.mode,
        ranges=theirs.ranges,
        dialect=theirs.dialect,
    )
    link_format = DIALECTS[theirs.dialect].link_format
    return SeededFeed(
        settings=ours.to_json(),
        links=tuple(link for link in links if _is_genuine(link, link_format)),
    )


def _is_genuine(record: LinkRecord, link_format: LinkFormat) -> bool:
    try:
        link = parse_link(record.raw, link_format)
    except ValueError:
        return False
    said = (record.trustee, record.expires)
    return (link.public_key, link.expires) == said and link.is_signed_by(record.issuer)
