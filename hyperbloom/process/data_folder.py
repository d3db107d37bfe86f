"""Why a folder cannot be written, for who has to mend it."""

from __future__ import annotations

import os
import pwd
import shlex
import stat
from pathlib import Path

__all__ = ["user_name", "why_unwritable"]


def why_unwritable(folder: Path) -> str | None:
    """Why nothing can be made in a folder, and the cure, in one sentence; None: something can.

    A folder that is not there yet is made in the nearest one above it that is.
    """
    place = folder
    while not os.path.lexists(place) and place != place.parent:
        place = place.parent
    if not place.is_dir():
        return f"{place} is in the way: it is not a folder; move it, or name another data folder"
    if os.access(place, os.R_OK | os.W_OK | os.X_OK, effective_ids=True):
        return None
    if os.statvfs(place).f_flag & os.ST_RDONLY:
        return f"{place} lies on a file system that takes no writes; mount it read-write"
    status, user = place.stat(), user_name(os.geteuid())
    if status.st_uid == os.geteuid():
        mode = stat.S_IMODE(status.st_mode)
        chmod = shlex.join(["chmod", "u+rwx", str(place)])
        return f"{place} is {user}'s, but its mode is {mode:04o}: `{chmod}`"
    owner = user_name(status.st_uid)
    gives = ["chown", "-R", user] if place == folder else ["install", "-d", "-m", "700", "-o", user]
    return (
        f"{place} belongs to {owner}, and this is run by {user}, who may not write there; run it "
        f"as {owner}, or let {user} have the folder: `{shlex.join([*gives, str(folder)])}`"
    )


def user_name(number: int) -> str:
    """What a user is called; the number itself where nobody is."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
