"""Executors of a cluster: what they are sent, what they have to see, and when none is left.

An executor runs tasks on another machine, by a Python of that machine. It is sent this package, for
a release of its own might write other tables. It opens snapshots and writes files itself, so it has
to see their folders at the same paths; one that does not says so before a file is written.
"""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import time
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import hyperbloom
from hyperbloom.export.engines.engine import Files
from hyperbloom.export.engines.interrupts import deferred
from hyperbloom.export.errors import ExportError
from hyperbloom.store.backup.snapshot import SNAPSHOT_FILE
from hyperbloom.store.lmdb.environment import DATA_FILE

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["Executors", "Landmark", "refusal", "unseen"]

TIMEOUT_SETTING: Final = "spark.hyperbloom.executorTimeout"
"""How long an export goes on without any executor; a setting of the Spark session."""
_TIMEOUT: Final = "300s"
_SETTLED_SECONDS: Final = 1.0
_SETTLING_SECONDS: Final = 15.0
_POLL_SECONDS: Final = 0.1
_WATCH_SECONDS: Final = 1.0
_YOUNG_SECONDS: Final = 30
_EARLIEST_OF_ZIP: Final = (1980, 1, 1, 0, 0, 0)


class Executors:
    """The executors of a session on a cluster. Raises ExportError where there are none."""

    def __init__(self, context: SparkContext) -> None:
        self._context: Any = context
        with deferred():
            scala = self._context._jsc.sc()
            self._tracker = scala.statusTracker()
            self._timeout = scala.conf().getTimeAsSeconds(TIMEOUT_SETTING, _TIMEOUT)
            self._come_when_asked = scala.conf().getBoolean(
                "spark.dynamicAllocation.enabled", False
            )
        self._alone_since: float | None = None
        self._watched_at = 0.0

    def send_package(self) -> None:
        """Have them import this package as it is here."""
        package = Path(hyperbloom.__file__).parent
        if not package.is_dir():
            # It came in an archive (spark-submit --py-files), which executors have got as well.
            return
        with deferred():
            # Executors fetch it as long as the session lasts, and this folder does.
            archive = _archive(package, Path(self._context._temp_dir))
            if archive.name not in self._context._python_includes:
                self._context.addPyFile(str(archive))

    def wait(self) -> None:
        """Until some are there and, in a session that has just begun, no more come."""
        if self._come_when_asked:
            return
        while not self.count():
            self.watch()
            time.sleep(_POLL_SECONDS)
        if time.time() - self._context.startTime / 1000 > _YOUNG_SECONDS:
            return
        known, last = 0, time.monotonic()
        latest = last + _SETTLING_SECONDS
        while time.monotonic() < min(latest, last + _SETTLED_SECONDS):
            if (found := self.count()) != known:
                known, last = found, time.monotonic()
            time.sleep(_POLL_SECONDS)

    def count(self) -> int:
        """How many there are now."""
        with deferred():
            # This process is among them.
            return len(self._tracker.getExecutorInfos()) - 1

    def watch(self) -> None:
        """Called again and again; raises once there have been none for long, for Spark waits on."""
        now = time.monotonic()
        if now - self._watched_at < _WATCH_SECONDS:
            return
        self._watched_at = now
        if self.count():
            self._alone_since = None
            return
        if self._alone_since is None:
            self._alone_since = now
        if now - self._alone_since >= self._timeout:
            raise ExportError(
                f"no executor has been there for {self._timeout} seconds, the tables are as they "
                f"were; look at the cluster of {self._context.master}, then run it again "
                f"({TIMEOUT_SETTING} says how long to wait)"
            )


def _archive(package: Path, folder: Path) -> Path:
    """This package as an archive in that folder, whose name tells what it holds."""
    files = sorted(
        path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    )
    digest = hashlib.sha256()
    contents = []
    for path in files:
        name, content = path.relative_to(package.parent).as_posix(), path.read_bytes()
        digest.update(f"{name} {len(content)}\n".encode() + content)
        contents.append((zipfile.ZipInfo(name, _EARLIEST_OF_ZIP), content))
    archive = folder / f"hyperbloom-{digest.hexdigest()[:16]}.zip"
    if not archive.exists():
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as written:
            for info, content in contents:
                written.writestr(info, content, zipfile.ZIP_DEFLATED)
    return archive


# What they have to see


@dataclass(frozen=True, slots=True, kw_only=True)
class Landmark:
    """By what a machine knows a snapshot: it may have another one at the same path.

    ``digest`` is the SHA-256 of the snapshot's description of itself.
    """

    snapshot: Path
    digest: bytes

    @classmethod
    def of(cls, snapshot: Path) -> Landmark:
        """The landmark of a snapshot on this machine."""
        return cls(snapshot=snapshot, digest=_digest(snapshot))


def _digest(snapshot: Path) -> bytes:
    return hashlib.sha256((snapshot / SNAPSHOT_FILE).read_bytes()).digest()


def unseen(landmarks: Iterable[Landmark], files: Files) -> str | None:
    """On an executor: what it does not see of these snapshots, and of where files are written.

    A sentence; None if it sees all.
    """
    found = next(filter(None, map(_unseen, landmarks)), None) or _unwritable(files)
    return found and f"the executor on {os.uname().nodename} (user {_user()}) {found}"


def _unseen(mark: Landmark) -> str | None:
    try:
        if _digest(mark.snapshot) != mark.digest:
            return f"has another snapshot at {mark.snapshot}; {_CURE}"
        (mark.snapshot / DATA_FILE).open("rb").close()
    except (FileNotFoundError, NotADirectoryError):
        return f"does not see {mark.snapshot}; {_CURE}"
    except OSError as error:
        return f"cannot read {mark.snapshot}: {error.strerror}; have executors run as who may"
    return None


def _unwritable(files: Files) -> str | None:
    place = files.place
    try:
        if files.sign is not None:
            place.parent.check_seen(files.sign)
    except ExportError as error:
        return f"says: {error}"
    if place.is_mounted and not os.access(str(place), os.W_OK | os.X_OK):
        return f"may not write into {place}; have executors run as who may"
    return None


_CURE: Final = "put it on a file system that all executors see at the same path"


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def refusal(sentence: str) -> str:
    """What a task answers that did not begin (tasks.py)."""
    return json.dumps({"failure": "ExportError", "sentence": sentence})
