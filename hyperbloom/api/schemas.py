"""The JSON forms of the API: what bodies and answers look like, and their checks.

Byte strings (values, keys, links) are hex; times are seconds since 1970 (null: never). Every check
raises `Problem` BAD_REQUEST with one sentence that names the member.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NotRequired,
    TypeAlias,
    TypedDict,
    TypeVar,
    get_args,
)

from hyperbloom.addresses import parse_host_port
from hyperbloom.api.limits import (
    LATEST_EXPIRY,
    MAX_FEED_PEERS,
    MAX_FEED_RANGES,
    MAX_FETCH_SECONDS,
    MAX_LINKS,
    MAX_SYNCED_PEERS,
    MAX_SYNCED_SECONDS,
    MAX_VALUES,
)
from hyperbloom.api.problems import Problem, ProblemKind
from hyperbloom.config import DEFAULT_DIALECT, KNOWN_DIALECTS, check_alias
from hyperbloom.keys import parse_public_key
from hyperbloom.replication.settings import FeedSettings, KeyRange, Mode
from hyperbloom.wire import DIALECTS

if TYPE_CHECKING:
    from hyperbloom.api.served import ServedFeed
    from hyperbloom.store import FeedRecord

__all__ = [
    "AllowedKeyForm",
    "ChainAddedForm",
    "ChainForm",
    "CodeForm",
    "Count",
    "CountForm",
    "DeniedForm",
    "DeniedKeyForm",
    "DenyForm",
    "DenyListForm",
    "FeedForm",
    "FeedSettingsForm",
    "FeedsForm",
    "FetchForm",
    "FetchedForm",
    "ForgetForm",
    "HasForm",
    "HealthForm",
    "Hex",
    "InvitationForm",
    "InviteForm",
    "IssuedForm",
    "JoinForm",
    "Key",
    "LinkForm",
    "LinksForm",
    "LinksGivenForm",
    "MemberForm",
    "MembersForm",
    "Moment",
    "NothingForm",
    "PingForm",
    "Problems",
    "PutForm",
    "RangeForm",
    "SelectionForm",
    "SessionForm",
    "SessionOfferForm",
    "StepForm",
    "SyncedForm",
    "TargetForm",
    "TrustWord",
    "TrusteeForm",
    "Value",
    "Values",
    "ValuesForm",
    "bad_request",
    "bytes_list",
    "dialect_name",
    "digest_hex",
    "expiry_form",
    "feed_form",
    "feed_settings",
    "flat_json",
    "hex_bytes",
    "member",
    "moment",
    "public_key",
    "snapshot_target",
    "trust_word",
]

T = TypeVar("T")


#: Any bytes; at least one byte; a public key; as what is asked with may write them.
Hex: TypeAlias = Annotated[str, ("pattern", "^([0-9a-fA-F]{2})*$")]
Value: TypeAlias = Annotated[str, ("pattern", "^([0-9a-fA-F]{2})+$")]
Key: TypeAlias = Annotated[str, ("pattern", "^[0-9a-fA-F]{64}$")]
Values: TypeAlias = Annotated[list[Value], ("minItems", 1), ("maxItems", MAX_VALUES)]
Count: TypeAlias = Annotated[int, ("minimum", 0)]
Moment: TypeAlias = Annotated[float, ("minimum", 0), ("maximum", LATEST_EXPIRY)]


class Problems(TypedDict):
    """What went wrong, RFC 9457; `type` is stable, `detail` is a sentence for a person."""

    type: str
    title: str
    status: int
    detail: str


class NothingForm(TypedDict):
    """No member."""


class ValuesForm(TypedDict):
    """Values, in hex."""

    values: Values


class HasForm(TypedDict):
    """Whether each of the values is there, in their order."""

    has: list[bool]


class CountForm(TypedDict):
    """What two nodes in sync have in common."""

    count: Count
    bytes: Count
    digest: Key | None
    digest_left: Count


class FetchForm(TypedDict):
    """A range to ask the peers for; `timeout` in seconds."""

    start: NotRequired[Hex | None]
    end: NotRequired[Hex | None]
    limit: NotRequired[Annotated[int, ("minimum", 1)] | None]
    timeout: NotRequired[Annotated[float, ("exclusiveMinimum", 0), ("maximum", MAX_FETCH_SECONDS)]]


class FetchedForm(TypedDict):
    """How many values came."""

    received: Count


class DenyForm(TypedDict):
    """A key to deny, and why, for whoever reads the list."""

    key: Key
    reason: NotRequired[str]


class DeniedKeyForm(TypedDict):
    """A key that is denied now; `new` if it was not before."""

    key: Key
    new: bool


class AllowedKeyForm(TypedDict):
    """A key that is denied no more."""

    key: Key
    was_denied: bool


class DeniedForm(TypedDict):
    """A denied key, since when (seconds since 1970), and why."""

    key: Key
    denied_at: float
    reason: str


class DenyListForm(TypedDict):
    """The deny list."""

    denied: list[DeniedForm]


class SelectionForm(TypedDict):
    """Which values are meant: a list, what a peer brought (`by`), or a range.

    `after` is the `next` of the step before; a dry run only counts.
    """

    values: NotRequired[Values]
    by: NotRequired[Key]
    start: NotRequired[Hex]
    end: NotRequired[Hex | None]
    after: NotRequired[Hex | Count | None]
    dry_run: NotRequired[bool]


class ForgetForm(SelectionForm):
    """The same; `erase` keeps hashes alone, `publish` puts tombstones into the feed, too."""

    erase: NotRequired[bool]
    publish: NotRequired[bool]


class StepForm(TypedDict):
    """What one step did; `next` goes into the next one, null at the end."""

    count: Count
    bytes: Count
    absent: Count
    next: Hex | Count | None


class SyncedForm(TypedDict):
    """Peers to wait for (a key, the beginning of one, an address); `timeout` in seconds."""

    peers: Annotated[list[str], ("minItems", 1), ("maxItems", MAX_SYNCED_PEERS)]
    timeout: NotRequired[Annotated[float, ("exclusiveMinimum", 0), ("maximum", MAX_SYNCED_SECONDS)]]


class FeedSettingsForm(TypedDict):
    """The settings of a feed, as `[[feeds]]` has them; ranges are [start, end] in hex."""

    key: Key
    alias: NotRequired[str | None]
    mode: NotRequired[Mode | None]
    ranges: NotRequired[list[list[Hex | None]] | None]
    dialect: NotRequired[str | None]
    peers: NotRequired[list[str] | None]
    issue_links: NotRequired[bool | None]
    retain_age: NotRequired[Annotated[float, ("minimum", 0)] | None]
    retain_values: NotRequired[Count | None]
    retain_bytes: NotRequired[Count | None]
    tombstones: NotRequired[Literal["off", "owner", "members"] | None]


class JoinForm(TypedDict):
    """An invitation to take, and the settings to join its feed with."""

    invitation: str
    alias: NotRequired[str | None]
    mode: NotRequired[Mode | None]
    ranges: NotRequired[list[list[Hex | None]] | None]
    dialect: NotRequired[str | None]


class TrusteeForm(TypedDict):
    """Whom to trust, and until when (null: for ever, in dialects whose links do not expire)."""

    trustee: Key
    expires: Moment | None


class InviteForm(TypedDict):
    """Whom to invite, until when, and where this node is reached (left out: as it knows)."""

    trustee: Key
    expires: Moment | None
    addresses: NotRequired[list[str] | None]


class IssuedForm(TypedDict):
    """A link that was signed."""

    link: Hex
    expires: float | None


class LinksGivenForm(TypedDict):
    """A chain of links, from the feed's owner on."""

    links: Annotated[list[Value], ("minItems", 1), ("maxItems", MAX_LINKS)]


class ChainAddedForm(TypedDict):
    """Whom the chain ends at, its number of links, until when it holds."""

    holder: Key
    links: Count
    expires: float | None


class TargetForm(TypedDict):
    """A new folder, as an absolute path."""

    target: str


class CodeForm(TypedDict):
    """The code of a link to the status page."""

    code: str


class PingForm(TypedDict):
    """The node's process, version and key."""

    pid: int
    version: str
    identity: Key


class HealthForm(TypedDict):
    """`ok`, or `failing`: nothing can be written, or damage was found."""

    status: Literal["ok", "failing"]


class PutForm(TypedDict):
    """How many values were new and known, and the arrival number of the feed's last value."""

    new: int
    known: int
    top_seq: int


class RangeForm(TypedDict):
    """A page of values in byte order; `next` is the start of the next page, null at the end."""

    values: list[str]
    next: str | None


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
    knows the node's public key can read the feed.
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
    count: int
    bytes: int
    digest: str | None
    digest_left: int
    top_seq: int
    trust: TrustWord
    chain: ChainForm | None


class LinkForm(TypedDict):
    """A stored trust link."""

    issuer: str
    trustee: str
    expires: float | None
    first_seen: float
    introduced_by: str
    link: str


class MemberForm(TypedDict):
    """Who may write, through whom (null: the owner), in how many links, until when.

    connected: whether there is a secure connection now.
    """

    key: str
    depth: int
    introduced_by: str | None
    expires: float | None
    connected: bool


class FeedsForm(TypedDict):
    """Every feed of the node."""

    feeds: list[FeedForm]


class LinksForm(TypedDict):
    """Every stored link."""

    links: list[LinkForm]


class MembersForm(TypedDict):
    """Who may write; the owner first."""

    members: list[MemberForm]


class InvitationForm(TypedDict):
    """An invitation, what it holds, and when its last link expires."""

    invitation: str
    feed: str
    dialect: str
    trustee: str
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


def bad_request(detail: str) -> Problem:
    """The problem of a malformed request."""
    return Problem(ProblemKind.BAD_REQUEST, detail)


def expiry_form(expires: float) -> float | None:
    """An expiry as JSON can hold it: infinity (the owner's) is null."""
    return expires if math.isfinite(expires) else None


_KINDS: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "an object",
}


def member(body: Mapping[str, Any], name: str, kind: type[T], default: T | None = None) -> T:
    """The member `name` of exactly `kind`; null is absent.

    A number is what it amounts to, as JSON Schema has it (2020-12, 4.2.3): 1 passes for a float,
    and 1.0 for an integer. Without a default the member must be there.
    """
    found = body.get(name)
    if found is None:
        if default is None:
            raise bad_request(f"{name} is missing: it must be {_KINDS[kind]}")
        return default
    if kind is float and type(found) is int:
        found = float(found)
    elif kind is int and type(found) is float and found.is_integer():
        found = int(found)
    if type(found) is not kind:
        raise bad_request(f"{name} must be {_KINDS[kind]}")
    return found


def only(body: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Refuses members that are not known: a slip should not be ignored in silence."""
    for name in body:
        if name not in known:
            raise bad_request(f"{name!r} is not known here; known are {', '.join(known)}")


def hex_bytes(text: object, what: str) -> bytes:
    """The bytes of a hex text."""
    try:
        return bytes.fromhex(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise bad_request(f"{what} must be a text of hex digits") from None


def bytes_list(body: Mapping[str, Any], name: str, *, most: int = MAX_VALUES) -> list[bytes]:
    """The member `name`: a list of 1 to `most` hex texts."""
    found = body.get(name)
    if type(found) is not list or not found:
        raise bad_request(f"{name} must be a list of hex texts, with at least one in it")
    if len(found) > most:
        raise bad_request(f"{name} may hold {most:,} texts, these are {len(found):,}; send parts")
    try:
        return list(map(bytes.fromhex, found))
    except (TypeError, ValueError):
        raise bad_request(f"each of {name} must be a text of hex digits") from None


def public_key(body: Mapping[str, Any], name: str) -> bytes:
    """The member `name`: a public key."""
    try:
        return parse_public_key(member(body, name, str))
    except ValueError as error:
        raise bad_request(f"{name}: {error}") from None


def moment(body: Mapping[str, Any], name: str) -> float:
    """The member `name`: a moment in seconds since 1970."""
    found = member(body, name, float)
    if not 0 <= found <= LATEST_EXPIRY:
        raise bad_request(f"{name} must be seconds since 1970, before the year 10000")
    return found


def expiry(body: Mapping[str, Any], name: str) -> float:
    """Like `moment`; null is infinity: never."""
    return math.inf if name in body and body[name] is None else moment(body, name)


def _ranges(body: Mapping[str, Any]) -> tuple[KeyRange, ...]:
    found = member(body, "ranges", list, [])
    ranges = []
    for item in found:
        if type(item) is not list or len(item) != 2:
            raise bad_request("each of ranges must be a list of start and end")
        start, end = item
        ranges.append(
            (hex_bytes(start or "", "start"), None if end is None else hex_bytes(end, "end"))
        )
    if len(ranges) > MAX_FEED_RANGES:
        raise bad_request(f"ranges may hold {MAX_FEED_RANGES}")
    return tuple(ranges)


def _peers(body: Mapping[str, Any]) -> tuple[str, ...]:
    found = member(body, "peers", list, [])
    if len(found) > MAX_FEED_PEERS:
        raise bad_request(f"peers may hold {MAX_FEED_PEERS} addresses")
    for address in found:
        if type(address) is not str:
            raise bad_request("each of peers must be a text HOST:PORT")
        parse_host_port(address)
    return tuple(dict.fromkeys(found))


_FEED_MEMBERS = (
    "key", "alias", "mode", "ranges", "dialect", "peers", "issue_links",
    "retain_age", "retain_values", "retain_bytes", "tombstones",
)  # fmt: skip


def dialect_name(body: Mapping[str, Any]) -> str:
    """The dialect that a body names, or the usual one."""
    dialect = member(body, "dialect", str, DEFAULT_DIALECT)
    if dialect not in KNOWN_DIALECTS:
        raise bad_request(f"dialect must be one of {', '.join(KNOWN_DIALECTS)}")
    return dialect


def feed_settings(body: Mapping[str, Any]) -> FeedSettings:
    """The settings of a feed to join, the same keys as `[[feeds]]` in the configuration.

    `ranges` is a list of [start, end] in hex, end null for open.
    """
    only(body, _FEED_MEMBERS)
    tombstones: Any = member(body, "tombstones", str, "off")
    alias = body.get("alias")
    mode: Any = member(body, "mode", str, "full")
    dialect = dialect_name(body)
    if mode not in get_args(Mode):
        raise bad_request(f"mode must be one of {', '.join(get_args(Mode))}")
    try:
        return FeedSettings(
            key=public_key(body, "key"),
            alias=None if alias is None else check_alias(member(body, "alias", str)),
            mode=mode,
            ranges=_ranges(body),
            dialect=dialect,
            peers=_peers(body),
            issue_links=member(body, "issue_links", bool, True),
            retain_age=member(body, "retain_age", float, 0.0),
            retain_values=member(body, "retain_values", int, 0),
            retain_bytes=member(body, "retain_bytes", int, 0),
            tombstones=tombstones,
        )
    except ValueError as error:
        raise bad_request(str(error)) from None


def digest_hex(record: FeedRecord) -> str | None:
    """A feed's digest; None while it is being computed."""
    return None if record.digest is None else record.digest.hex()


def trust_word(feed: ServedFeed, own_key: bytes) -> TrustWord:
    """Whether the node with `own_key` may write to the feed.

    A node comes to a link of its own by a chain that held, so one without a chain has been a member
    if there is such a link, until expired links are cleared away.
    """
    chain = feed.chain
    if chain is not None:
        return "owner" if chain.is_owners else "member"
    was_member = any(link.trustee == own_key for link in feed.links())
    return "expired" if was_member else "none"


def feed_form(feed: ServedFeed, own_key: bytes) -> FeedForm:
    """A feed as the API shows it; `own_key` is the node's."""
    record, settings, chain = feed.record(), feed.settings, feed.chain
    shown: ChainForm | None = None
    if chain is not None:
        shown = {"links": len(chain), "expires": expiry_form(chain.expires)}
    return {
        "key": feed.key.hex(),
        "discovery_key": feed.discovery_key.hex(),
        "own": feed.key == own_key,
        "owner": feed.identity.public_key == feed.key,
        "alias": settings.alias,
        "mode": settings.mode,
        "ranges": [[s.hex(), None if e is None else e.hex()] for s, e in settings.ranges],
        "dialect": settings.dialect,
        "lacks": list(DIALECTS[settings.dialect].lacks),
        "peers": list(settings.peers),
        "issue_links": settings.issue_links,
        "retain_age": settings.retain_age,
        "retain_values": settings.retain_values,
        "retain_bytes": settings.retain_bytes,
        "tombstones": settings.tombstones,
        "count": record.count,
        "bytes": record.bytes,
        "digest": digest_hex(record),
        "digest_left": record.digest_left,
        "top_seq": record.top_seq,
        "trust": trust_word(feed, own_key),
        "chain": shown,
    }


def snapshot_target(text: str) -> Path:
    """The new folder for a snapshot: one that is not there, in a folder that is."""
    target = Path(text)
    if not target.is_absolute():
        raise bad_request("target must be an absolute path")
    if "\0" in text:
        raise bad_request("no path holds a NUL")
    if os.path.lexists(target):
        raise Problem(ProblemKind.CONFLICT, f"{target} exists already; name a new folder")
    if not target.parent.is_dir():
        raise bad_request(f"there is no folder {target.parent} to put the snapshot in; make it")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise bad_request(f"the snapshot's writer may not write into the folder {target.parent}")
    return target


def flat_json(found: object) -> Any:
    """A frozen record as JSON: dataclasses are objects, bytes are hex, paths are texts."""
    if dataclasses.is_dataclass(found) and not isinstance(found, type):
        return {f.name: flat_json(getattr(found, f.name)) for f in dataclasses.fields(found)}
    if isinstance(found, (bytes, bytearray)):
        return found.hex()
    if isinstance(found, float):
        return expiry_form(found)
    if isinstance(found, Mapping):
        return {str(name): flat_json(item) for name, item in found.items()}
    if isinstance(found, (list, tuple)):
        return [flat_json(item) for item in found]
    if isinstance(found, Path):
        return str(found)
    return found
