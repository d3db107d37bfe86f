"""Endpoints of the node itself: feeds, peers, status, snapshots, verify."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hyperbloom import __version__
from hyperbloom.api.call import Answer, Call, told
from hyperbloom.api.forms import (
    bad_request,
    feed_form,
    feed_settings,
    flat_json,
    member,
    only,
)
from hyperbloom.api.problems import Problem, ProblemKind

__all__ = [
    "join_feed",
    "leave_feed",
    "list_feeds",
    "list_peers",
    "ping",
    "show_feed",
    "status",
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
    """The node and its feeds at a glance."""
    form: dict[str, Any] = flat_json(call.node.status().as_json())
    return form


def list_peers(call: Call) -> Answer:
    """The peers of all feeds: connected ones and those that are dialled."""
    return {"peers": [flat_json(peer.as_json()) for peer in call.node.peers()]}


def list_feeds(call: Call) -> Answer:
    """Every feed of the node."""
    return {"feeds": [feed_form(feed) for feed in call.node.feeds.values()]}


def show_feed(call: Call) -> Answer:
    """One feed."""
    return feed_form(call.feed())


async def join_feed(call: Call) -> Mapping[str, Any]:
    """A feed's settings (the keys of `[[feeds]]`): the node takes part in it from now on."""
    settings = feed_settings(call.body())
    await told(lambda: call.node.join(settings))
    call.status = 201
    return feed_form(call.node.feeds[settings.key])


async def leave_feed(call: Call) -> None:
    """The node takes no part any more, and removes the feed's values and links."""
    key = call.feed().key
    await told(lambda: call.node.leave(key))


async def take_snapshot(call: Call) -> Mapping[str, Any]:
    """`{"target": absolute path}`: a copy of the store in a new folder, made while it runs."""
    body = call.body()
    only(body, ("target",))
    target = Path(member(body, "target", str))
    if not target.is_absolute():
        raise bad_request("target must be an absolute path")
    store = call.node.store
    try:
        info = await call.context.in_thread(lambda: store.snapshot(target))
    except FileExistsError:
        raise Problem(ProblemKind.CONFLICT, f"{target} exists; name a new folder") from None
    call.status = 201
    return {"target": str(target), **flat_json(info)}


async def verify_store(call: Call) -> Mapping[str, Any]:
    """Walks the whole store and says what is wrong with it."""
    store = call.node.store
    report = await call.context.in_thread(lambda: store.verify(None))
    form: dict[str, Any] = flat_json(report)
    return form
