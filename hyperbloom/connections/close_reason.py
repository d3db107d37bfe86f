"""Why a connection ended, or came to nothing."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FEED_KINDS", "CloseReason", "ClosedConnection"]

#: The kinds of connections about feeds. Who counts by kind has one of each from the start: words of
#: our own, to which no peer can add one.
FEED_KINDS = (
    "altered", "banned", "crowded", "cut", "denied", "expired", "failed", "lost", "no-chain", "own",
    "own-key", "protocol", "renewed", "slow", "stalled", "stopped", "store", "stripped", "twin",
    "unknown-feed", "unprotected", "untrusted",
)  # fmt: skip


class CloseReason(Exception):
    """Why a connection is closed by this node, or did not become ready.

    The text is a sentence for a person; `kind` is one word for programs.

    - of both protocols: slow, crowded, protocol, own (this node dialled itself), stopped, lost,
      store (what the peer sent could not be stored), failed (a fault of this node);
    - of feeds: banned, unknown-feed, no-chain, denied, expired, untrusted, own-key, twin, stalled
      (it reads nothing, or has ended and takes too long or too much), renewed (this node's chain
      was: it connects anew);
    - of feeds, about protected streams: unprotected (the peer does not speak `noise`, and this node
      does not go on without), stripped (somebody on the path struck its announcement out), altered
      (a record was not authentic), cut (the connection broke off without the end that a protected
      peer says);
    - of object pools: rejected, kicked, left, silent, rule.
    """

    def __init__(self, kind: str, sentence: str) -> None:
        super().__init__(sentence)
        self.kind = kind


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedConnection:
    """A connection that this node closed, for the status. `at` is seconds since 1970.

    `reason` is a sentence, `kind` one word for programs.
    """

    at: float
    address: str
    kind: str
    reason: str
