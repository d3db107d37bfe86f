"""Whose word a configuration is.

A configuration chooses the socket to which values, keys and invitations are sent, and the programs
that `run` starts. Who names one, by -c or an absolute HYPERBLOOM_CONFIG, has chosen it. One that is
merely found lies where anybody may have put it: in /tmp, in another user's home. It counts only if
the caller or root alone can have written it:

- The file, its folder, the folders above and each symbolic link on the way belong to one of them.
- Nobody else may write to the file or its folder. In a folder with the sticky bit others still make
  files, such as the control socket beside the configuration, so /tmp itself will not do.
- Nobody else may write to the folders above, unless they have the sticky bit: then others cannot
  put another folder in the place of one that is not theirs.

Where users have a group of their own, that group's right to write lets nobody else in.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

__all__ = ["user_name", "why_not_found", "why_not_run"]

#: As many links are followed as Linux follows (path_resolution(7)).
MAX_LINKS = 40
_ACL = "system.posix_acl_access"


def why_not_found(path: Path) -> str | None:
    """Why a configuration that nobody named is not taken; None for one that is.

    path: of a file that is there, relative to the current folder or absolute.
    """
    try:
        named = Path.cwd() / path
        own_folder = os.stat(named.parent)
        for entry, status in _on_the_way(named):
            is_own = os.path.samestat(status, own_folder)
            problem = _problem(entry, status, sticky_will_do=not is_own)
            if problem is not None:
                return problem
    except OSError as error:
        return f"{path} cannot be looked at ({error.strerror})"
    return None


def why_not_run(path: Path) -> str | None:
    """Why root does not run the node of a configuration, though it was named; None where it may.

    Only the file and its folder are looked at: the folders above are the caller's choice.
    """
    for entry in (path, path.parent):
        problem = _problem(entry, entry.stat(), sticky_will_do=True)
        if problem is not None:
            return problem
    return None


def _on_the_way(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Every folder, link and file that an absolute path leads over, links' targets included.

    Raises OSError.
    """
    at, left, links = Path("/"), list(reversed(path.parts[1:])), 0
    yield at, at.lstat()
    while left:
        part = left.pop()
        if part == "..":
            at = at.parent
            continue
        entry = at / part
        status = entry.lstat()
        yield entry, status
        if not stat.S_ISLNK(status.st_mode):
            at = entry
            continue
        links += 1
        if links > MAX_LINKS:
            raise OSError(0, "too many symbolic links")
        target = Path(os.readlink(entry))
        at = Path("/") if target.is_absolute() else at
        left += reversed([part for part in target.parts if part != target.anchor])


def _problem(entry: Path, status: os.stat_result, *, sticky_will_do: bool) -> str | None:
    """Who else than the caller and root can change what an entry holds; None: nobody."""
    if status.st_uid not in (0, os.geteuid()):
        return f"{entry} belongs to {user_name(status.st_uid)}"
    mode = status.st_mode
    is_sticky_folder = stat.S_ISDIR(mode) and mode & stat.S_ISVTX
    if stat.S_ISLNK(mode) or (is_sticky_folder and sticky_will_do):
        return None
    by_group = mode & stat.S_IWGRP and not _is_own_group(entry, status.st_gid)
    if mode & stat.S_IWOTH or by_group:
        return f"others may write to {entry} (mode {stat.S_IMODE(mode):04o})"
    return None


def _is_own_group(entry: Path, group: int) -> bool:
    """Whether it is the group of the caller's name, nobody else is in it, and there is no ACL.

    With an ACL the group's bits are its mask (acl(5)), and may let anybody write. The name counts
    because a directory service need not list who is in a group that many share.
    """
    import grp
    import pwd

    try:
        os.getxattr(entry, _ACL)
    except OSError:  # it has none
        pass
    else:
        return False
    try:
        found = grp.getgrgid(group)
        members = {pwd.getpwnam(name).pw_uid for name in found.gr_mem}
    except KeyError:  # the group, or one who is in it, is not known here
        return False
    members |= {user.pw_uid for user in pwd.getpwall() if user.pw_gid == group}
    return found.gr_name == user_name(os.geteuid()) and members <= {0, os.geteuid()}


def user_name(user: int) -> str:
    """A user as `sudo -u` takes one: the name, or # and the number of a user without."""
    import pwd

    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"#{user}"
