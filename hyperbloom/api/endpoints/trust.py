"""Endpoints of who may write: links, chains, members, invitations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hyperbloom.addresses import format_host_port, parse_host_port
from hyperbloom.api.endpoints.own_addresses import own_addresses
from hyperbloom.api.http.request import Answer, Call, told
from hyperbloom.api.limits import MAX_LINKS
from hyperbloom.api.problems import Problem, ProblemKind
from hyperbloom.api.schemas import (
    InvitationForm,
    LinkForm,
    MemberForm,
    bad_request,
    bytes_list,
    expiry,
    expiry_form,
    feed_form,
    feed_settings,
    member,
    only,
    public_key,
)
from hyperbloom.invitation import (
    MAX_ADDRESSES,
    Invitation,
    InvitationError,
    decode_invitation,
    encode_invitation,
)
from hyperbloom.trust import ChainError, ChainExpired, ChainMalformed, verify_chain
from hyperbloom.wire import DIALECTS, Dialect

if TYPE_CHECKING:
    from hyperbloom.replication.settings import FeedSettings

__all__ = [
    "accept_invitation",
    "add_chain",
    "allow_key",
    "deny_key",
    "invite",
    "issue_link",
    "list_denied",
    "list_links",
    "list_members",
]


async def issue_link(call: Call) -> Mapping[str, Any]:
    """`{"trustee": key, "expires": seconds or null}`: signs and stores a link for another node."""
    feed, body = call.feed(), call.body()
    only(body, ("trustee", "expires"))
    trustee = public_key(body, "trustee")
    expires = expiry(body, "expires")
    link = await told(lambda: feed.issue_link(trustee, expires=expires))
    call.status = 201
    return {"link": link.to_bytes().hex(), "expires": expiry_form(link.expires)}


async def add_chain(call: Call) -> Mapping[str, Any]:
    """`{"links": [hex, …]}`: stores a chain, its links from the feed's owner on."""
    feed, body = call.feed(), call.body()
    only(body, ("links",))
    links = bytes_list(body, "links", most=MAX_LINKS)
    chain = await told(lambda: feed.add_links(links))
    return {
        "holder": chain.holder.hex(),
        "links": len(chain),
        "expires": expiry_form(chain.expires),
    }


def list_links(call: Call) -> Answer:
    """Every link stored for the feed."""
    links: list[LinkForm] = [
        {
            "issuer": link.issuer.hex(),
            "trustee": link.trustee.hex(),
            "expires": expiry_form(link.expires),
            "first_seen": link.first_seen / 1e6,
            "introduced_by": link.introduced_by.hex(),
            "link": link.raw.hex(),
        }
        for link in call.feed().links()
    ]
    return {"links": links}


async def deny_key(call: Call) -> Mapping[str, Any]:
    """`{"key": key, "reason"?}`: lets a key take part in no feed of this node from now on."""
    body = call.body()
    only(body, ("key", "reason"))
    key, reason = public_key(body, "key"), member(body, "reason", str, "")
    try:
        is_new = await call.node.deny(key, reason)
    except ValueError as error:
        raise bad_request(str(error)) from None
    call.status = 201
    return {"key": key.hex(), "new": is_new}


async def allow_key(call: Call) -> Mapping[str, Any]:
    """Denies a key no more."""
    key = public_key({"key": call.arguments[0]}, "key")
    return {"key": key.hex(), "was_denied": await call.node.allow(key)}


def list_denied(call: Call) -> Answer:
    """The keys that are denied, since when and why."""
    denied = [
        {"key": found.key.hex(), "denied_at": found.denied_at / 1e6, "reason": found.reason}
        for found in call.node.denied()
    ]
    return {"denied": denied}


def list_members(call: Call) -> Answer:
    """Who may write to the feed now, through whom, until when; its owner comes first."""
    feed = call.feed()
    connected = {peer.key for peer in call.node.peers() if peer.feed == feed.key}
    owner: MemberForm = {
        "key": feed.key.hex(),
        "depth": 0,
        "introduced_by": None,
        "expires": None,
        "connected": feed.key in connected,
    }
    members: list[MemberForm] = [
        {
            "key": found.key.hex(),
            "depth": found.depth,
            "introduced_by": found.introduced_by.hex(),
            "expires": expiry_form(found.expires),
            "connected": found.key in connected,
        }
        for found in feed.members()
    ]
    return {"members": [owner, *members]}


def _invitation_addresses(call: Call, body: Mapping[str, Any]) -> list[str]:
    given = body.get("addresses")
    if given is None:
        return own_addresses(call.node)[:MAX_ADDRESSES]
    if type(given) is not list or len(given) > MAX_ADDRESSES:
        raise bad_request(f"addresses must be a list of at most {MAX_ADDRESSES} HOST:PORT")
    try:
        return [format_host_port(*parse_host_port(str(address))) for address in given]
    except ValueError as error:
        raise bad_request(str(error)) from None


async def invite(call: Call) -> Mapping[str, Any]:
    """`{"trustee": key, "expires": seconds or null, "addresses"?: [HOST:PORT, …]}`: a line.

    It is what the trustee joins by, and holds the chain of this node and a fresh link.
    """
    feed, body = call.feed(), call.body()
    only(body, ("trustee", "expires", "addresses"))
    trustee = public_key(body, "trustee")
    addresses = _invitation_addresses(call, body)
    expires = expiry(body, "expires")
    link = await told(lambda: feed.issue_link(trustee, expires=expires))
    chain = feed.chain
    if chain is None:
        raise Problem(ProblemKind.NOT_TRUSTED, "this node's own link has just expired")
    invited = chain.extended(link)
    invitation = Invitation(
        feed_key=feed.key,
        links=invited.to_wire(),
        addresses=tuple(addresses),
    )
    call.status = 201
    form: InvitationForm = {
        "invitation": encode_invitation(invitation),
        "feed": feed.key.hex(),
        "dialect": feed.settings.dialect,
        "trustee": trustee.hex(),
        "expires": expiry_form(invited.expires),
        "addresses": addresses,
    }
    return form


def _open_invitation(text: str) -> Invitation:
    """The invitation; its chain is not looked at."""
    try:
        invitation = decode_invitation(text)
        for address in invitation.addresses:
            parse_host_port(address)
    except InvitationError as error:
        raise Problem(ProblemKind.BAD_INVITATION, str(error)) from None
    except ValueError:
        raise Problem(
            ProblemKind.BAD_INVITATION, "the invitation's addresses are damaged"
        ) from None
    return invitation


def _check_invited(call: Call, invitation: Invitation, dialect: Dialect) -> None:
    """The invitation's chain must hold now and end at this node's identity."""
    identity = call.node.identity.public_key
    holder = _invited(call, invitation, dialect)
    if holder != identity:
        raise Problem(
            ProblemKind.BAD_INVITATION,
            f"the invitation is for {holder.hex()}, this node is {identity.hex()}; ask for one "
            "for this node's key (`hyperbloom key`)",
        )


def _invited(call: Call, invitation: Invitation, dialect: Dialect) -> bytes:
    """The key that the invitation is for.

    Looked at before anything is changed: a bad invitation must leave no feed behind.
    """
    now, leeway = call.context.now(), call.node.context.leeway
    try:
        chain = verify_chain(
            invitation.feed_key,
            invitation.links,
            now=now,
            leeway=leeway,
            format=dialect.link_format,
        )
    except ChainExpired as error:
        raise Problem(
            ProblemKind.EXPIRED, f"the invitation is out of date ({error}); ask for a new one"
        ) from None
    except ChainMalformed as error:
        raise Problem(
            ProblemKind.BAD_CHAIN,
            f"the invitation is not in the form of dialect {dialect.name} ({error}); if its feed "
            "speaks another, name that (--dialect), else ask for a new one",
        ) from None
    except ChainError as error:
        raise Problem(
            ProblemKind.BAD_CHAIN, f"the invitation does not hold ({error}); ask for a new one"
        ) from None
    if any(denied.key in chain.keys for denied in call.node.denied()):
        raise Problem(
            ProblemKind.NOT_TRUSTED,
            "the invitation's chain leads through a key that this node denies; ask another member, "
            "or allow the key (`trust allow`)",
        )
    return chain.holder


def _joined_settings(
    call: Call, invitation: Invitation, body: Mapping[str, Any]
) -> tuple[FeedSettings, bool]:
    """The settings to join with, and whether they differ from what is joined already."""
    form: dict[str, Any] = {name: body[name] for name in body if name != "invitation"}
    present = call.node.feeds.get(invitation.feed_key)
    known: tuple[str, ...] = ()
    if present is not None:
        known = present.settings.peers
        form = {**present.settings.to_json(), **form}
    form["key"] = invitation.feed_key.hex()
    form["peers"] = list(dict.fromkeys((*known, *invitation.addresses)))
    settings = feed_settings(form)
    return settings, present is None or settings != present.settings


async def accept_invitation(call: Call) -> Mapping[str, Any]:
    """`{"invitation": line, "alias"?, "mode"?, "ranges"?, "dialect"?}`: joins its feed.

    The chain is taken, too. It has to be in the form of the dialect.
    """
    body = call.body()
    only(body, ("invitation", "alias", "mode", "ranges", "dialect"))
    line = body.get("invitation")
    if type(line) is not str:
        raise bad_request("invitation must be a text")
    invitation = _open_invitation(line)
    settings, changed = _joined_settings(call, invitation, body)
    _check_invited(call, invitation, DIALECTS[settings.dialect])
    call.check_alias_is_free(settings.key, settings.alias)
    if changed:
        await told(lambda: call.node.join(settings))
    feed = call.feed_of(invitation.feed_key)
    await told(lambda: feed.add_links(invitation.links))
    call.status = 201
    return feed_form(feed, call.node.identity.public_key)
