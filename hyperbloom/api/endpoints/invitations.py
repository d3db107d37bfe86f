"""Endpoints of invitations: made for another node, and taken by this one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from hyperbloom.addresses import Address
from hyperbloom.api.endpoints.feed_forms import feed_form, feed_settings
from hyperbloom.api.endpoints.own_addresses import own_addresses
from hyperbloom.api.endpoints.trust import trustee_of
from hyperbloom.api.http.request import Call
from hyperbloom.api.problems import Problem, bad_request, value_errors_as_problems
from hyperbloom.api.schemas.answers import InvitationForm
from hyperbloom.api.schemas.bodies import FeedSettingsForm, InviteForm, JoinForm
from hyperbloom.api.schemas.flat import expiry_form, expiry_of
from hyperbloom.errors import ErrorKind
from hyperbloom.invitation import (
    MAX_ADDRESSES,
    Invitation,
    decode_invitation,
    encode_invitation,
)
from hyperbloom.trust import Chain, ChainError, ChainExpired, ChainMalformed, verify_chain
from hyperbloom.wire import DIALECTS, Dialect

if TYPE_CHECKING:
    from hyperbloom.replication.settings import FeedSettings

__all__ = ["accept_invitation", "invite"]


def _addresses(call: Call, form: InviteForm) -> list[str]:
    """Where the invited reach this node: as the request says, else as the node knows."""
    given = form.get("addresses")
    if given is None:
        return own_addresses(call.node)[:MAX_ADDRESSES]
    if len(given) > MAX_ADDRESSES:
        raise bad_request(f"addresses may hold {MAX_ADDRESSES}, each HOST:PORT; send fewer")
    with value_errors_as_problems():
        return [str(Address.parse(address)) for address in given]


async def invite(call: Call) -> Mapping[str, Any]:
    """`{"trustee": key, "expires": seconds or null, "addresses"?: [HOST:PORT, …]}`: a line.

    It is what the trustee joins by, and holds the chain of this node and a fresh link.
    """
    feed, form = call.feed(), call.body(InviteForm)
    addresses, trustee = _addresses(call, form), await trustee_of(call, form["trustee"])
    name = form.get("trustee_name")
    with value_errors_as_problems():
        if name is not None:
            call.node.names.check_new(trustee, name)
        link = await feed.trust.invite(trustee, expires=expiry_of(form["expires"]))
        if name is not None:
            await call.node.names.name(trustee, name)
    chain = feed.trust.chain
    if chain is None:
        raise Problem(ErrorKind.NOT_TRUSTED, "this node's own link has just expired")
    invited = chain.extended(link)
    invitation = Invitation(
        feed_key=feed.key,
        links=invited.to_wire(),
        addresses=tuple(addresses),
    )
    call.status = 201
    answer: InvitationForm = {
        "invitation": encode_invitation(invitation),
        "feed": feed.key.hex(),
        "name": call.name_of(feed)["name"],
        "dialect": feed.settings.dialect,
        "trustee": trustee.hex(),
        "trustee_name": call.node.names.get(trustee),
        "expires": expiry_form(invited.expires),
        "addresses": addresses,
    }
    return answer


def _open_invitation(text: str) -> Invitation:
    """The invitation; its chain is not looked at. Raises `InvitationError` or `Problem`."""
    invitation = decode_invitation(text)
    try:
        for address in invitation.addresses:
            Address.parse(address)
    except ValueError:
        raise Problem(ErrorKind.BAD_INVITATION, "the invitation's addresses are damaged") from None
    return invitation


def _check_invited(call: Call, invitation: Invitation, dialect: Dialect) -> bytes:
    """The key that has signed the invitation, which must hold now and be for this node."""
    identity = call.node.identity.public_key
    *_, inviter, holder = (None, *_verified(call, invitation, dialect).keys)
    if inviter is None:
        raise Problem(ErrorKind.BAD_INVITATION, "the invitation has no link; ask for a new one")
    if holder != identity:
        raise Problem(
            ErrorKind.BAD_INVITATION,
            f"the invitation is for {holder.hex()}, this node is {identity.hex()}; ask for one "
            "for this node's key (`hyperbloom key`)",
        )
    return inviter


def _verified(call: Call, invitation: Invitation, dialect: Dialect) -> Chain:
    """The invitation's chain, which leads to the key that it is for.

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
            ErrorKind.EXPIRED, f"the invitation is out of date ({error}); ask for a new one"
        ) from None
    except ChainMalformed as error:
        raise Problem(
            ErrorKind.BAD_CHAIN,
            f"the invitation is not in the form of dialect {dialect.name} ({error}); if its feed "
            "speaks another, name that (--dialect), else ask for a new one",
        ) from None
    except ChainError as error:
        raise Problem(
            ErrorKind.BAD_CHAIN, f"the invitation does not hold ({error}); ask for a new one"
        ) from None
    if any(denied.key in chain.keys for denied in call.node.denied()):
        raise Problem(
            ErrorKind.NOT_TRUSTED,
            "the invitation's chain leads through a key that this node denies; ask another member, "
            "or allow the key (`trust allow`)",
        )
    return chain


def _joined_settings(
    call: Call, invitation: Invitation, form: JoinForm
) -> tuple[FeedSettings, bool]:
    """The settings to join with, and whether they differ from what is joined already.

    Any member can make an invitation, and what a feed dials is dialled for good: so one to a feed
    of which this node is a member changes nothing of that unless it is asked for. A feed that was
    seeded takes the addresses of its first invitation.
    """
    present = call.node.feeds.get(invitation.feed_key)
    joined: dict[str, Any] = {} if present is None else present.settings.to_json()
    known = joined.get("peers", ())
    of_feed = form.keys() - {"invitation", "inviter_name", "add_addresses"}
    joined |= {name: given for name, given in form.items() if name in of_feed}
    joined["key"] = invitation.feed_key.hex()
    is_member = present is not None and (bool(known) or present.trust.chain is not None)
    added = () if is_member and not form.get("add_addresses") else invitation.addresses
    joined["peers"] = list(dict.fromkeys((*known, *added)))
    settings = feed_settings(cast("FeedSettingsForm", joined))
    return settings, present is None or settings != present.settings


async def accept_invitation(call: Call) -> Mapping[str, Any]:
    """`{"invitation": line, "add_addresses"?, "inviter_name"?, "alias"?, "mode"?, …}`: joins.

    The chain is taken, too. It has to be in the form of the dialect.
    """
    form = call.body(JoinForm)
    invitation = _open_invitation(form["invitation"])
    settings, changed = _joined_settings(call, invitation, form)
    inviter = _check_invited(call, invitation, DIALECTS[settings.dialect])
    call.check_alias_is_free(settings.key, settings.alias)
    name = form.get("inviter_name")
    with value_errors_as_problems():
        if name is not None:
            call.node.names.check_new(inviter, name)
        if changed:
            await call.node.join(settings)
        feed = call.feed_of(invitation.feed_key)
        await feed.trust.add_links(invitation.links)
        if name is not None:
            await call.node.names.name(inviter, name)
    call.status = 201
    joined = feed_form(feed, call.node.identity.public_key)
    by = {"inviter": inviter.hex(), "inviter_name": call.node.names.get(inviter)}
    dialled = {str(address) for address in settings.peers}
    return {**joined, **by, "not_added": [a for a in invitation.addresses if a not in dialled]}
