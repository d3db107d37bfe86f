"""Endpoints of what a feed forgets: by source, step by step, and back again.

A step is bounded (`FORGET_STEP` values); its answer's `next` goes into the next request, null at
the end. So no request takes long, and a client that goes away leaves nothing running.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hyperbloom.api.endpoints.values import page_form
from hyperbloom.api.http.request import BOUNDS, Call, range_of
from hyperbloom.api.limits import MAX_SEQ, MAX_VALUES, PAGE_BYTES, PAGE_VALUES
from hyperbloom.api.problems import bad_request
from hyperbloom.api.schemas.bodies import BoundsForm, ForgetForm, PageForm, SelectionForm
from hyperbloom.replication.feed.forgetting import Selection, Step
from hyperbloom.replication.feed.tombstones import make_tombstone
from hyperbloom.store.limits import FORGET_STEP

if TYPE_CHECKING:
    from hyperbloom.store.records import OriginSlice

__all__ = [
    "drop_hashes",
    "forget_values",
    "list_forgotten",
    "post_forgotten_range",
    "undo_forgetting",
    "values_by",
]


async def values_by(call: Call) -> Mapping[str, Any]:
    """`after`, `limit`: what one peer brought, in the order of arrival.

    A page may be empty though `next` is not null: a request looks at a part of the log only.
    """
    call.only_query("after", "limit")
    feed, store = call.feed(), call.node.store
    after = call.number("after", 0, 0, MAX_SEQ)
    limit = call.number("limit", PAGE_VALUES, 1, MAX_VALUES)
    key = await call.key_named(call.arguments[1])

    def read() -> OriginSlice:
        return store.origin_slice(feed.key, key, after, limit=limit, max_bytes=PAGE_BYTES)

    found: OriginSlice = await call.context.in_thread(read)
    values = [
        {"seq": record.seq, "value": record.value.hex(), "received_at": record.received_at / 1e6}
        for record in found.records
    ]
    by = {"by": key.hex(), "by_name": call.node.names.get(key)}
    return {"values": values, "next": found.next_seq, **by}


async def forget_values(call: Call) -> Mapping[str, Any]:
    """`{"values"? | "by"? | "start"?, "end"? | "prefix"?, "after"?, "erase"?, "dry_run"?, …}`.

    One step of forgetting values of a list, of what a peer brought, or of a range; `after` is the
    `next` of the step before. `erase`: keep hashes alone. `publish` (with `values`): also put
    tombstones into the feed, signed by this node.
    """
    feed, form = call.feed(), call.body(ForgetForm)
    selection, position = await _selection(call, form)
    dry_run, erase = bool(form.get("dry_run")), bool(form.get("erase"))
    publish = bool(form.get("publish"))
    if publish and (selection.values is None or erase):
        raise bad_request("publish goes with values, and not with erase: it names them")
    if publish and not dry_run:
        try:
            await feed.insert(await call.context.in_thread(lambda: _tombstones(call, selection)))
        except ValueError as error:
            raise bad_request(f"its tombstone would be too long: {error}") from None
    done = await feed.forgetting.step(selection, position, erase=erase, dry_run=dry_run)
    return {**_step_form(call, done, selection), **call.name_of(feed)}


async def undo_forgetting(call: Call) -> Mapping[str, Any]:
    """The same selections: one step of bringing forgotten values back."""
    feed, form = call.feed(), call.body(SelectionForm)
    selection, position = await _selection(call, form)
    dry_run = bool(form.get("dry_run"))
    done = await feed.forgetting.undo_step(selection, position, dry_run=dry_run)
    return {**_step_form(call, done, selection), **call.name_of(feed)}


async def drop_hashes(call: Call) -> None:
    """Forgets the hashes of erased values, so that these may come again."""
    await call.feed().forgetting.drop_hashes()


async def list_forgotten(call: Call) -> bytes:
    """`start`, `end`, `prefix`, `limit`: a page of the forgotten values that are kept whole."""
    call.only_query(*BOUNDS, "limit")
    return await _page(call, call.bounds(), call.number("limit", PAGE_VALUES, 1, MAX_VALUES))


async def post_forgotten_range(call: Call) -> bytes:
    """`{"start"?, "end"?, "prefix"?, "limit"?}`: the same page, for bounds too long for a path."""
    form = call.body(PageForm)
    return await _page(call, form, form.get("limit", PAGE_VALUES))


async def _page(call: Call, bounds: BoundsForm, limit: int) -> bytes:
    feed, store = call.feed(), call.node.store
    start, end = range_of(bounds)
    page = await call.context.in_thread(
        lambda: store.forgotten_slice(feed.key, start, end, limit=limit, max_bytes=PAGE_BYTES)
    )
    figures = feed.forgetting.figures()
    return page_form(page, f',"count":{figures.count},"hashes":{figures.hashes}')


def _tombstones(call: Call, selection: Selection) -> list[bytes]:
    """One for each value. Runs in a thread: a signature takes some 0.03 ms."""
    feed = call.feed()
    return [
        make_tombstone(feed.trust.identity, feed.key, value) for value in selection.values or ()
    ]


def _step_form(call: Call, step: Step, selection: Selection) -> Mapping[str, Any]:
    following = step.next.hex() if isinstance(step.next, bytes) else step.next
    by = selection.origin
    return {
        "by": None if by is None else by.hex(),
        "by_name": call.node.names.get(by),
        "count": step.count,
        "bytes": step.size,
        "absent": step.absent,
        "next": following,
    }


async def _selection(call: Call, form: SelectionForm) -> tuple[Selection, bytes | int | None]:
    """What is meant, and the position in it.

    Raises `Problem` where members do not go together, `UnknownKey`.
    """
    after = form.get("after")
    if "values" in form:
        if form.keys() & {"by", *BOUNDS, "after"}:
            raise bad_request("values go without by, start, end, prefix and after")
        if len(form["values"]) > FORGET_STEP:
            raise bad_request(f"values may hold {FORGET_STEP:,} here; send fewer")
        return Selection(values=tuple(map(bytes.fromhex, form["values"]))), None
    if "by" in form:
        if form.keys() & {*BOUNDS}:
            raise bad_request("by goes without start, end and prefix")
        if isinstance(after, str) or not 0 <= (after or 0) <= MAX_SEQ:
            raise bad_request("after must be the next of the step before")
        return Selection(origin=await call.key_named(form["by"])), after
    if form.get("start") is None and form.get("prefix") is None:
        raise bad_request('say what is meant: values, by, prefix, or start ("": the first value)')
    if isinstance(after, int):
        raise bad_request("after must be the next of the step before")
    start, end = range_of(form)
    return Selection(start=start, end=end), None if after is None else bytes.fromhex(after)
