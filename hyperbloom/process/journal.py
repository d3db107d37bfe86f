"""The log as entries of systemd's journal, each with fields to search by.

    journalctl -u hyperbloom FEED=2c6cd0b6…
    journalctl -u hyperbloom PEER_KEY=8f3a…  -p warning

An entry is one datagram to the journal's socket (systemd.io/JOURNAL_NATIVE_PROTOCOL): fields as
`NAME=text` lines, or, where the text holds a line end, `NAME`, a line end, the text's length as
eight bytes little-endian, the text and a line end. So no text can bring in a field of its own. One
too large for a datagram goes as a sealed file in memory.

The keywords of an event become fields, as far as they are texts and numbers: byte strings, which
may be values, never do. What the journal does not take goes to the fallback, an ordinary log.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct
from array import array
from collections.abc import Iterable, Mapping
from typing import IO, Any

from twisted.logger import ILogObserver, LogEvent, LogLevel, eventAsText
from zope.interface import implementer

from hyperbloom.process.event_fields import event_fields

__all__ = ["JOURNAL_SOCKET", "JournalObserver", "encode_fields", "is_journal", "journal_fields"]

JOURNAL_SOCKET = "/run/systemd/journal/socket"
IDENTIFIER = "hyperbloom"

#: Room asked for in the socket, so that a burst is taken without waiting (as sd-journal does).
SEND_BUFFER_BYTES = 8_388_608

#: syslog(3) priorities.
_PRIORITIES = {
    LogLevel.debug: 7,
    LogLevel.info: 6,
    LogLevel.warn: 4,
    LogLevel.error: 3,
    LogLevel.critical: 2,
}
_OWN_FIELDS = frozenset({"MESSAGE", "PRIORITY", "SYSLOG_IDENTIFIER", "LOGGER"})


def is_journal(stream: IO[Any] | None, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether what is written to `stream` goes to the journal (JOURNAL_STREAM, systemd.exec(5))."""
    named = environment.get("JOURNAL_STREAM", "")
    if stream is None or not named:
        return False
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return named == f"{found.st_dev}:{found.st_ino}"


def journal_fields(event: LogEvent) -> list[tuple[str, str]]:
    """The fields of one event: the message first, then the keywords in upper case."""
    text = eventAsText(event, includeTimestamp=False, includeSystem=False)
    fields = [
        ("MESSAGE", text),
        ("PRIORITY", str(_PRIORITIES.get(event.get("log_level"), 6))),
        ("SYSLOG_IDENTIFIER", IDENTIFIER),
        ("LOGGER", str(event.get("log_namespace", "-"))),
    ]
    for name, value in event_fields(event):
        field = name.upper()
        if field not in _OWN_FIELDS and _is_field_name(field):
            fields.append((field, str(value)))
    return fields


def _is_field_name(name: str) -> bool:
    return (
        name.isascii()
        and name.replace("_", "").isalnum()
        and not name.startswith("_")
        and not name[:1].isdigit()
        and len(name) <= 64
    )


def encode_fields(fields: Iterable[tuple[str, str]]) -> bytes:
    """The datagram that holds the fields."""
    parts: list[bytes] = []
    for name, value in fields:
        text = value.encode("utf-8", "backslashreplace")
        if b"\n" in text:
            parts += [name.encode(), b"\n", struct.pack("<Q", len(text)), text, b"\n"]
        else:
            parts += [name.encode(), b"=", text, b"\n"]
    return b"".join(parts)


@implementer(ILogObserver)
class JournalObserver:
    """Writes events to the journal at `path`; what it does not take goes to `fallback`.

    Never waits for the journal: an entry that finds its queue full goes to the fallback as well.
    """

    def __init__(self, fallback: ILogObserver, path: str = JOURNAL_SOCKET) -> None:
        self._fallback = fallback
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)

    def __call__(self, event: LogEvent) -> None:
        """Called by Twisted's logger, in any thread."""
        datagram = encode_fields(journal_fields(event))
        try:
            self._socket.sendto(datagram, self._path)
        except OSError as error:
            # ENOBUFS: larger than the socket's buffer.
            too_large = error.errno in (errno.EMSGSIZE, errno.ENOBUFS)
            if not (too_large and self._send_file(datagram)):
                self._fallback(event)

    def _send_file(self, datagram: bytes) -> bool:
        descriptor = os.memfd_create("journal", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            with open(descriptor, "wb", closefd=False) as file:
                file.write(datagram)
            fcntl.fcntl(
                descriptor,
                fcntl.F_ADD_SEALS,
                fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL,
            )
            # socket.send_fds knows no address.
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [descriptor]))
            self._socket.sendmsg([], [rights], 0, self._path)
        except OSError:
            return False
        finally:
            os.close(descriptor)
        return True
