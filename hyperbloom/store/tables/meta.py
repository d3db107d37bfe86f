"""A few bytes under a name, beside those that the store keeps for itself. Key: the name."""

from dataclasses import dataclass
from typing import Final

from hyperbloom.store.lmdb.transaction import WriteTransaction
from hyperbloom.store.operations import OVERHEAD_BYTES

__all__ = ["NODE_ID", "SEEDED_FROM", "PutMeta", "meta_key"]

NODE_ID: Final = "node_id"
"""The entry whose bytes are the public key of the store's node."""

SEEDED_FROM: Final = "seeded_from"
"""The entry that names the snapshot a store began with, as JSON."""


def meta_key(name: str) -> bytes:
    """The key of a meta entry of ours; ValueError for the store's own names."""
    if not name or name.startswith("store.") or len(name.encode()) > 255:
        raise ValueError(f"{name!r} is no name for a meta entry")
    return name.encode()


@dataclass(frozen=True, slots=True)
class PutMeta:
    """Keep a few bytes under a name; None removes them. Result: None."""

    name: str
    value: bytes | None

    def __post_init__(self) -> None:
        meta_key(self.name)
        if self.value is not None and not isinstance(self.value, bytes):
            raise TypeError("value must be bytes")

    @property
    def size(self) -> int:
        return len(self.value or b"") + OVERHEAD_BYTES

    def apply(self, transaction: WriteTransaction) -> None:
        if self.value is None:
            transaction.delete("meta", meta_key(self.name))
        else:
            transaction.put("meta", meta_key(self.name), self.value)
