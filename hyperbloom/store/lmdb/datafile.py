"""Is a data file safe to map? Looked at with plain reads, before LMDB maps it.

LMDB trusts its file: a page that lies behind the file's end is a SIGBUS at first touch, not an
error. So before it is opened, the two meta pages are read here, and the file's length is compared
with the last page the newer of them names. A file may rightly be somewhat shorter (pages that a
transaction took and gave back at the end of the file are never written), so a short file is walked
from its roots: only a page that is in use and not there makes it a damaged one.

Format of LMDB 0.9 on a 64-bit machine, native byte order (``lib/mdb.c``: MDB_meta, MDB_page,
MDB_node, MDB_db).
"""

import mmap
import struct
from pathlib import Path
from typing import Final

from hyperbloom.store.errors import StoreCorrupt

__all__ = ["check_data_file"]

_PAGE_HEADER: Final = struct.Struct("=QHHHH")
_META: Final = struct.Struct("=IIQQ48s48sQQ")
_DATABASE: Final = struct.Struct("=IHHQQQQQ")
_NODE: Final = struct.Struct("=HHHH")
_PAGE_NUMBER: Final = struct.Struct("=Q")

_MAGIC: Final = 0xBEEFC0DE
_VERSION: Final = 1
_NO_PAGE: Final = (1 << 64) - 1
_BRANCH_PAGE: Final = 0x01
_LEAF_PAGE: Final = 0x02
_BIG_DATA: Final = 0x01
_SUB_DATABASE: Final = 0x02


def check_data_file(path: Path) -> None:
    """Raise StoreCorrupt unless the file is an LMDB file with all its pages; a missing one is fine.

    Raises OSError if it cannot be read.
    """
    if not path.exists():
        return
    size = path.stat().st_size
    if not path.is_file() or size == 0:
        raise StoreCorrupt(f"{path} is empty or no file; restore it from a snapshot")
    with path.open("rb") as file, mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ) as data:
        page_bytes, last_page, roots = _read_newest_meta(path, data)
        if size < (last_page + 1) * page_bytes and not _Walk(data, page_bytes).complete(roots):
            raise StoreCorrupt(
                f"{path} is cut short: it has {size} bytes and lacks pages that are in use; "
                "restore it from a snapshot"
            )


def _read_newest_meta(path: Path, data: mmap.mmap) -> tuple[int, int, list[int]]:
    """The page size, the last page's number and the root pages, of the newer meta page."""
    foreign = StoreCorrupt(
        f"{path} is no data file of a store, or its first pages are damaged; "
        "restore it from a snapshot, or name another folder"
    )
    metas: list[tuple[int, int, int, list[int]]] = []
    offset = 0
    for _ in range(2):
        if len(data) < offset + _PAGE_HEADER.size + _META.size:
            raise foreign
        magic, version, _, _, free_db, main_db, last_page, txnid = _META.unpack_from(
            data, offset + _PAGE_HEADER.size
        )
        if magic != _MAGIC or version & 0xFFFF != _VERSION:
            raise foreign
        free, main = _DATABASE.unpack(free_db), _DATABASE.unpack(main_db)
        page_bytes = free[0]
        if page_bytes not in (512 << shift for shift in range(8)):
            raise foreign
        metas.append((txnid, page_bytes, last_page, [free[-1], main[-1]]))
        offset = page_bytes
    _, page_bytes, last_page, roots = max(metas)
    if len(data) < 2 * page_bytes:
        raise foreign
    return page_bytes, last_page, roots


class _Walk:
    """Looks whether every page in use lies inside the data."""

    def __init__(self, data: mmap.mmap, page_bytes: int) -> None:
        self._data = data
        self._page_bytes = page_bytes
        self._pages = len(data) // page_bytes

    def complete(self, roots: list[int]) -> bool:
        """Whether all pages below these roots are there; False as well for what is no tree."""
        pending = [root for root in roots if root != _NO_PAGE]
        try:
            # No page is below two others, so there is no more to visit than there are pages.
            for _ in range(self._pages):
                if not pending:
                    return True
                if not self._visit(pending.pop(), pending):
                    return False
        except struct.error:
            return False
        return False

    def _visit(self, number: int, pending: list[int]) -> bool:
        """Append the pages that this one points to; whether it and its large data are there."""
        if number >= self._pages:
            return False
        base = number * self._page_bytes
        _, _, flags, lower, _ = _PAGE_HEADER.unpack_from(self._data, base)
        if not flags & (_BRANCH_PAGE | _LEAF_PAGE):
            return False
        for slot in range(_PAGE_HEADER.size, lower, 2):
            (at,) = struct.unpack_from("=H", self._data, base + slot)
            low, high, node_flags, key_bytes = _NODE.unpack_from(self._data, base + at)
            data_at = base + at + _NODE.size + key_bytes
            if flags & _BRANCH_PAGE:
                pending.append(low | high << 16 | node_flags << 32)
            elif node_flags & _SUB_DATABASE:
                root = _DATABASE.unpack_from(self._data, data_at)[-1]
                if root != _NO_PAGE:
                    pending.append(root)
            elif node_flags & _BIG_DATA:
                (first,) = _PAGE_NUMBER.unpack_from(self._data, data_at)
                size = _PAGE_HEADER.size + (low | high << 16)
                if first + -(-size // self._page_bytes) > self._pages:
                    return False
        return True
