"""Where a snapshot may be put: looked at before a node, or a command without one, takes it."""

from __future__ import annotations

import os
from pathlib import Path

from hyperbloom.api.problems import Problem, bad_request
from hyperbloom.errors import ErrorKind

__all__ = ["snapshot_target"]


def snapshot_target(text: str) -> Path:
    """The new folder for a snapshot: one that is not there, in a folder that is.

    Raises `Problem`: CONFLICT where something is there, else BAD_REQUEST.
    """
    target = Path(text)
    if not target.is_absolute():
        raise bad_request("target must be an absolute path")
    if "\0" in text:
        raise bad_request("no path holds a NUL")
    if os.path.lexists(target):
        raise Problem(ErrorKind.CONFLICT, f"{target} exists already; name a new folder")
    if not target.parent.is_dir():
        raise bad_request(f"there is no folder {target.parent} to put the snapshot in; make it")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise bad_request(f"the snapshot's writer may not write into the folder {target.parent}")
    return target
