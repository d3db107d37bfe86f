"""Endpoints of who has spoken `noise`, and is not spoken to without it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hyperbloom.api.http.request import Answer, Call
from hyperbloom.api.schemas.answers import NoiseKeyForm

__all__ = ["forget_key", "list_keys"]


def list_keys(call: Call) -> Answer:
    """The keys that have spoken it, those met longest ago first."""
    keys: list[NoiseKeyForm] = [
        {
            "key": found.key.hex(),
            "name": call.node.names.get(found.key),
            "first_met": found.first_met / 1e6,
            "last_met": found.last_met / 1e6,
        }
        for found in call.node.noise_keys()
    ]
    return {"keys": keys}


async def forget_key(call: Call) -> Mapping[str, Any]:
    """Forgets that a key has spoken it: it may be spoken to without, until it speaks it again."""
    known = [found.key for found in call.node.noise_keys()]
    key = await call.key_named(call.arguments[0], known, those="that has spoken noise")
    was_remembered = await call.node.forget_noise(key)
    named = {"key": key.hex(), "name": call.node.names.get(key)}
    return {**named, "was_remembered": was_remembered}
