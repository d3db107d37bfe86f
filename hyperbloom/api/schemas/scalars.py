"""The plain types of the forms: what is written as hex, how numbers are bounded.

What a type cannot say stands beside it, in the words of JSON Schema: `Annotated[int, ("minimum",
0)]`. `description` completes the sentence "it must be …". A number that is marked `DURATION` may
also be written as a text such as "5s".
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from hyperbloom.api.limits import LATEST_EXPIRY, MAX_SEQ, MAX_VALUES

__all__ = [
    "DURATION",
    "HEX_PATTERN",
    "VALUE_PATTERN",
    "Count",
    "Hex",
    "Key",
    "KeyRange",
    "KeyWord",
    "Moment",
    "Seq",
    "Value",
    "Values",
]

HEX_PATTERN = "^([0-9a-fA-F]{2})*$"
VALUE_PATTERN = "^([0-9a-fA-F]{2})+$"
DURATION = ("x-duration", True)
_HEX_DIGITS = "hex digits, two for each byte"

#: Any bytes; at least one byte; a public key. Digits may be of either case.
Hex: TypeAlias = Annotated[
    str, ("pattern", HEX_PATTERN), ("description", f"a text of {_HEX_DIGITS}")
]
Value: TypeAlias = Annotated[
    str,
    ("pattern", VALUE_PATTERN),
    ("description", f"a text of {_HEX_DIGITS}, with at least one byte"),
]
Key: TypeAlias = Annotated[
    str, ("pattern", "^[0-9a-fA-F]{64}$"), ("description", "a public key: 64 hex digits")
]
#: Which key is meant, by its operator's name for it, too; the node looks it up.
KeyWord: TypeAlias = Annotated[
    str,
    ("pattern", "^.{1,255}$"),
    ("description", "a public key (64 hex digits), 16 or more of its first digits, or its name"),
]
Values: TypeAlias = Annotated[list[Value], ("minItems", 1), ("maxItems", MAX_VALUES)]
Count: TypeAlias = Annotated[int, ("minimum", 0)]
Seq: TypeAlias = Annotated[int, ("minimum", 0), ("maximum", MAX_SEQ)]
Moment: TypeAlias = Annotated[
    float,
    ("minimum", 0),
    ("maximum", LATEST_EXPIRY),
    ("description", "seconds since 1970, before the year 10000"),
]
#: The bounds of a range; null or left out: open at that end.
KeyRange: TypeAlias = Annotated[
    list[Hex | None],
    ("minItems", 2),
    ("maxItems", 2),
    ("description", "a list of start and end, in hex; null: open"),
]
