"""What a client asks about who may write to a feed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from hyperbloom.api.schemas.flat import expiry_form
from hyperbloom.client.requests import feed_path, hex_list, key_path, key_word
from hyperbloom.client.transport import Transport

if TYPE_CHECKING:
    from hyperbloom.api.schemas.answers import (
        InvitationForm,
        JoinedForm,
        KeyFoundForm,
        KeyNamedForm,
        LinkForm,
        MemberForm,
        NamedKeyForm,
    )

__all__ = ["TrustRequests"]


class TrustRequests(Transport):
    """Links, members, invitations, names of keys, and keys that are denied.

    Where a key may be a text, that is a key in hex, 16 or more of its first digits, or its name;
    the node looks it up.
    """

    def find_key(self, key: str) -> KeyFoundForm:
        """The key that is meant by its beginning or its name: `key`, `name`."""
        return cast("KeyFoundForm", self.ask("GET", key_path("/v1/keys", key)))

    def names(self) -> list[NamedKeyForm]:
        """What the node's operator calls keys: `key`, `name`, `named_at`."""
        return cast("list[NamedKeyForm]", self.ask("GET", "/v1/names")["names"])

    def name_key(self, key: bytes | str, name: str) -> KeyNamedForm:
        """Calls a key so on the node; `key`, `name`, and what it `was` called."""
        body = {"key": key_word(key), "name": name}
        return cast("KeyNamedForm", self.ask("POST", "/v1/names", body))

    def unname_key(self, key: bytes | str) -> KeyNamedForm:
        """Calls a key by no name any more; `was` is null if it had none."""
        return cast("KeyNamedForm", self.ask("DELETE", key_path("/v1/names", key)))

    def deny(self, key: bytes | str, reason: str = "") -> Mapping[str, Any]:
        """Puts a key on the node's deny list; `key`, `new`: whether it was not there before."""
        return self.ask("POST", "/v1/denied", {"key": key_word(key), "reason": reason})

    def allow(self, key: bytes | str) -> Mapping[str, Any]:
        """Takes a key off the node's deny list; `key`, `was_denied`."""
        return self.ask("DELETE", key_path("/v1/denied", key))

    def denied(self) -> list[dict[str, Any]]:
        """The denied keys: `key`, `name`, `denied_at`, `reason`."""
        return cast("list[dict[str, Any]]", self.ask("GET", "/v1/denied")["denied"])

    def issue_link(
        self, trustee: bytes | str, *, expires: float, feed: str | None = None
    ) -> Mapping[str, Any]:
        """Signs a link for another node: `link` in hex, `expires`, `trustee`."""
        body = {"trustee": key_word(trustee), "expires": expiry_form(expires)}
        return self.ask("POST", feed_path(feed, "/links"), body)

    def add_links(self, links: Sequence[bytes], *, feed: str | None = None) -> Mapping[str, Any]:
        """Stores a chain of links: `holder`, `links`, `expires`."""
        return self.ask("POST", feed_path(feed, "/chains"), {"links": hex_list(links)})

    def links(self, *, feed: str | None = None) -> list[LinkForm]:
        """Every link stored for the feed."""
        return cast("list[LinkForm]", self.ask("GET", feed_path(feed, "/links"))["links"])

    def members(self, *, feed: str | None = None) -> list[MemberForm]:
        """Who may write."""
        answer = self.ask("GET", feed_path(feed, "/members"))
        return cast("list[MemberForm]", answer["members"])

    def invite(
        self,
        trustee: bytes | str,
        *,
        expires: float,
        addresses: Sequence[str] | None = None,
        name: str | None = None,
        feed: str | None = None,
    ) -> InvitationForm:
        """Makes an invitation; without `addresses` it holds those of the node.

        name: what the node calls the key from then on.
        """
        body: dict[str, Any] = {"trustee": key_word(trustee), "expires": expiry_form(expires)}
        if name is not None:
            body["trustee_name"] = name
        if addresses is not None:
            body["addresses"] = list(addresses)
        return cast("InvitationForm", self.ask("POST", feed_path(feed, "/invitations"), body))

    def accept(self, invitation: str, **settings: Any) -> JoinedForm:
        """Takes an invitation; `settings` may be alias, mode, ranges, dialect, inviter_name.

        A feed that is joined already takes its addresses with `add_addresses` alone; those that it
        does not dial are in `not_added`.
        """
        body = {"invitation": invitation, **settings}
        return cast("JoinedForm", self.ask("POST", "/v1/invitations", body))
