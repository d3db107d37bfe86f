"""A passphrase from a file that only its owner may read."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from hyperbloom.credentials import cure_for_missing, is_open
from hyperbloom.errors import ErrorKind, HyperbloomError

__all__ = ["MAX_PASSPHRASE_BYTES", "PassphraseError", "load_passphrase"]

MAX_PASSPHRASE_BYTES: Final = 1_024
"""More than anybody types; the file is not read beyond it."""


class PassphraseError(HyperbloomError):
    """The file cannot be used; the message says why and what to do."""

    kind = ErrorKind.BAD_CONFIG


def load_passphrase(path: Path, *, what: str = "passphrase") -> str:
    """The one line of the file, without its line feed; `what` it holds is for the messages.

    Raises `PassphraseError` when the file is missing, is no regular file, may be read or written by
    others than its owner (but see `hyperbloom.credentials`), or does not hold one line of UTF-8.
    """
    try:
        # Without O_NONBLOCK, opening a FIFO would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        cure = cure_for_missing(path) or "make it, or correct its path in the configuration"
        raise PassphraseError(
            f"the {what} file {path} cannot be read ({error.strerror}); {cure}"
        ) from None
    try:
        _check_mode(path, descriptor, what)
        data = os.read(descriptor, MAX_PASSPHRASE_BYTES + 2)
    finally:
        os.close(descriptor)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise PassphraseError(f"the {what} file {path} is not UTF-8 text") from None
    line = text.removesuffix("\n").removesuffix("\r")
    if not line or "\n" in line or len(line.encode()) > MAX_PASSPHRASE_BYTES:
        raise PassphraseError(
            f"the {what} file {path} must hold one line of 1 to {MAX_PASSPHRASE_BYTES} bytes"
        )
    return line


def _check_mode(path: Path, descriptor: int, what: str) -> None:
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        raise PassphraseError(f"{path} is not a regular file; give the path of a {what} file")
    if is_open(path, descriptor):
        raise PassphraseError(
            f"the {what} file {path} is open to others than its owner "
            f"(mode {stat.S_IMODE(mode):04o}); run chmod 600 on it, and take another {what} if "
            "somebody may have read it"
        )
