"""What the sets of a packet filter are called, so that a machine has those of several feeds.

A name has the signs that nft and ipset both take, and room for what stands behind it: `ipset` adds
`4-new`, and takes 31 characters (IPSET_MAXNAMELEN without its NUL).
"""

from __future__ import annotations

import re

__all__ = ["DEFAULT_SET_NAME", "check_set_name"]

DEFAULT_SET_NAME = "hyperbloom"

_SET_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,23}")


def check_set_name(text: str) -> str:
    """The text itself; raises ValueError where it is no name of a set."""
    if not _SET_NAME.fullmatch(text):
        raise ValueError(
            f"{text!r} is no name of a set: 1 to 24 letters, digits and '_', a letter first"
        )
    return text
