"""What an operator sets: a feed's part of the configuration and the timing of Sync."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, get_args

from hyperbloom.addresses import Address
from hyperbloom.feed_keys import feed_name_digits
from hyperbloom.feed_words import (
    DEFAULT_DIALECT,
    FORMER_TOMBSTONES,
    LINK_ENDS_SOON,
    Mode,
    Noise,
    Tombstones,
)
from hyperbloom.keys import PUBLIC_KEY_BYTES

__all__ = [
    "FEED_SETTINGS",
    "WHOLE",
    "FeedSettings",
    "KeyRange",
    "NoisePolicy",
    "SyncSettings",
    "TrustSettings",
    "why_no_noise",
]

#: start (inclusive), end (exclusive; None: open) in byte order.
KeyRange = tuple[bytes, bytes | None]

WHOLE: KeyRange = (b"", None)


class NoisePolicy(StrEnum):
    """With whom streams are protected (docs/extensions/noise.md), as `feed_words.Noise` has it."""

    PREFER = "prefer"
    REQUIRE = "require"
    OFF = "off"


def why_no_noise(dialect: str) -> str | None:
    """Why streams about feeds of a dialect cannot be protected; None: they can be."""
    if dialect != "draft":
        return None
    return (
        "a handshake of the draft does not prove who sent it, so that a protected stream would be "
        "one with somebody unknown"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncSettings:
    """The `[sync]` table: when and how precisely peers are asked for what is missing here."""

    interval: float = field(
        default=60.0,
        metadata={"help": "time between two Syncs with one peer", "unit": "seconds", "min": 0.05},
    )
    jitter: float = field(
        default=0.2,
        metadata={"help": "part of the interval by which it varies at random", "min": 0, "max": 1},
    )
    answer_wait: float = field(
        default=1.0,
        metadata={
            "help": "how long a listening node waits for the dialler's Sync before its own",
            "unit": "seconds",
            "min": 0,
        },
    )
    false_positive: float = field(
        default=1e-6,
        metadata={
            "help": "chance that one Sync overlooks a value (the next has a fresh seed)",
            "min": 1e-12,
            "max": 0.01,
        },
    )
    reconcile: bool = field(
        default=True,
        metadata={
            "help": "find what differs by [symbols](extensions/reconcile.md) with nodes that speak "
            "it; off: by filters alone"
        },
    )
    retry_first: float = field(
        default=1.0,
        metadata={
            "help": "time before a lost peer is dialled again",
            "unit": "seconds",
            "min": 0.01,
        },
    )
    retry_longest: float = field(
        default=300.0,
        metadata={
            "help": "longest such wait, reached by backing off",
            "unit": "seconds",
            "min": 0.01,
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustSettings:
    """The `[trust]` table: which links this node renews by itself."""

    renew_links: bool = field(
        default=False,
        metadata={
            "help": "[renew by itself](#links-renewed-by-themselves) the links that were issued "
            "here by hand, to peers that are connected"
        },
    )
    renew_within: float = field(
        default=LINK_ENDS_SOON,
        metadata={
            "help": "how long before its end a link is renewed",
            "unit": "seconds",
            "min": 1,
        },
    )
    renew_for: float = field(
        default=30 * 86_400.0,
        metadata={
            "help": "how long a renewed link holds from then on, at most; never longer than this "
            "node's own",
            "unit": "seconds",
            "min": 1,
            "max": 3e9,
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedSettings:
    """One feed of this node.

    `mode` is `full` (all values), `range` (only `ranges`) or `light` (request and publish only).
    What arrived more than `retain_age` seconds ago is forgotten, and the oldest beyond
    `retain_values` values and `retain_bytes` bytes; 0: never.
    Raises `ValueError` with a sentence for a person when the parts do not fit together.
    """

    key: bytes = field(metadata={"help": "the feed's public key, 64 hex digits"})
    alias: str | None = field(default=None, metadata={"help": "a short name for commands"})
    mode: Mode = field(
        default="full",
        metadata={
            "help": "`full`: keep all values; `range`: those of `ranges`; `light`: none, ask and "
            "publish only",
            "kind": "mode",
        },
    )
    ranges: tuple[KeyRange, ...] = field(
        default=(),
        metadata={
            "help": "for `range`: a list of tables with `start` (inclusive) and `end` (exclusive), "
            "text or, as `start_hex` and `end_hex`, bytes; one left out is open"
        },
    )
    dialect: str = field(
        default=DEFAULT_DIALECT,
        metadata={
            "help": "the version of the protocol that the feed's nodes speak: `2`, `1` or `draft`; "
            "see [dialects](wire.md#dialects)"
        },
    )
    peers: tuple[str, ...] = field(
        default=(),
        metadata={"help": "`HOST:PORT` of nodes to dial and to keep a connection with"},
    )
    issue_links: bool = field(
        default=True,
        metadata={
            "help": "issue a trust link to a peer whose chain is longer than one through this node"
        },
    )
    retain_age: float = field(
        default=0,
        metadata={
            "help": 'forget values that arrived longer ago, as `"90d"`; 0: keep all',
            "unit": "seconds",
        },
    )
    retain_values: int = field(
        default=0, metadata={"help": "forget the oldest values beyond so many; 0: keep all"}
    )
    retain_bytes: int = field(
        default=0, metadata={"help": "forget the oldest values beyond so many bytes; 0: keep all"}
    )
    tombstones: Tombstones = field(
        default="off", metadata={"help": "whose tombstones to follow: off or owner"}
    )
    noise: Noise | None = field(
        default=None,
        metadata={
            "help": "with whom [streams are protected](#a-protected-stream): `prefer`, `require` "
            "or `off`; left out: as `noise` under `[node]` says. In the draft there is only `off`"
        },
    )

    def __post_init__(self) -> None:
        if len(self.key) != PUBLIC_KEY_BYTES:
            raise ValueError(f"a feed key has {PUBLIC_KEY_BYTES} bytes, this one {len(self.key)}")
        if self.mode not in get_args(Mode):
            raise ValueError(f"mode is one of {', '.join(get_args(Mode))}, not {self.mode!r}")
        if (self.mode == "range") != bool(self.ranges):
            raise ValueError("ranges belong to mode = range, which needs at least one")
        for start, end in self.ranges:
            if end is not None and end <= start:
                raise ValueError("the end of a range must be greater than its start")
        for address in self.peers:
            Address.parse(address)
        if (
            not 0 <= self.retain_age < float("inf")
            or min(self.retain_values, self.retain_bytes) < 0
        ):
            raise ValueError("what is retained is a number that is not negative; 0: everything")
        if self.tombstones not in get_args(Tombstones):
            raise ValueError(
                f"tombstones is one of {', '.join(get_args(Tombstones))}, not {self.tombstones!r}"
            )
        self._check_noise()

    def _check_noise(self) -> None:
        """Raises `ValueError`."""
        if self.noise not in (None, *get_args(Noise)):
            raise ValueError(f"noise is one of {', '.join(get_args(Noise))}, not {self.noise!r}")
        why = why_no_noise(self.dialect)
        if why is not None and self.noise == "require":
            raise ValueError(f"noise cannot be required in the draft: {why}; leave it off")

    @property
    def log_name(self) -> str:
        """What the feed is called in the log, where a whole key never stands.

        Its alias, else the beginning of its discovery key.
        """
        return self.alias or feed_name_digits(self.key)

    @property
    def retains_all(self) -> bool:
        """Whether no value is ever forgotten by itself."""
        return not (self.retain_age or self.retain_values or self.retain_bytes)

    @property
    def synced(self) -> tuple[KeyRange, ...]:
        """The ranges this node keeps a full copy of: none for a light node."""
        return {"full": (WHOLE,), "range": self.ranges, "light": ()}[self.mode]

    def to_json(self) -> dict[str, object]:
        """A JSON form (byte strings as hex), the one the store keeps."""
        ranges = [[s.hex(), None if e is None else e.hex()] for s, e in self.ranges]
        plain = {name: getattr(self, name) for name in FEED_SETTINGS}
        return {**plain, "key": self.key.hex(), "ranges": ranges, "peers": list(self.peers)}

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> FeedSettings:
        """The inverse of `to_json`; what is left out or null has its default.

        Raises `ValueError`, `TypeError` or `KeyError` on another shape.
        """
        given = {name: form[name] for name in FEED_SETTINGS if form.get(name) is not None}
        given["key"] = bytes.fromhex(form["key"])
        given["ranges"] = tuple(
            (bytes.fromhex(start or ""), None if end is None else bytes.fromhex(end))
            for start, end in given.get("ranges", ())
        )
        given["peers"] = tuple(given.get("peers", ()))
        if given.get("tombstones") == FORMER_TOMBSTONES:
            given["tombstones"] = "owner"
        return cls(**given)


#: Every setting of a feed, under the name that it has in files, requests and answers.
FEED_SETTINGS = tuple(setting.name for setting in fields(FeedSettings))
