"""Endpoints of who may write: links, chains, members, and keys that are denied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hyperbloom.api.http.request import Answer, Call
from hyperbloom.api.problems import bad_request, value_errors_as_problems
from hyperbloom.api.schemas.answers import LinkForm, MemberForm
from hyperbloom.api.schemas.bodies import DenyForm, LinksGivenForm, TrusteeForm
from hyperbloom.api.schemas.flat import expiry_form, expiry_of
from hyperbloom.keys import exchange_key

__all__ = [
    "add_chain",
    "allow_key",
    "deny_key",
    "issue_link",
    "list_denied",
    "list_links",
    "list_members",
    "trustee_of",
]


async def trustee_of(call: Call, word: str) -> bytes:
    """The key of whom to trust: whole, or of somebody this node knows (`Petnames.find`).

    Raises `UnknownKey`, and `Problem` for a key that nobody can hold, and for one of this node's.
    """
    key = await call.key_named(word)
    if call.node.context.is_own(key):
        raise bad_request(
            "this is the key of this node itself, which needs no invitation: give the key of "
            "the other node, as `hyperbloom key` prints it there"
        )
    try:
        exchange_key(key)
    except ValueError:
        raise bad_request(
            "trustee is no public key of Ed25519, so nobody can hold it: look for a slip in it"
        ) from None
    return key


async def issue_link(call: Call) -> Mapping[str, Any]:
    """`{"trustee": key, "expires": seconds or null}`: signs and stores a link for another node."""
    feed, form = call.feed(), call.body(TrusteeForm)
    trustee = await trustee_of(call, form["trustee"])
    with value_errors_as_problems():
        link = await feed.trust.invite(trustee, expires=expiry_of(form["expires"]))
    call.status = 201
    return {
        "link": link.to_bytes().hex(),
        "expires": expiry_form(link.expires),
        "trustee": trustee.hex(),
        "trustee_name": call.node.names.get(trustee),
        **call.name_of(feed),
    }


async def add_chain(call: Call) -> Mapping[str, Any]:
    """`{"links": [hex, …]}`: stores a chain, its links from the feed's owner on."""
    feed, form = call.feed(), call.body(LinksGivenForm)
    with value_errors_as_problems():
        chain = await feed.trust.add_links(list(map(bytes.fromhex, form["links"])))
    return {
        "holder": chain.holder.hex(),
        "holder_name": call.node.names.get(chain.holder),
        "links": len(chain),
        "expires": expiry_form(chain.expires),
    }


def list_links(call: Call) -> Answer:
    """Every link stored for the feed."""
    name = call.node.names.get
    links: list[LinkForm] = [
        {
            "issuer": link.issuer.hex(),
            "issuer_name": name(link.issuer),
            "trustee": link.trustee.hex(),
            "trustee_name": name(link.trustee),
            "expires": expiry_form(link.expires),
            "first_seen": link.first_seen / 1e6,
            "introduced_by": link.introduced_by.hex(),
            "link": link.raw.hex(),
        }
        for link in call.feed().trust.links()
    ]
    return {"links": links}


async def deny_key(call: Call) -> Mapping[str, Any]:
    """`{"key": key, "reason"?}`: denies a key: it takes part in no feed of this node."""
    form = call.body(DenyForm)
    key = await call.key_named(form["key"])
    with value_errors_as_problems():
        is_new = await call.node.deny(key, form.get("reason") or "")
    call.status = 201
    return {"key": key.hex(), "name": call.node.names.get(key), "new": is_new}


async def allow_key(call: Call) -> Mapping[str, Any]:
    """Takes a key off the deny list."""
    denied = [found.key for found in call.node.denied()]
    key = await call.key_named(call.arguments[0], denied, those="that is denied")
    was_denied = await call.node.allow(key)
    return {"key": key.hex(), "name": call.node.names.get(key), "was_denied": was_denied}


def list_denied(call: Call) -> Answer:
    """The keys that are denied, since when and why."""
    denied = [
        {
            "key": found.key.hex(),
            "name": call.node.names.get(found.key),
            "denied_at": found.denied_at / 1e6,
            "reason": found.reason,
        }
        for found in call.node.denied()
    ]
    return {"denied": denied}


def list_members(call: Call) -> Answer:
    """Who may write to the feed now, through whom, until when; its owner comes first."""
    feed = call.feed()
    connected = {peer.key for peer in call.node.peers() if peer.feed == feed.key}
    name, invited = call.node.names.get, feed.trust.invited()
    owner: MemberForm = {
        "key": feed.key.hex(),
        "name": name(feed.key),
        "depth": 0,
        "introduced_by": None,
        "introduced_by_name": None,
        "expires": None,
        "connected": feed.key in connected,
        "invited_at": None,
    }
    members: list[MemberForm] = [
        {
            "key": found.key.hex(),
            "name": name(found.key),
            "depth": found.depth,
            "introduced_by": found.introduced_by.hex(),
            "introduced_by_name": name(found.introduced_by),
            "expires": expiry_form(found.expires),
            "connected": found.key in connected,
            "invited_at": invited.get(found.key),
        }
        for found in feed.trust.members()
    ]
    pending = sum(member["invited_at"] is not None for member in members)
    return {"members": [owner, *members], "invited": pending}
