"""What a client asks about who may write to a feed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from hyperbloom.api.schemas.flat import expiry_form
from hyperbloom.client.requests import feed_path, hex_list
from hyperbloom.client.transport import Transport

if TYPE_CHECKING:
    from hyperbloom.api.schemas.answers import FeedForm, InvitationForm, LinkForm, MemberForm

__all__ = ["TrustRequests"]


class TrustRequests(Transport):
    """Links, members, invitations, and keys that are denied."""

    def deny(self, key: bytes, reason: str = "") -> Mapping[str, Any]:
        """Puts a key on the node's deny list; `new`: whether it was not there before."""
        return self.ask("POST", "/v1/denied", {"key": key.hex(), "reason": reason})

    def allow(self, key: bytes) -> Mapping[str, Any]:
        """Takes a key off the node's deny list; `was_denied`."""
        return self.ask("DELETE", f"/v1/denied/{key.hex()}")

    def denied(self) -> list[dict[str, Any]]:
        """The denied keys: `key`, `denied_at`, `reason`."""
        return cast("list[dict[str, Any]]", self.ask("GET", "/v1/denied")["denied"])

    def issue_link(
        self, trustee: bytes, *, expires: float, feed: str | None = None
    ) -> Mapping[str, Any]:
        """Signs a link for another node: `link` in hex and `expires`."""
        body = {"trustee": trustee.hex(), "expires": expiry_form(expires)}
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
        trustee: bytes,
        *,
        expires: float,
        addresses: Sequence[str] | None = None,
        feed: str | None = None,
    ) -> InvitationForm:
        """Makes an invitation; without `addresses` it holds those of the node."""
        body: dict[str, Any] = {"trustee": trustee.hex(), "expires": expiry_form(expires)}
        if addresses is not None:
            body["addresses"] = list(addresses)
        return cast("InvitationForm", self.ask("POST", feed_path(feed, "/invitations"), body))

    def accept(self, invitation: str, **settings: Any) -> FeedForm:
        """Takes an invitation; `settings` may be alias, mode, ranges, dialect."""
        body = {"invitation": invitation, **settings}
        return cast("FeedForm", self.ask("POST", "/v1/invitations", body))
