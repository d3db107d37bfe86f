"""The recorded bytes that seeds are made of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["vectors"]


def vectors(name: str) -> dict[str, Any]:
    """A file of tests/vectors."""
    path = Path(__file__).resolve().parents[1] / "vectors" / f"{name}.json"
    found: dict[str, Any] = json.loads(path.read_text())
    return found
