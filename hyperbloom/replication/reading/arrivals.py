"""A value as it arrived, as text for programs: the API and hooks write it alike."""

from __future__ import annotations

import json

from hyperbloom.store.records import LogRecord

__all__ = ["arrival_text"]


def arrival_text(record: LogRecord, origin_name: str | None) -> str:
    """One JSON object in ASCII, without a line end; `origin_name`: what the peer is called here.

    `seq`, `value` (hex), `origin` (hex), `origin_name` where there is one, `received_at` (seconds).
    """
    # By hand: hex needs no quoting, and json.dumps would hold the reactor twice as long.
    named = "" if origin_name is None else f'"origin_name":{json.dumps(origin_name)},'
    return (
        f'{{"seq":{record.seq},"value":"{record.value.hex()}","origin":"{record.origin.hex()}",'
        f'{named}"received_at":{record.received_at / 1e6:.6f}}}'
    )
