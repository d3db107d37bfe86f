"""The folder with the keys of the feeds that a node owns."""

from __future__ import annotations

import stat

import pytest

from hyperbloom.feed_keys import FeedKeys, feed_name_digits
from hyperbloom.keys import Identity, KeyFileError, create_key_file, discovery_key

PAIR = Identity(b"f" * 32)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "feed-keys"


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_written_is_read(folder):
    held = FeedKeys(folder).write(PAIR, "words")
    assert (mode(folder), mode(held.path)) == (0o700, 0o600)
    keys = FeedKeys(folder)
    assert keys.get(PAIR.public_key) is None, "not read yet"
    keys.load()
    assert keys.get(PAIR.public_key) == PAIR
    assert PAIR.public_key in keys
    assert [(one.identity, one.alias) for one in keys] == [(PAIR, "words")]


def test_a_files_name_tells_neither_half(folder):
    path = FeedKeys(folder).write(PAIR, "words").path
    assert path.name == f"words.{discovery_key(PAIR.public_key).hex()[:8]}.key"
    assert feed_name_digits(PAIR.public_key) not in PAIR.public_key.hex()


@pytest.mark.parametrize("alias", ["words", "a.b", "a.0123abcd", "v1.2-x_y"])
def test_the_alias_is_read_from_the_name(folder, alias):
    FeedKeys(folder).write(PAIR, alias)
    keys = FeedKeys(folder)
    keys.load()
    assert [one.alias for one in keys] == [alias]


def test_another_name_tells_no_alias(folder):
    folder.mkdir(mode=0o700)
    create_key_file(folder / "from-a-stick.key", PAIR.seed)
    (folder / "notes.txt").write_text("no key")
    keys = FeedKeys(folder)
    keys.load()
    assert [one.alias for one in keys] == [None]


def test_nothing_is_written_twice_or_over(folder):
    keys = FeedKeys(folder)
    first = keys.write(PAIR, "words")
    assert keys.write(PAIR, "others") is first
    assert list(folder.iterdir()) == [first.path]
    with pytest.raises(KeyFileError, match="exists already"):
        FeedKeys(folder).write(PAIR, "words")


def test_one_that_is_removed_is_gone(folder):
    keys = FeedKeys(folder)
    path = keys.write(PAIR).path
    keys.remove(PAIR.public_key)
    assert not path.exists()
    assert PAIR.public_key not in keys
    keys.remove(PAIR.public_key)


def test_no_folder_holds_none(folder):
    keys = FeedKeys(folder)
    keys.load()
    assert list(keys) == []
    nowhere = FeedKeys()
    nowhere.load()
    with pytest.raises(KeyFileError, match="no folder"):
        nowhere.write(PAIR)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder, path: folder.chmod(0o750), "chmod 700"),
        (lambda folder, path: path.chmod(0o640), "chmod 600"),
        (lambda folder, path: path.write_text("zz"), "64 hexadecimal digits"),
    ],
)
def test_what_others_may_read_or_is_no_key_is_refused(folder, spoil, said):
    path = FeedKeys(folder).write(PAIR, "words").path
    spoil(folder, path)
    with pytest.raises(KeyFileError, match=said):
        FeedKeys(folder).load()


def test_a_file_in_the_folders_place_is_said(folder):
    folder.write_text("")
    with pytest.raises(KeyFileError, match="is in the way"):
        FeedKeys(folder).load()
