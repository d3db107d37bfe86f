"""The control socket: found by clients, and made so that nobody else can ever connect to it.

A Unix socket's address holds about 107 bytes. A longer path is reached through the folder's open
descriptor (`/proc/self/fd/N/name`), which Linux resolves to the same place.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from hyperbloom.errors import ErrorKind, HyperbloomError

__all__ = [
    "SocketBusy",
    "SocketError",
    "connect_unix",
    "free_unix",
    "private_files",
    "unix_address",
]

#: Below the 108 bytes (with a final NUL) of sockaddr_un on Linux and 104 elsewhere.
MAX_ADDRESS_BYTES = 100
#: A live node answers a connect at once; a full queue counts as alive after this long.
PROBE_SECONDS = 1.0


class SocketError(HyperbloomError):
    """The control socket cannot be made; the message is one sentence that says what to do."""

    kind = ErrorKind.BAD_CONFIG


class SocketBusy(SocketError):
    """A living process listens on the control socket."""

    kind = ErrorKind.BUSY


@contextlib.contextmanager
def unix_address(path: Path) -> Iterator[str]:
    """An address of `path` that fits, good while the context is open.

    Raises `OSError` ENAMETOOLONG where there is none.
    """
    if len(os.fsencode(path)) <= MAX_ADDRESS_BYTES:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if not os.path.isdir(f"/proc/self/fd/{folder}"):
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), str(path))
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def connect_unix(path: Path, timeout: float | None) -> socket.socket:
    """A connected stream socket; raises `OSError` (`ConnectionRefusedError`: nobody listens)."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout)
        with unix_address(path) as address:
            connection.connect(address)
    except BaseException:
        connection.close()
        raise
    return connection


def free_unix(path: Path) -> None:
    """Makes sure that `path` can be bound: the socket of a process that is gone is removed.

    Raises `SocketBusy` when a living process listens there, `SocketError` when something else is in
    the way.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise SocketError(f"{path} is in the way: it is not a socket; move it somewhere else")
    try:
        connect_unix(path, PROBE_SECONDS).close()
    except ConnectionRefusedError:
        path.unlink(missing_ok=True)
        return
    except PermissionError:
        raise SocketBusy(f"{path} belongs to another user; stop the node that uses it") from None
    except OSError:
        pass  # a process that is too busy to take the connection is alive all the same
    raise SocketBusy(
        f"a node already runs on this data folder: it listens on {path}; stop it first"
    )


@contextlib.contextmanager
def private_files() -> Iterator[None]:
    """Files made in this context have mode 0600 from their first moment.

    The mask belongs to the process: what other threads make meanwhile comes out as narrow.
    """
    before = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(before)
