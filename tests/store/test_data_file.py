"""The look at a data file before it is mapped: each page in use must be there, and be a page."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest

from hyperbloom.store import StoreCorrupt
from hyperbloom.store.lmdb.datafile import check_data_file

PAGE = 4_096
META_BYTES = 16
#: Offsets in a page: of its flags, of the end of its node offsets, of the first of these.
FLAGS, LOWER, SLOTS = 10, 12, 16
#: Offsets in a meta page: page size (of the free database), main root, last page.
PAGE_SIZE, MAIN_ROOT, LAST_PAGE = META_BYTES + 24, META_BYTES + 112, META_BYTES + 120
BRANCH, LEAF, BIG = 0x01, 0x02, 0x04
BIG_BYTES = 3 * PAGE


class DataFile:
    """A compact LMDB file that is said to lack pages at its end, so that it is walked."""

    def __init__(self, folder: Path) -> None:
        with lmdb.open(str(folder / "made"), max_dbs=3, sync=False) as environment:
            databases = [environment.open_db(name) for name in (b"empty", b"large", b"many")]
            with environment.begin(write=True) as txn:
                txn.put(b"a", bytes(BIG_BYTES), db=databases[1])
                for number in range(1_000):
                    txn.put(b"%05d" % number, b"x" * 40, db=databases[2])
            (folder / "copy").mkdir()
            environment.copy(str(folder / "copy"), compact=True)
        self.path = folder / "copy" / "data.mdb"
        self.content = bytearray(self.path.read_bytes())
        self.pages = len(self.content) // PAGE
        self.say_that_it_ends_at(self.pages)

    def say_that_it_ends_at(self, last: int) -> None:
        for meta in (0, PAGE):
            self.put("Q", meta + LAST_PAGE, last)

    def put(self, form: str, at: int, *numbers: int) -> None:
        struct.pack_into("=" + form, self.content, at, *numbers)

    def get(self, form: str, at: int) -> int:
        (number,) = struct.unpack_from("=" + form, self.content, at)
        return int(number)

    def page_of(self, kind: int) -> int:
        """Where the first page of this kind begins."""
        starts = range(2 * PAGE, len(self.content), PAGE)
        return next(at for at in starts if self.get("H", at + FLAGS) == kind)

    def first_node(self, page: int) -> int:
        return page + self.get("H", page + SLOTS)

    def node_of(self, key: bytes) -> int:
        """Where the node of this key begins, in the only place that the key is."""
        assert self.content.count(key) == 1
        return self.content.index(key) - 8

    def is_whole(self) -> bool:
        self.path.write_bytes(self.content)
        try:
            check_data_file(self.path)
        except StoreCorrupt as error:
            if "lacks pages that are in use" not in str(error):
                raise
            return False
        return True


@pytest.fixture
def file(tmp_path: Path) -> DataFile:
    (tmp_path / "made").mkdir()
    return DataFile(tmp_path)


def test_pages_that_nothing_leads_to_may_be_missing(file: DataFile) -> None:
    assert file.is_whole()


def test_a_page_that_is_there_in_part_is_missing(file: DataFile) -> None:
    """The root of the main database is the last page of a compact copy."""
    assert file.get("Q", PAGE + MAIN_ROOT) == file.pages - 1
    del file.content[-1]
    assert not file.is_whole()


def branch_to(page: int) -> Callable[[DataFile], None]:
    def damage(file: DataFile) -> None:
        node = file.first_node(file.page_of(BRANCH))
        file.put("HHH", node, page & 0xFFFF, page >> 16 & 0xFFFF, page >> 32)

    return damage


def branch_to_itself(file: DataFile) -> None:
    branch_to(file.page_of(BRANCH) // PAGE)(file)


def no_page(file: DataFile) -> None:
    file.put("H", file.page_of(LEAF) + FLAGS, BIG)


def database_behind_the_end(file: DataFile) -> None:
    root = file.node_of(b"many") + 8 + len(b"many") + 40
    file.put("Q", root, file.pages)


@pytest.mark.parametrize(
    "damage",
    [
        branch_to(1 << 16),
        branch_to(1 << 32),
        branch_to((1 << 48) - 1),
        branch_to_itself,
        no_page,
        database_behind_the_end,
    ],
)
def test_what_leads_to_no_page_is_damage(
    file: DataFile, damage: Callable[[DataFile], None]
) -> None:
    damage(file)
    assert not file.is_whole()


@pytest.mark.parametrize(("behind", "whole"), [(0, True), (1, False)])
def test_large_data_must_be_there_to_its_last_page(
    file: DataFile, behind: int, whole: bool
) -> None:
    node = file.first_node(file.page_of(BIG) + 4 * PAGE)
    assert file.get("H", node) == BIG_BYTES
    # 16 bytes of head and 3 pages of data need 4 pages.
    file.put("Q", node + 8 + 1, file.pages - 4 + behind)
    assert file.is_whole() is whole


@pytest.mark.parametrize(("behind", "whole"), [(0, True), (1, False)])
def test_the_length_of_large_data_has_32_bits(file: DataFile, behind: int, whole: bool) -> None:
    node = file.first_node(file.page_of(BIG) + 4 * PAGE)
    file.put("H", node + 2, 1)
    pages = (16 + 65_536 + BIG_BYTES) // PAGE + 1
    file.put("Q", node + 8 + 1, file.pages - pages + behind)
    assert file.is_whole() is whole
    file.put("H", node + 2, 2)
    assert not file.is_whole()


def test_an_environment_without_a_database_is_whole(tmp_path: Path) -> None:
    lmdb.open(str(tmp_path)).close()
    assert (tmp_path / "data.mdb").stat().st_size == 2 * PAGE
    check_data_file(tmp_path / "data.mdb")


@pytest.mark.parametrize("page_bytes", [0, 256, 511, PAGE + 1, 1 << 17])
def test_a_page_size_that_lmdb_has_not_is_no_store(file: DataFile, page_bytes: int) -> None:
    file.put("I", PAGE_SIZE, page_bytes)
    file.path.write_bytes(file.content)
    with pytest.raises(StoreCorrupt, match="is no data file of a store"):
        check_data_file(file.path)


@pytest.mark.parametrize("meta", [0, PAGE])
@pytest.mark.parametrize("field", [0, 4])
def test_both_first_pages_are_of_the_format(file: DataFile, meta: int, field: int) -> None:
    at = meta + META_BYTES + field
    file.put("I", at, file.get("I", at) ^ 2)
    file.path.write_bytes(file.content)
    with pytest.raises(StoreCorrupt, match="is no data file of a store"):
        check_data_file(file.path)


def test_a_folder_in_the_files_place_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").mkdir()
    with pytest.raises(StoreCorrupt, match="is empty or no file"):
        check_data_file(tmp_path / "data.mdb")
    shutil.rmtree(tmp_path / "data.mdb")
    check_data_file(tmp_path / "data.mdb")
