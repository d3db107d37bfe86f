"""Who may read the tables: their owner alone, unless more is asked for.

A snapshot is closed to other users of the machine (0600), and a table holds the same values. So
folders are 0700 and files 0600, or open to the group or to all for reading, as the export is told.
What writes them is many hands (pyarrow, deltalake, Java, Spark's Python workers), and what they
have in common is the umask of their process.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal

__all__ = ["MASKS", "ShareWith", "masked", "open_folder", "settle_modes", "share_of"]

ShareWith = Literal["owner", "group", "all"]

MASKS: Final = MappingProxyType({"owner": 0o077, "group": 0o027, "all": 0o022})
"""The umask for each."""


@contextmanager
def masked(share_with: ShareWith) -> Iterator[None]:
    """Have what is made in the block readable by these. The umask is the whole process's."""
    before = os.umask(MASKS[share_with])
    try:
        yield
    finally:
        os.umask(before)


def settle_modes(folder: Path, share_with: ShareWith) -> int:
    """Give a folder and all in it the modes that new files would have; how many had others.

    Symbolic links are left alone. Raises OSError, as for a file of another user.
    """
    changed = 0
    for path, _, files in os.walk(folder):
        changed += _settle(path, share_with)
        changed += sum(_settle(os.path.join(path, name), share_with) for name in files)
    return changed


def _settle(path: str, share_with: ShareWith) -> bool:
    found = os.lstat(path).st_mode
    if stat.S_ISDIR(found):
        wanted = 0o777 & ~MASKS[share_with]
    elif stat.S_ISREG(found):
        wanted = 0o666 & ~MASKS[share_with]
    else:
        return False
    if stat.S_IMODE(found) & 0o777 == wanted:
        return False
    # A group's folders may pass their group on (setgid).
    os.chmod(path, stat.S_IMODE(found) & ~0o777 | wanted)
    return True


def open_folder(folder: Path, share_with: ShareWith) -> None:
    """Let those into the folder around the tables for whom they are. Never closes it: it may hold
    what is not of the export.
    """
    mode = stat.S_IMODE(folder.stat().st_mode)
    wanted = mode | (0o777 & ~MASKS[share_with])
    if share_with != "owner" and wanted != mode:
        folder.chmod(wanted)


def share_of(folder: Path) -> ShareWith:
    """For whom the tables in a folder are, by its mode."""
    mode = folder.stat().st_mode
    if mode & stat.S_IROTH:
        return "all"
    return "group" if mode & stat.S_IRGRP else "owner"
