"""The `[[feeds]]` tables of the configuration: what is replicated, and how much of it."""

from __future__ import annotations

from typing import get_args

from hyperbloom.addresses import Address
from hyperbloom.config.table import ConfigTable, one_of
from hyperbloom.feed_words import (
    DEFAULT_DIALECT,
    FORMER_TOMBSTONES,
    Dialect,
    Noise,
    check_alias,
)
from hyperbloom.keys import parse_public_key
from hyperbloom.replication.settings import (
    FEED_SETTINGS,
    FeedSettings,
    KeyRange,
    NoisePolicy,
    why_no_noise,
)

__all__ = ["RANGE_KEYS", "feed_remarks", "read_feeds"]

RANGE_KEYS = ("start", "end", "start_hex", "end_hex")


def _range(table: ConfigTable) -> KeyRange:
    table.refuse_unknown(RANGE_KEYS)
    start, end = table.bytes_of("start"), table.bytes_of("end")
    if start is None and end is None:
        raise table.error("start", 'give start, end or both; for all values use mode = "full"')
    if end is not None and end <= (start or b""):
        raise table.error("end", "must be greater than the start, in the order of bytes")
    return start or b"", end


def _feed(table: ConfigTable) -> FeedSettings:
    table.refuse_unknown(FEED_SETTINGS)
    if "key" not in table:
        raise table.error("key", "is missing; it is the feed's public key, 64 hex digits")
    ranges = tuple(_range(item) for item in table.tables("ranges"))
    former = {"tombstones": "owner"} if _is_former(table) else {}
    found = table.fields(
        FeedSettings,
        read={
            **former,
            "key": table.checked("key", table.value("key", str, ""), parse_public_key),
            "alias": table.text("alias", "", check_alias) or None,
            "ranges": ranges,
            "dialect": table.text("dialect", DEFAULT_DIALECT, one_of(get_args(Dialect), "dialect")),
            "peers": table.texts("peers", (), Address.parse),
            "noise": table.text("noise", "", one_of(get_args(Noise), "policy")) or None,
        },
    )
    if (found["mode"] == "range") != bool(ranges):
        is_range = found["mode"] == "range"
        problem = "needs at least one range" if is_range else 'is only for mode = "range"'
        raise table.error("ranges", problem)
    why = why_no_noise(found["dialect"])
    if why is not None and found["noise"] == "require":
        raise table.error("noise", f'{why}; say "off" here, or leave this feed')
    return FeedSettings(**found)


def _is_former(table: ConfigTable) -> bool:
    """Whether a feed's table names the tombstones that are followed no more."""
    return table.value("tombstones", str, "") == FORMER_TOMBSTONES


def feed_remarks(root: ConfigTable) -> tuple[str, ...]:
    """Sentences on what the `[[feeds]]` say that means something else than it did."""
    return tuple(
        f'[[feeds]] {number} tombstones: "{FORMER_TOMBSTONES}" is read as "owner": whoever '
        'copied a value to a node could have it forgotten there; write "owner", or "off"'
        for number, table in enumerate(root.tables("feeds"), 1)
        if _is_former(table)
    )


def read_feeds(root: ConfigTable, *, noise: NoisePolicy) -> tuple[FeedSettings, ...]:
    """The settings of every `[[feeds]]` of the file, with `[node] noise`. Raises `ConfigError`."""
    feeds: list[FeedSettings] = []
    for number, item in enumerate(root.tables("feeds"), 1):
        table = item.titled(f"[[feeds]] {number}")
        feed = _feed(table)
        if any(feed.key == other.key for other in feeds):
            raise table.error("key", "this feed is there twice; leave one out")
        if feed.alias is not None and any(feed.alias == other.alias for other in feeds):
            raise table.error("alias", f"{feed.alias!r} names two feeds; choose another")
        why = why_no_noise(feed.dialect)
        if why is not None and noise is NoisePolicy.REQUIRE and feed.noise is None:
            problem = 'is "require" under [node], and here it cannot be'
            raise table.error("noise", f'{problem}: {why}; say "off" for this feed, or leave it')
        feeds.append(feed)
    return tuple(feeds)
