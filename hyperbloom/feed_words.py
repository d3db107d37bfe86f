"""The words of a feed's settings, as people write them in files, commands and requests."""

from __future__ import annotations

import re
from typing import Literal

__all__ = [
    "DEFAULT_DIALECT",
    "FEED_DIGITS",
    "FORMER_TOMBSTONES",
    "LEAST_DIGITS",
    "LINK_ENDS_SOON",
    "OWN",
    "TOMBSTONE",
    "Dialect",
    "Mode",
    "Noise",
    "Tombstones",
    "check_alias",
    "check_feed_name",
    "feed_name",
    "is_beginning",
]

#: How much a node keeps of a feed: all values, those of some ranges, or none.
Mode = Literal["full", "range", "light"]

#: Whose tombstones a node follows in a feed.
Tombstones = Literal["off", "owner"]

#: What that could be until it was seen that who brought a value need not have made it: whoever
#: copied one to a node first could take it back there, for good. It is read as "owner", which
#: follows less and forgets nothing more.
FORMER_TOMBSTONES = "members"

#: The versions of the protocol that a feed may speak: the names of `hyperbloom.wire.DIALECTS`.
Dialect = Literal["2", "1", "draft"]

#: What a feed speaks that names none: nothing weaker is ever chosen by itself.
DEFAULT_DIALECT: Dialect = "2"

#: With whom streams are protected by the extension `noise`: with every peer that speaks it; with
#: every peer, and who does not speak it is refused; with nobody.
Noise = Literal["prefer", "require", "off"]

#: What a value begins with that asks nodes to forget another one (docs/operations.md#tombstones).
TOMBSTONE = b"hyperbloom-forget:1:"

#: What the feed is called whose key is the node's own.
OWN = "own"
#: Digits of a peer's key from which on they stand for it, as long as no other key begins with them.
#: A member makes keys until one begins like another's: eight digits cost an evening, 16 of a key
#: that he has not chosen cost 2⁶⁴ tries.
LEAST_DIGITS = 16
#: The same of a feed's key. Nobody but the operator has feeds joined, and those of two are refused.
FEED_DIGITS = 8
#: Digits of a key that stand for a feed without another name.
NAME_DIGITS = 12

#: From so many seconds before it on the end of the right to write is in sight: a week is enough
#: for people to ask and be answered.
LINK_ENDS_SOON = 7 * 86_400.0

_ALIAS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_HEX_KEY = re.compile(r"[0-9A-Fa-f]{64}")


def check_alias(alias: str) -> str:
    """The alias itself; raises `ValueError` with what is wrong with it.

    `own` would hide the node's own feed from its owner, and `feed leave own` would mean another.
    """
    if alias == OWN:
        raise ValueError("'own' is no alias: it names the node's own feed; choose another")
    if not _ALIAS.fullmatch(alias) or _HEX_KEY.fullmatch(alias):
        raise ValueError(
            f"{alias!r} is no alias: it has 1 to 63 letters, digits, '.', '_' or '-', begins with "
            "a letter or digit and does not look like a key"
        )
    return alias


def is_beginning(text: str, key: bytes, least: int = LEAST_DIGITS) -> bool:
    """Whether a text is a key in hex, or at least so many of its first digits."""
    return len(text) >= least and key.hex().startswith(text.lower())


def check_feed_name(name: str) -> str:
    """The name of a feed itself: an alias, `own`, a key or its beginning. Raises `ValueError`."""
    if name != OWN and not _HEX_KEY.fullmatch(name) and not _ALIAS.fullmatch(name):
        raise ValueError(f"{name!r} names no feed: give its alias, its key (64 hex digits) or own")
    return name


def feed_name(key: bytes, alias: str | None, own_key: bytes) -> str:
    """What commands call a feed: its alias, else `own`, else the first digits of its key."""
    return alias or (OWN if key == own_key else key.hex()[:NAME_DIGITS])
