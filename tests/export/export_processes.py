"""Processes that exports have started, found in /proc."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def of_session(number: int) -> list[int]:
    """The processes of a session that run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[3]) == number and fields[0] != "Z":
                found.append(int(path.parent.name))
    return found


def state_of(pid: int) -> str:
    """The letter for what a process does, such as S, T or Z; an empty text if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return text.rpartition(")")[2].split()[0]
