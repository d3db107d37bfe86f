"""The key pairs of the feeds that a node owns: one file each, in a folder beside the node's key.

A feed that is made here has an Ed25519 pair of its own, apart from the node's. Its public half is
the feed's key, which who knows it can read the feed's traffic by; so a file is named by the feed's
alias and the beginning of its discovery key, and tells neither half:

    feed-keys/blocklist.3f91c2aa.key

The folder has mode 0700 and each file, in the form of `hyperbloom.keys`, 0600. Nothing is ever
overwritten. What is in the folder is the truth: a node that starts owns these feeds.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hyperbloom.keys import (
    Identity,
    KeyFileError,
    create_key_file,
    discovery_key,
    load_key_file,
    sync_folder,
)

__all__ = ["FEED_NAME_DIGITS", "FeedKeys", "HeldKey", "feed_name_digits", "key_file_name"]

FEED_NAME_DIGITS: Final = 8
"""Hex digits of a discovery key that name a feed in logs and key files."""

_FOLDER_MODE: Final = 0o700
_FORBIDDEN_MODE: Final = 0o077
_NAMED: Final = re.compile(r"(?P<alias>.+)\.[0-9a-f]{8}")


def feed_name_digits(feed_key: bytes) -> str:
    """What a feed is called where neither its key nor an alias may stand: 8 hex digits.

    They begin its discovery key (protocol 2), which peers name in the clear.
    """
    return discovery_key(feed_key).hex()[:FEED_NAME_DIGITS]


def key_file_name(alias: str | None, feed_key: bytes) -> str:
    """The name of a feed's key file; it tells the alias at most."""
    return f"{alias or 'feed'}.{feed_name_digits(feed_key)}.key"


@dataclass(frozen=True, slots=True)
class HeldKey:
    """A feed's pair, its file, and the alias that the file is named by."""

    identity: Identity
    path: Path

    @property
    def alias(self) -> str | None:
        """The alias in the file's name; None where it is named otherwise."""
        found = _NAMED.fullmatch(self.path.stem)
        return None if found is None else found["alias"]


class FeedKeys:
    """The pairs in `folder`, as last read; None: no folder, and no feed is owned.

    Reading and writing are for a thread, or for before the node runs.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._held: dict[bytes, HeldKey] = {}

    def __iter__(self) -> Iterator[HeldKey]:
        return iter(tuple(self._held.values()))

    def __contains__(self, feed_key: object) -> bool:
        return feed_key in self._held

    @property
    def public_keys(self) -> Iterable[bytes]:
        """The keys of the feeds whose pairs are held."""
        return tuple(self._held)

    def get(self, feed_key: bytes) -> Identity | None:
        """The pair of a feed, None where it is not held here."""
        held = self._held.get(feed_key)
        return None if held is None else held.identity

    def load(self) -> None:
        """Read every key file anew; a folder that is not there holds none.

        Raises `KeyFileError` for a folder or file that others may read, and for one that is no key.
        """
        if self.folder is None:
            return
        held: dict[bytes, HeldKey] = {}
        for path in self._files(self.folder):
            identity = load_key_file(path)
            held.setdefault(identity.public_key, HeldKey(identity, path))
        self._held = held

    @staticmethod
    def _files(folder: Path) -> list[Path]:
        try:
            status = folder.stat()
            if not stat.S_ISDIR(status.st_mode):
                raise KeyFileError(f"{folder} is in the way: feeds' keys go into a folder there")
            mode = stat.S_IMODE(status.st_mode)
            if mode & _FORBIDDEN_MODE:
                raise KeyFileError(
                    f"the folder {folder} is open to others than its owner (mode {mode:04o}); run "
                    "chmod 700 on it, and hand ownership over to new feeds if a key was read"
                )
            return sorted(path for path in folder.iterdir() if path.suffix == ".key")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise KeyFileError(f"the folder {folder} cannot be read ({error.strerror})") from error

    def write(self, identity: Identity, alias: str | None = None) -> HeldKey:
        """Put a pair into the folder, on disk when this returns; it is held from then on.

        One that is held already stays as it is. Raises `KeyFileError`.
        """
        present = self._held.get(identity.public_key)
        if present is not None:
            return present
        if self.folder is None:
            raise KeyFileError("this node has no folder for the keys of feeds")
        self._make_folder(self.folder)
        path = self.folder / key_file_name(alias, identity.public_key)
        create_key_file(path, identity.seed)
        held = self._held[identity.public_key] = HeldKey(identity, path)
        return held

    @staticmethod
    def _make_folder(folder: Path) -> None:
        try:
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=_FOLDER_MODE)
                sync_folder(folder.parent)
        except OSError as error:
            raise KeyFileError(f"cannot make the folder {folder} ({error.strerror})") from error

    def remove(self, feed_key: bytes) -> None:
        """Hold a pair no more and remove its file; raises `KeyFileError`."""
        held = self._held.get(feed_key)
        if held is None:
            return
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(held.path)
            sync_folder(held.path.parent)
        except OSError as error:
            raise KeyFileError(f"cannot remove {held.path} ({error.strerror})") from error
        del self._held[feed_key]
