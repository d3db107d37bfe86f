"""Every format by its name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from hyperbloom.outputs.formats import addresses, mail, names, texts
from hyperbloom.outputs.formats.format import Format

__all__ = ["FORMATS"]

#: In the order in which people are told of them.
FORMATS: Mapping[str, Format] = MappingProxyType(
    {one.name: one for one in (*texts.FORMATS, *names.FORMATS, *addresses.FORMATS, *mail.FORMATS)}
)
