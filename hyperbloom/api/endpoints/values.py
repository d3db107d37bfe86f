"""Endpoints of a feed's values: put, range, has, count, fetch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypedDict

from hyperbloom.api.http.request import Answer, Call
from hyperbloom.api.limits import MAX_FETCH_SECONDS, MAX_VALUES, PAGE_BYTES, PAGE_VALUES
from hyperbloom.api.schemas import Hex, bad_request, bytes_list, digest_hex, hex_bytes, member, only

if TYPE_CHECKING:
    from twisted.python.failure import Failure

    from hyperbloom.store import Appended, RangeSlice

__all__ = [
    "RangeAskedForm",
    "count_values",
    "fetch_values",
    "has_values",
    "page_form",
    "post_range",
    "put_values",
    "range_values",
]


class RangeAskedForm(TypedDict):
    """A range of values: `start` ≤ value < `end`; left out: from the first, to the last on."""

    start: NotRequired[Hex | None]
    end: NotRequired[Hex | None]
    limit: NotRequired[Annotated[int, ("minimum", 1), ("maximum", MAX_VALUES)]]


def put_values(call: Call) -> Answer:
    """`{"values": [hex, …]}`: stores them; answers once they are on disk."""
    feed = call.feed()
    body = call.body()
    only(body, ("values",))
    values = bytes_list(body, "values")
    given = len(values)

    def answer(appended: Appended) -> bytes:
        new = len(appended.values)
        return b'{"new":%d,"known":%d,"top_seq":%d}' % (new, given - new, appended.top_seq)

    def refused(failure: Failure) -> None:
        raise bad_request(str(failure.value)) if failure.check(ValueError) else failure

    try:
        return feed.insert(values).addCallbacks(answer, refused)
    except ValueError as error:
        raise bad_request(str(error)) from None


def range_values(call: Call) -> Answer:
    """`start`, `end` (hex), `limit`: a page of values in byte order, with where to go on."""
    call.only_query("start", "end", "limit")
    start, end = call.range()
    limit = call.number("limit", PAGE_VALUES, 1, MAX_VALUES)

    return call.feed().read(start, end, limit=limit, max_bytes=PAGE_BYTES).addCallback(page_form)


def post_range(call: Call) -> Answer:
    """`{"start"?, "end"?, "limit"?}`: the same page, for bounds too long for a path."""
    return range_values(call)


def page_form(page: RangeSlice, more: str = "") -> bytes:
    """A page of values as JSON; `more` are further members of the object."""
    # By hand: hex needs no quoting, and json.dumps would hold the reactor twice as long.
    values = '","'.join(value.hex() for value in page.values)
    quoted = f'"{values}"' if page.values else ""
    following = "null" if page.next_start is None else f'"{page.next_start.hex()}"'
    return f'{{"values":[{quoted}],"next":{following}{more}}}'.encode("ascii")


def has_values(call: Call) -> Answer:
    """`{"values": [hex, …]}`: whether each of them is there."""
    feed = call.feed()
    body = call.body()
    only(body, ("values",))
    return {"has": feed.has(bytes_list(body, "values"))}


def count_values(call: Call) -> Answer:
    """How many values and bytes there are, and the digest that two nodes in sync share.

    It is null in a store of an older version until `digest_left`, how many values are still to be
    added up, is 0.
    """
    record = call.feed().record()
    return {
        "count": record.count,
        "bytes": record.bytes,
        "digest": digest_hex(record),
        "digest_left": record.digest_left,
    }


def _fetch_range(body: Mapping[str, Any]) -> tuple[bytes, bytes | None]:
    start, end = member(body, "start", str, ""), body.get("end")
    return hex_bytes(start, "start"), None if end is None else hex_bytes(end, "end")


async def fetch_values(call: Call) -> Mapping[str, Any]:
    """`{"start"?, "end"?, "limit"?, "timeout"?}`: asks the peers for a range not kept here.

    Answers how many values came. A full node keeps every range and asks nobody.
    """
    feed, body = call.feed(), call.body()
    only(body, ("start", "end", "limit", "timeout"))
    start, end = _fetch_range(body)
    limit = None if body.get("limit") is None else member(body, "limit", int)
    if limit is not None and limit < 1:
        raise bad_request("limit must be at least 1")
    timeout = call.seconds(body.get("timeout", 10.0), "timeout", MAX_FETCH_SECONDS)
    return {"received": await feed.fetch(start, end, limit=limit, timeout=timeout)}
