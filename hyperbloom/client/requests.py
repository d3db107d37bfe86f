"""What both clients say and hear: paths of requests, and what answers, pages and events mean.

Standard library only, and nothing here waits: the clients bring bytes and take what they mean.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote, urlencode

from hyperbloom.api.limits import MAX_EVENT_BYTES, MAX_TARGET_BYTES
from hyperbloom.api.problems import Problem
from hyperbloom.errors import ErrorKind, HyperbloomError
from hyperbloom.value_ranges import narrowed

if TYPE_CHECKING:
    from hyperbloom.api.schemas.objects import ObjectForm

__all__ = [
    "Arrival",
    "ArrivalsPage",
    "Closing",
    "EventReader",
    "NodeTimeout",
    "NodeUnreachable",
    "ObjectEvent",
    "RangeCount",
    "answer_of",
    "arrival_of",
    "arrivals_of",
    "feed_path",
    "hex_list",
    "key_path",
    "key_word",
    "page_of",
    "problem_of",
    "range_request",
    "with_query",
]

_KINDS = {kind.type: kind for kind in ErrorKind}


class NodeUnreachable(HyperbloomError):
    """No node answers on the socket; the message is one sentence that says what to do."""

    kind = ErrorKind.UNREACHABLE


class NodeTimeout(HyperbloomError):
    """The node did not answer in the time it was given."""

    kind = ErrorKind.TIMEOUT


class Closing(ABC):
    """Closed at the end of a `with`."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what is open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Arrival:
    """A value as it arrived: its arrival number, the peer that brought it, when (seconds).

    origin_name: what the node's operator calls that peer, None: nothing.
    """

    seq: int
    value: bytes
    origin: bytes
    received_at: float
    origin_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalsPage:
    """A page of a feed's arrival log; the next one is behind `following` (None: no more).

    top_seq: the highest arrival number so far. life: another one when the feed was left and joined
    anew, and its numbers began anew. forgotten: how many values it has ever forgotten.
    """

    arrivals: list[Arrival]
    following: int | None
    top_seq: int
    life: int
    forgotten: int


@dataclass(frozen=True, slots=True)
class RangeCount:
    """How many values a range has, and of how many bytes."""

    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ObjectEvent:
    """What happened: `created`, `changed` or `removed`; the object before and after it."""

    kind: str
    before: ObjectForm | None
    after: ObjectForm | None


# Requests


def feed_path(feed: str | None, end: str = "") -> str:
    """The path of what belongs to a feed; None is the node's default."""
    return f"/v1/feeds/{'-' if feed is None else quote(feed, safe='')}{end}"


def key_word(key: bytes | str) -> str:
    """A key as requests have it: bytes as hex; a text (its beginning, a name) as it is."""
    return key if isinstance(key, str) else key.hex()


def key_path(before: str, key: bytes | str) -> str:
    """The path of what belongs to a key."""
    return f"{before}/{quote(key_word(key), safe='')}"


def with_query(path: str, **query: str | int | None) -> str:
    """The path with those parameters that are not None."""
    given = urlencode({name: value for name, value in query.items() if value is not None})
    return f"{path}?{given}" if given else path


def range_request(
    feed: str | None,
    end_of_path: str,
    start: bytes,
    end: bytes | None,
    prefix: bytes | None = None,
    **more: int | None,
) -> tuple[str, str, dict[str, str | int] | None]:
    """Method, path and body for a range of a feed's: start <= value < end, None: to the last.

    Of these, those that begin with `prefix`. Bounds that make the path too long are asked for with
    a POST.
    """
    start, end = narrowed(start, end, prefix)
    shown = None if end is None else end.hex()
    given = {"start": start.hex(), "end": shown, **more}
    path = feed_path(feed, end_of_path)
    with_bounds = with_query(path, **given)
    if len(with_bounds) <= MAX_TARGET_BYTES:
        return "GET", with_bounds, None
    body = {name: found for name, found in given.items() if found is not None}
    return "POST", f"{path}/range", body


def hex_list(values: Sequence[bytes]) -> list[str]:
    """Values as JSON can hold them. TypeError for anything but bytes, with what to do about it."""
    if isinstance(values, bytes | bytearray | memoryview | str):
        raise TypeError(f"values come in a list, such as [b'one']; this is {_kind(values)}")
    for value in values:
        if not isinstance(value, bytes | bytearray | memoryview):
            hint = '; a text becomes bytes by text.encode("utf-8")' * isinstance(value, str)
            raise TypeError(f"a value is bytes, and one of these is {_kind(value)}{hint}")
    return [value.hex() for value in values]


def _kind(found: object) -> str:
    if isinstance(found, str):
        return "a text"
    return "bytes" if isinstance(found, bytes) else f"of type {type(found).__name__}"


# Answers


def problem_of(form: object) -> Problem:
    """The problem that an answer tells of."""
    told: Mapping[str, Any] = form if isinstance(form, Mapping) else {}
    kind = _KINDS.get(str(told.get("type")), ErrorKind.UNEXPECTED)
    return Problem(kind, str(told.get("detail", kind.title)))


def answer_of(status: int, body: bytes, *, where: str) -> Any:
    """The JSON of an answer, None of an empty one.

    Raises `Problem` where the node refuses, and `NodeUnreachable` where what listens `where` is no
    node.
    """
    if status == 204:
        return None
    try:
        form = json.loads(body)
    except (ValueError, RecursionError):
        raise NodeUnreachable(f"what listens {where} does not speak as a node does") from None
    if status >= 400:
        raise problem_of(form)
    return form


def page_of(form: Mapping[str, Any]) -> tuple[list[bytes], bytes | None]:
    """The values of a page, and where the next one starts (None: no more)."""
    following = form["next"]
    values = list(map(bytes.fromhex, form["values"]))
    return values, None if following is None else bytes.fromhex(following)


def arrival_of(event: Mapping[str, Any]) -> Arrival:
    """The arrival that an event of a watch tells of."""
    return Arrival(
        event["seq"],
        bytes.fromhex(event["value"]),
        bytes.fromhex(event["origin"]),
        event["received_at"],
        event.get("origin_name"),
    )


def arrivals_of(form: Mapping[str, Any]) -> ArrivalsPage:
    """The page of the arrival log that an answer holds."""
    return ArrivalsPage(
        arrivals=list(map(arrival_of, form["arrivals"])),
        following=form["next"],
        top_seq=form["top_seq"],
        life=form["life"],
        forgotten=form["forgotten"],
    )


class EventReader:
    """The events in what comes of a text/event-stream, however it is cut."""

    def __init__(self, *, where: str) -> None:
        self._where = where
        self._rest = bytearray()

    def take(self, data: bytes) -> list[tuple[str, Any]]:
        """Kind ("" where none is named) and data of the events that are complete now.

        Raises `NodeUnreachable` for what no node sends.
        """
        # What was looked through is not looked through again, but for half of an end.
        seen = max(len(self._rest) - 1, 0)
        self._rest += data
        if self._rest.find(b"\n\n", seen) < 0:
            events: list[bytes] = []
        else:
            *events, rest = bytes(self._rest).split(b"\n\n")
            self._rest = bytearray(rest)
        if len(self._rest) > MAX_EVENT_BYTES:
            raise self._foreign()
        return [found for event in events if (found := self._read(event)) is not None]

    def _read(self, event: bytes) -> tuple[str, Any] | None:
        fields = dict(line.split(b": ", 1) for line in event.split(b"\n") if b": " in line)
        if b"data" not in fields:
            return None
        try:
            return fields.get(b"event", b"").decode("ascii"), json.loads(fields[b"data"])
        except (ValueError, RecursionError):
            raise self._foreign() from None

    def _foreign(self) -> NodeUnreachable:
        return NodeUnreachable(f"what listens {self._where} does not speak as a node does")
