"""Why a connection was turned away or closed."""

from __future__ import annotations

__all__ = ["CloseReason"]


class CloseReason(Exception):
    """A connection did not become secure, or was closed by us.

    The text is a sentence for a person; `kind` is one word for programs: slow, banned, crowded,
    unknown-feed, no-chain, denied, expired, untrusted, protocol, own, own-key, twin, stalled,
    stopped, lost, store (what the peer sent could not be stored), failed (a fault of this node).
    """

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
