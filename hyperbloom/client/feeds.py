"""What a client asks about the feeds that the node takes part in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from hyperbloom.api.schemas.flat import expiry_form
from hyperbloom.client.requests import feed_path, with_query
from hyperbloom.client.transport import Transport

if TYPE_CHECKING:
    from hyperbloom.api.schemas.answers import FeedForm

__all__ = ["FeedRequests"]


class FeedRequests(Transport):
    """Feeds that are joined, left, made, and handed over."""

    def feeds(self) -> list[FeedForm]:
        """Every feed of the node."""
        return cast("list[FeedForm]", self.ask("GET", "/v1/feeds")["feeds"])

    def feed(self, feed: str | None = None) -> FeedForm:
        """One feed."""
        return cast("FeedForm", self.ask("GET", feed_path(feed)))

    def join_feed(self, settings: Mapping[str, Any]) -> FeedForm:
        """Takes part in a feed; `settings` as `FeedSettings.to_json` gives them."""
        return cast("FeedForm", self.ask("POST", "/v1/feeds", settings))

    def leave_feed(self, feed: str, *, delete_key: bool = False) -> None:
        """Leaves a feed and removes its values; `delete_key`: the feed's key, too."""
        query = "yes" if delete_key else None
        self.ask("DELETE", with_query(feed_path(feed), delete_key=query))

    def create_feed(self, alias: str, *, dialect: str | None = None) -> FeedForm:
        """Makes a feed with a key pair of its own, which stays at the node."""
        body = {"alias": alias, "dialect": dialect}
        return cast("FeedForm", self.ask("POST", "/v1/owned", body))

    def read_keys(self) -> list[FeedForm]:
        """Has the node read its folder of feeds' keys anew; the feeds that it owns from now on."""
        return cast("list[FeedForm]", self.ask("POST", "/v1/owned/read", {})["feeds"])

    def release_key(self, *, feed: str, expires: float) -> Mapping[str, Any]:
        """Removes a feed's key from the node, which goes on as a member: `link` and `expires`."""
        body = {"expires": expiry_form(expires)}
        return self.ask("POST", feed_path(feed, "/release"), body)

    def copy_values(self, *, source: str, feed: str) -> Iterator[Mapping[str, Any]]:
        """Copies one feed's values into another, a step at a time; goes on only as it is read."""
        return self.steps(feed_path(feed, "/copy"), {"source": source})
