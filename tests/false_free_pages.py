"""A snapshot whose file says of pages that are in use that they are free.

LMDB keeps the numbers of free pages in a database of its own, which no reader of records looks at.
Whoever writes to the file puts new pages where these are. The format is that of LMDB 0.9
(``lib/mdb.c``: MDB_meta, MDB_db, MDB_page, MDB_node, MDB_IDL).
"""

from __future__ import annotations

import struct
from pathlib import Path

PAGE = 4_096
META, DATABASE = struct.Struct("=IIQQ48s48sQQ"), struct.Struct("=IHHQQQQQ")
HEADER, NODE = struct.Struct("=QHHHH"), struct.Struct("=HHHH")
MOST = (PAGE - HEADER.size - 2 - NODE.size - 16) // 8
NO_PAGE = (1 << 64) - 1
LEAF = 2


def call_pages_free(data_file: Path) -> int:
    """Add a page that lists others as free, in two meta pages; how many it lists."""
    content = bytearray(data_file.read_bytes())
    assert len(content) % PAGE == 0
    new_page = len(content) // PAGE
    pages = list(range(new_page - 1, 1, -1))[:MOST]
    content += free_list(new_page, pages)
    for number in range(2):
        at = number * PAGE + HEADER.size
        magic, version, address, size, free, main, _, txnid = META.unpack_from(content, at)
        pad, flags, _, *_, root = DATABASE.unpack(free)
        assert root == NO_PAGE, "a snapshot is compact: nothing of it is free"
        free = DATABASE.pack(pad, flags, 1, 0, 1, 0, 1, new_page)
        meta = (magic, version, address, size, free, main, new_page, txnid + 10)
        META.pack_into(content, at, *meta)
    data_file.write_bytes(content)
    return len(pages)


def free_list(number: int, pages: list[int]) -> bytes:
    """A leaf page with one record: the transaction that freed, and what it freed, descending."""
    data = struct.pack(f"={len(pages) + 1}Q", len(pages), *pages)
    node = NODE.pack(len(data), 0, 0, 8) + struct.pack("=Q", 1) + data
    lower, upper = HEADER.size + 2, PAGE - len(node)
    head = HEADER.pack(number, 0, LEAF, lower, upper) + struct.pack("=H", upper)
    return head + bytes(upper - len(head)) + node
