"""A running node's arrival logs, over its local API.

A node that is started anew is away for some seconds, and is waited for. What it forgets while a
batch is read is not in the batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from hyperbloom.client import Client, NodeUnreachable
from hyperbloom.client.requests import Arrival, ArrivalsPage
from hyperbloom.export.errors import ExportError
from hyperbloom.export.source.offsets import FeedName, Look, Mark, anchor_of, check_goes_on
from hyperbloom.export.tables.ranges import FeedRange
from hyperbloom.export.tables.rows import Rows, decode
from hyperbloom.store.lmdb.layout import LOG_HEAD, U32, U64
from hyperbloom.store.values.scan import LogChunk

__all__ = ["NodeArrivals"]

_PAGE: Final = 10_000
_ANSWER_SECONDS: Final = 60.0
_AWAY_SECONDS: Final = 60.0
"""So long a node that does not answer is waited for: several times what its start takes."""
_PAUSE_SECONDS: Final = 0.5

Answer = TypeVar("Answer")


class NodeArrivals:
    """Those of the node at ``url``: http://HOST:PORT with its token's file, or unix:PATH.

    ``feed`` (hex): only of it. ExportError for another url.
    """

    def __init__(self, url: str, token_file: str | None = None, feed: str | None = None) -> None:
        self._url = url
        self._token_file = token_file
        self._feed = feed
        self._client: Client | None = None
        if not url.startswith(("http://", "unix:")):
            raise ExportError(
                f"{url!r} is no node's; write http://HOST:PORT or unix:DIR/control.sock"
            )
        if url.startswith("http://") and token_file is None:
            raise ExportError('name the file of the node\'s token: .option("tokenFile", FILE)')

    def begin(self) -> None:
        """Raise NodeUnreachable or Problem at once if the node does not answer, or refuses."""
        self._connected().ping()

    def tops(self) -> Mapping[FeedName, int]:
        """The highest numbers of the node's feeds."""
        node = self._node()
        return {
            (node, form["key"]): form["top_seq"]
            for form in self._ask(lambda client: client.feeds())
            if self._feed in (None, form["key"])
        }

    def look(self, name: FeedName, seq: int) -> Look:
        """What the node says."""
        page = self._page(name, max(seq - 1, 0), limit=2)
        here = page.arrivals[0] if page.arrivals and page.arrivals[0].seq == seq else None
        return Look(
            top_seq=page.top_seq,
            life=page.life,
            forgotten=page.forgotten,
            anchor="" if here is None else anchor_of(seq, _micros(here), here.origin, here.value),
            following=next((one.seq for one in page.arrivals if one.seq > seq), None),
        )

    def read(self, piece: FeedRange, end: Mark) -> Iterator[Rows]:
        """Read a range page by page."""
        name, after = (piece.node, piece.feed.hex()), piece.after_seq
        if self._node() != piece.node:
            raise ExportError(f"at {self._url} is another node now; start node {piece.node} there")
        while after < piece.last_seq:
            page = self._page(name, after, limit=min(_PAGE, piece.last_seq - after))
            look = Look(
                top_seq=page.top_seq,
                life=page.life,
                forgotten=page.forgotten,
                anchor=end.anchor,
                following=None,
            )
            check_goes_on(name, end, look)
            arrivals = [one for one in page.arrivals if one.seq <= piece.last_seq]
            if arrivals:
                yield _rows(arrivals, piece.feed)
            if page.following is None:
                return
            after = page.following

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()

    def _node(self) -> str:
        identity: str = self._ask(lambda client: client.ping())["identity"]
        return identity

    def _page(self, name: FeedName, after: int, *, limit: int) -> ArrivalsPage:
        return self._ask(
            lambda client: client.arrivals_page(feed=name[1], after=after, limit=limit)
        )

    def _ask(self, question: Callable[[Client], Answer]) -> Answer:
        """Ask the node; wait for it while it is away."""
        end = time.monotonic() + _AWAY_SECONDS
        while True:
            try:
                return question(self._connected())
            except NodeUnreachable:
                if time.monotonic() >= end:
                    raise
                time.sleep(_PAUSE_SECONDS)

    def _connected(self) -> Client:
        if self._client is None:
            self._client = self._connect()
        return self._client

    def _connect(self) -> Client:
        if self._url.startswith("unix:"):
            path = Path(self._url.removeprefix("unix:")).absolute()
            return Client(path, timeout=_ANSWER_SECONDS)
        address = self._url.removeprefix("http://").rstrip("/")
        token = Path(self._token_file or "")
        try:
            return Client.over_tcp(address, token, timeout=_ANSWER_SECONDS)
        except ValueError as error:
            raise ExportError(f"{self._url!r} is no node's: {error}") from error


def _micros(arrival: Arrival) -> int:
    """When it arrived in µs: JSON has seconds, with all of these digits."""
    return round(arrival.received_at * 1e6)


def _rows(arrivals: Sequence[Arrival], feed: bytes) -> Rows:
    """Arrivals as rows: as the records that they are in a store, which are decoded in bulk."""
    chunk = LogChunk(
        keys=[U32.pack(0) + U64.pack(one.seq) for one in arrivals],
        data=[LOG_HEAD.pack(_micros(one), one.origin) + one.value for one in arrivals],
    )
    return decode(chunk, feed)
