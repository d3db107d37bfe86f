"""One request on its way to an endpoint and its answer on the way back."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import parse_qsl

from twisted.internet.defer import Deferred

from hyperbloom.api.http.checking import check
from hyperbloom.api.limits import MAX_QUERY_FIELDS
from hyperbloom.api.problems import Problem, bad_request
from hyperbloom.api.schemas.bodies import BoundsForm
from hyperbloom.errors import ErrorKind
from hyperbloom.feed_words import feed_name
from hyperbloom.value_ranges import narrowed

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from twisted.web.server import Request

    from hyperbloom.api.http.access import Access
    from hyperbloom.api.monitoring.work import Work
    from hyperbloom.api.schemas.answers import HistoryForm, HistorySpan
    from hyperbloom.api.served import (
        ServedDiscovery,
        ServedFeed,
        ServedIntegrations,
        ServedNode,
        ServedObjects,
    )

__all__ = [
    "BOUNDS",
    "STREAMED",
    "Answer",
    "Call",
    "Context",
    "KeptHistory",
    "Result",
    "SharedFrames",
    "range_of",
]

Form = TypeVar("Form")


#: The parameters of a query that name a range.
BOUNDS = ("start", "end", "prefix")


class _Streamed:
    """Says that the endpoint writes to the request by itself."""


STREAMED = _Streamed()

#: A JSON object, one already written as bytes, or nothing (204).
Result = Mapping[str, Any] | bytes | _Streamed | None
Answer = Result | Deferred[Any] | Coroutine[Any, Any, Result]


class SharedFrames(Protocol):
    """Frames of an event stream that are made once for all its readers."""

    def newest(self) -> bytes: ...


class KeptHistory(Protocol):
    """`hyperbloom.api.monitoring.history.History`, as far as endpoints use it."""

    def form(self, span: HistorySpan, feed: bytes | None) -> HistoryForm: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What the endpoints share.

    now: seconds since 1970. clock: an `IReactorTime`. in_thread: runs a blocking call beside the
    reactor. discovery: None where it is off. objects: the object pool, None without one.
    integrations: outputs, inputs and hooks. reload:
    reads the node's configuration anew. access: of the TCP port, None where there is none.
    registry: the metrics. work: what takes long. status_frames: what the readers of the status page
    share. history: what the node was like.
    """

    node: ServedNode
    clock: Any
    now: Callable[[], float]
    in_thread: Callable[[Callable[[], Any]], Deferred[Any]]
    discovery: ServedDiscovery | None = None
    objects: ServedObjects | None = None
    integrations: ServedIntegrations | None = None
    reload: Callable[[], Deferred[Any]] | None = None
    access: Access | None = None
    registry: CollectorRegistry
    work: Work
    status_frames: SharedFrames
    history: KeptHistory


class Call:
    """A request as its endpoint sees it; `status` and `media_type` are those of a good answer."""

    __slots__ = ("__dict__", "arguments", "context", "media_type", "request", "status")

    def __init__(self, request: Request, arguments: list[str], context: Context) -> None:
        self.request = request
        self.arguments = arguments
        self.context = context
        self.status = 200
        self.media_type = b"application/json"

    @property
    def node(self) -> ServedNode:
        """The node that is asked."""
        return self.context.node

    def feed(self) -> ServedFeed:
        """The feed that the path names: a key, an alias, `own`, or `-` for the node's default.

        Raises `UnknownFeed`.
        """
        return self.feed_named(self.arguments[0])

    def feed_named(self, name: str) -> ServedFeed:
        """Like `feed`, for a name that stands elsewhere."""
        return self.context.node.resolve(None if name == "-" else name)

    def name_of(self, feed: ServedFeed) -> dict[str, str]:
        """`feed` and `name`, its key and what commands call it, for the answer to a write."""
        own_key = self.node.identity.public_key
        name = feed_name(feed.key, feed.settings.alias, own_key)
        return {"feed": feed.key.hex(), "name": name}

    async def key_named(
        self, word: str, among: Collection[bytes] | None = None, *, those: str = ""
    ) -> bytes:
        """The key that a word means, see `Petnames.find`; raises `UnknownKey`."""
        return await self.node.names.find(word, among, those=those)

    def check_alias_is_free(self, key: bytes, alias: str | None) -> None:
        """Raises `Problem` where an alias for the feed `key` names another one already."""
        named = (feed.key for feed in self.node.feeds.values() if feed.settings.alias == alias)
        if alias is not None and any(other != key for other in named):
            raise bad_request(f"{alias!r} names another feed already; choose another alias")

    def feed_of(self, key: bytes) -> ServedFeed:
        """The feed of a key; raises `Problem` where it was left a moment ago."""
        feed = self.context.node.feeds.get(key)
        if feed is None:
            raise Problem(ErrorKind.UNKNOWN_FEED, "the feed was left")
        return feed

    def body(self, form: type[Form]) -> Form:
        """The body, which must be a JSON object with the members of `form`; raises `Problem`."""
        return check(self._json_body(), form)

    def _json_body(self) -> dict[str, Any]:
        data: bytes = self.request.content.read()  # type: ignore[union-attr]
        try:
            found = json.loads(data)
            if b"\\ud" in data.lower():
                # JSON can write half of a surrogate pair, which is no text: it fits no file, no
                # hash and no log.
                json.dumps(found, ensure_ascii=False).encode()
        except (ValueError, RecursionError):
            raise bad_request("the body is not JSON") from None
        if type(found) is not dict:
            raise bad_request("the body must be a JSON object")
        return found

    @cached_property
    def query(self) -> dict[str, str]:
        """The query's parameters; each may be there once. Raises `Problem`."""
        _, _, text = self.request.uri.partition(b"?")
        try:
            pairs = parse_qsl(
                text.decode("ascii"),
                keep_blank_values=True,
                errors="strict",
                max_num_fields=MAX_QUERY_FIELDS,
            )
        except ValueError:
            raise bad_request("the query cannot be read") from None
        found = dict(pairs)
        if len(found) != len(pairs):
            raise bad_request("a query parameter is there twice")
        return found

    def only_query(self, *known: str) -> None:
        """Raises `Problem` for query parameters that are not known."""
        for name in self.query:
            if name not in known:
                raise bad_request(f"there is no query parameter {name!r} here")

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """A whole number of the query; raises `Problem` for anything else."""
        text = self.query.get(name)
        if text is None:
            return default
        # More digits than the largest has are not read: that takes time, and fails, for thousands.
        is_short = text.isascii() and text.isdigit() and len(text) <= len(str(most))
        if not is_short or not least <= int(text) <= most:
            raise bad_request(f"{name} must be a whole number from {least:,} to {most:,}")
        return int(text)

    def bounds(self) -> BoundsForm:
        """start, end and prefix of the query; each may be absent. Raises `Problem`."""
        given = {name: text for name, text in self.query.items() if name in BOUNDS}
        return check(given, BoundsForm)


def range_of(form: BoundsForm) -> tuple[bytes, bytes | None]:
    """The first value of a range, and the first behind it; None: to the last."""
    end, prefix = (
        None if found is None else bytes.fromhex(found)
        for found in (form.get("end"), form.get("prefix"))
    )
    return narrowed(bytes.fromhex(form.get("start") or ""), end, prefix)
