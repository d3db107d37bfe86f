"""What a connection of the pool counts."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PeerFigures"]


@dataclass(slots=True)
class PeerFigures:
    """What went over a connection: bytes, messages about objects, and what of them was news."""

    bytes_in: int = 0
    bytes_out: int = 0
    messages_in: int = 0
    messages_out: int = 0
    news_in: int = 0
    clashes: int = 0
    #: Objects of another kind's INITIALIZE whose type is not known here.
    untyped: int = 0
    #: What a peer of another kind is not told, for it could not read it; and why, of the latest.
    untold: int = 0
    untold_why: str | None = None
