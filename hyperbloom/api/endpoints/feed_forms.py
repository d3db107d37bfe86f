"""A feed as the API shows it, and its settings as the API takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from hyperbloom.api.problems import value_errors_as_problems
from hyperbloom.api.schemas.answers import ChainForm, FeedForm, TrustWord
from hyperbloom.api.schemas.bodies import FeedSettingsForm
from hyperbloom.api.schemas.flat import expiry_form
from hyperbloom.feed_words import check_alias
from hyperbloom.replication.settings import FeedSettings
from hyperbloom.wire import DIALECTS

if TYPE_CHECKING:
    from hyperbloom.api.served import ServedFeed
    from hyperbloom.store.records import FeedRecord

__all__ = ["digest_hex", "feed_form", "feed_settings", "trust_word"]


def feed_settings(form: FeedSettingsForm) -> FeedSettings:
    """The settings of a feed to join; what is left out or null has its default.

    Raises `Problem` where they do not fit together.
    """
    with value_errors_as_problems():
        alias = form.get("alias")
        if alias is not None:
            check_alias(alias)
        peers = dict.fromkeys(form.get("peers") or ())
        return FeedSettings.from_json({**form, "peers": peers})


def digest_hex(record: FeedRecord) -> str | None:
    """A feed's digest; None while it is being computed."""
    return None if record.digest is None else record.digest.hex()


def trust_word(feed: ServedFeed, own_key: bytes) -> TrustWord:
    """Whether the node with `own_key` may write to the feed.

    A node gets a link to its own key with a chain that holds. So a node without a chain that still
    has such a link was a member once; expired links are cleared away in the end.
    """
    chain = feed.trust.chain
    if chain is not None:
        return "owner" if chain.is_owners else "member"
    was_member = any(link.trustee == own_key for link in feed.trust.links())
    return "expired" if was_member else "none"


def feed_form(feed: ServedFeed, own_key: bytes) -> FeedForm:
    """A feed as the API shows it; `own_key` is the node's."""
    record, chain = feed.values.record(), feed.trust.chain
    shown: ChainForm | None = None
    if chain is not None:
        shown = {"links": len(chain), "expires": expiry_form(chain.expires)}
    form = {
        **feed.settings.to_json(),
        "discovery_key": feed.discovery_key.hex(),
        "own": feed.key == own_key,
        "owner": feed.trust.identity.public_key == feed.key,
        "lacks": list(DIALECTS[feed.settings.dialect].lacks),
        "count": record.count,
        "bytes": record.bytes,
        "digest": digest_hex(record),
        "digest_left": record.digest_left,
        "top_seq": record.top_seq,
        "trust": trust_word(feed, own_key),
        "chain": shown,
    }
    return cast("FeedForm", form)
