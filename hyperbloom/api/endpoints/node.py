"""Endpoints of the node itself: feeds, peers, status, snapshots, verify."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypedDict

from hyperbloom import __version__
from hyperbloom.api.endpoints.discovery import discovery_of
from hyperbloom.api.endpoints.own_addresses import own_addresses
from hyperbloom.api.http.request import Answer, Call, Context, told
from hyperbloom.api.limits import MAX_OFFSET, MAX_VALUES
from hyperbloom.api.problems import Problem, ProblemKind
from hyperbloom.api.schemas import (
    bad_request,
    feed_form,
    feed_settings,
    flat_json,
    member,
    only,
    snapshot_target,
    trust_word,
)
from hyperbloom.keys import KeyFileError
from hyperbloom.replication.status import PeerStatus

__all__ = [
    "PeersForm",
    "join_feed",
    "leave_feed",
    "list_feeds",
    "list_peers",
    "ping",
    "show_feed",
    "status",
    "status_form",
    "take_snapshot",
    "verify_store",
]


def ping(call: Call) -> Answer:
    """Whether the node answers, its process and version."""
    return {
        "pid": os.getpid(),
        "version": __version__,
        "identity": call.node.identity.public_key.hex(),
    }


def status(call: Call) -> Answer:
    """The node and its feeds at a glance.

    To what the node says of itself come `addresses` (what invitations name), `discovery` (as
    `/v1/discovery` has it), `objects` (the pool, or null) and, for each feed, `trust` and `dials`
    (the peers its settings name).
    """
    return status_form(call.context)


def status_form(context: Context) -> dict[str, Any]:
    """The answer of `status`."""
    node = context.node
    form: dict[str, Any] = flat_json(node.status())
    objects = context.objects
    form["objects"] = None if objects is None else flat_json(objects.status().as_json())
    form["addresses"] = own_addresses(node)
    form["discovery"] = discovery_of(context)
    for shown in form["feeds"]:
        feed = node.feeds[bytes.fromhex(shown["key"])]
        shown["trust"] = trust_word(feed, node.identity.public_key)
        shown["dials"] = list(feed.settings.peers)
    return form


class PeersForm(TypedDict):
    """Secure connections; `total`: how many there are, of which these are a part."""

    peers: list[PeerStatus]
    total: int


def list_peers(call: Call) -> Answer:
    """The peers, oldest connection first: those of one `feed`, `limit` of them behind `offset`."""
    call.only_query("feed", "offset", "limit")
    found, name = list(call.node.peers()), call.query.get("feed")
    if name is not None:
        key = call.feed_named(name).key
        found = [peer for peer in found if peer.feed == key]
    found.sort(key=lambda peer: (peer.since, peer.address))
    offset = call.number("offset", 0, 0, MAX_OFFSET)
    page = found[offset : offset + call.number("limit", MAX_VALUES, 1, MAX_VALUES)]
    return {"peers": [flat_json(peer) for peer in page], "total": len(found)}


def list_feeds(call: Call) -> Answer:
    """Every feed of the node."""
    own = call.node.identity.public_key
    return {"feeds": [feed_form(feed, own) for feed in call.node.feeds.values()]}


def show_feed(call: Call) -> Answer:
    """One feed."""
    return feed_form(call.feed(), call.node.identity.public_key)


async def join_feed(call: Call) -> Mapping[str, Any]:
    """A feed's settings (the keys of `[[feeds]]`): the node takes part in it from now on."""
    settings = feed_settings(call.body())
    call.check_alias_is_free(settings.key, settings.alias)
    await told(lambda: call.node.join(settings))
    call.status = 201
    return feed_form(call.feed_of(settings.key), call.node.identity.public_key)


async def leave_feed(call: Call) -> None:
    """The node takes no part any more, and removes the feed's values and links.

    With `delete_key=yes` the key of a feed that the node owns goes, too.
    """
    call.only_query("delete_key")
    key, delete_key = call.feed().key, call.query.get("delete_key", "no")
    if delete_key not in ("yes", "no"):
        raise bad_request("delete_key must be yes or no")
    try:
        await told(lambda: call.node.leave(key, delete_key=delete_key == "yes"))
    except KeyFileError as error:
        raise Problem(ProblemKind.BAD_CONFIG, str(error)) from None


async def take_snapshot(call: Call) -> Mapping[str, Any]:
    """`{"target": absolute path}`: a copy of the store in a new folder, made while it runs."""
    body = call.body()
    only(body, ("target",))
    text, store = member(body, "target", str), call.node.store
    info = await call.context.in_thread(lambda: store.snapshot(snapshot_target(text)))
    call.status = 201
    return {"target": text, **flat_json(info)}


async def verify_store(call: Call) -> Mapping[str, Any]:
    """Walks the whole store and says what is wrong with it."""
    store = call.node.store
    report = await call.context.in_thread(lambda: store.verify(None))
    form: dict[str, Any] = flat_json(report)
    return form
