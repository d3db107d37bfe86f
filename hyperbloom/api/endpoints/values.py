"""Endpoints of a feed's values: put, range, arrivals, has, count, fetch, and whether peers have
the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from twisted.logger import Logger

from hyperbloom.api.endpoints.feed_forms import digest_hex
from hyperbloom.api.http.request import BOUNDS, Answer, Call, range_of
from hyperbloom.api.limits import (
    COUNT_SLICE,
    MAX_COUNTED,
    MAX_SEQ,
    MAX_VALUES,
    PAGE_BYTES,
    PAGE_VALUES,
)
from hyperbloom.api.problems import value_errors_as_problems
from hyperbloom.api.schemas.bodies import (
    BoundsForm,
    FetchForm,
    PageForm,
    SyncedForm,
    ValuesForm,
)
from hyperbloom.api.schemas.flat import flat_json
from hyperbloom.replication.feed.membership import NotTrusted
from hyperbloom.replication.reading.arrivals import arrival_text

if TYPE_CHECKING:
    from hyperbloom.api.served import ServedFeed
    from hyperbloom.store.records import RangeSlice

__all__ = [
    "count_range",
    "count_values",
    "fetch_values",
    "has_values",
    "list_arrivals",
    "page_form",
    "post_count_range",
    "post_range",
    "put_values",
    "range_values",
    "wait_synced",
]

log = Logger()

#: Seconds where a request names none.
FETCH_SECONDS = 10.0
SYNCED_SECONDS = 30.0


async def put_values(call: Call) -> Mapping[str, Any]:
    """`{"values": [hex, …]}`: stores them; answers, and says where, once they are on disk."""
    feed, form = call.feed(), call.body(ValuesForm)
    values = list(map(bytes.fromhex, form["values"]))
    with value_errors_as_problems():
        try:
            appended = await feed.insert(values)
        except NotTrusted as error:
            # A store that takes no writes says so itself, once for all (process/store_log.py).
            name = feed.settings.log_name
            log.error("A put into {feed} failed: {why}", feed=name, why=str(error))
            raise
    new = len(appended.values)
    counts = {"new": new, "known": len(values) - new, "top_seq": appended.top_seq}
    return {**counts, **call.name_of(feed)}


async def range_values(call: Call) -> bytes:
    """`start`, `end`, `prefix` (hex), `limit`: a page of values in byte order.

    `next` is where to go on, as `start`.
    """
    call.only_query(*BOUNDS, "limit")
    return await _page(call, call.bounds(), call.number("limit", PAGE_VALUES, 1, MAX_VALUES))


async def post_range(call: Call) -> bytes:
    """`{"start"?, "end"?, "prefix"?, "limit"?}`: the same page, for bounds too long for a path."""
    form = call.body(PageForm)
    return await _page(call, form, form.get("limit", PAGE_VALUES))


async def _page(call: Call, bounds: BoundsForm, limit: int) -> bytes:
    start, end = range_of(bounds)
    return page_form(await call.feed().values.read(start, end, limit=limit, max_bytes=PAGE_BYTES))


def page_form(page: RangeSlice, more: str = "") -> bytes:
    """A page of values as JSON; `more` are further members of the object."""
    # By hand: hex needs no quoting, and json.dumps would hold the reactor twice as long.
    values = '","'.join(value.hex() for value in page.values)
    quoted = f'"{values}"' if page.values else ""
    following = "null" if page.next_start is None else f'"{page.next_start.hex()}"'
    return f'{{"values":[{quoted}],"next":{following}{more}}}'.encode("ascii")


async def list_arrivals(call: Call) -> bytes:
    """`after` (arrival number, default 0), `limit`: a page of values in the order they arrived.

    `next` goes into the next request as `after`, null at the log's end. Where `life` is another
    number than before, the feed was left and joined anew, and its numbers have begun anew.
    """
    call.only_query("after", "limit")
    feed, after = call.feed(), call.number("after", 0, 0, MAX_SEQ)
    limit = call.number("limit", PAGE_VALUES, 1, MAX_VALUES)
    top_seq, (life, forgotten) = feed.values.record().top_seq, feed.values.life()
    records = (await feed.values.log_after(after, limit=limit, max_bytes=PAGE_BYTES)).records
    name = call.node.names.get
    arrivals = ",".join(arrival_text(record, name(record.origin)) for record in records)
    following = records[-1].seq if records and records[-1].seq < top_seq else "null"
    return (
        f'{{"arrivals":[{arrivals}],"next":{following},"top_seq":{top_seq},"life":{life},'
        f'"forgotten":{forgotten}}}'
    ).encode("ascii")


def has_values(call: Call) -> Answer:
    """`{"values": [hex, …]}`: whether each of them is there."""
    feed, form = call.feed(), call.body(ValuesForm)
    return {"has": feed.values.has(list(map(bytes.fromhex, form["values"])))}


def count_values(call: Call) -> Answer:
    """How many values and bytes there are, and the digest that two nodes in sync share.

    It is null in a store of an older version until `digest_left`, how many values are still to be
    added up, is 0.
    """
    record = call.feed().values.record()
    return {
        "count": record.count,
        "bytes": record.bytes,
        "digest": digest_hex(record),
        "digest_left": record.digest_left,
    }


async def count_range(call: Call) -> Mapping[str, Any]:
    """`start`, `end`, `prefix` (hex): how many values a range has, and of how many bytes.

    Of a long range the first million or so are counted; `next` is where to go on, as `start`.
    """
    call.only_query(*BOUNDS)
    return await _count(call, call.bounds())


async def post_count_range(call: Call) -> Mapping[str, Any]:
    """`{"start"?, "end"?, "prefix"?}`: the same count, for bounds too long for a path."""
    return await _count(call, call.body(BoundsForm))


async def _count(call: Call, bounds: BoundsForm) -> Mapping[str, Any]:
    values, (start, end) = call.feed().values, range_of(bounds)
    count = size = 0
    following: bytes | None = start
    while following is not None and count < MAX_COUNTED:
        piece = await values.count_slice(following, end, limit=COUNT_SLICE)
        count, size, following = count + piece.count, size + piece.bytes, piece.next_start
    shown = None if following is None else following.hex()
    return {"count": count, "bytes": size, "next": shown}


async def fetch_values(call: Call) -> Mapping[str, Any]:
    """`{"start"?, "end"?, "prefix"?, "limit"?, "timeout"?}`: asks the peers for a range.

    Answers how many values came. A full node keeps every range and asks nobody.
    """
    feed, form = call.feed(), call.body(FetchForm)
    start, end = range_of(form)
    timeout, limit = form.get("timeout", FETCH_SECONDS), form.get("limit")
    received = await call.node.fetch(feed.key, start, end, limit=limit, timeout=timeout)
    return {"received": received}


async def wait_synced(call: Call) -> Mapping[str, Any]:
    """`{"peers": [name, …], "timeout"?}`: answers once each peer was seen to hold the same.

    A name is an address, or means a key (`Petnames.find`). `at` is when, `source` whether by
    `digest` or by `sync` alone. Count and digest are this node's at the end.
    """
    feed, form = call.feed(), call.body(SyncedForm)
    timeout = form.get("timeout", SYNCED_SECONDS)
    given = {await _peer_named(call, feed, word): word for word in form["peers"]}
    with value_errors_as_problems():
        waiting = call.node.wait_synced(feed.key, list(given), timeout=timeout)
        # Who asked may go before it is answered: nobody waits then.
        call.request.notifyFinish().addErrback(lambda _: waiting.cancel())
        found = await waiting
    record = feed.values.record()
    return {
        "feed": feed.key.hex(),
        "count": record.count,
        "digest": digest_hex(record),
        "digest_left": record.digest_left,
        "peers": [flat_json(replace(one, name=given[one.name])) for one in found],
    }


async def _peer_named(call: Call, feed: ServedFeed, word: str) -> str:
    """What the node knows a peer by: its address, or its whole key; raises `UnknownKey`."""
    if ":" in word:  # which neither a key nor a name holds
        return word
    connected = {peer.key for peer in call.node.peers() if peer.feed == feed.key}
    among = {feed.key, *connected, *(found.key for found in feed.trust.members())}
    return (await call.key_named(word, among, those="of this feed's peers and members")).hex()
