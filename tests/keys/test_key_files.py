from __future__ import annotations

import os
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hyperbloom.keys import Identity, KeyFileError, create_key_file, load_key_file

SEED = bytes(range(1, 33))


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def no_file_may_grow() -> Iterator[None]:
    """Make every write fail with EFBIG, as a full disk would with ENOSPC."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "node.key"


def write(path: Path, content: bytes, mode: int = 0o600) -> None:
    path.write_bytes(content)
    path.chmod(mode)


class TestCreate:
    def test_round_trip(self, path: Path) -> None:
        created = create_key_file(path, SEED)
        assert created == Identity(SEED)
        assert path.read_bytes() == SEED.hex().encode() + b"\n"
        assert load_key_file(path).seed == SEED
        assert load_key_file(str(path)).seed == SEED

    @pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o777])
    def test_mode_whatever_the_umask(self, path: Path, mask: int) -> None:
        with umask(mask):
            create_key_file(path, SEED)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def test_never_overwrites(self, path: Path) -> None:
        create_key_file(path, SEED)
        with pytest.raises(KeyFileError, match="exists already"):
            create_key_file(path, bytes(32))
        assert load_key_file(path).seed == SEED

    def test_does_not_follow_a_dangling_link(self, path: Path, tmp_path: Path) -> None:
        path.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(KeyFileError, match="exists already"):
            create_key_file(path, SEED)
        assert not (tmp_path / "elsewhere").exists()

    def test_folder_missing(self, tmp_path: Path) -> None:
        with pytest.raises(KeyFileError, match=r"No such file or directory.*check its folder"):
            create_key_file(tmp_path / "missing" / "node.key", SEED)

    def test_bad_seed_leaves_nothing(self, path: Path) -> None:
        with pytest.raises(ValueError, match="32 bytes"):
            create_key_file(path, b"short")
        assert not path.exists()

    def test_failed_write_leaves_nothing(self, path: Path) -> None:
        with no_file_may_grow(), pytest.raises(KeyFileError, match="cannot write"):
            create_key_file(path, SEED)
        assert not path.exists()
        create_key_file(path, SEED)


class TestLoad:
    def test_missing(self, path: Path) -> None:
        with pytest.raises(KeyFileError, match="there is no key file"):
            load_key_file(path)

    @pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o644, 0o777])
    def test_open_to_others(self, path: Path, mode: int) -> None:
        write(path, SEED.hex().encode() + b"\n", mode)
        with pytest.raises(KeyFileError, match=f"mode {mode:04o}.*chmod 600"):
            load_key_file(path)

    @pytest.mark.parametrize("mode", [0o400, 0o600, 0o700])
    def test_only_the_owners(self, path: Path, mode: int) -> None:
        write(path, SEED.hex().encode() + b"\n", mode)
        assert load_key_file(path).seed == SEED

    @pytest.mark.parametrize("content", [SEED.hex().encode(), SEED.hex().upper().encode() + b"\n"])
    def test_other_spellings(self, path: Path, content: bytes) -> None:
        write(path, content)
        assert load_key_file(path).seed == SEED

    @pytest.mark.parametrize(
        "content",
        [b"", b"\n", b"00" * 31 + b"\n", b"0" * 63, b"0" * 65, b"00" * 33 + b"\n", b"zz" * 32,
         b"0" * 64 + b"\n\n", b"0" * 64 + b"\r\n", b" " + b"0" * 63, b"\xff" * 64, bytes(32),
         b"0" * 64 + b"\n" + b"0" * 100_000],
        ids=len,
    )  # fmt: skip
    def test_bad_content(self, path: Path, content: bytes) -> None:
        write(path, content)
        with pytest.raises(KeyFileError, match="64 hexadecimal digits"):
            load_key_file(path)

    def test_bad_content_is_not_repeated(self, path: Path) -> None:
        write(path, b"abcdef" * 10)
        with pytest.raises(KeyFileError) as caught:
            load_key_file(path)
        assert "abcdef" not in str(caught.value)

    def test_folder(self, tmp_path: Path) -> None:
        with pytest.raises(KeyFileError, match="not a regular file"):
            load_key_file(tmp_path)

    def test_fifo_does_not_wait(self, path: Path) -> None:
        os.mkfifo(path, 0o600)
        with pytest.raises(KeyFileError, match="not a regular file"):
            load_key_file(path)

    def test_loop_of_links(self, path: Path) -> None:
        path.symlink_to(path)
        with pytest.raises(KeyFileError, match="cannot read"):
            load_key_file(path)

    def test_link_to_a_key_file(self, path: Path, tmp_path: Path) -> None:
        create_key_file(tmp_path / "real", SEED)
        path.symlink_to(tmp_path / "real")
        assert load_key_file(path).seed == SEED

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
    def test_unreadable(self, path: Path) -> None:
        write(path, SEED.hex().encode(), 0o000)
        with pytest.raises(KeyFileError, match="Permission denied"):
            load_key_file(path)
