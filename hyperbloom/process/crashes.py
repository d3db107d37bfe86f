"""What a process that died of a fatal error leaves for the next one to say.

LMDB ends the process when it meets a page that cannot be one (an assertion, SIGABRT), and so does
the system for a page that the disk cannot give (SIGBUS). No exception tells of that. Python's fault
handler writes where each thread was into a file, and the next start of the node puts that into the
log, with what to do.
"""

from __future__ import annotations

import faulthandler
import os
from pathlib import Path

from twisted.logger import Logger

__all__ = ["CRASH_FILE", "MAX_CRASH_BYTES", "CrashFile"]

CRASH_FILE = "crash.log"
"""Beside the store's file; empty unless the last run crashed."""
MAX_CRASH_BYTES = 65_536
"""Of what crashes left, the newest; a start that crashes again and again adds some KB each time."""
_STORE_CODE = os.path.join("hyperbloom", "store")

log = Logger()


class CrashFile:
    """The file in a store's folder that fatal errors of this process are written to."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / CRASH_FILE
        self._descriptor = -1

    def arm(self) -> None:
        """Say what the last run left, and have this one leave it too.

        Nothing is done where the folder is not there yet or the file cannot be made.
        """
        if self._descriptor >= 0:
            return
        try:
            self._descriptor = os.open(
                self._path,
                os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW,
                0o600,
            )
        except OSError:
            return
        self._say(self._left())
        faulthandler.enable(self._descriptor, all_threads=True)

    def clear(self) -> None:
        """The node runs and owns the folder: what was left is said and done with."""
        if self._descriptor >= 0:
            os.ftruncate(self._descriptor, 0)

    def _left(self) -> str:
        size = os.fstat(self._descriptor).st_size
        start = max(0, size - MAX_CRASH_BYTES)
        return os.pread(self._descriptor, MAX_CRASH_BYTES, start).decode("utf-8", "replace").strip()

    def _say(self, text: str) -> None:
        if not text:
            return
        if _STORE_CODE in text:
            log.critical(
                "The last run of this node was ended by a fatal error while it used the store: "
                "a page of {file} may be damaged, or the disk did not give it. Look with "
                "`hyperbloom verify`; if it names problems, stop the node and restore a snapshot "
                "(`hyperbloom restore SNAPSHOT --replace`). Where it was:\n{text}",
                file=str(self._path.with_name("data.mdb")),
                text=text,
            )
        else:
            log.critical(
                "The last run of this node was ended by a fatal error. Where it was:\n{text}",
                text=text,
            )
