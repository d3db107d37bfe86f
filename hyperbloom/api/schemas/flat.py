"""Records of the node as JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["expiry_form", "expiry_of", "flat_json"]


def expiry_form(expires: float) -> float | None:
    """An expiry as JSON can hold it: infinity (the owner's) is null."""
    return expires if math.isfinite(expires) else None


def expiry_of(form: float | None) -> float:
    """The inverse of `expiry_form`."""
    return math.inf if form is None else form


def flat_json(found: object) -> Any:
    """A frozen record as JSON: dataclasses are objects, bytes are hex, paths are texts."""
    if dataclasses.is_dataclass(found) and not isinstance(found, type):
        return {f.name: flat_json(getattr(found, f.name)) for f in dataclasses.fields(found)}
    if isinstance(found, (bytes, bytearray)):
        return found.hex()
    if isinstance(found, float):
        return expiry_form(found)
    if isinstance(found, Mapping):
        return {str(name): flat_json(item) for name, item in found.items()}
    if isinstance(found, (list, tuple)):
        return [flat_json(item) for item in found]
    if isinstance(found, Path):
        return str(found)
    return found
