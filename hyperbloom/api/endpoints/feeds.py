"""Endpoints of the feeds that the node takes part in: joined, left, made, handed over.

No key of a feed goes through the API but its public half: files of keys are read and written where
they lie, by who may read and write them there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hyperbloom.api.endpoints.feed_forms import feed_form, feed_settings
from hyperbloom.api.http.request import Answer, Call
from hyperbloom.api.problems import bad_request, value_errors_as_problems
from hyperbloom.api.schemas.bodies import (
    CopyForm,
    CreateForm,
    FeedSettingsForm,
    NothingForm,
    ReleaseForm,
)
from hyperbloom.api.schemas.flat import expiry_form, expiry_of
from hyperbloom.feed_words import DEFAULT_DIALECT, check_alias

__all__ = [
    "copy_values",
    "create_feed",
    "join_feed",
    "leave_feed",
    "list_feeds",
    "read_keys",
    "release_key",
    "show_feed",
]


def list_feeds(call: Call) -> Answer:
    """Every feed of the node."""
    own = call.node.identity.public_key
    return {"feeds": [feed_form(feed, own) for feed in call.node.feeds.values()]}


def show_feed(call: Call) -> Answer:
    """One feed."""
    return feed_form(call.feed(), call.node.identity.public_key)


async def join_feed(call: Call) -> Mapping[str, Any]:
    """A feed's settings (the keys of `[[feeds]]`): the node takes part in it from now on."""
    settings = feed_settings(call.body(FeedSettingsForm))
    call.check_alias_is_free(settings.key, settings.alias)
    with value_errors_as_problems():
        await call.node.join(settings)
    call.status = 201
    return feed_form(call.feed_of(settings.key), call.node.identity.public_key)


async def leave_feed(call: Call) -> None:
    """Leaves a feed, and removes its values and links from this node.

    With `delete_key=yes` the key of a feed that the node owns goes, too.
    """
    call.only_query("delete_key")
    key, delete_key = call.feed().key, call.query.get("delete_key", "no")
    if delete_key not in ("yes", "no"):
        raise bad_request("delete_key must be yes or no")
    with value_errors_as_problems():
        await call.node.leave(key, delete_key=delete_key == "yes")


async def create_feed(call: Call) -> Mapping[str, Any]:
    """`{"alias": name, "dialect"?}`: makes a feed with a key pair of its own, which stays here."""
    form = call.body(CreateForm)
    alias, dialect = form["alias"], form.get("dialect") or DEFAULT_DIALECT
    with value_errors_as_problems():
        check_alias(alias)
        call.check_alias_is_free(b"", alias)
        feed = await call.node.ownership.create(alias=alias, dialect=dialect)
    call.status = 201
    return feed_form(feed, call.node.identity.public_key)


async def read_keys(call: Call) -> Mapping[str, Any]:
    """Reads the folder of feeds' keys anew; the feeds that the node owns from now on."""
    call.body(NothingForm)
    with value_errors_as_problems():
        found = await call.node.ownership.read_keys()
    own = call.node.identity.public_key
    return {"feeds": [feed_form(feed, own) for feed in found]}


async def release_key(call: Call) -> Mapping[str, Any]:
    """`{"expires": seconds or null}`: removes the feed's key from the node, for good.

    The node goes on as a member, by a link that it is issued first.
    """
    feed, form = call.feed(), call.body(ReleaseForm)
    with value_errors_as_problems():
        link = await call.node.ownership.release(feed, expires=expiry_of(form["expires"]))
    return {"link": link.to_bytes().hex(), "expires": expiry_form(link.expires)}


async def copy_values(call: Call) -> Mapping[str, Any]:
    """`{"source": feed, "after"?}`: one step of copying another feed's values into this one.

    `after` is the `next` of the step before. A step that is asked again does nothing new.
    """
    target, form = call.feed(), call.body(CopyForm)
    source = call.feed_named(form["source"])
    if source is target:
        raise bad_request("source is this feed itself; name another one")
    with value_errors_as_problems():
        step = await call.node.ownership.copy_step(source, target, form.get("after") or 0)
    count, following = step
    return {"count": count, "next": following}
