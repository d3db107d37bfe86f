"""The words of a feed's settings, as people write them in files, commands and requests."""

from __future__ import annotations

import re
from typing import Literal

__all__ = [
    "DEFAULT_DIALECT",
    "Dialect",
    "Mode",
    "Noise",
    "Tombstones",
    "check_alias",
]

#: How much a node keeps of a feed: all values, those of some ranges, or none.
Mode = Literal["full", "range", "light"]

#: Whose tombstones a node follows in a feed.
Tombstones = Literal["off", "owner", "members"]

#: The versions of the protocol that a feed may speak: the names of `hyperbloom.wire.DIALECTS`.
Dialect = Literal["2", "1", "draft"]

#: What a feed speaks that names none: nothing weaker is ever chosen by itself.
DEFAULT_DIALECT: Dialect = "2"

#: With whom streams are protected by the extension `noise`: with every peer that speaks it; with
#: every peer, and who does not speak it is refused; with nobody.
Noise = Literal["prefer", "require", "off"]

_ALIAS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_HEX_KEY = re.compile(r"[0-9A-Fa-f]{64}")


def check_alias(alias: str) -> str:
    """The alias itself; raises `ValueError` with what is wrong with it.

    `own` would hide the node's own feed from its owner, and `feed leave own` would mean another.
    """
    if alias == "own":
        raise ValueError("'own' is no alias: it names the node's own feed; choose another")
    if not _ALIAS.fullmatch(alias) or _HEX_KEY.fullmatch(alias):
        raise ValueError(
            f"{alias!r} is no alias: it has 1 to 63 letters, digits, '.', '_' or '-', begins with "
            "a letter or digit and does not look like a key"
        )
    return alias
