"""Credentials: secrets that systemd hands to a unit, as files in a folder that is the unit's alone.

`LoadCredential=identity.key:/etc/…` in a unit makes `identity.key` in the folder that the variable
`CREDENTIALS_DIRECTORY` names (systemd.exec(5), "Credentials"). The configuration names it as
`credential:identity.key`. Where the file system has ACLs, systemd leaves such a file to root and
lets the unit's user read it by an entry of its ACL. Its mode then shows as 0440: the bits of the
group are the ACL's mask (acl(5)), and no group may read it.
"""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path
from typing import Final

__all__ = [
    "CREDENTIAL_PREFIX",
    "FOLDER_VARIABLE",
    "credential_path",
    "credentials_folder",
    "cure_for_missing",
    "is_credential",
    "is_open",
]

CREDENTIAL_PREFIX: Final = "credential:"
FOLDER_VARIABLE: Final = "CREDENTIALS_DIRECTORY"
UNIT_FOLDER: Final = "/run/credentials/hyperbloom.service"
"""Where commands outside the unit find what the unit has, while it runs."""

_NAME: Final = re.compile(r"(?!\.{1,2}\Z)[\w.-]{1,255}", re.ASCII)
_OTHERS: Final = 0o077
_GROUP_READS: Final = 0o040

# An ACL as the kernel gives it: a version, then an entry of tag, permissions and id each
# (linux/posix_acl_xattr.h).
_ACL: Final = "system.posix_acl_access"
_ACL_VERSION, _ACL_ENTRY = struct.Struct("<I"), struct.Struct("<HHI")
_USER_OBJ, _USER, _GROUP_OBJ, _MASK, _OTHER = 0x01, 0x02, 0x04, 0x10, 0x20


def credentials_folder() -> Path:
    """Where the credentials of the unit are, if there are any."""
    return Path(os.environ.get(FOLDER_VARIABLE) or UNIT_FOLDER)


def credential_path(name: str) -> Path:
    """Where the credential of this name is; raises ValueError for what is no name of one."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{CREDENTIAL_PREFIX}{name} names no credential; write the name that LoadCredential= "
            "in the unit has before its colon"
        )
    return credentials_folder() / name


def is_credential(path: Path) -> bool:
    """Whether a path is of a credential."""
    return path.parent == credentials_folder()


def cure_for_missing(path: Path) -> str | None:
    """What to do about a credential that is not there; None for the path of any other file."""
    if not is_credential(path):
        return None
    return f"name it in the unit, by LoadCredential={path.name}:FILE, and start the node by systemd"


def is_open(path: Path, descriptor: int) -> bool:
    """Whether others than the owner of an open file, or the unit it was made for, may use it.

    Raises OSError.
    """
    status = os.fstat(descriptor)
    if not status.st_mode & _OTHERS:
        return False
    if not is_credential(path):
        return True
    folder = path.parent.stat()
    owners = (0, os.geteuid())
    by_acl = status.st_mode & _OTHERS == _GROUP_READS and not folder.st_mode & 0o027
    if not by_acl or status.st_uid not in owners or folder.st_uid not in owners:
        return True
    return not _lets_one_user_read(descriptor)


def _lets_one_user_read(descriptor: int) -> bool:
    """Whether the ACL of an open file lets one user read beside its owner, and no group."""
    try:
        acl = os.getxattr(descriptor, _ACL)
    except (OSError, AttributeError):  # it has none; the system knows none
        return False
    entries = list(_ACL_ENTRY.iter_unpack(acl[_ACL_VERSION.size :]))
    shut = all(not rights for tag, rights, _ in entries if tag in (_GROUP_OBJ, _OTHER))
    tags = sorted(tag for tag, _, _ in entries)
    return shut and tags == [_USER_OBJ, _USER, _GROUP_OBJ, _MASK, _OTHER]
