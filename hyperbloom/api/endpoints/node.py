"""Endpoints of the node itself: status, health, metrics, peers, snapshots, verify, reload."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, TypedDict

from prometheus_client.exposition import choose_encoder

from hyperbloom import __version__
from hyperbloom.api.endpoints.discovery import discovery_of
from hyperbloom.api.endpoints.feed_forms import trust_word
from hyperbloom.api.endpoints.integrations import integration_forms
from hyperbloom.api.endpoints.own_addresses import own_addresses
from hyperbloom.api.http.request import Answer, Call
from hyperbloom.api.limits import MAX_OFFSET, MAX_VALUES
from hyperbloom.api.problems import Problem, bad_request
from hyperbloom.api.schemas.answers import is_span
from hyperbloom.api.schemas.bodies import NothingForm, TargetForm
from hyperbloom.api.schemas.flat import flat_json, snapshot_form
from hyperbloom.api.served import (
    ServedDiscovery,
    ServedIntegrations,
    ServedNode,
    ServedObjects,
)
from hyperbloom.api.snapshot_target import snapshot_target
from hyperbloom.errors import ErrorKind
from hyperbloom.replication.status import PeerStatus

__all__ = [
    "PeersForm",
    "list_peers",
    "list_work",
    "ping",
    "reload_config",
    "show_health",
    "show_history",
    "show_metrics",
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
    `/v1/discovery` has it), `objects` (the pool, or null), `integrations` (outputs, inputs and
    hooks) and, for each feed, `trust` and `dials` (the peers its settings name).
    """
    context = call.context
    return status_form(context.node, context.discovery, context.objects, context.integrations)


def status_form(
    node: ServedNode,
    discovery: ServedDiscovery | None,
    objects: ServedObjects | None,
    integrations: ServedIntegrations | None,
) -> dict[str, Any]:
    """The answer of `status`."""
    form: dict[str, Any] = flat_json(node.status())
    form["objects"] = None if objects is None else flat_json(objects.status().as_json())
    form["integrations"] = integration_forms(integrations)
    form["addresses"] = own_addresses(node)
    form["discovery"] = discovery_of(discovery)
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
    # One at a time: a thousand as dicts would hold some megabytes for as long as the node runs.
    forms = (json.dumps(flat_json(peer), separators=(",", ":"), allow_nan=False) for peer in page)
    return f'{{"peers":[{",".join(forms)}],"total":{len(found)}}}'.encode("ascii")


def show_history(call: Call) -> Answer:
    """What the node was like: `span` is `hours` (by the minute) or `week` (by ten minutes)."""
    call.only_query("span", "feed")
    name, span = call.query.get("feed"), call.query.get("span", "hours")
    if not is_span(span):
        raise bad_request("span must be hours or week")
    feed = None if name is None else call.feed_named(name).key
    return call.context.history.form(span, feed)


async def take_snapshot(call: Call) -> Mapping[str, Any]:
    """`{"target": absolute path}`: a copy of the store in a new folder, made while it runs."""
    text, store = call.body(TargetForm)["target"], call.node.store
    with call.context.work.of("snapshot", "bytes") as tell:
        info = await call.context.in_thread(lambda: store.snapshot(snapshot_target(text), tell))
    call.status = 201
    return {"target": text, **snapshot_form(info)}


async def verify_store(call: Call) -> Mapping[str, Any]:
    """Walks the whole store and says what is wrong with it."""
    store = call.node.store
    with call.context.work.of("verify", "values") as tell:
        report = await call.context.in_thread(lambda: store.verify(tell))
    form: dict[str, Any] = flat_json(report)
    return form


def list_work(call: Call) -> Answer:
    """The requests that take long (a snapshot, a verification), and how far each is."""
    return {"work": call.context.work.forms()}


async def reload_config(call: Call) -> Mapping[str, Any]:
    """Reads the configuration anew: `changed` holds now, `needs_restart` after a restart."""
    call.body(NothingForm)
    if call.context.reload is None:
        raise Problem(ErrorKind.NOT_FOUND, "this node was not made from a configuration file")
    done = await call.context.reload()
    form: dict[str, Any] = flat_json(done.as_json())
    return form


def show_metrics(call: Call) -> Answer:
    """All figures, in the text format of Prometheus or, if it is asked for, OpenMetrics."""
    accepted = call.request.getHeader(b"accept") or b""
    try:
        encode, media_type = choose_encoder(accepted.decode("latin-1"))
    except (TypeError, ValueError):  # it takes every version for a row of numbers
        encode, media_type = choose_encoder("")
    call.media_type = media_type.encode("ascii")
    body: bytes = encode(call.context.registry)
    return body


def show_health(call: Call) -> Answer:
    """Whether the node answers and can write: 200 or 503, and nothing more for strangers."""
    failing = call.node.store_problem() is not None
    call.status = 503 if failing else 200
    return {"status": "failing" if failing else "ok"}
