"""Endpoints of who has spoken `noise`, and is not spoken to without it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hyperbloom.api.http.request import Answer, Call
from hyperbloom.api.problems import value_errors_as_problems
from hyperbloom.api.schemas.answers import NoiseKeyForm
from hyperbloom.keys import parse_public_key

__all__ = ["forget_key", "list_keys"]


def list_keys(call: Call) -> Answer:
    """The keys that have spoken it, those met longest ago first."""
    keys: list[NoiseKeyForm] = [
        {
            "key": found.key.hex(),
            "first_met": found.first_met / 1e6,
            "last_met": found.last_met / 1e6,
        }
        for found in call.node.noise_keys()
    ]
    return {"keys": keys}


async def forget_key(call: Call) -> Mapping[str, Any]:
    """Forgets that a key has spoken it: it may be spoken to without, until it speaks it again."""
    with value_errors_as_problems():
        key = parse_public_key(call.arguments[0])
    return {"key": key.hex(), "was_remembered": await call.node.forget_noise(key)}
