"""Records of the node as JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hyperbloom.store.records import SnapshotInfo

__all__ = ["expiry_form", "expiry_of", "flat_json", "snapshot_form"]


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


def snapshot_form(info: SnapshotInfo) -> dict[str, Any]:
    """What a snapshot holds; its time in seconds, as all times in JSON, where the store has µs."""
    form: dict[str, Any] = flat_json(info)
    return {**form, "taken_at": info.taken_at / 1e6}
