"""Keys that the operator denies: they take part in no feed of this node, whoever vouches for them.

Key: the denied key. They belong to the node and not to a feed, so that nobody who was put out of
one feed stays in another by oversight.
"""

from dataclasses import dataclass

from hyperbloom.errors import ErrorKind, HyperbloomError
from hyperbloom.store.limits import MAX_DENIED_KEYS, MAX_REASON_BYTES
from hyperbloom.store.lmdb.layout import U64
from hyperbloom.store.lmdb.transaction import WriteTransaction
from hyperbloom.store.operations import OVERHEAD_BYTES, check_key, check_time
from hyperbloom.store.records import DeniedRecord

__all__ = ["AllowKey", "DenyKey", "TooManyDenied", "parse_denied_record"]


class TooManyDenied(HyperbloomError):
    """The deny list is full; the text says what to do."""

    kind = ErrorKind.TOO_MANY


def parse_denied_record(key: bytes, data: bytes) -> DeniedRecord:
    """A record of the denied database; struct.error or ValueError if it cannot be read."""
    (denied_at,) = U64.unpack_from(data)
    check_key("key", key)
    return DeniedRecord(key=key, denied_at=denied_at, reason=data[U64.size :].decode())


@dataclass(frozen=True, slots=True)
class DenyKey:
    """Deny a key since ``at`` (µs), or give another reason. Result: whether it is new.

    Fails with TooManyDenied beyond MAX_DENIED_KEYS.
    """

    key: bytes
    at: int
    reason: str = ""

    def __post_init__(self) -> None:
        check_key("key", self.key)
        check_time("at", self.at)
        if len(self.reason.encode()) > MAX_REASON_BYTES:
            raise ValueError(f"a reason has at most {MAX_REASON_BYTES} bytes")

    @property
    def size(self) -> int:
        return OVERHEAD_BYTES

    def apply(self, transaction: WriteTransaction) -> bool:
        known = transaction.get("denied", self.key)
        at = self.at if known is None else U64.unpack_from(known)[0]
        if known is None:
            entries = transaction.txn.stat(transaction.databases["denied"])["entries"]
            if entries >= MAX_DENIED_KEYS:
                raise TooManyDenied(
                    f"{MAX_DENIED_KEYS:,} keys are denied, as many as there may be; allow some"
                )
        transaction.put("denied", self.key, U64.pack(at) + self.reason.encode())
        return known is None


@dataclass(frozen=True, slots=True)
class AllowKey:
    """Take a key off the deny list. Result: whether it was on it."""

    key: bytes

    def __post_init__(self) -> None:
        check_key("key", self.key)

    @property
    def size(self) -> int:
        return OVERHEAD_BYTES

    def apply(self, transaction: WriteTransaction) -> bool:
        return transaction.delete("denied", self.key)
