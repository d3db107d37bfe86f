"""What the API answers."""

from __future__ import annotations

from typing import Literal, NotRequired, TypeAlias, TypedDict, TypeGuard, get_args

from hyperbloom.api.schemas.scalars import Count, Hex, Key

__all__ = [
    "AllowedKeyForm",
    "ArrivalForm",
    "ArrivalsForm",
    "ChainAddedForm",
    "ChainForm",
    "CopiedForm",
    "CountForm",
    "DeniedForm",
    "DeniedKeyForm",
    "DenyListForm",
    "FeedForm",
    "FeedHistoryForm",
    "FeedsForm",
    "FetchedForm",
    "HasForm",
    "HealthForm",
    "HistoryForm",
    "HistorySpan",
    "InvitationForm",
    "IssuedForm",
    "JoinedForm",
    "KeyFoundForm",
    "KeyNamedForm",
    "LinkForm",
    "LinkIssuedForm",
    "LinksForm",
    "MemberForm",
    "MembersForm",
    "NamedKeyForm",
    "NamesForm",
    "NoiseForgottenForm",
    "NoiseKeyForm",
    "NoiseKeysForm",
    "PingForm",
    "Problems",
    "PutForm",
    "RangeCountForm",
    "RangeForm",
    "SessionForm",
    "SessionOfferForm",
    "StepForm",
    "TrustWord",
    "WorkForm",
    "WorkListForm",
    "WrittenForm",
    "is_span",
]


class Problems(TypedDict):
    """What went wrong, RFC 9457; `type` is stable, `detail` is a sentence for a person."""

    type: str
    title: str
    status: int
    detail: str


class FeedHistoryForm(TypedDict):
    """Figures of a feed, a row each; `arrived`: values that came since the row before."""

    values: list[float | None]
    arrived: list[float | None]
    peers: list[float | None]


#: The last hours by the minute, or a week by ten minutes.
HistorySpan: TypeAlias = Literal["hours", "week"]


def is_span(text: str) -> TypeGuard[HistorySpan]:
    """Whether a text names one."""
    return text in get_args(HistorySpan)


class HistoryForm(TypedDict):
    """Figures of the node, a row each `step` seconds, the oldest first; null: not known.

    `at`: seconds since 1970. `received_bytes` and `sent_bytes`: since the row before.
    `lag_seconds`: the longest that the reactor was late. `feed`: of the one that was asked about.
    """

    step: float
    at: list[float]
    peers: list[float | None]
    received_bytes: list[float | None]
    sent_bytes: list[float | None]
    lag_seconds: list[float | None]
    used_bytes: list[float | None]
    disk_free_bytes: list[float | None]
    feed: FeedHistoryForm | None


class HasForm(TypedDict):
    """Whether each of the values is there, in their order."""

    has: list[bool]


class CountForm(TypedDict):
    """What two nodes in sync have in common."""

    count: Count
    bytes: Count
    digest: Key | None
    digest_left: Count


class RangeCountForm(TypedDict):
    """How many values a range has, and of how many bytes.

    Where `next` is not null, the count goes on there, with it as `start`.
    """

    count: Count
    bytes: Count
    next: Hex | None


class FetchedForm(TypedDict):
    """How many values came."""

    received: Count


class DeniedKeyForm(TypedDict):
    """A key that is denied now; `new` if it was not before. `name`: what it is called here."""

    key: Key
    name: str | None
    new: bool


class AllowedKeyForm(TypedDict):
    """A key that is denied no more. `name`: what it is called here."""

    key: Key
    name: str | None
    was_denied: bool


class DeniedForm(TypedDict):
    """A denied key, what it is called here, since when (seconds since 1970), and why."""

    key: Key
    name: str | None
    denied_at: float
    reason: str


class DenyListForm(TypedDict):
    """The deny list."""

    denied: list[DeniedForm]


class NoiseKeyForm(TypedDict):
    """A key that has spoken `noise`, what it is called here, first and last (s since 1970)."""

    key: Key
    name: str | None
    first_met: float
    last_met: float


class NoiseKeysForm(TypedDict):
    """The keys that are not spoken to without it, unless `noise` is `off`."""

    keys: list[NoiseKeyForm]


class NoiseForgottenForm(TypedDict):
    """A key that may be spoken to without `noise` again. `name`: what it is called here."""

    key: Key
    name: str | None
    was_remembered: bool


class NamedKeyForm(TypedDict):
    """A key that the operator has named, and since when (seconds since 1970)."""

    key: Key
    name: str
    named_at: float


class NamesForm(TypedDict):
    """Every name, by its key."""

    names: list[NamedKeyForm]


class KeyFoundForm(TypedDict):
    """A key, and what it is called here."""

    key: Key
    name: str | None


class KeyNamedForm(TypedDict):
    """A key and what it is called now (null: nothing); `was`: what it was called before."""

    key: Key
    name: str | None
    was: str | None


class WrittenForm(TypedDict):
    """Where it was written: the feed's key, and its name: the alias, `own`, or the key's beginning.

    Who names no feed learns here which one was meant.
    """

    feed: Key
    name: str


class StepForm(WrittenForm):
    """What one step did; `next` goes into the next one, null at the end.

    `by`: the key whose values were meant, null: they were selected otherwise. `by_name`: what it is
    called here.
    """

    by: Key | None
    by_name: str | None
    count: Count
    bytes: Count
    absent: Count
    next: Hex | Count | None


class CopiedForm(TypedDict):
    """Values that are in the feed now; `next` goes into the next step, null at the end."""

    count: Count
    next: Count | None


class IssuedForm(WrittenForm):
    """A link that was signed."""

    link: Hex
    expires: float | None


class LinkIssuedForm(IssuedForm):
    """The same, for another node's key. `trustee_name`: what it is called here."""

    trustee: Key
    trustee_name: str | None


class ChainAddedForm(TypedDict):
    """Whom the chain ends at, its number of links, until when it holds.

    `holder_name`: what that key is called here.
    """

    holder: Key
    holder_name: str | None
    links: Count
    expires: float | None


class PingForm(TypedDict):
    """The node's process, version and key."""

    pid: int
    version: str
    identity: Key


class WorkForm(TypedDict):
    """One request's work: its kind, how much is done, and of how much (both in `unit`).

    `total` is 0 until it is known. `seconds` is how long it has taken so far.
    """

    kind: str
    done: int
    total: int
    unit: str
    seconds: float


class WorkListForm(TypedDict):
    """What the node does for requests that take long."""

    work: list[WorkForm]


class HealthForm(TypedDict):
    """`ok`, or `failing`: nothing can be written, or damage was found."""

    status: Literal["ok", "failing"]


class PutForm(WrittenForm):
    """How many values were new and known, and the arrival number of the feed's last value."""

    new: int
    known: int
    top_seq: int


class RangeForm(TypedDict):
    """A page of values in byte order; `next` is the start of the next page, null at the end."""

    values: list[str]
    next: str | None


class ArrivalForm(TypedDict):
    """A value as it arrived: its arrival number, the peer that brought it, when (seconds).

    `origin_name`: what that peer's key is called here; left out where it has no name.
    """

    seq: Count
    value: Hex
    origin: Key
    origin_name: NotRequired[str]
    received_at: float


class ArrivalsForm(TypedDict):
    """A page of the arrival log; `next` goes into the next request as `after`, null at the end.

    `top_seq`: the highest arrival number so far. `life`: another number when the feed was left and
    joined anew. `forgotten`: how many values the feed has ever forgotten; they have left the log.
    """

    arrivals: list[ArrivalForm]
    next: Count | None
    top_seq: Count
    life: Count
    forgotten: Count


class ChainForm(TypedDict):
    """The chain by which this node may write: its number of links, its end (null: never)."""

    links: int
    expires: float | None


#: Whether this node may write: as the feed's owner; as a member; no more, because the last of its
#: links is out of date; or not, because nobody has invited it.
TrustWord = Literal["owner", "member", "expired", "none"]


class FeedForm(TypedDict):
    """A feed of the node; `lacks`: what its dialect does not protect.

    `owner`: this node holds the feed's key. `own`: that is the node's own key, so that whoever
    knows the node's public key can read the feed. `noise`: its policy, null: the node's.
    """

    key: str
    discovery_key: str
    own: bool
    owner: bool
    alias: str | None
    mode: str
    ranges: list[list[str | None]]
    dialect: str
    lacks: list[str]
    peers: list[str]
    issue_links: bool
    retain_age: float
    retain_values: int
    retain_bytes: int
    tombstones: str
    noise: str | None
    count: int
    bytes: int
    digest: str | None
    digest_left: int
    top_seq: int
    trust: TrustWord
    chain: ChainForm | None


class JoinedForm(FeedForm):
    """A feed that an invitation was taken to.

    `inviter`: the key that has signed it; `inviter_name`: what that is called here. `not_added`:
    those of its addresses that the feed does not dial, as it was joined before.
    """

    inviter: Key
    inviter_name: str | None
    not_added: list[str]


class LinkForm(TypedDict):
    """A stored trust link; the names are what its keys are called here."""

    issuer: str
    issuer_name: str | None
    trustee: str
    trustee_name: str | None
    expires: float | None
    first_seen: float
    introduced_by: str
    link: str


class MemberForm(TypedDict):
    """Who may write, through whom (null: the owner), in how many links, until when.

    The names are what the keys are called here. connected: whether there is a secure connection
    now. invited_at: this node has invited the key then (seconds since 1970), and has not seen it
    since; null: it has come, or was invited by another node.
    """

    key: str
    name: str | None
    depth: int
    introduced_by: str | None
    introduced_by_name: str | None
    expires: float | None
    connected: bool
    invited_at: float | None


class FeedsForm(TypedDict):
    """Every feed of the node."""

    feeds: list[FeedForm]


class LinksForm(TypedDict):
    """Every stored link."""

    links: list[LinkForm]


class MembersForm(TypedDict):
    """Who may write; the owner first. `invited`: how many of them have not come yet."""

    members: list[MemberForm]
    invited: int


class InvitationForm(WrittenForm):
    """An invitation, what it holds, and when its last link expires.

    `trustee_name`: what the invited key is called here.
    """

    invitation: str
    dialect: str
    trustee: str
    trustee_name: str | None
    expires: float | None
    addresses: list[str]


class SessionOfferForm(TypedDict):
    """A link to the status page for one browser; `seconds`: how long it holds."""

    url: str
    code: str
    seconds: float


class SessionForm(TypedDict):
    """A browser's session: a token that may read, for so many seconds."""

    token: str
    seconds: float
