"""Endpoints of the feeds that the node owns: made with keys of their own, handed over.

No key of a feed goes through the API but its public half: files of keys are read and written where
they lie, by who may read and write them there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NotRequired, TypedDict, TypeVar

from hyperbloom.api.http.request import Call, told
from hyperbloom.api.limits import MAX_SEQ
from hyperbloom.api.problems import Problem, ProblemKind
from hyperbloom.api.schemas import (
    Count,
    Moment,
    bad_request,
    dialect_name,
    expiry,
    expiry_form,
    feed_form,
    member,
    only,
)
from hyperbloom.config import check_alias
from hyperbloom.keys import KeyFileError

__all__ = [
    "CopiedForm",
    "CopyForm",
    "CreateForm",
    "ReleaseForm",
    "copy_values",
    "create_feed",
    "read_keys",
    "release_key",
]

T = TypeVar("T")


class CreateForm(TypedDict):
    """A feed to make, with a key pair of its own: what it is called here, and its dialect."""

    alias: str
    dialect: NotRequired[str | None]


class CopyForm(TypedDict):
    """The feed to copy from, and the `next` of the step before."""

    source: str
    after: NotRequired[Count | None]


class CopiedForm(TypedDict):
    """Values that are in the feed now; `next` goes into the next step, null at the end."""

    count: Count
    next: Count | None


class ReleaseForm(TypedDict):
    """Until when the node goes on as a member (null: for good, where links do not expire)."""

    expires: Moment | None


async def _with_files(operation: Callable[[], Awaitable[T]]) -> T:
    """What it comes to; a key file that does not do is the operator's to put right."""
    try:
        return await operation()
    except KeyFileError as error:
        raise Problem(ProblemKind.BAD_CONFIG, str(error)) from None


async def create_feed(call: Call) -> Mapping[str, Any]:
    """`{"alias": name, "dialect"?}`: makes a feed with a key pair of its own, which stays here."""
    body = call.body()
    only(body, ("alias", "dialect"))
    dialect = dialect_name(body)
    try:
        alias = check_alias(member(body, "alias", str))
    except ValueError as error:
        raise bad_request(str(error)) from None
    call.check_alias_is_free(b"", alias)
    ownership = call.node.ownership
    feed = await _with_files(lambda: told(lambda: ownership.create(alias=alias, dialect=dialect)))
    call.status = 201
    return feed_form(feed, call.node.identity.public_key)


async def read_keys(call: Call) -> Mapping[str, Any]:
    """Reads the folder of feeds' keys anew; the feeds that the node owns from now on."""
    only(call.body(), ())
    found = await _with_files(lambda: told(call.node.ownership.read_keys))
    own = call.node.identity.public_key
    return {"feeds": [feed_form(feed, own) for feed in found]}


async def release_key(call: Call) -> Mapping[str, Any]:
    """`{"expires": seconds or null}`: removes the feed's key from the node, for good.

    The node goes on as a member, by a link that it is issued first.
    """
    feed, body = call.feed(), call.body()
    only(body, ("expires",))
    expires = expiry(body, "expires")
    ownership = call.node.ownership
    link = await _with_files(lambda: told(lambda: ownership.release(feed, expires=expires)))
    return {"link": link.to_bytes().hex(), "expires": expiry_form(link.expires)}


async def copy_values(call: Call) -> Mapping[str, Any]:
    """`{"source": feed, "after"?}`: one step of copying another feed's values into this one.

    `after` is the `next` of the step before. A step that is asked again does nothing new.
    """
    target, body = call.feed(), call.body()
    only(body, ("source", "after"))
    source = call.feed_named(member(body, "source", str))
    if source is target:
        raise bad_request("source is this feed itself; name another one")
    after = 0 if body.get("after") is None else member(body, "after", int)
    if not 0 <= after <= MAX_SEQ:
        raise bad_request("after must be the next of the step before")
    try:
        count, following = await call.node.ownership.copy_step(source, target, after)
    except ValueError as error:
        raise bad_request(str(error)) from None
    return {"count": count, "next": following}
