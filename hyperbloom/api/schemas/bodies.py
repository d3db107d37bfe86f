"""The bodies of requests."""

from __future__ import annotations

from typing import Annotated, NotRequired, TypedDict

from hyperbloom.api.limits import (
    MAX_FEED_PEERS,
    MAX_FEED_RANGES,
    MAX_FETCH_SECONDS,
    MAX_LINKS,
    MAX_SYNCED_PEERS,
    MAX_SYNCED_SECONDS,
    MAX_VALUES,
)
from hyperbloom.api.schemas.scalars import (
    DURATION,
    Count,
    Hex,
    Key,
    KeyRange,
    KeyWord,
    Moment,
    Seq,
    Value,
    Values,
)
from hyperbloom.feed_words import Dialect, Mode, Noise, Tombstones

__all__ = [
    "BoundsForm",
    "CodeForm",
    "CopyForm",
    "CreateForm",
    "DenyForm",
    "FeedOptionsForm",
    "FeedSettingsForm",
    "FetchForm",
    "ForgetForm",
    "InviteForm",
    "JoinForm",
    "LinksGivenForm",
    "NameForm",
    "NothingForm",
    "PageForm",
    "ReleaseForm",
    "RunForm",
    "SelectionForm",
    "SyncedForm",
    "TargetForm",
    "TrusteeForm",
    "ValuesForm",
    "WatchForm",
]


class NothingForm(TypedDict):
    """No member."""


class ValuesForm(TypedDict):
    """Values, in hex."""

    values: Values


class BoundsForm(TypedDict):
    """A range of values: `start` ≤ value < `end`; left out: from the first, to the last on.

    With `prefix`: those of them that begin with it.
    """

    start: NotRequired[Hex | None]
    end: NotRequired[Hex | None]
    prefix: NotRequired[Hex | None]


class PageForm(BoundsForm):
    """A range of values, and how many of them a page may hold."""

    limit: NotRequired[Annotated[int, ("minimum", 1), ("maximum", MAX_VALUES)]]


class WatchForm(BoundsForm):
    """A range of values to watch; `after`: the arrival number to begin behind."""

    after: NotRequired[Seq]


class FetchForm(BoundsForm):
    """A range to ask the peers for; `timeout` in seconds."""

    limit: NotRequired[Annotated[int, ("minimum", 1)] | None]
    timeout: NotRequired[
        Annotated[float, ("exclusiveMinimum", 0), ("maximum", MAX_FETCH_SECONDS), DURATION]
    ]


class NameForm(TypedDict):
    """A key, and what it is to be called on this node."""

    key: KeyWord
    name: str


class DenyForm(TypedDict):
    """A key to deny, and why, for whoever reads the list."""

    key: KeyWord
    reason: NotRequired[str | None]


class SelectionForm(BoundsForm):
    """Which values are meant: a list, what a peer brought (`by`), or a range.

    `after` is the `next` of the step before; a dry run only counts.
    """

    values: NotRequired[Values]
    by: NotRequired[KeyWord]
    after: NotRequired[Hex | Count | None]
    dry_run: NotRequired[bool | None]


class ForgetForm(SelectionForm):
    """The same; `erase` keeps hashes alone, `publish` puts tombstones into the feed, too."""

    erase: NotRequired[bool | None]
    publish: NotRequired[bool | None]


class SyncedForm(TypedDict):
    """Peers to wait for (a key, 16 or more of its first digits, its name, an address).

    `timeout` in seconds.
    """

    peers: Annotated[list[str], ("minItems", 1), ("maxItems", MAX_SYNCED_PEERS)]
    timeout: NotRequired[
        Annotated[float, ("exclusiveMinimum", 0), ("maximum", MAX_SYNCED_SECONDS), DURATION]
    ]


class FeedOptionsForm(TypedDict):
    """How a feed is joined; ranges are [start, end] in hex."""

    alias: NotRequired[str | None]
    mode: NotRequired[Mode | None]
    ranges: NotRequired[Annotated[list[KeyRange], ("maxItems", MAX_FEED_RANGES)] | None]
    dialect: NotRequired[Dialect | None]


class FeedSettingsForm(FeedOptionsForm):
    """The settings of a feed, as `[[feeds]]` has them; ranges are [start, end] in hex."""

    key: Key
    peers: NotRequired[Annotated[list[str], ("maxItems", MAX_FEED_PEERS)] | None]
    issue_links: NotRequired[bool | None]
    retain_age: NotRequired[Annotated[float, ("minimum", 0)] | None]
    retain_values: NotRequired[Count | None]
    retain_bytes: NotRequired[Count | None]
    tombstones: NotRequired[Tombstones | None]
    noise: NotRequired[Noise | None]


class JoinForm(FeedOptionsForm):
    """An invitation to take, and the settings to join its feed with.

    `inviter_name`: what the key that has signed it is to be called here. `add_addresses`: have a
    feed that is joined already dial the invitation's addresses, too.
    """

    invitation: str
    add_addresses: NotRequired[bool | None]
    inviter_name: NotRequired[str | None]


class CreateForm(TypedDict):
    """A feed to make, with a key pair of its own: what it is called here, and its dialect."""

    alias: str
    dialect: NotRequired[Dialect | None]


class CopyForm(TypedDict):
    """The feed to copy from, and the `next` of the step before."""

    source: str
    after: NotRequired[Seq | None]


class ReleaseForm(TypedDict):
    """Until when the node goes on as a member (null: for good, where links do not expire)."""

    expires: Moment | None


class RunForm(TypedDict):
    """A run of an output, an input or a hook; `force`: do also what is held back."""

    force: NotRequired[bool | None]


class TrusteeForm(TypedDict):
    """Whom to trust, and until when (null: for ever, in dialects whose links do not expire)."""

    trustee: KeyWord
    expires: Moment | None


class InviteForm(TypedDict):
    """Whom to invite, until when, and where this node is reached (left out: as it knows).

    `trustee_name`: what the invited key is to be called here.
    """

    trustee: KeyWord
    expires: Moment | None
    trustee_name: NotRequired[str | None]
    addresses: NotRequired[list[str] | None]


class LinksGivenForm(TypedDict):
    """A chain of links, from the feed's owner on."""

    links: Annotated[list[Value], ("minItems", 1), ("maxItems", MAX_LINKS)]


class TargetForm(TypedDict):
    """A new folder, as an absolute path."""

    target: str


class CodeForm(TypedDict):
    """The code of a link to the status page."""

    code: str
