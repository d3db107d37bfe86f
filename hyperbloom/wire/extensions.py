"""Messages beyond the protocol's own, and the extension that gives each a meaning."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from hyperbloom.wire.reconcile import RECONCILE, Sketch, SketchRequest, ValuesWanted
from hyperbloom.wire.set_digest import SET_DIGEST, Digest, DigestRequest

__all__ = ["EXTENSION_MESSAGES", "ExtensionMessage"]

ExtensionMessage: TypeAlias = DigestRequest | Digest | SketchRequest | Sketch | ValuesWanted

EXTENSION_MESSAGES: Final[Mapping[int, str]] = MappingProxyType(
    {
        DigestRequest.message_id: SET_DIGEST,
        Digest.message_id: SET_DIGEST,
        SketchRequest.message_id: RECONCILE,
        Sketch.message_id: RECONCILE,
        ValuesWanted.message_id: RECONCILE,
    }
)
"""Message id → the extension. To who did not announce that, these are unknown ids."""
