"""Texts from elsewhere on their way to a terminal, which must not obey them."""

from __future__ import annotations

import unicodedata

__all__ = ["printable"]

#: Controls, formats (which can turn a line's direction around), lone surrogates, line ends.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
#: Formats that words and pictures are joined and parted with.
_JOINERS = "\u200c\u200d"
#: Python keeps a byte that is no UTF-8 as this and its value.
_BYTE = 0xDC00


def printable(text: str) -> str:
    r"""The text with what a terminal would obey, or not show, written out: `\x1b`, `\u202e`."""
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(character: str) -> str:
    if character in _JOINERS or unicodedata.category(character) not in _HIDDEN:
        return character
    number = ord(character)
    if 0x80 <= number - _BYTE <= 0xFF:
        return f"\\x{number - _BYTE:02x}"
    if number < 0x80:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
