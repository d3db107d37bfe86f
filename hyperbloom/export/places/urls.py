"""From what people write to a place: a path, or a URL of an object store."""

from __future__ import annotations

import re
from pathlib import Path
from types import MappingProxyType
from typing import Final

from hyperbloom.export.errors import ExportError
from hyperbloom.export.places.folder import Folder
from hyperbloom.export.places.object_store import ObjectStore
from hyperbloom.export.places.place import Place

__all__ = ["SCHEMES", "Where", "place_of"]

Where = str | Path | Place
"""A path, a URL, or a place."""

SCHEMES: Final = MappingProxyType(
    {"s3": "s3", "s3a": "s3", "gs": "gs", "abfss": "abfss", "abfs": "abfs", "az": "az"}
)
"""What there is, and the scheme that every reader knows it by."""

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/(/?)(.*)", re.DOTALL)
_NAMES: Final = "s3://, gs://, abfss:// (also s3a://, abfs://, az://) or a folder"


def place_of(where: Where) -> Place:
    """The place that is meant; ExportError for a URL of another kind."""
    if isinstance(where, Place):
        return where
    found = _URL.fullmatch(str(where))
    if found is None:
        return Folder(Path(where).absolute())
    scheme, slash, rest = found[1].lower(), found[2], found[3].rstrip("/")
    if scheme not in SCHEMES:
        raise ExportError(f"there are no tables at {found[1]}://; name one of {_NAMES}")
    if not slash:
        raise ExportError(f"{where} is no URL; write {scheme}://BUCKET/FOLDER")
    if not rest.partition("/")[0]:
        raise ExportError(f"{where} names no bucket; write {scheme}://BUCKET/FOLDER")
    if unfit := set(rest) & set("?#%") or ({"//"} if "//" in rest else set()):
        raise ExportError(f"{where} has {min(unfit)} in it; name a folder without it")
    return ObjectStore(f"{SCHEMES[scheme]}://{rest}")
