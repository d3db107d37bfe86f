"""What a client asks about the values of a feed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from hyperbloom.api.limits import MAX_VALUES
from hyperbloom.client.requests import (
    Arrival,
    ArrivalsPage,
    NodeTimeout,
    RangeCount,
    arrival_of,
    arrivals_of,
    feed_path,
    hex_list,
    key_path,
    page_of,
    range_request,
    with_query,
)
from hyperbloom.client.transport import Transport
from hyperbloom.value_ranges import narrowed

if TYPE_CHECKING:
    from hyperbloom.api.schemas.answers import CountForm, PutForm

__all__ = ["ValueRequests"]


class ValueRequests(Transport):
    """Values that are put, read, watched, compared with those of peers, and forgotten."""

    def put(self, values: Sequence[bytes], *, feed: str | None = None) -> PutForm:
        """Stores 1 to 10,000 values; returns once they are on disk. TypeError for no bytes."""
        body = {"values": hex_list(values)}
        return cast("PutForm", self.ask("POST", feed_path(feed, "/values"), body))

    def range_page(
        self,
        *,
        feed: str | None = None,
        start: bytes = b"",
        end: bytes | None = None,
        prefix: bytes | None = None,
        limit: int | None = None,
    ) -> tuple[list[bytes], bytes | None]:
        """A page of values in byte order, and where the next one starts (None: no more).

        prefix: only those that begin with it.
        """
        return page_of(self.ask(*range_request(feed, "/values", start, end, prefix, limit=limit)))

    def range(
        self,
        *,
        feed: str | None = None,
        start: bytes = b"",
        end: bytes | None = None,
        prefix: bytes | None = None,
        limit: int | None = None,
    ) -> Iterator[bytes]:
        """The values with start <= value < end in byte order, at most `limit`.

        prefix: only those that begin with it.
        """
        for page in self.pages(feed=feed, start=start, end=end, prefix=prefix, limit=limit):
            yield from page

    def pages(
        self,
        *,
        feed: str | None = None,
        start: bytes = b"",
        end: bytes | None = None,
        prefix: bytes | None = None,
        limit: int | None = None,
        page: int = 10_000,
    ) -> Iterator[list[bytes]]:
        """Like `range`, in the lists of at most `page` values in which they come."""
        position, end = narrowed(start, end, prefix)
        left = limit
        while left is None or left > 0:
            most = page if left is None else min(left, page)
            values, following = self.range_page(feed=feed, start=position, end=end, limit=most)
            yield values
            if following is None:
                return
            position = following
            left = None if left is None else left - len(values)

    def has(self, values: Sequence[bytes], *, feed: str | None = None) -> list[bool]:
        """Which of 1 to 10,000 values are there."""
        answer = self.ask("POST", feed_path(feed, "/has"), {"values": hex_list(values)})
        return cast("list[bool]", answer["has"])

    def count(self, *, feed: str | None = None) -> CountForm:
        """count, bytes and digest."""
        return cast("CountForm", self.ask("GET", feed_path(feed, "/count")))

    def count_range(
        self,
        *,
        feed: str | None = None,
        start: bytes = b"",
        end: bytes | None = None,
        prefix: bytes | None = None,
    ) -> RangeCount:
        """How many values with start <= value < end there are, or that begin with prefix, too."""
        position, end = narrowed(start, end, prefix)
        count = size = 0
        following: bytes | None = position
        while following is not None:
            answer = self.ask(*range_request(feed, "/values/count", following, end))
            count, size = count + answer["count"], size + answer["bytes"]
            following = None if answer["next"] is None else bytes.fromhex(answer["next"])
        return RangeCount(count, size)

    def fetch(
        self,
        *,
        feed: str | None = None,
        start: bytes = b"",
        end: bytes | None = None,
        prefix: bytes | None = None,
        limit: int | None = None,
        timeout: float,
    ) -> int:
        """Has the node ask its peers for a range it does not keep; how many values came."""
        start, end = narrowed(start, end, prefix)
        body = {
            "start": start.hex(),
            "end": None if end is None else end.hex(),
            "limit": limit,
            "timeout": timeout,
        }
        return cast("int", self.ask("POST", feed_path(feed, "/fetch"), body)["received"])

    def wait_synced(
        self, peers: Sequence[str], *, feed: str | None = None, timeout: float
    ) -> Mapping[str, Any]:
        """Waits until each peer (key, its beginning or name, address) holds the same as the node.

        `count` and `digest` of the feed, and for each of `peers` its key, address, `at`, `source`.
        """
        body = {"peers": list(peers), "timeout": timeout}
        return self.ask("POST", feed_path(feed, "/synced"), body)

    def watch(
        self,
        *,
        feed: str | None = None,
        start: bytes = b"",
        end: bytes | None = None,
        prefix: bytes | None = None,
        after: int | None = None,
        seconds: float | None = None,
    ) -> Iterator[Arrival | None]:
        """Values as they arrive; the first item is None: from then on nothing is missed.

        after: arrival number to begin behind (0: everything), default what arrives from now on.
        start, end, prefix: only values of this range, which the node itself picks out. Ends with
        `NodeTimeout` after `seconds`, with `NodeUnreachable` when the node stops, with `Problem`
        when the feed is left.
        """
        request = range_request(feed, "/watch", start, end, prefix, after=after)
        count = -1  # the first says that the watch has begun
        for event in self.events(*request, seconds):
            count += 1
            yield None if event is None else arrival_of(event[1])
        came = (
            f"{count:,} {'value' if count == 1 else 'values'} and no more" if count else "no value"
        )
        raise NodeTimeout(f"{came} came within {seconds:g} s")

    def arrivals_page(
        self, *, feed: str | None = None, after: int = 0, limit: int = MAX_VALUES
    ) -> ArrivalsPage:
        """A page of the values behind an arrival number, in the order they arrived."""
        path = with_query(feed_path(feed, "/arrivals"), after=after, limit=limit)
        return arrivals_of(self.ask("GET", path))

    # What one peer brought, and what is forgotten

    def values_by(
        self, key: bytes | str, *, feed: str | None = None, page: int = 5_000
    ) -> Iterator[list[dict[str, Any]]]:
        """What a peer brought, in the order of arrival: `seq`, `value` (hex), `received_at`."""
        after: int | None = 0
        while after is not None:
            path = with_query(key_path(feed_path(feed, "/by"), key), after=after, limit=page)
            answer = self.ask("GET", path)
            yield cast("list[dict[str, Any]]", answer["values"])
            after = cast("int | None", answer["next"])

    def forget(
        self, selection: Mapping[str, Any], *, feed: str | None = None, **more: bool
    ) -> Iterator[Mapping[str, Any]]:
        """Forgets values, a step at a time: `count`, `bytes`, `absent` of each.

        `selection`: `{"values": [hex, …]}`, `{"by": key or name}` or `{"start": hex, "end": hex}`.
        `more`: erase, dry_run, publish. Goes on only as it is read.
        """
        return self.steps(feed_path(feed, "/forget"), {**selection, **more})

    def undo_forgetting(
        self, selection: Mapping[str, Any], *, feed: str | None = None, dry_run: bool = False
    ) -> Iterator[Mapping[str, Any]]:
        """Brings forgotten values back, a step at a time; see `forget`."""
        body = {**selection, "dry_run": dry_run}
        return self.steps(feed_path(feed, "/forgotten/undo"), body)

    def drop_forgotten_hashes(self, *, feed: str | None = None) -> None:
        """Forgets the hashes of erased values, so that these may come again."""
        self.ask("DELETE", feed_path(feed, "/forgotten/hashes"))

    def forgotten_page(
        self, *, feed: str | None = None, start: bytes = b"", end: bytes | None = None
    ) -> tuple[list[bytes], bytes | None, int]:
        """A page of the forgotten values kept whole, the next one's start, and how many hashes."""
        page = self.ask(*range_request(feed, "/forgotten", start, end, limit=MAX_VALUES))
        return *page_of(page), page["hashes"]
